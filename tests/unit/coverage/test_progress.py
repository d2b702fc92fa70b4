"""Progress is for terminals: nothing in a pipe, nothing for short work, and the line is cleared at the end."""

from __future__ import annotations

import io

import pytest

from moe_preflight.cli import progress
from moe_preflight.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, *, total: int = 4) -> str:
    with Progress("reading", total, stream) as p:
        for _ in range(4):
            p.add()
    return stream.getvalue()


def test_a_terminal_sees_it_and_gets_its_line_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 0.0)
    text = shown(Terminal())
    assert "reading" in text
    assert "4/4" in text
    assert text.rstrip().endswith("\x1b[2K"), "the bar is erased at the end"
    assert "4/?" in shown(Terminal(), total=0)


def test_a_pipe_and_short_work_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Terminal()) == ""
    monkeypatch.setattr(progress, "AFTER", 0.0)
    assert shown(io.StringIO()) == ""


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    with Progress("x", 1, stream) as p:
        p.add()
