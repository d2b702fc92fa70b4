"""A progress line on a terminal; nothing at all in a pipe, in CI, or when stderr is closed."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

AFTER = 0.5
"""Seconds of work before the line appears: short work shows nothing."""
EVERY = 0.2


class Progress:
    """``with Progress("reading", total) as p: p.add(n)``. ``total`` 0 means unknown. One line on stderr, cleared at the end."""

    def __init__(self, what: str, total: int = 0, stream: TextIO | None = None) -> None:
        self.what, self.total, self.done = what, total, 0
        self.stream = sys.stderr if stream is None else stream
        self._on = _is_terminal(self.stream)
        self._next = time.monotonic() + AFTER
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def add(self, n: int = 1) -> None:
        """``n`` more are done."""
        self.done += n
        if not self._on:
            return
        now = time.monotonic()
        if now >= self._next:
            self._next, self._shown = now + EVERY, True
            part = f" {min(100, 100 * self.done // self.total):3d} %" if self.total else f" {self.done:,}"
            print(f"\r\x1b[2K{self.what}{part}", end="", file=self.stream, flush=True)

    def at(self, done: int, total: int) -> None:
        """``done`` of ``total`` are done."""
        self.total = total
        self.add(done - self.done)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._shown:
            print("\r\x1b[2K", end="", file=self.stream, flush=True)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
