"""An AITER wheel read in place: no unpacking, its central directory parsed once."""

from __future__ import annotations

import os
import zipfile
import zlib

from moe_preflight.aiter.tree import MAX_FILE, MAX_NAMES, Tree
from moe_preflight.errors import FileUnreadable, InputError


class WheelTree(Tree):
    """A ``.whl`` file. Only members below ``aiter`` and ``aiter_meta`` are seen; the archive stays open while in use."""

    def __init__(self, path: str) -> None:
        self.root, self.kind, self.found_by = os.path.realpath(path), "wheel", "wheel file"
        self.unreadable = []
        try:
            self._zip = zipfile.ZipFile(self.root)
            members = self._zip.NameToInfo
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as e:
            reason = getattr(e, "strerror", None) or "not a zip archive, or a damaged one"
            raise InputError(f"--aiter {path}: {reason}.", hint="Download the wheel again.") from None
        if len(members) > MAX_NAMES:
            raise InputError(f"--aiter {path}: {len(members)} members, more than any AITER wheel has.")
        self._files = [n for n in members if n.startswith(("aiter/", "aiter_meta/")) and not n.endswith("/")]
        self._files.sort()
        self._folders: set[str] | None = None
        self._settle()

    def names(self, under: str, suffix: str = "") -> list[str]:
        start = under.strip("/") + "/"
        return [n for n in self._files if n.startswith(start) and n.endswith(suffix)]

    def read_bytes(self, name: str, limit: int = MAX_FILE) -> bytes:
        info = self._zip.NameToInfo.get(name)
        if info is None:
            raise FileUnreadable(name, "no such file in the wheel")
        if (info.external_attr >> 16) & 0o170000 == 0o120000:
            raise FileUnreadable(name, "a link, not a regular file")
        try:
            with self._zip.open(info) as f:
                # The size a zip declares is only a claim: read one byte past the cap and look.
                data = f.read(limit + 1)
        except (OSError, EOFError, RuntimeError, NotImplementedError, ValueError, zipfile.BadZipFile, zlib.error) as e:
            raise FileUnreadable(name, f"damaged or not readable in the wheel ({type(e).__name__})") from None
        if len(data) > limit:
            raise FileUnreadable(name, f"more than the {limit} bytes this tool reads")
        return self._spend(name, data)

    def exists(self, name: str) -> bool:
        if name in self._zip.NameToInfo:
            return True
        if self._folders is None:
            self._folders = set()
            for n in self._files:
                while (n := n.rpartition("/")[0]) and n not in self._folders:
                    self._folders.add(n)
        return name.strip("/") in self._folders

    def locate(self, name: str) -> str:
        return f"{self.root}!{name}"
