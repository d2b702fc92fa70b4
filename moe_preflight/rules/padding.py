"""What the engine adds to make a shape fit, what that costs, and whether the added part is zero."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.arithmetic import padding_cost, unit_at, unpadded_splits
from moe_preflight.engine.plan import LayerPlan
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run
from moe_preflight.units import any_of, bytes_text, sentence_of

COST = Rule(
    code="MP111",
    name="padding-cost",
    severity="warning",
    depends="the engine rounds a size up",
    what="The engine pads the expert GEMM so that the kernel takes it; every token pays for the padded part.",
    why="The padded columns are multiplied like real ones, and take memory on every rank.",
    example="K2-Horizon at TP8: 224 -> 256 is 14.3 % more expert arithmetic.",
    remedy="Use a TP that needs no padding, or expert parallelism, which leaves the width whole.",
    source="vLLM 0.33.0 model_executor/layers/fused_moe/oracle/unquantized.py aiter_moe_intermediate_alignment; oracle/mxfp4.py",
)

NOT_ZEROED = Rule(
    code="MP112",
    name="padding-not-zeroed",
    severity="error",
    depends="the engine rounds a size up",
    what="The engine pads a size and nothing we could find fills the padded part with zeros.",
    why="A padded tail that is not zero is live weight: sporadic wrong tokens, without an error.",
    example="torch.empty allocation of a padded weight whose loader writes the real rows only.",
    remedy="Use a split without padding, or another backend, until the engine zero-fills this path.",
    source="facts/vllm.md 2.6, read in vLLM 0.33.0",
)

PAD_IGNORED = Rule(
    code="MP113",
    name="intermediate-pad-ignored",
    severity="info",
    depends="the engine pads inter_dim on the unquantized path",
    what="The engine computes intermediate_pad and hands it on; AITER's unquantized CK path ignores it.",
    why="Correctness rests on the zero-filled weights alone: whoever swaps or reloads weights must keep the tail zero.",
    example="K2-Horizon TP4: 448 -> 512 passes intermediate_pad 64, which ck_moe_stage1 never reads.",
    remedy="Nothing to change; keep it in mind when weights are updated in place (RLHF, LoRA merge, hot reload).",
    source="ROCm/aiter#5444, #5413; aiter/fused_moe.py ck_moe_stage1 (no pad argument), v0.1.20.post1",
)


def cost(run: Run) -> Iterator[Finding]:
    """MP111."""
    for target, i, layer in run.started():
        plan, p = layer.plan, layer.plan.problem
        if not plan.backend.name or (p.inter_dim, p.model_dim) == (p.inter_dim_padded, p.model_dim_padded):
            continue
        c = padding_cost(plan)
        sizes = [
            f"{name} {a} -> {b}"
            for name, a, b in (("inter_dim", p.inter_dim, p.inter_dim_padded), ("model_dim", p.model_dim, p.model_dim_padded))
            if a != b
        ]
        options = _unpadded(plan, target.plan.deployment.gpu.memory_bytes)
        width = plan.layer.moe_intermediate_size
        if p.ep_size == 1 and p.moe_tp_size > 1 and width % unit_at(width, plan) == 0:
            options.append(f"expert parallelism (--ep) leaves the width whole at {width}")
        runs = not any(s.accepted is False for d in layer.dispatches for s in (d.stage1, d.stage2) if s)
        rest = " Otherwise accept the cost: the shape runs." if runs else ""
        yield COST.finding(
            f"{target.name}: {', '.join(sizes)}: +{c.extra_compute_pct:.1f} % expert GEMM arithmetic, "
            f"+{bytes_text(c.extra_weight_bytes)} of weights per rank.",
            remedy=(sentence_of(options) + rest).strip() or COST.remedy,
            confidence="read",
            target=target.index,
            layer=i,
            evidence=[Evidence(plan.backend.source, None, f"{plan.backend.name}: alignment {p.alignment}")],
        )


def from_notes(run: Run) -> Iterator[Finding]:
    """MP112 and MP113: what the plan itself remarks about the padding."""
    for target, i, layer in run.started():
        for note in layer.plan.notes:
            rule = OF_NOTE.get(note.code)
            if rule is not None:
                yield rule.finding(
                    f"{target.name}: {note.message}",
                    confidence="read",
                    target=target.index,
                    layer=i,
                    evidence=[Evidence(note.source, None, note.code)],
                )


def _unpadded(plan: LayerPlan, memory: int | None) -> list[str]:
    """The TP degrees without padding, in words; those whose expert weights cannot fit are named as such."""
    if plan.problem.inter_dim == plan.problem.inter_dim_padded:
        return []
    every, fit = ([str(tp) for tp in unpadded_splits(plan, m) if tp != plan.problem.moe_tp_size] for m in (None, memory))
    if fit:
        return [f"TP {any_of(fit)} needs no padding of inter_dim"]
    return [f"TP {any_of(every)} would need no padding, but the expert weights alone do not fit one GPU there"] if every else []


OF_NOTE = {"padding-not-zeroed": NOT_ZEROED, "intermediate-pad-ignored": PAD_IGNORED}
"""Which of the engine's notes are findings of this file; the others are MP403's."""


RULES = (COST, NOT_ZEROED, PAD_IGNORED)
CHECKS = (cost, from_notes)
