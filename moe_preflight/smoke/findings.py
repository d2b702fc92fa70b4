"""Observations as findings of the report. The torch backend yields none: it says nothing about AITER. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.smoke.judge import Observation

FAILED = Rule(
    code="MP731",
    name="launch-failed",
    severity="error",
    depends="check --smoke or smoke, on a machine with ROCm and AITER",
    what="A real launch of the padded fused_moe was rejected, crashed, hung, or gave wrong numbers or wrong experts.",
    why="The engine makes this very call: it would stop at start-up, or serve wrong tokens.",
    example="CK's device_gemm rejects inter_dim 224 at 4096 tokens.",
    remedy="Take the reproducer (--emit-repro) upstream; meanwhile use a split whose launch holds, or another backend.",
    source="measured on this machine",
)

CONTRADICTED = Rule(
    code="MP732",
    name="launch-contradicts",
    severity="warning",
    depends="check --smoke or smoke, on a machine with ROCm and AITER",
    what="A real launch took another path, or other kernels, than was predicted for it.",
    why="The prediction is wrong for this AITER on this GPU, and so may its neighbours be: trust the launch.",
    example="A tuned row was predicted, AITER took its heuristic.",
    remedy="Judge with --aiter pointing at the AITER that is installed, and report the bundle (--bundle) if they still differ.",
    source="measured on this machine",
)

RULES = (FAILED, CONTRADICTED)

_BROKEN = ("failed", "timeout", "crashed", "out-of-memory")


def findings_of(observations: Iterable[Observation]) -> list[Finding]:
    """MP731 for every launch of AITER that did not end right, MP732 for every one that ended right in another way than
    predicted."""
    out = []
    for o in observations:
        if o["backend"] != "aiter":
            continue
        where = {"target": o["target"], "layer": o["layer"]}
        said = [Evidence("smoke", None, line) for line in o["output_tail"][-3:]]
        title = f"{o['case']}, {o['tokens']} tokens"
        if o["status"] in _BROKEN or (o["status"] in ("confirmed", "contradicted") and not o["ran"]):
            out.append(FAILED.finding(f"{title}: {o['detail'] or o['status']}", confidence="measured", evidence=said, **where))
        if o["prediction"]["verdict"] == "contradicted":
            out.append(CONTRADICTED.finding(f"{title}: {o['prediction']['why']}", confidence="measured", **where))
    return out
