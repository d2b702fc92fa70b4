"""Find an AITER tree and read its files, without ever importing it.

A tree is what holds ``aiter/configs``: an installed distribution, a folder, a git checkout or a wheel file. Importing
AITER would run ``rocminfo``, merge tables into a shared temporary folder and may rewrite the installed CSVs, so this
module only lists and reads. Nothing is ever written and every read has a size cap. What a folder on disk may link to is
foldertree.py's business, how a wheel is read wheel.py's.

Where things are: a checkout has ``csrc`` and ``hsa`` at its root, an installed wheel under ``aiter_meta``; the file
``aiter/install_mode`` says which of the two AITER itself would take (aiter/jit/core.py:447-467, v0.1.20.post1).
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence

from moe_preflight.aiter.version import Version
from moe_preflight.errors import FileUnreadable, TreeUnavailable, UsageError

MAX_FILE = 16 << 20
"""Bytes. The largest CSV AITER ships has 1.5 MB, its largest source 1 MB; more than this is not one of its files."""
MAX_TOTAL = 192 << 20
"""Bytes read out of one tree. All CSV files and sources this tool looks at come to 11 MB in v0.1.20.post1; a tree that goes on and
on, or a wheel that unpacks to a thousand times its size, ends here."""
MAX_NAMES = 200_000
"""Names one listing may return before the folder is taken to be something else."""
MAX_DEPTH = 24

INSTALL_HINT = "Install AMD's distribution with: pip install --pre amd-aiter; or give --aiter DIR or WHEEL."

_METADATA = re.compile(r"amd[_-]aiter(?:-(?P<version>[^-]+))?(?:-.*)?\.(?:dist-info|egg-info|egg-link)\Z", re.I)
_FOREIGN = re.compile(r"aiter-(?P<version>[^-]+)(?:-.*)?\.(?:dist-info|egg-info)\Z", re.I)
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.*\.whl\Z", re.I)
_ASSIGNED_VERSION = re.compile(r"^(?:__version__|version)\s*(?::[^=\n]*)?=.*?['\"]([^'\"\n]{1,80})['\"]", re.M)
_METADATA_VERSION = re.compile(r"^Version:[ \t]*(\S{1,80})", re.M)


def read_regular(path: str, limit: int = MAX_FILE, *, name: str | None = None) -> bytes:
    """The bytes of the regular file at ``path``, at most ``limit`` of them.

    Follows a symbolic link at ``path``; refuses folders, pipes, sockets and devices without opening them. Raises
    FileUnreadable naming ``name`` (default ``path``) and the reason.
    """
    shown = path if name is None else name
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileUnreadable(shown, "not a regular file")
        # O_NONBLOCK: were the file swapped for a pipe since, open() must not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise FileUnreadable(shown, "not a regular file")
            if info.st_size > limit:
                raise FileUnreadable(shown, f"{info.st_size} bytes, more than the {limit} this tool reads")
            data = os.read(fd, info.st_size + 1)
            while len(data) < info.st_size and (more := os.read(fd, info.st_size + 1 - len(data))):
                data += more
            return data[:limit]
        finally:
            os.close(fd)
    except OSError as e:
        raise FileUnreadable(shown, (e.strerror or "cannot be read").lower()) from None
    except ValueError:
        raise FileUnreadable(shown, "not a file name") from None


class Tree:
    """A place that holds AITER's files. Names are POSIX paths relative to ``root``.

    ``root`` is printed in reports. ``found_by`` is in words ("installed distribution amd-aiter"), ``kind`` is
    installed, folder, checkout or wheel. ``version`` is None when the tree does not say; ``version_source`` says who
    answered. ``unreadable`` collects (name, reason) of folders a listing could not enter.
    """

    root: str
    kind: str
    found_by: str
    version: Version | None = None
    version_source: str = ""
    configs_prefix: str = "aiter/configs"
    hsa_prefix: str = "hsa"
    csrc_prefix: str = "csrc"
    unreadable: list[tuple[str, str]]

    def names(self, under: str, suffix: str = "") -> list[str]:
        """Sorted names of all files below folder ``under`` that end with ``suffix``; empty when there is no such folder."""
        raise NotImplementedError

    def read_bytes(self, name: str, limit: int = MAX_FILE) -> bytes:
        """Content of one file. Raises FileUnreadable when absent, not regular, too large or outside the tree."""
        raise NotImplementedError

    _left: int = MAX_TOTAL

    def _spend(self, name: str, data: bytes) -> bytes:
        """``data``, counted against what one tree may make us read."""
        self._left -= len(data)
        if self._left < 0:
            raise FileUnreadable(name, f"the tree has more than the {MAX_TOTAL >> 20} MiB this tool reads of one")
        return data

    def exists(self, name: str) -> bool:
        """Whether ``name`` is a file or folder of the tree."""
        raise NotImplementedError

    def locate(self, name: str) -> str:
        """Where a reader finds ``name``: an absolute path, or ``WHEEL!name`` inside a wheel."""
        raise NotImplementedError

    def read_text(self, name: str, limit: int = MAX_FILE) -> str:
        """As read_bytes(), decoded as UTF-8; raises FileUnreadable when it is not."""
        try:
            return self.read_bytes(name, limit).decode("utf-8")
        except UnicodeDecodeError as e:
            raise FileUnreadable(name, f"not UTF-8 at byte {e.start}") from None

    @property
    def has_sources(self) -> bool:
        """Whether the CK code generator is there, so that tile tables can be read instead of assumed."""
        return self.exists(f"{self.csrc_prefix}/ck_gemm_moe_2stages_codegen/gen_instances.py")

    @property
    def has_python(self) -> bool:
        """Whether the Python dispatch is there, so that its fingerprint can be taken."""
        return self.exists("aiter/fused_moe.py")

    def _settle(self) -> None:
        """Choose the prefixes as AITER does, with the other place as a stand-in when the chosen one is not there."""
        mode = ""
        if self.exists("aiter/install_mode"):
            try:
                mode = self.read_text("aiter/install_mode", 64).strip()
            except FileUnreadable:
                mode = ""
        order = ("aiter_meta/", "") if mode == "install" else ("", "aiter_meta/")
        self.hsa_prefix = next((f"{p}hsa" for p in order if self.exists(f"{p}hsa")), "hsa")
        self.csrc_prefix = next((f"{p}csrc" for p in order if self.exists(f"{p}csrc")), "csrc")


def open_tree(spec: str = "auto", *, version: str | None = None, search: Sequence[str] | None = None) -> Tree:
    """The AITER tree that ``spec`` names: ``auto`` (the installed amd-aiter), a folder, a checkout or a wheel file.

    ``version`` is what the user says it is (``--aiter-version``); otherwise the first that answers: distribution
    metadata or wheel name, ``aiter/_version.py``, ``git describe`` of a checkout. A folder's own name is no evidence.
    ``search`` stands in for ``sys.path``.

    Raises TreeUnavailable when there is no such tree, InputError for a wheel that is not a zip archive, UsageError for
    an unreadable ``version``.
    """
    told = None
    if version is not None:
        told = Version.parse(version)
        if told is None:
            raise UsageError(f"--aiter-version {version}: not a version.", hint="Expected one such as 0.1.20.post1.")
    tree, candidates = _find(spec, search)
    if told is not None:
        candidates = iter([(told.text, "given on the command line")])
    for text, source in candidates:
        parsed = Version.parse(text)
        if parsed is not None:
            tree.version, tree.version_source = parsed, source
            break
    return tree


_Candidates = Iterator[tuple[str, str]]


def _find(spec: str, search: Sequence[str] | None) -> tuple[Tree, _Candidates]:
    if spec == "auto":
        return _installed(sys.path if search is None else search)
    path = os.path.expanduser(spec)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as e:
        why = (getattr(e, "strerror", None) or "not a path").lower()
        raise TreeUnavailable(f"--aiter {spec}: {why}.", hint="Expected a folder that holds aiter/configs, or a wheel.") from None
    if stat.S_ISDIR(mode):
        return _folder(path, spec)
    if stat.S_ISREG(mode) and path.lower().endswith(".whl"):
        return _wheel(path, spec)
    raise TreeUnavailable(
        f"--aiter {spec}: neither a folder nor a .whl file.", hint="Expected a folder that holds aiter/configs."
    )


def _on_disk(root: str, kind: str, found_by: str) -> Tree:
    from moe_preflight.aiter.foldertree import FolderTree

    return FolderTree(root, kind, found_by)


# --- an installed distribution ---------------------------------------------------------------------------------------


def _installed(search: Sequence[str]) -> tuple[Tree, _Candidates]:
    """The first amd-aiter, or module folder ``aiter`` with tables, on the search path.

    A plain listing of the path's folders: importlib.metadata would cost 20 ms for the same answer.
    """
    foreign = ""
    for entry in search:
        place = entry or "."
        try:
            listing = os.listdir(place)
        except OSError:
            continue
        metadata = next((n for n in listing if _METADATA.match(n)), None)
        if metadata is not None and (found := _from_metadata(place, metadata)):
            return found
        if "aiter" in listing and os.path.isdir(os.path.join(place, "aiter", "configs")):
            tree = _on_disk(place, "folder", "module folder aiter on the Python path")
            return tree, _versions(tree)
        if not foreign and (m := next(filter(None, map(_FOREIGN.match, listing)), None)):
            foreign = f"aiter {m['version']} in {place}"
    if foreign:
        raise TreeUnavailable(
            f"found {foreign}, which is PyPI's unrelated package of asynchronous iterators, not AMD's AITER.", hint=INSTALL_HINT
        )
    raise TreeUnavailable("no AITER tree: the distribution amd-aiter is not installed here.", hint=INSTALL_HINT)


def _from_metadata(place: str, metadata: str) -> tuple[Tree, _Candidates] | None:
    """The tree that metadata folder (or link) belongs to; None when its files are gone."""
    root, found_by = place, "installed distribution amd-aiter"
    if metadata.endswith(".egg-link"):
        lines = _small_text(os.path.join(place, metadata)).splitlines()
        root, found_by = (lines[0].strip() if lines else ""), "editable install of amd-aiter"
    elif not os.path.isdir(os.path.join(place, "aiter", "configs")):
        root, found_by = _editable_root(os.path.join(place, metadata)), "editable install of amd-aiter"
    if not root or not os.path.isdir(os.path.join(root, "aiter", "configs")):
        return None
    tree = _on_disk(root, "installed", found_by)
    return tree, _versions(tree, os.path.join(place, metadata))


def _editable_root(metadata: str) -> str:
    """The checkout an editable install points at, from direct_url.json (PEP 610); empty when it is none."""
    import json
    from urllib.parse import unquote, urlsplit

    try:
        direct = json.loads(_small_text(os.path.join(metadata, "direct_url.json")))
    except (ValueError, RecursionError):
        return ""
    url = direct.get("url") if isinstance(direct, dict) else None
    if not isinstance(url, str):
        return ""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else ""


def _small_text(path: str) -> str:
    try:
        return read_regular(path, 1 << 20).decode("utf-8", "replace")
    except FileUnreadable:
        return ""


# --- a folder or a checkout ------------------------------------------------------------------------------------------


def _folder(path: str, spec: str) -> tuple[Tree, _Candidates]:
    """``path`` may hold aiter/configs, or be the aiter folder itself."""
    root = path
    if not os.path.isdir(os.path.join(root, "aiter", "configs")):
        real = os.path.realpath(path)
        if os.path.basename(real) != "aiter" or not os.path.isdir(os.path.join(real, "configs")):
            raise TreeUnavailable(_no_configs(path, spec), hint="Expected a folder that holds aiter/configs, or a wheel.")
        root = os.path.dirname(real)
    checkout = os.path.exists(os.path.join(root, ".git"))
    tree = _on_disk(root, *(("checkout", "git checkout") if checkout else ("folder", "folder")))
    if not tree.exists(tree.configs_prefix):
        raise TreeUnavailable(
            f"--aiter {spec}: aiter/configs is a link to a folder of another name outside.", hint="Give the real folder."
        )
    try:
        metadata = next((n for n in os.listdir(root) if _METADATA.match(n) and not n.endswith(".egg-link")), None)
    except OSError:
        metadata = None
    return tree, _versions(tree, os.path.join(root, metadata) if metadata else None)


def _no_configs(path: str, spec: str) -> str:
    if os.path.isfile(os.path.join(path, "aiter", "__init__.py")) or os.path.isfile(os.path.join(path, "aiter.py")):
        return f"--aiter {spec}: holds a module aiter without configs, such as PyPI's unrelated package of that name."
    return f"--aiter {spec}: no aiter/configs in this folder."


# --- a wheel file ----------------------------------------------------------------------------------------------------


def _wheel(path: str, spec: str) -> tuple[Tree, _Candidates]:
    from moe_preflight.aiter.wheel import WheelTree

    m = _WHEEL.match(os.path.basename(path))
    if m and m["name"].lower() == "aiter":
        raise TreeUnavailable(
            f"--aiter {spec}: aiter {m['version']} is PyPI's unrelated package of asynchronous iterators.", hint=INSTALL_HINT
        )
    tree = WheelTree(path)
    if not tree.names(tree.configs_prefix):
        raise TreeUnavailable(f"--aiter {spec}: no aiter/configs in this wheel.", hint=INSTALL_HINT)
    return tree, _wheel_versions(tree, m["version"] if m else None)


def _wheel_versions(tree: Tree, named: str | None) -> _Candidates:
    if named:
        yield named, "wheel name"
    yield from _versions(tree)


# --- versions --------------------------------------------------------------------------------------------------------


def _versions(tree: Tree, metadata: str | None = None) -> _Candidates:
    """What the tree says its version is, best witness first. Lazy: git runs only when nothing else answered."""
    if metadata is not None:
        for inner in ("METADATA", "PKG-INFO"):
            if m := _METADATA_VERSION.search(_small_text(os.path.join(metadata, inner))):
                yield m[1], "distribution metadata"
        if (m := _METADATA.match(os.path.basename(metadata))) and m["version"]:
            yield m["version"], "distribution metadata"
    try:
        if m := _ASSIGNED_VERSION.search(tree.read_text("aiter/_version.py", 1 << 16)):
            yield m[1], "aiter/_version.py"
    except FileUnreadable:
        pass
    if os.path.exists(os.path.join(tree.root, ".git")) and (text := _git_describe(tree.root)):
        yield text, "git describe"


def _git_describe(root: str) -> str:
    """``git describe --tags`` of the checkout, or empty. Two seconds at most; touches no index and runs no hook."""
    import subprocess

    command = ["git", "-c", "core.fsmonitor=false", "-C", root, "describe", "--tags", "--match", "v[0-9]*"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


__all__ = ["INSTALL_HINT", "MAX_FILE", "Tree", "open_tree", "read_regular"]
