"""config.json from the hub, through huggingface_hub: token, endpoint, cache and offline variables are the library's.

One HEAD request resolves the revision to a commit; what the cache holds of that commit is read from there. The library is
imported only when the network is needed: offline, and for a commit the cache already holds, its documented cache layout
(``models--org--name/refs/<revision>`` and ``snapshots/<commit>/<file>``) is read directly, 200 ms sooner.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moe_preflight.errors import ConfigError, ModelUnavailable, PreflightError, UsageError
from moe_preflight.model.strict_json import MAX_BYTES

IMPATIENT = 1.6
"""Seconds the first answer may take when a card can stand in: the whole command must end within three without a network."""

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_ID = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?\Z", re.ASCII)
_ROOT = ("huggingface_hub", "httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")


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
        raise UsageError(f"{_short(repo_id)}: a URL is not a model.", hint="Give the id alone, such as openai/gpt-oss-120b.")
    ok = _ID.match(repo_id) and "--" not in repo_id and ".." not in repo_id and not repo_id.endswith(".git")
    if not ok or any(part[0] in "-." or part[-1] in "-." for part in repo_id.split("/")):
        raise UsageError(
            f"{_short(repo_id)}: neither a file or folder here nor a hub id.",
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


def fetch(repo_id: str, filename: str, revision: str | None, *, patience: float | None = None) -> Fetched | None:
    """The file from the hub. None: the repository has no such file.

    ``patience`` bounds the wait for the first answer (None: the library's own time-out). Raises Unreachable, or
    ModelUnavailable when the hub did answer and refused.
    """
    if revision is not None and _COMMIT.match(revision) and (found := cached(repo_id, filename, revision)):
        return found
    try:
        head = _patiently(lambda: _head(repo_id, filename, revision, patience), patience)
    except _no_such_file():
        return None
    commit, size = head.commit_hash, head.size
    if commit is None:
        raise Unreachable("what answered is no hub endpoint: no X-Repo-Commit header")
    if size is not None and size > MAX_BYTES:
        raise ConfigError(f"{repo_id}/{filename}: {size:,} bytes on the hub; a config is at most {MAX_BYTES:,}.")
    found = cached(repo_id, filename, revision)
    if found is not None and found.commit == commit:
        return found
    return Fetched(_calling(repo_id, revision, lambda: _download(repo_id, filename, revision)), commit)


def read_start(repo_id: str, filename: str, commit: str, start: int, length: int) -> bytes:
    """``length`` bytes of a file from ``start``, by HTTP range. A server that ignores the range is cut off after them; fewer come
    back only when the file ends."""
    return bytes(_calling(repo_id, commit, lambda: _range(repo_id, filename, commit, start, length)))


def _range(repo_id: str, filename: str, commit: str, start: int, length: int) -> bytes:
    from huggingface_hub import hf_hub_url, utils

    library: Any = utils
    headers = {**library.build_hf_headers(library_name="moe-preflight"), "range": f"bytes={start}-{start + length - 1}"}
    url = hf_hub_url(repo_id, filename, revision=commit)
    got = bytearray()
    with library.get_session().stream("GET", url, headers=headers, timeout=10.0, follow_redirects=True) as answer:
        library.hf_raise_for_status(answer)
        skip = start if answer.status_code == 200 else 0
        if skip > 1 << 20:
            raise Unreachable("the server does not answer ranges")
        for chunk in answer.iter_bytes(1 << 16):
            got += chunk
            if len(got) >= skip + length:
                break
    return bytes(got[skip : skip + length])


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


def _head(repo_id: str, filename: str, revision: str | None, patience: float | None) -> Any:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    _quiet()
    own = constants.HF_HUB_ETAG_TIMEOUT
    timeout = patience if patience is not None and own == constants.DEFAULT_ETAG_TIMEOUT else own
    url = hf_hub_url(repo_id, filename, revision=revision)
    return _calling(
        repo_id,
        revision,
        lambda: get_hf_file_metadata(url, timeout=timeout, library_name="moe-preflight", retry_on_errors=False),
    )


def _download(repo_id: str, filename: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    return str(hf_hub_download(repo_id, filename, revision=revision, library_name="moe-preflight"))


def _quiet() -> None:
    """The library's advice (no token, retries) would stand between our lines on stderr."""
    import logging

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


def _no_such_file() -> type[BaseException]:
    from huggingface_hub.errors import RemoteEntryNotFoundError

    error: type[BaseException] = RemoteEntryNotFoundError
    return error


def _patiently(call: Callable[[], Any], patience: float | None) -> Any:
    """``call()``, given up after ``patience`` seconds: a name server that does not answer is beyond any HTTP time-out."""
    if patience is None:
        return call()
    import threading

    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as e:
            outcome.append((None, e))

    from huggingface_hub import get_hf_file_metadata  # noqa: F401  (the import is not part of the wait)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(patience + 0.1)
    if not outcome:
        raise Unreachable(f"no answer within {patience:g} s")
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def _calling(repo_id: str, revision: str | None, call: Callable[[], Any]) -> Any:
    """``call()``, with the library's many errors turned into ours: refused, or unreachable."""
    from huggingface_hub import errors

    at = f" at revision {_short(revision)}" if revision else ""
    try:
        return call()
    except PreflightError:
        raise
    except errors.RemoteEntryNotFoundError:
        raise
    except errors.GatedRepoError:
        raise ModelUnavailable(
            f"{repo_id}: gated, and the hub does not let this token in.",
            hint=f"Accept its terms at https://huggingface.co/{repo_id} and set HF_TOKEN, or give a config.json file.",
        ) from None
    except errors.DisabledRepoError:
        raise ModelUnavailable(f"{repo_id}: the hub has disabled this repository.", hint="Give a config.json file.") from None
    except errors.RevisionNotFoundError:
        raise ModelUnavailable(
            f"{repo_id}: the hub has no revision {_short(revision or 'main')}.", hint="Give a branch, a tag or a full commit."
        ) from None
    except errors.RepositoryNotFoundError as e:
        raise ModelUnavailable(
            f"{repo_id}{at}: not on the hub, or private ({_status(e)}).",
            hint="Check the spelling; for a private model set HF_TOKEN (or run: hf auth login).",
        ) from None
    except errors.HfHubHTTPError as e:
        status = getattr(getattr(e, "response", None), "status_code", None)
        if status is not None and status < 500 and status not in (408, 429):
            raise ModelUnavailable(
                f"{repo_id}{at}: the hub refused ({status}).",
                hint="Check HF_TOKEN and its permissions, or give a config.json file.",
            ) from None
        raise Unreachable(f"the hub answered {status}" if status else type(e).__name__) from None
    except errors.LocalEntryNotFoundError as e:
        raise Unreachable(_why(e)) from None
    except (OSError, ValueError, RuntimeError) as e:
        raise _other(repo_id, e) from None
    except Exception as e:
        if type(e).__module__.split(".")[0] not in _ROOT:
            raise
        raise Unreachable(_why(e)) from None


def _other(repo_id: str, e: Exception) -> Exception:
    """The disk, or the network in an OSError's clothes."""
    if isinstance(e, OSError) and e.errno in (1, 13, 28, 30):  # EPERM, EACCES, ENOSPC, EROFS
        return ModelUnavailable(
            f"{repo_id}: the hub cache cannot be written ({e.strerror or e}).", hint="Set HF_HOME to a folder you can write."
        )
    return Unreachable(_why(e))


def _why(e: BaseException) -> str:
    """The innermost cause in a few words: ``ConnectError: Connection refused``."""
    while e.__cause__ is not None or e.__context__ is not None:
        e = e.__cause__ or e.__context__  # type: ignore[assignment]
    text = " ".join(str(e).split())
    return f"{type(e).__name__}: {_short(text)}" if text else type(e).__name__


def _status(e: Any) -> str:
    return f"{getattr(getattr(e, 'response', None), 'status_code', 'not found')}"


def _short(text: str) -> str:
    line = text if text.isprintable() else ascii(text)[1:-1]
    return line if len(line) <= 120 else line[:117] + "..."
