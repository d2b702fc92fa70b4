"""Small cases that many tests share."""

from __future__ import annotations

from typing import Any

from moe_preflight.smoke.case import RouterSpec, SmokeCase

BIASED = RouterSpec("biased_grouped_topk", 16, 4, groups=4, topk_group=4, scoring="sigmoid", bias=True, scaling_outside=2.5)


def small(**changes: Any) -> SmokeCase:
    """16 experts of 256 x 96, padded to 128."""
    fields: dict[str, Any] = {
        "tokens": 33, "model_dim": 256, "inter_dim": 96, "inter_dim_padded": 128, "experts": 16, "topk": 4, "router": BIASED,
    }  # fmt: skip
    fields.update(changes)
    return SmokeCase(**fields)
