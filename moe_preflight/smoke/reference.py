"""The float32 answer on the sizes before padding, expert by expert, and the distance of an output from it. Imported by the
worker only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.memory import CHUNK
from moe_preflight.smoke.quantize import dequantize
from moe_preflight.smoke.weights import Source

SWIGLU_ALPHA, SWIGLU_LIMIT = 1.702, 7.0
"""gpt-oss's constants, which AITER's kernels have built in (aiter/fused_moe.py swiglu, HEAD :3510)."""

SITU_BETA, SITU_LINEAR_BETA = 1.0, 1.0
"""What AITER uses when the engine passes None (aiter/fused_moe.py, HEAD :846)."""


def activate(case: SmokeCase, gate: Tensor, up: Tensor) -> Tensor:
    """The gated activation, in the dtype of its arguments. Formulas as in aiter/fused_moe.py torch_moe_stage1."""
    if case.activation == "silu":
        return torch.nn.functional.silu(gate) * up
    if case.activation in ("gelu", "gelutanh"):
        return torch.nn.functional.gelu(gate, approximate="tanh" if case.activation == "gelutanh" else "none") * up
    if case.activation == "situv2":
        squashed = SITU_BETA * torch.tanh(gate / SITU_BETA) * torch.sigmoid(gate)
        return squashed * (SITU_LINEAR_BETA * torch.tanh(up / SITU_LINEAR_BETA))
    limit = case.swiglu_limit or SWIGLU_LIMIT
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(SWIGLU_ALPHA * gate) * (up + 1)


def expected(case: SmokeCase, source: Source, hidden: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
    """float32 [tokens, model_dim]: what the layer should give for ``hidden`` [tokens, >= model_dim] and the routing given.

    Experts of other EP ranks (ids beyond this rank's) add nothing. At most CHUNK rows are wide at a time.
    """
    out = torch.zeros(hidden.shape[0], case.model_dim, dtype=torch.float32, device=hidden.device)
    local = case.experts - case.num_shared_fused
    for index in range(case.experts):
        wanted = index if index < local else case.router.experts + index - local
        rows, slots = (ids == wanted).nonzero(as_tuple=True)
        if not rows.numel():
            continue
        expert = source.expert(index)
        gate_w, up_w, down_w = dequantize(expert.gate), dequantize(expert.up), dequantize(expert.down)
        for part in range(0, rows.numel(), CHUNK):
            row, slot = rows[part : part + CHUNK], slots[part : part + CHUNK]
            x = hidden[row, : case.model_dim].float()
            scale = weights[row, slot].float()[:, None]
            gate, up = x @ gate_w.T, x @ up_w.T
            if case.doweight_stage1:
                gate, up = gate * scale, up * scale
            if expert.gate_bias is not None and expert.up_bias is not None:
                gate, up = gate + expert.gate_bias, up + expert.up_bias
            y = activate(case, gate, up) @ down_w.T
            if expert.down_bias is not None:
                y = y + expert.down_bias
            out[row] += y if case.doweight_stage1 else y * scale
    return out


@dataclass(frozen=True, slots=True)
class Distance:
    """``rel_err``: over tokens, the largest ||out - ref|| / ||ref||; None when an output is not finite. ``nonfinite``: tokens
    with a NaN or infinity. ``worst_token`` is where."""

    rel_err: float | None
    nonfinite: int
    worst_token: int

    def within(self, limit: float) -> bool:
        return self.nonfinite == 0 and self.rel_err is not None and self.rel_err <= limit


def distance(case: SmokeCase, out: Tensor, reference: Tensor) -> Distance:
    """How far ``out`` [tokens, >= model_dim] is from ``reference``. A token whose reference is all zero (every expert on
    another rank) must be zero too."""
    broken = torch.zeros(out.shape[0], dtype=torch.bool, device=out.device)
    worst, where = 0.0, 0
    for start in range(0, out.shape[0], CHUNK):
        got, want = out[start : start + CHUNK, : case.model_dim].float(), reference[start : start + CHUNK]
        broken[start : start + CHUNK] = ~torch.isfinite(got).all(-1)
        size = want.norm(dim=-1)
        floor = 1e-6 * math.sqrt(case.model_dim)
        error = (got - want).norm(dim=-1) / size.clamp_min(floor)
        error = torch.nan_to_num(error, nan=math.inf)
        top = int(error.argmax())
        if float(error[top]) > worst:
            worst, where = float(error[top]), start + top
    nonfinite = int(broken.sum())
    return Distance(worst if nonfinite == 0 and math.isfinite(worst) else None, nonfinite, where)
