"""What padding costs: arithmetic and weight bytes, from sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.engine.plan import LayerPlan


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


def unpadded_splits(width: int, unit: int, candidates: tuple[int, ...] = (1, 2, 4, 8, 16)) -> tuple[int, ...]:
    """The TP degrees that cut an expert ``width`` into a whole multiple of ``unit``."""
    return tuple(tp for tp in candidates if width % tp == 0 and (width // tp) % unit == 0)
