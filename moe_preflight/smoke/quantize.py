"""Storage forms of one expert's matrices, made and undone in torch. Imported by the worker only.

A matrix is kept as it would lie in a checkpoint: ``data`` [rows, columns] (packed pairs for MXFP4, low nibble first) and
``scale`` (a multiplier). dequantize() is the one place that says what those bytes mean; the float32 reference uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from moe_preflight.smoke.case import BLOCK, MX_GROUP

FP8_MAX = 448.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


@dataclass(slots=True)
class Matrix:
    """``kind`` says what ``scale`` is: plain (None), tensor ([]), channel ([rows, 1]), block ([row blocks, column blocks]),
    all float32, or mx ([rows, columns / 32] uint8 e8m0)."""

    data: Tensor
    scale: Tensor | None = None
    kind: str = "plain"


def quantize(value: Tensor, scheme: str, dtype: torch.dtype) -> Matrix:
    """``value`` float32 [rows, columns] in the storage of ``scheme``. Deterministic."""
    if scheme == "none":
        return Matrix(value.to(dtype))
    if scheme.startswith("mxfp4"):
        return _to_mxfp4(value)
    if scheme == "fp8_tensor":
        scale = _scale(value.abs().amax())
        return Matrix((value / scale).to(torch.float8_e4m3fn), scale, "tensor")
    if scheme == "fp8_channel":
        scale = _scale(value.abs().amax(-1, keepdim=True))
        return Matrix((value / scale).to(torch.float8_e4m3fn), scale, "channel")
    if scheme == "fp8_block":
        rows, columns = value.shape
        padded = torch.nn.functional.pad(value, (0, -columns % BLOCK, 0, -rows % BLOCK))
        blocks = padded.view(padded.shape[0] // BLOCK, BLOCK, padded.shape[1] // BLOCK, BLOCK)
        scale = _scale(blocks.abs().amax((1, 3)))
        data = (blocks / scale[:, None, :, None]).view(padded.shape)[:rows, :columns]
        return Matrix(data.to(torch.float8_e4m3fn).contiguous(), scale, "block")
    raise ValueError(f"unknown scheme {scheme}")


def _scale(amax: Tensor) -> Tensor:
    scale = amax.float() / FP8_MAX
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _to_mxfp4(value: Tensor) -> Matrix:
    """OCP MX: one power-of-two scale per 32 values, floor(log2(amax)) - 2 so that amax lands in e2m1's top binade."""
    rows, columns = value.shape
    groups = value.view(rows, columns // MX_GROUP, MX_GROUP)
    amax = groups.abs().amax(-1)
    exponent = torch.where(amax > 0, torch.floor(torch.log2(amax.clamp_min(1e-38))) - 2, torch.zeros_like(amax))
    exponent = exponent.clamp(-127, 127)
    scaled = groups / torch.exp2(exponent)[..., None]
    bounds = torch.tensor(_E2M1_MIDPOINTS, device=value.device)
    code = torch.bucketize(scaled.abs(), bounds).to(torch.uint8) | ((scaled < 0).to(torch.uint8) << 3)
    code = code.view(rows, columns)
    return Matrix(code[:, 0::2] | (code[:, 1::2] << 4), (exponent + 127).to(torch.uint8), "mx")


def dequantize(m: Matrix) -> Tensor:
    """float32 [rows, columns]."""
    if m.scale is None:
        return m.data.float()
    if m.kind == "mx":
        table = torch.tensor(E2M1 + tuple(-v for v in E2M1), device=m.data.device)
        rows = m.data.shape[0]
        values = torch.stack((table[(m.data & 15).long()], table[(m.data >> 4).long()]), -1).view(rows, -1)
        factors = torch.exp2(m.scale.float() - 127)
        return (values.view(rows, -1, MX_GROUP) * factors[..., None]).view(rows, -1)
    wide = m.data.float()
    if m.kind == "block":
        rows, columns = wide.shape
        return wide * m.scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
    return wide * m.scale


def to_fnuz(data: Tensor) -> Tensor:
    """The same bits as e4m3fnuz, which reads them as half: the caller doubles the scale. gfx942's fp8 is fnuz, and engines
    convert e4m3fn checkpoints exactly so. The pattern 0x80 (minus zero) is NaN in fnuz and becomes zero."""
    bits = data.view(torch.uint8)
    return torch.where(bits == 0x80, torch.zeros_like(bits), bits).view(torch.float8_e4m3fnuz)
