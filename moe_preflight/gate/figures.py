"""How bad a finding is, as one number: what is known may stay as bad as it was, and not get worse.

A fingerprint does not see figures, or every release of AITER would be news. So that a baseline is no licence, the findings that have
a figure carry it: more buckets rejected or untuned than before, or a higher padding cost, is new.
"""

from __future__ import annotations

from collections.abc import Callable

from moe_preflight.aiter.key import Dispatch
from moe_preflight.arithmetic import padding_cost
from moe_preflight.evaluate import LayerEvaluation
from moe_preflight.report.types import Finding
from moe_preflight.rules.run import Run
from moe_preflight.settings import DECODE_MAX


def _refused(d: Dispatch) -> bool:
    return bool(d.error) or d.stage1.accepted is False or (d.stage2 is not None and d.stage2.accepted is False)


def _rejected(layer: LayerEvaluation) -> float:
    return sum(map(_refused, layer.dispatches))


def _untuned(layer: LayerEvaluation) -> float:
    return sum(d.tuned == "miss" for d in layer.dispatches)


def _untuned_decode(layer: LayerEvaluation) -> float:
    return sum(d.tuned == "miss" and d.token <= DECODE_MAX for d in layer.dispatches)


def _padding(layer: LayerEvaluation) -> float:
    return round(padding_cost(layer.plan).extra_compute_pct, 2)


_OF_CODE: dict[str, tuple[str, Callable[[LayerEvaluation], float]]] = {
    "MP101": ("rejected buckets", _rejected),
    "MP102": ("rejected buckets", _rejected),
    "MP811": ("rejected buckets", _rejected),
    "MP301": ("untuned buckets", _untuned),
    "MP813": ("untuned decode buckets", _untuned_decode),
    "MP111": ("% of padding", _padding),
    "MP814": ("% of padding", _padding),
}
"""code -> (what the number counts, the number); higher is worse."""


def figure(f: Finding, run: Run) -> float | None:
    """The figure of a finding; None for one that is there or is not."""
    if f.code not in _OF_CODE or f.target is None or f.layer is None:
        return None
    return _OF_CODE[f.code][1](run.targets[f.target].layers[f.layer])


def worse(code: str, was: float | None, now: float | None) -> str:
    """``Worse than in the baseline: 3 untuned buckets then, 9 now.``; empty when it is not."""
    if was is None or now is None or now <= was:
        return ""
    return f"Worse than in the baseline: {was:g} {_OF_CODE[code][0]} then, {now:g} now."
