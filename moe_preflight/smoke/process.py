"""One child process and what became of it: a time limit, bounded output, its whole process group gone afterwards. Knows nothing
of MoE. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

TAIL_LINES, TAIL_WIDTH = 30, 400
MAX_EVENT, MAX_EVENTS = 1 << 20, 1000
"""An event line longer than this is garbage, and so is everything after this many."""

REAP_S = 10.0
"""How long a killed child may take to go; one that hangs in a driver does not go at all, and is left behind."""

_TICK_S = 0.1
_STDIN_LIMIT = 60_000
"""Bytes of a pipe that can be filled before the child reads: Linux holds 64 KiB."""


@dataclass(slots=True)
class Ended:
    """``events`` are the JSON objects of its stdout; ``tail`` the last lines of everything else it printed. ``returncode`` is
    negative for a signal, None when it could not be reaped. ``garbage`` counts stdout lines that were no event."""

    returncode: int | None
    timed_out: bool
    seconds: float
    events: list[dict[str, Any]] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    garbage: int = 0


def signal_name(number: int) -> str:
    """``SIGABRT (6)``."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"


def run(
    command: Sequence[str],
    payload: Mapping[str, Any],
    *,
    timeout: float,
    env: Mapping[str, str],
    cwd: str,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Ended:
    """Run ``command`` with ``payload`` as JSON on its stdin. Its own session; the group is killed when it ends, whatever way.

    Raises OSError when it cannot be started and ValueError when the payload does not fit a pipe.
    """
    data = json.dumps(payload).encode()
    if len(data) > _STDIN_LIMIT:
        raise ValueError(f"{len(data)} bytes do not fit a pipe")
    begun = time.monotonic()
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    ended = Ended(None, False, 0.0)
    readers: dict[IO[bytes], _Lines] = {
        child.stdout: _Lines(ended, protocol=True, on_event=on_event),
        child.stderr: _Lines(ended, protocol=False),
    }
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(data)
            child.stdin.close()
        ended.timed_out = not _drain(child, readers, begun + timeout)
    finally:
        _kill_group(child)
        ended.returncode = _reap(child)
        for stream, lines in readers.items():
            _read_left(stream, lines)
            stream.close()
        ended.seconds = time.monotonic() - begun
    return ended


class _Lines:
    """Splits one stream into lines: events of the protocol are kept, of everything else the last few lines."""

    def __init__(self, ended: Ended, *, protocol: bool, on_event: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._ended, self._protocol, self._on_event, self._rest = ended, protocol, on_event, b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_EVENT:
            self._rest = self._rest[:TAIL_WIDTH]
        for line in lines:
            self._take(line)

    def close(self) -> None:
        if self._rest:
            self._take(self._rest)
        self._rest = b""

    def _take(self, line: bytes) -> None:
        event = _event(line) if self._protocol else None
        if event is not None and len(self._ended.events) < MAX_EVENTS:
            self._ended.events.append(event)
            if self._on_event is not None:
                self._on_event(event)
            return
        self._ended.garbage += self._protocol
        if text := line[: 4 * TAIL_WIDTH].decode("utf-8", "replace").rstrip()[:TAIL_WIDTH]:
            self._ended.tail.append(text)
            del self._ended.tail[:-TAIL_LINES]


def _event(line: bytes) -> dict[str, Any] | None:
    if len(line) > MAX_EVENT or not line.startswith(b"{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("event"), str) else None


def _drain(child: subprocess.Popen[bytes], readers: Mapping[IO[bytes], _Lines], deadline: float) -> bool:
    """Read both streams until the child has ended. False: the deadline came first."""
    with selectors.DefaultSelector() as selector:
        for stream, lines in readers.items():
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, lines)
        while True:
            if _has_ended(child):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not selector.get_map():
                time.sleep(min(_TICK_S, left))
                continue
            for key, _ in selector.select(min(_TICK_S, left)):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                key.data.feed(data)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Without reaping it: as long as it is a zombie its process group number cannot become somebody else's."""
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill it and everything it started (compilers of a JIT build)."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _reap(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(REAP_S)
    except subprocess.TimeoutExpired:
        return None


def _read_left(stream: IO[bytes], lines: _Lines) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := os.read(stream.fileno(), 1 << 16):
            lines.feed(data)
    lines.close()
