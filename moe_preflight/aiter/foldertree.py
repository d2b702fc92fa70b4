"""An AITER tree on disk: installed, a plain folder or a checkout; listed and read without leaving it.

A link out of the tree is followed when what it leads to has the link's own name, or that name after a store's prefix
(``configs -> /nix/store/x1y2-configs``): installers that link (uv's symlink mode, ``cp -rs``, Nix, Bazel) keep names, and
neither ``x_tuned_fmoe.csv -> /etc/passwd`` nor ``model_configs -> /home`` is one of theirs. Other links are named and left alone.
"""

from __future__ import annotations

import os
import stat

from moe_preflight.aiter.tree import MAX_DEPTH, MAX_FILE, MAX_NAMES, Tree, read_regular
from moe_preflight.errors import FileUnreadable

LEADS_OUT = "a link to a folder of another name outside the tree"


class FolderTree(Tree):
    """A folder that holds ``aiter/configs``."""

    def __init__(self, root: str, kind: str, found_by: str) -> None:
        self.root, self.kind, self.found_by = os.path.realpath(root), kind, found_by
        self.unreadable = []
        self._ours: dict[str, bool] = {"": True}
        self._settle()

    def names(self, under: str, suffix: str = "") -> list[str]:
        under = under.strip("/")
        if not _plain(under):
            return []
        if not self._is_ours(under):
            if os.path.isdir(os.path.join(self.root, under)):
                self._note(under, LEADS_OUT)
            return []
        walk = _Walk(self, suffix)
        walk.into(under, 0)
        walk.found.sort()
        return walk.found

    def _note(self, name: str, reason: str) -> None:
        if (name, reason) not in self.unreadable:
            self.unreadable.append((name, reason))

    def read_bytes(self, name: str, limit: int = MAX_FILE) -> bytes:
        if not _plain(name):
            raise FileUnreadable(name, "not a name inside the tree")
        path = os.path.join(self.root, name)
        if not self._is_ours(name.rpartition("/")[0]):
            raise FileUnreadable(name, LEADS_OUT)
        # A link to nothing, or to something special, is left to the reading, which says what it is.
        if os.path.isfile(path) and not self._is_ours(name):
            raise FileUnreadable(name, "a link to a file of another name outside the tree")
        return self._spend(name, read_regular(path, limit, name=name))

    def _is_ours(self, name: str) -> bool:
        """Whether ``name`` is below root, each link on the way being followed by the rule above. Folders' answers are kept: a
        listing asks per file."""
        known = self._ours.get(name)
        if known is None:
            folder, _, last = name.rpartition("/")
            path = os.path.join(self.root, name)
            known = self._is_ours(folder) and (not os.path.islink(path) or self._keeps(last, os.path.realpath(path)))
            self._ours[name] = known
        return known

    def _keeps(self, last: str, real: str) -> bool:
        """Whether a link called ``last`` may lead to ``real``."""
        if real == self.root or real.startswith(self.root.rstrip("/") + "/"):
            return True
        there = os.path.basename(real)
        return there == last or there.endswith(f"-{last}")

    def exists(self, name: str) -> bool:
        if not _plain(name):
            return False
        path = os.path.join(self.root, name)
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            return False
        return self._is_ours(name if stat.S_ISDIR(mode) else name.rpartition("/")[0])

    def locate(self, name: str) -> str:
        return os.path.join(self.root, name)


class _Walk:
    """One listing. Each folder a link leads to is entered once, so that loops end; what is looked at is counted, whatever it is
    called, because a link may lead to a large place."""

    def __init__(self, tree: FolderTree, suffix: str) -> None:
        self.tree, self.suffix = tree, suffix
        self.found: list[str] = []
        self._seen: set[str] = set()
        self._left = MAX_NAMES

    def into(self, under: str, depth: int) -> None:
        tree = self.tree
        if depth > MAX_DEPTH:
            tree._note(under, "too many folders in one another to list")
            return
        try:
            with os.scandir(os.path.join(tree.root, under)) as entries:
                for e in entries:
                    self._left -= 1
                    if self._left < 0:
                        tree._note(under, "too many files or folders to list")
                        return
                    name = f"{under}/{e.name}"
                    if e.is_dir(follow_symlinks=False):
                        self.into(name, depth + 1)
                    elif not e.is_symlink() or not os.path.isdir(e.path):
                        if name.endswith(self.suffix):
                            self.found.append(name)
                    elif not tree._is_ours(name):
                        tree._note(name, LEADS_OUT)
                    elif (real := os.path.realpath(e.path)) not in self._seen:
                        self._seen.add(real)
                        self.into(name, depth + 1)
        except FileNotFoundError:
            return
        except OSError as e:
            tree._note(under, (e.strerror or "cannot be listed").lower())


def _plain(name: str) -> bool:
    return bool(name) and not name.startswith("/") and "\0" not in name and ".." not in name.split("/")
