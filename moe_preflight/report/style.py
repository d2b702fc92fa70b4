"""Colour for a terminal, and nothing else. With colour off every function here returns its text unchanged."""

from __future__ import annotations

from dataclasses import dataclass

_CODES = {"red": "31", "yellow": "33", "green": "32", "cyan": "36", "dim": "2", "bold": "1"}

OF_VERDICT = {"fail": "red", "warn": "yellow", "pass": "green", "inconclusive": "yellow"}
OF_SEVERITY = {"error": "red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True, slots=True)
class Style:
    """``paint(text, "red", "bold")`` wraps text in ANSI codes when ``colour`` is on."""

    colour: bool = False

    def paint(self, text: str, *names: str) -> str:
        """``text`` in the named styles; the text itself must already be clean."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_CODES[n] for n in names)}m{text}\x1b[0m"


PLAIN = Style()
