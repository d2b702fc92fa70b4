"""The text of ``moe-preflight rule``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from moe_preflight.rules.rule import Rule

_SECTIONS = (
    ("What", "what"),
    ("Why it matters", "why"),
    ("Example", "example"),
    ("What to do", "remedy"),
    ("Looks when", "depends"),
    ("Source", "source"),
)


def as_text(rules: Sequence[Rule]) -> str:
    """All sections of each rule, 80 columns."""
    blocks = []
    for r in rules:
        lines = [f"{r.code} {r.name} ({r.severity})"]
        for title, field in _SECTIONS:
            lines += textwrap.wrap(
                f"{title}: {getattr(r, field)}", 80, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def as_json(rules: Sequence[Rule]) -> str:
    """A list of objects, keys sorted."""
    return json.dumps([asdict(r) for r in rules], indent=2, sort_keys=True) + "\n"
