"""The process that talks to the hub through huggingface_hub: questions as JSON lines on stdin, answers on stdout.

A process of its own because nothing less can be given up in the middle: a name server that does not answer, a body that
drips and a library that waits before it tries again all look alike from outside, and end alike when it is killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from moe_preflight.errors import ConfigError, ModelUnavailable, PreflightError
from moe_preflight.model.hub import Unreachable, cached, short
from moe_preflight.model.strict_json import MAX_BYTES

_ROOT = ("huggingface_hub", "httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")
AT_ONCE = 8


def main() -> None:
    """Answer until stdin ends. Several questions are worked on at once; answers come in any order, by number."""
    import json
    import signal
    import threading
    from queue import SimpleQueue

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it hangs up
    _bound_files()
    lock = threading.Lock()
    questions: SimpleQueue[dict[str, Any]] = SimpleQueue()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints does not print between the answers

    def say(answer: dict[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    try:
        _library()
    except Exception as e:  # a variable of its own it cannot read, half an installation
        say({"number": 0, "unreachable": f"huggingface_hub cannot be loaded: {type(e).__name__}: {e}"[:300]})
        return

    def work() -> None:
        while True:
            question = questions.get()
            say({"number": question["number"], **answer(question)})

    for _ in range(AT_ONCE):
        threading.Thread(target=work, daemon=True).start()
    say({"number": 0})
    for line in sys.stdin:
        questions.put(json.loads(line))
    os._exit(0)  # the threads may be deep in a read


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """``{"path", "commit"}``, ``{"missing"}``, ``{"bytes"}`` (base64), ``{"unreachable": reason}`` or ``{"error", "message", "hint"}``."""
    try:
        if question["do"] == "fetch":
            return _fetch(question["repo"], question["file"], question["revision"])
        return _range(question["repo"], question["file"], question["revision"], question["start"], question["length"])
    except Unreachable as e:
        return {"unreachable": e.reason}
    except PreflightError as e:
        return {"error": type(e).__name__, "message": e.message, "hint": e.hint}
    except Exception as e:
        return {"unreachable": f"{type(e).__name__} in the hub library"}


def _bound_files() -> None:
    """No file of ours may grow past what a config may be, whatever an answer unpacks to (EFBIG)."""
    try:
        import resource
    except ImportError:  # no POSIX
        return
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = MAX_BYTES + (1 << 16)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


def _library() -> None:
    """Import what will be needed. Its advice and progress bars have no reader here."""
    import logging

    from huggingface_hub import get_hf_file_metadata, hf_hub_download  # noqa: F401
    from huggingface_hub.utils.tqdm import disable_progress_bars

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    disable_progress_bars()


def _fetch(repo_id: str, filename: str, revision: str | None) -> dict[str, Any]:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import RemoteEntryNotFoundError

    url = hf_hub_url(repo_id, filename, revision=revision)
    timeout = constants.HF_HUB_ETAG_TIMEOUT
    try:
        head = _calling(
            repo_id,
            revision,
            lambda: get_hf_file_metadata(url, timeout=timeout, library_name="moe-preflight", retry_on_errors=False),
        )
    except RemoteEntryNotFoundError:
        return {"missing": True}
    commit, size = head.commit_hash, head.size
    if commit is None:
        raise Unreachable("what answered is no hub endpoint: no X-Repo-Commit header")
    if size is not None and size > MAX_BYTES:
        raise ConfigError(f"{repo_id}/{filename}: {size:,} bytes on the hub; a config is at most {MAX_BYTES:,}.")
    found = cached(repo_id, filename, revision)
    if found is not None and found.commit == commit:
        return {"path": found.path, "commit": commit}
    path = _calling(
        repo_id, revision, lambda: hf_hub_download(repo_id, filename, revision=revision, library_name="moe-preflight")
    )
    return {"path": str(path), "commit": commit}


def _range(repo_id: str, filename: str, commit: str, start: int, length: int) -> dict[str, Any]:
    from base64 import b64encode

    got = bytes(_calling(repo_id, commit, lambda: _read_range(repo_id, filename, commit, start, length)))
    return {"bytes": b64encode(got).decode()}


def _read_range(repo_id: str, filename: str, commit: str, start: int, length: int) -> bytes:
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


def _calling(repo_id: str, revision: str | None, call: Callable[[], Any]) -> Any:
    """``call()``, with the library's many errors turned into ours: refused, or unreachable."""
    from huggingface_hub import errors

    at = f" at revision {short(revision)}" if revision else ""
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
            f"{repo_id}: the hub has no revision {short(revision or 'main')}.", hint="Give a branch, a tag or a full commit."
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
    """The disk, an answer without end, or the network in an OSError's clothes."""
    if isinstance(e, OSError) and e.errno == 27:  # EFBIG: _bound_files
        return ConfigError(f"{repo_id}: what the hub sent is more than {MAX_BYTES:,} bytes; a config is at most that.")
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
    return f"{type(e).__name__}: {short(text)}" if text else type(e).__name__


def _status(e: Any) -> str:
    return f"{getattr(getattr(e, 'response', None), 'status_code', 'not found')}"


if __name__ == "__main__":
    main()
