"""Ranges of the router that no batch can reach are in no report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moe_preflight.report.document import document
from moe_preflight.report.formats import FORMATS
from moe_preflight.report.sanitise import clean_document
from tests.unit.report.documents import run


def bounded(limit: int | None) -> dict[str, Any]:
    """The sample run, whose router changes to moe_fused_gate at 64,449 tokens, with batches of at most ``limit``."""
    r = run()
    targets = tuple(
        replace(t, plan=replace(t.plan, deployment=replace(t.plan.deployment, max_num_batched_tokens=limit))) for t in r.targets
    )
    return clean_document(document(replace(r, targets=targets), (), ()))


@pytest.mark.parametrize(("limit", "kernels"), [(None, 2), (64449, 2), (64448, 1), (8192, 1), (1, 1)])
def test_only_what_a_batch_can_reach(limit: int | None, kernels: int) -> None:
    doc = bounded(limit)
    assert [len(x["router"]["by_tokens"]) for t in doc["targets"] for x in t["layers"]] == [kernels] * 3


@pytest.mark.parametrize("name", ["text", "html", "json"])
def test_every_format_says_the_same(name: str) -> None:
    assert "moe_fused_gate" in FORMATS[name](bounded(None))
    assert "moe_fused_gate" not in FORMATS[name](bounded(8192))
