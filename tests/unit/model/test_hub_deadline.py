"""A hub that stalls, drips, loops or floods: one deadline for the whole fetch, one line, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.hubserver import COMMIT

MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 4,
    "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336, "torch_dtype": "bfloat16",
}  # fmt: skip
BODY = json.dumps(MIXTRAL).encode()
CODE = """
import json, os, sys, threading, time
from moe_preflight.errors import PreflightError
from moe_preflight.model import hub
from moe_preflight.model.source import load
args, limits = json.loads(sys.argv[1])
if limits:
    hub.IMPATIENT, hub.PATIENT = limits
begun = time.monotonic()
try:
    m = load(**args)
    said = {"source": m.source, "text": " ".join(m.notes), "scheme": m.quantization.scheme}
except PreflightError as e:
    said = {"error": type(e).__name__, "exit": e.exit_code, "text": str(e)}
said["seconds"] = time.monotonic() - begun
said["threads"] = threading.active_count()
try:
    os.waitpid(-1, os.WNOHANG)
    said["children"] = True
except ChildProcessError:
    said["children"] = False
print(json.dumps(said))
"""

Send = Callable[[bytes], None]
Phase = Callable[[str, str, Send], None]
"""What the server does with (method, file); returning closes the connection."""


def _head(status: str = "200 OK", size: int | None = len(BODY), *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"X-Repo-Commit: {COMMIT}", 'ETag: "abc"', "Connection: close", *more]
    return "\r\n".join([*lines, *([] if size is None else [f"Content-Length: {size}"]), "", ""]).encode()


def _for_ever(send: Send, byte: bytes = b"") -> None:
    while True:
        time.sleep(0.2)
        if byte:
            send(byte)


def accept_only(method: str, file: str, send: Send) -> None:
    _for_ever(send)


def drip_headers(method: str, file: str, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _for_ever(send, b"a")


def _then(after: Phase) -> Phase:
    """HEAD is answered as it should be; GET gets the fault."""

    def phase(method: str, file: str, send: Send) -> None:
        if method == "HEAD":
            send(_head())
        else:
            after(method, file, send)

    return phase


def honest(method: str, file: str, send: Send) -> None:
    if file == "config.json":
        send(_head() + (BODY if method == "GET" else b""))
    else:
        send(_head("404 Not Found", 0, "X-Error-Code: EntryNotFound"))


def _headers_only(method: str, file: str, send: Send) -> None:
    send(_head())
    _for_ever(send)


def _half(method: str, file: str, send: Send) -> None:
    send(_head() + BODY[: len(BODY) // 2])
    _for_ever(send)


def _drip(method: str, file: str, send: Send) -> None:
    send(_head(size=10_000))
    _for_ever(send, b" ")


def _cut(method: str, file: str, send: Send) -> None:
    send(_head() + BODY[: len(BODY) // 2])


def _busy(method: str, file: str, send: Send) -> None:
    send(_head("429 Too Many Requests", 0, "Retry-After: 3600"))


def _down(method: str, file: str, send: Send) -> None:
    send(_head("503 Service Unavailable", 0))


def loop(method: str, file: str, send: Send) -> None:
    send(_head("307 Temporary Redirect", 0, f"Location: /org/m/resolve/main/{file}"))


def far_loop(method: str, file: str, send: Send) -> None:
    send(_head("302 Found", 0, f"Location: http://localhost:9/org/m/resolve/main/{file}"))


PHASES: dict[str, tuple[Phase, str]] = {
    "accepts only": (accept_only, "no complete answer within"),
    "headers drip": (drip_headers, "no complete answer within"),
    "headers only": (_then(_headers_only), "no complete answer within"),
    "half a body": (_then(_half), "no complete answer within"),
    "body drips": (_then(_drip), "no complete answer within"),
    "body ends early": (_then(_cut), "could not be reached"),
    "redirects in a ring": (loop, "could not be reached"),
    "redirects to nowhere": (far_loop, "could not be reached"),
    "5xx": (_down, "the hub answered 503"),
    "5xx for the body": (_then(_down), "could not be reached"),
    "429, later": (_busy, "the hub answered 429"),
    "429 for the body": (_then(_busy), "could not be reached"),
}


@contextmanager
def serving(phase: Phase) -> Iterator[str]:
    """A loopback server that reads one request a connection and does what the phase does."""
    door = socket.create_server(("127.0.0.1", 0), backlog=16)

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and (more := connection.recv(65536)):
                request += more
            method, path, *_ = request.split(b" ", 2) if request else (b"", b"")
            phase(method.decode(), path.decode().rsplit("/", 1)[-1], connection.sendall)

    def doorman() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=(door.accept()[0],), daemon=True).start()

    threading.Thread(target=doorman, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        door.close()


def ask(url: str, folder: Path, model: str, *, limits: tuple[float, float] | None = (1.0, 1.5), **more: Any) -> dict[str, Any]:
    cards = folder / "cards"
    cards.mkdir(exist_ok=True)
    (cards / "org__carded.json").write_text(json.dumps(MIXTRAL))
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING")) and "proxy" not in k.lower()}
    env = {**keep, "HF_ENDPOINT": url, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", **more}
    what = json.dumps([{"model": model, "card_dir": str(cards)}, limits])
    done = subprocess.run(
        [sys.executable, "-c", CODE, what], env=env, capture_output=True, text=True, timeout=60, cwd=folder, check=True
    )
    assert done.stderr == ""
    said: dict[str, Any] = json.loads(done.stdout)
    assert "\n" not in said["text"]
    assert (said["threads"], said["children"]) == (1, False)
    return said


START_UP = 8.0
"""What a loaded machine may take to start the child; the waits themselves are 1 and 1.5 s, an unbounded one 10 s and more."""


@pytest.mark.parametrize("name", PHASES)
def test_a_card_stands_in_when_the_deadline_is_over(tmp_path: Path, name: str) -> None:
    phase, reason = PHASES[name]
    with serving(phase) as url:
        said = ask(url, tmp_path, "org/carded")
    assert said["source"] == "bundled"
    assert reason in said["text"]
    assert said["seconds"] < 1.0 + START_UP


@pytest.mark.parametrize("name", PHASES)
def test_without_a_card_the_longer_deadline_ends_it_in_one_line(tmp_path: Path, name: str) -> None:
    phase, reason = PHASES[name]
    with serving(phase) as url:
        said = ask(url, tmp_path, "org/m")
    assert (said["error"], said["exit"]) == ("ModelUnavailable", 3)
    assert reason in said["text"]
    assert reason != "no complete answer within" or "within 1.5 s" in said["text"]
    assert said["seconds"] < 1.5 + START_UP


def test_a_cached_copy_is_a_stand_in_too(tmp_path: Path) -> None:
    with serving(honest) as url:
        assert ask(url, tmp_path, "org/m")["source"] == "hub"
    with serving(accept_only) as url:
        said = ask(url, tmp_path, "org/m")
    assert (said["source"], "within 1 s" in said["text"], "read from the hub cache" in said["text"]) == ("hub", True, True)


def test_the_file_beside_the_config_shares_the_deadline(tmp_path: Path) -> None:
    def phase(method: str, file: str, send: Send) -> None:
        if file == "config.json":
            send(_head() + (BODY if method == "GET" else b""))
        else:
            _for_ever(send)

    with serving(phase) as url:
        said = ask(url, tmp_path, "org/m")
    assert (said["source"], "hf_quant_config.json could not be looked for" in said["text"]) == ("hub", True)
    assert said["seconds"] < 1.5 + START_UP


def test_what_is_sent_as_the_config_is_read_as_one(tmp_path: Path) -> None:
    """A web page under the hub's own header is an answer, and a malformed one: no card may cover it."""
    page = b"<html>Welcome</html>"
    with serving(lambda m, f, send: send(_head(size=len(page)) + (page if m == "GET" else b""))) as url:
        said = ask(url, tmp_path, "org/carded")
    assert (said["error"], said["exit"], "org/carded/config.json" in said["text"]) == ("ConfigError", 2, True)


