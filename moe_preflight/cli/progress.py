"""A progress bar on a terminal; nothing at all in a pipe, in CI, or when stderr is closed.

The bar is rich's, imported only when there is a terminal and the work has already taken a moment: its import costs more than
most runs (45 ms, DESIGN section 8).
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

AFTER = 0.5
"""Seconds of work before the bar appears: short work shows nothing."""


class Progress:
    """``with Progress("reading", total) as p: p.add(n)``. ``total`` 0 means unknown. One bar on stderr, cleared at the end."""

    def __init__(self, what: str, total: int = 0, stream: TextIO | None = None) -> None:
        self.what, self.total, self.done = what, total, 0
        self.stream = sys.stderr if stream is None else stream
        self._on = _is_terminal(self.stream)
        self._from = time.monotonic() + AFTER
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def add(self, n: int = 1) -> None:
        """``n`` more are done."""
        self.done += n
        if not self._on:
            return
        if self._bar is None and time.monotonic() >= self._from:
            self._show()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, total=self.total or None)

    def at(self, done: int, total: int) -> None:
        """``done`` of ``total`` are done."""
        self.total = total
        self.add(done - self.done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = RichProgress(*columns, console=Console(file=self.stream, force_terminal=True), transient=True)
        self._task = self._bar.add_task(self.what, total=self.total or None)
        self._bar.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
