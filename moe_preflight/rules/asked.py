"""What AITER itself answered, where it is not what was predicted (``check --ask-aiter``).

The answers are not there when the rules run: ask/attach.py joins these findings afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Check, Rule

DISAGREES = Rule(
    code="MP605",
    name="aiter-disagrees",
    severity="warning",
    depends="check --ask-aiter, and an AITER tree with its Python",
    what="AITER's own dispatch chose otherwise than was predicted for it.",
    why="AITER's answer is what will run. Where it differs, what this report says of path, kernels and acceptance is wrong.",
    example="An AITER newer than our facts takes another block_m from 1,024 tokens on.",
    remedy="Trust the answer in observations, and report the difference with this AITER's version.",
    source="the tree's own aiter/fused_moe.py, run in a child process",
)

SHOWN = 5
"""Differing buckets that become evidence; the observation holds all of them."""


def findings(observations: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[Finding]:
    """MP605 for every layer whose answers differ; ``observations`` as from ask/compare.py, ``names`` of the targets."""
    for o in observations:
        if o["status"] != "contradicted":
            continue
        yield DISAGREES.finding(
            f"{names[o['target']]}: {o['detail']}",
            confidence="measured",
            target=o["target"],
            layer=o["layer"],
            evidence=[Evidence("aiter/fused_moe.py", None, _line(d)) for d in o["differences"][:SHOWN]],
        )


def _line(difference: Mapping[str, Any]) -> str:
    fields = (f"{k}: predicted {v['predicted']}, answered {v['answer']}" for k, v in difference.items() if k != "token")
    return f"{difference['token']} tokens: {'; '.join(fields)}"


RULES = (DISAGREES,)
CHECKS: tuple[Check, ...] = ()