@pytest.mark.parametrize("packed", [True, False])
def test_a_flood_is_cut_off(tmp_path: Path, packed: bool) -> None:
    """300 MB of blanks, packed into 300 kB or sent as they are, where HEAD gave no size."""
    blanks = b" " * (1 << 20)
    bomb = gzip.compress(blanks * 300, 9)

    def phase(method: str, file: str, send: Send) -> None:
        if method == "HEAD":
            send(_head(size=None))
        elif packed:
            send(_head("200 OK", len(bomb), "Content-Encoding: gzip") + bomb)
        else:
            send(_head(size=None))
            for _ in range(300):
                send(blanks)

    with serving(phase) as url:
        said = ask(url, tmp_path, "org/m", limits=(20.0, 20.0))
    assert (said.get("error"), said.get("exit")) in {("ConfigError", 2), ("ModelUnavailable", 3)}
    assert sum(f.stat().st_size for f in (tmp_path / "hf").rglob("*") if f.is_file()) < 40 << 20


def test_the_users_own_time_outs_lengthen_it(tmp_path: Path) -> None:
    def phase(method: str, file: str, send: Send) -> None:
        time.sleep(1.3)
        honest(method, file, send)

    with serving(phase) as url:
        assert ask(url, tmp_path, "org/carded")["source"] == "bundled"
        assert ask(url, tmp_path, "org/carded", HF_HUB_ETAG_TIMEOUT="12")["source"] == "hub"


