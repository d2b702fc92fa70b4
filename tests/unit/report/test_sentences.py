"""Why something was not evaluated, and how to get it, are two sentences in every format that says both in one breath."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import moe_preflight.report
from moe_preflight.report.view import sentence


@pytest.mark.parametrize(("text", "said"), [("no tree", "no tree."), ("no tree.", "no tree."), ("why?", "why?")])
def test_one_full_stop(text: str, said: str) -> None:
    assert sentence(text) == said


def test_every_format_ends_the_first_sentence() -> None:
    """Whatever follows a reason on its line follows a full stop."""
    sources = {p.name: p.read_text() for p in Path(moe_preflight.report.__path__[0]).glob("*.py")}
    bare = re.compile(r"(?<!sentence\(n)(?<!sentence\(miss)\['why'\]\)*\}\.? (?=[{A-Z])")
    assert {name for name, text in sources.items() if bare.search(text)} == set()
    assert sum("sentence(" in text for text in sources.values()) > 5
