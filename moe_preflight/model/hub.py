"""config.json from the hub, through huggingface_hub: token, endpoint, cache and offline variables are the library's.

One HEAD request resolves the revision to a commit; what the cache holds of that commit is read from there. The library runs
in a process of its own (``hub_child.py``, held by ``hub_line.py``) under one deadline, and only when the network is needed:
offline, and for a commit the cache already holds, its documented cache layout (``models--org--name/refs/<revision>`` and
``snapshots/<commit>/<file>``) is read directly.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moe_preflight.errors import UsageError

if TYPE_CHECKING:
    from moe_preflight.model.hub_line import Line

IMPATIENT = 2.4
"""Seconds for everything about one model when a card or a cached copy can stand in: the whole command ends within about three."""
PATIENT = 15.0
"""Seconds when nothing can stand in, and for each header of ``--checkpoint``."""
LONGEST = 600.0

_OWN_LIMITS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_ID = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?\Z", re.ASCII)


class Unreachable(Exception):
    """No usable answer from the hub: no network, a time-out, a proxy, or a server error. ``reason`` is a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file of a repository: its path in the cache, and the commit it belongs to."""

    path: str
    commit: str | None


def check_id(repo_id: str) -> None:
    """Raises UsageError for what can be no repository id (the hub's own rules), with what it might have been."""
    if repo_id.startswith(("http://", "https://", "hf://")):
        raise UsageError(f"{short(repo_id)}: a URL is not a model.", hint="Give the id alone, such as openai/gpt-oss-120b.")
    ok = _ID.match(repo_id) and "--" not in repo_id and ".." not in repo_id and not repo_id.endswith(".git")
    if not ok or any(part[0] in "-." or part[-1] in "-." for part in repo_id.split("/")):
        raise UsageError(
            f"{short(repo_id)}: neither a file or folder here nor a hub id.",
            hint="Expected org/name, a folder with a config.json, a config.json file, or - for stdin.",
        )


def is_offline() -> bool:
    """The library's own switches (huggingface_hub/constants.py)."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")


def cached(repo_id: str, filename: str, revision: str | None) -> Fetched | None:
    """The file as the hub cache holds it, without a network and without the library."""
    repo = os.path.join(_cache_dir(), "models--" + repo_id.replace("/", "--"))
    wanted = revision or "main"
    if ".." in wanted.split("/") or os.path.isabs(wanted):
        return None
    commit = wanted
    if not _COMMIT.match(wanted):
        try:
            with open(os.path.join(repo, "refs", *wanted.split("/")), encoding="ascii") as f:
                commit = f.read(64).strip()
        except (OSError, ValueError):
            return None
        if not _COMMIT.match(commit):
            return None
    path = os.path.join(repo, "snapshots", commit, filename)
    return Fetched(path, commit) if os.path.isfile(path) else None


@dataclass(slots=True)
class Patience:
    """One deadline for all that is asked about one model: connecting, headers, bodies, redirects, second tries, every file.

    It runs from the first question, when the library is loaded. A user who sets the library's own time-outs gets at least their sum.
    """

    seconds: float
    _until: float | None = field(default=None, repr=False)

    @classmethod
    def of(cls, seconds: float) -> Patience:
        own = [int(x) for x in (os.environ.get(name, "") for name in _OWN_LIMITS) if x.isascii() and x.isdigit() and len(x) < 6]
        return cls(min(max(seconds, *own, sum(own)), LONGEST) if own else seconds)

    def left(self) -> float:
        now = time.monotonic()
        if self._until is None:
            self._until = now + self.seconds
        return max(self._until - now, 0.0)

    def gone(self) -> Unreachable:
        return Unreachable(f"no complete answer within {self.seconds:g} s")


@dataclass(slots=True)
class Asking:
    """The hub, to be asked about one model."""

    line: Line
    patience: Patience

    def fetch(self, repo_id: str, filename: str, revision: str | None) -> Fetched | None:
        """The file from the hub. None: the repository has no such file. Raises Unreachable, or ModelUnavailable /
        ConfigError when the hub did answer and refused, or sent what is too large."""
        if revision is not None and _COMMIT.match(revision) and (found := cached(repo_id, filename, revision)):
            return found
        got = self.line.ask({"do": "fetch", "repo": repo_id, "file": filename, "revision": revision}, self.patience)
        return None if "missing" in got else Fetched(str(got["path"]), str(got["commit"]))

    def read_start(self, repo_id: str, filename: str, commit: str, start: int, length: int) -> bytes:
        """``length`` bytes of a file from ``start``, by HTTP range, with a deadline of its own. A server that ignores the
        range is cut off after them; fewer come back only when the file ends."""
        from base64 import b64decode

        what = {"do": "range", "repo": repo_id, "file": filename, "revision": commit, "start": start, "length": length}
        return b64decode(str(self.line.ask(what, Patience.of(self.patience.seconds))["bytes"]))


_shared: ContextVar[list[Line] | None] = ContextVar("hub_line", default=None)


@contextmanager
def line() -> Iterator[list[Line]]:
    """One process to talk to the hub for all that is asked inside: started at the first question, gone at the end."""
    if (here := _shared.get()) is not None:
        yield here
        return
    own: list[Line] = []
    token = _shared.set(own)
    try:
        yield own
    finally:
        _shared.reset(token)
        for one in own:
            one.hang_up()


def call_ahead(models: Iterable[str], revision: str | None, offline: bool) -> None:
    """Inside ``line()``: start its process now when one of ``models`` looks as if the hub will be asked, so that the library loads while
    the caller imports and reads. A guess costs nothing but time: what is asked, and whether, is decided when the model is read."""
    shared = _shared.get()
    if shared is None or shared or offline or is_offline() or not any(_on_the_hub(m, revision) for m in models):
        return
    from moe_preflight.model.hub_line import Line

    shared.append(Line())
    with suppress(Unreachable):  # the question itself will say so
        shared[0].dial()


def _on_the_hub(model: str, revision: str | None) -> bool:
    try:
        check_id(model)
    except UsageError:
        return False
    if os.path.lexists(model):
        return False
    return revision is None or not _COMMIT.match(revision) or cached(model, "config.json", revision) is None


@contextmanager
def asking(seconds: float) -> Iterator[Asking]:
    """Ask the hub about one model, for ``seconds`` in all."""
    from moe_preflight.model.hub_line import Line

    with line() as shared:
        if not shared:
            shared.append(Line())
        yield Asking(shared[0], Patience.of(seconds))


def known_missing(repo_id: str, filename: str, commit: str) -> bool:
    """The cache remembers that this commit has no such file (``.no_exist``, as the library keeps it)."""
    return os.path.isfile(_no_exist(repo_id, filename, commit))


def remember_missing(repo_id: str, filename: str, commit: str) -> None:
    """Spares the next run a request, as ``hf_hub_download`` does. A cache that cannot be written is no error here."""
    path = _no_exist(repo_id, filename, commit)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab"):
            pass
    except OSError:
        pass


def _no_exist(repo_id: str, filename: str, commit: str) -> str:
    return os.path.join(_cache_dir(), "models--" + repo_id.replace("/", "--"), ".no_exist", commit, filename)


def _cache_dir() -> str:
    """As huggingface_hub/constants.py:160 decides it."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface"
    )
    path = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return os.path.expandvars(os.path.expanduser(path))


def short(text: str) -> str:
    line = text if text.isprintable() else ascii(text)[1:-1]
    return line if len(line) <= 120 else line[:117] + "..."