def test_the_real_deadlines(tmp_path: Path) -> None:
    """With a card the whole command ends in about three seconds; the wait is 2.4 of them."""
    with serving(_then(_half)) as url:
        said = ask(url, tmp_path, "org/carded", limits=None)
    assert (said["source"], "within 2.4 s" in said["text"]) == ("bundled", True)
    assert 2.3 < said["seconds"] < 2.4 + START_UP


def test_many_models_share_one_process(tmp_path: Path) -> None:
    """The library is loaded once for a list of models, and its process is gone when they are read."""
    code = (
        "import os, subprocess\n"
        "from moe_preflight.model import hub, hub_line\n"
        "from moe_preflight.model.source import load\n"
        "started = []\n"
        "begin = subprocess.Popen\n"
        "hub_line.subprocess.Popen = lambda *a, **k: started.append(1) or begin(*a, **k)\n"
        "with hub.line():\n"
        "    for name in 'abc':\n"
        "        load('org/' + name)\n"
        "try:\n    os.waitpid(-1, os.WNOHANG)\n    raise SystemExit('a child is left')\n"
        "except ChildProcessError:\n    print(len(started))\n"
    )
    with serving(honest) as url:
        env = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


AHEAD = """
import json, os, subprocess, sys
from moe_preflight.model import hub, hub_line
started = []
begin = subprocess.Popen
hub_line.subprocess.Popen = lambda *a, **k: started.append(1) or begin(*a, **k)
models, revision, offline, read = json.loads(sys.argv[1])
with hub.line():
    hub.call_ahead(models, revision, offline)
    ahead = len(started)
    if read:
        from moe_preflight.model.source import load
        for m in models:
            load(m, revision=revision)
try:
    os.waitpid(-1, os.WNOHANG)
    raise SystemExit("a child is left")
except ChildProcessError:
    print(ahead, len(started))
"""


@pytest.mark.parametrize(
    ("models", "revision", "offline", "read", "said"),
    [
        (["org/m"], None, False, True, "1 1"),
        (["here", "org/m"], None, False, False, "1 1"),
        (["org/m"], "b" * 40, False, False, "1 1"),
        (["org/m"], COMMIT, False, True, "0 0"),  # in the cache, and a commit does not change
        (["org/m"], None, True, False, "0 0"),
        (["here", "-", "./gone", "a/b/c.json", ""], None, False, False, "0 0"),
    ],
)
def test_the_process_starts_before_it_is_asked(
    tmp_path: Path, models: list[str], revision: str | None, offline: bool, read: bool, said: str
) -> None:
    """One process, started early where the hub will be asked, and none where it will not; it is gone at the end, asked or not."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text(json.dumps(MIXTRAL))
    held = tmp_path / "hf" / "hub" / "models--org--m"
    (held / "snapshots" / COMMIT).mkdir(parents=True)
    (held / "snapshots" / COMMIT / "config.json").write_bytes(BODY)
    (held / ".no_exist" / COMMIT).mkdir(parents=True)
    (held / ".no_exist" / COMMIT / "hf_quant_config.json").touch()
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))}
    with serving(honest) as url:
        done = subprocess.run(
            [sys.executable, "-c", AHEAD, json.dumps([models, revision, offline, read])], cwd=tmp_path, text=True, capture_output=True,
            env={**keep, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, said, "")


@pytest.mark.parametrize(
    ("name", "value", "model"),
    [
        ("HF_HUB_DOWNLOAD_TIMEOUT", "", "IFM/K2-Horizon-375B-A23B"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "zz", "a/b"),
        ("HF_HUB_ETAG_TIMEOUT", "1e3", "a/b"),
    ],
)
def test_a_library_that_does_not_load_is_said_at_once(name: str, value: str, model: str, tmp_path: Path) -> None:
    """huggingface_hub gives these variables to int() as it is imported, and prints on stdout before it raises."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", model, "--tp", "8", "--gpu", "mi300x", "--no-tuned", "--aiter-version", "0.1.20"],
        env={**os.environ, name: value, "HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert time.monotonic() - begun < START_UP
    assert "Traceback" not in done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "huggingface_hub cannot be loaded: ValueError" in said
    assert done.returncode == (3 if model == "a/b" else 0)
