"""What padding costs: arithmetic and weight bytes, from sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.engine.plan import LayerPlan

USABLE_MEMORY = 0.92
"""Share of a GPU's memory the engine takes for itself: vLLM 0.33.0 config/cache.py:215 gpu_memory_utilization."""


@dataclass(frozen=True, slots=True)
class PaddingCost:
    """``extra_compute_pct`` = 100 x (padded - native) / native of the expert GEMM arithmetic (one stage-1 or stage-2 GEMM is
    model_dim x inter_dim, so both sizes count). ``extra_weight_bytes`` is per rank, over the layers of this kind on it."""

    extra_compute_pct: float
    extra_weight_bytes: int


def expert_weight_bytes(plan: LayerPlan, *, padded: bool = True) -> int:
    """Bytes of this kind's expert weights on one rank (scales not counted): gate, up and down of every local expert."""
    p = plan.problem
    area = p.model_dim_padded * p.inter_dim_padded if padded else p.model_dim * p.inter_dim
    matrices = 3 if p.use_g1u1 else 2
    return round(_layers(plan) * p.expert * matrices * area * p.weight_bytes_per_element)


def padding_cost(plan: LayerPlan) -> PaddingCost:
    """The cost of the engine's padding for this kind of layer; zeros when it pads nothing."""
    p = plan.problem
    native, padded = p.model_dim * p.inter_dim, p.model_dim_padded * p.inter_dim_padded
    pct = 100 * (padded - native) / native if native else 0.0
    return PaddingCost(pct, expert_weight_bytes(plan) - expert_weight_bytes(plan, padded=False))


def _layers(plan: LayerPlan) -> int:
    return plan.layers_per_rank or plan.layer.count


def unit_at(width: int, plan: LayerPlan) -> int:
    """What a per-rank ``width`` must be a multiple of so that nothing is padded: vLLM's 64-or-128 rule for unquantized experts
    (oracle/unquantized.py:334, 0.33.0), else the one unit of the backend."""
    p = plan.problem
    if p.q_type == "No":
        return 64 if width <= 192 else 128
    return p.alignment or 1


def unpadded_splits(plan: LayerPlan, memory_bytes: int | None) -> tuple[int, ...]:
    """The TP degrees at which the expert width needs no padding and, where the memory is known, the expert weights alone fit."""
    width = plan.layer.moe_intermediate_size
    return tuple(tp for tp in splits_of(plan, 1, memory_bytes) if (width // tp) % unit_at(width // tp, plan) == 0)


def splits_of(plan: LayerPlan, unit: int, memory_bytes: int | None) -> tuple[int, ...]:
    """The TP degrees of 1 to 16 that cut the width into a multiple of ``unit``, and whose expert weights fit where memory is known."""
    width = plan.layer.moe_intermediate_size
    whole = expert_weight_bytes(plan, padded=False) * plan.problem.moe_tp_size
    return tuple(
        tp
        for tp in (1, 2, 4, 8, 16)
        if width % tp == 0 and width // tp % unit == 0 and (memory_bytes is None or whole / tp <= USABLE_MEMORY * memory_bytes)
    )
