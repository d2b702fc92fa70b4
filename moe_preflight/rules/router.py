"""Does the router's kernel exist, and is it right at every batch size?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.version import Version
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run

DEFECT = Rule(
    code="MP201",
    name="router-kernel",
    severity="error",
    depends="routing goes through AITER",
    what="A routing kernel that would be launched does not exist, fails, or is wrong under a condition given in numbers.",
    why="A missing kernel stops the worker; a wrong one routes tokens to the wrong experts without an error.",
    example="6 expert groups (192 experts before vLLM 0.32.0): AITER compiles 1, 2, 4 and 8 only.",
    remedy="Use an engine release that rounds the group count, or one whose AITER has the fix.",
    source="csrc/kernels/topk_softmax_kernels_group.cu LAUNCHER2; csrc/kernels/moe_fused_gate.cu; aiter/ops/topk.py",
)

FALLS_BACK = Rule(
    code="MP202",
    name="router-falls-back",
    severity="info",
    depends="routing goes through AITER",
    what="The engine's own guard finds no AITER routing kernel for this expert count and uses the generic path.",
    why="Right, but slower: routing is a handful of torch operations per layer instead of one kernel.",
    example="288 experts give 9 groups of 32: Step-3.5 routes in torch.",
    remedy="Nothing to do; the guard worked.",
    source="vLLM 0.33.0 model_executor/layers/fused_moe/router/fused_topk_bias_router.py",
)

SORTING = Rule(
    code="MP203",
    name="moe-sorting",
    severity="warning",
    depends="the experts reach AITER",
    what="A limit of AITER's moe_sorting kernel, or of its expert-parallel conventions, is met.",
    why="Sorting returns without launching, faults on invalid ids, or a tuned row is missed.",
    example="With expert parallelism AITER >= 0.1.16 looks tuned rows up with topk - 1.",
    remedy="See the finding's own text.",
    source="aiter/fused_moe.py moe_sorting; csrc/include/moe_sorting_opus.h",
)


_SUBJECT = {"MP201": "router", "MP203": "sorting of tokens to experts"}


def _from_defect(rule: Rule, defect: Defect, where: str, target: int, layer: int) -> Finding:
    said = f' AITER says "{defect.symptom}".' if defect.symptom else ""
    return rule.finding(
        f"{where}: {_SUBJECT[rule.code]}: {defect.condition}. {defect.effect}{said}",
        severity=defect.severity,
        remedy=defect.remedy,
        confidence=defect.confidence,
        target=target,
        layer=layer,
        evidence=[Evidence(defect.source, None, defect.code)],
    )


# Defects that are nothing but an engine and an AITER of different ages: what one calls, the other does not have.
_SKEW = frozenset({"router-missing", "router-arguments", "router-renormalize-dropped"})


def defects(run: Run) -> Iterator[Finding]:
    """MP201: every defect of the routing kernels, once per layer."""
    for target, i, layer in run.started():
        if layer.router is not None:
            for d in layer.router.defects:
                yield _from_defect(DEFECT, _of_this_pair(run, d), target.name, target.index, i)


def _of_this_pair(run: Run, d: Defect) -> Defect:
    """A defect of the pair is an error when this is the pair that will run. When the engine's image ships another AITER than the
    one judged, it is a warning: MP602 says so already, and this is what would come of it."""
    pin = Version.parse(run.aiter.pin) if run.aiter.pin else None
    if d.code not in _SKEW or d.severity != "error" or pin is None or run.aiter.version in (None, pin):
        return d
    return replace(
        d, severity="warning", effect=f"With this pair, and not with the {run.aiter.pin} of the engine's image: {d.effect}"
    )


def falls_back(run: Run) -> Iterator[Finding]:
    """MP202."""
    for target, i, layer in run.started():
        r = layer.plan.router
        if r.falls_back_to:
            yield FALLS_BACK.finding(
                f"{target.name}: routing of {r.experts} experts, top-{r.topk}, falls back to {r.falls_back_to}: {r.fallback_reason}",
                confidence="read",
                target=target.index,
                layer=i,
                evidence=[Evidence(r.source, None, f"num_expert_group {r.num_expert_group}")],
            )


def sorting(run: Run) -> Iterator[Finding]:
    """MP203."""
    for target, i, layer in run.started():
        for d in layer.sorting:
            yield _from_defect(SORTING, d, target.name, target.index, i)


RULES = (DEFECT, FALLS_BACK, SORTING)
CHECKS = (defects, falls_back, sorting)
