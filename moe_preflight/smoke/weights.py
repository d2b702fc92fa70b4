"""Expert weights: where they come from, and how the engine lays them out. Imported by the worker only.

The engine allocates w13 [experts, 2 x inter_dim_padded, model_dim_padded] and w2 [experts, model_dim_padded,
inter_dim_padded] and loads each expert's real rows into them: gate from row 0, up from the padded half, down into columns
0..inter_dim (vLLM 0.33.0 fused_moe/routed_experts.py _load_w13, _load_w2). What no load touches is the tail; vLLM zeroes it
after loading (oracle/unquantized.py _zero_intermediate_padding). One expert is held unpadded at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from moe_preflight.smoke.case import BLOCK, MX_GROUP, SmokeCase
from moe_preflight.smoke.quantize import Matrix, quantize, to_fnuz

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(slots=True)
class Expert:
    """One expert on this rank, unpadded: gate and up [inter_dim, model_dim], down [model_dim, inter_dim], and its biases
    (float32 [inter_dim], [inter_dim], [model_dim]; None when the model has none)."""

    gate: Matrix
    up: Matrix
    down: Matrix
    gate_bias: Tensor | None = None
    up_bias: Tensor | None = None
    down_bias: Tensor | None = None


class Source(Protocol):
    """Where experts come from. Asking twice for the same index gives the same numbers."""

    def expert(self, index: int) -> Expert: ...


class RandomSource:
    """Seeded normal weights with the variance of 1 / fan-in, so that outputs are near 1. The numbers depend on the seed, the
    expert's index, the sizes before padding and the kind of device, never on the order of asking."""

    def __init__(self, case: SmokeCase, device: torch.device) -> None:
        self._case, self._device = case, device

    def expert(self, index: int) -> Expert:
        case = self._case
        generator = torch.Generator(device=self._device).manual_seed(case.seed * 1_000_003 + index + 1)

        def normal(*shape: int, fan_in: int) -> Tensor:
            value: Tensor = torch.randn(*shape, generator=generator, device=self._device) * fan_in**-0.5
            return value

        dtype = DTYPES[case.dtype]
        gate_up = normal(2 * case.inter_dim, case.model_dim, fan_in=case.model_dim)
        down = quantize(normal(case.model_dim, case.inter_dim, fan_in=case.inter_dim), case.scheme, dtype)
        if case.scheme == "fp8_tensor":
            both = quantize(gate_up, case.scheme, dtype)  # one scale for both: engines merge them to the larger
            gate, up = (
                Matrix(part, both.scale, both.kind) for part in (both.data[: case.inter_dim], both.data[case.inter_dim :])
            )
        else:
            gate, up = (quantize(part, case.scheme, dtype) for part in (gate_up[: case.inter_dim], gate_up[case.inter_dim :]))
        expert = Expert(gate, up, down)
        if case.expert_bias:
            expert.gate_bias, expert.up_bias = normal(case.inter_dim, fan_in=4), normal(case.inter_dim, fan_in=4)
            expert.down_bias = normal(case.model_dim, fan_in=4)
        return expert


@dataclass(slots=True)
class Stacked:
    """All experts as the kernel is given them, before any shuffle. Scales are None for bf16/fp16; their shapes are those of
    vLLM 0.33.0: [E] (tensor), [E, rows, 1] (channel), [E, row blocks, column blocks] (block), [E, rows, columns / 32] (mx)."""

    w13: Tensor
    w2: Tensor
    w13_scale: Tensor | None = None
    w2_scale: Tensor | None = None
    bias13: Tensor | None = None
    bias2: Tensor | None = None


def stack(
    case: SmokeCase, source: Source, device: torch.device, *, padded: bool = True, poison: bool = False, fnuz: bool = False
) -> Stacked:
    """Load every expert where the engine would. ``padded=False`` allocates the sizes before padding; ``poison`` fills the tail
    with NaN instead of zero; ``fnuz`` stores fp8 as gfx942 wants it."""
    h, i = (case.model_dim_padded, case.inter_dim_padded) if padded else (case.model_dim, case.inter_dim)
    out = _allocate(case, device, h, i, fnuz)
    fill = _Tail(case, fnuz, poison)
    for index in range(case.experts):
        expert = source.expert(index)
        w13, w2 = out.w13[index], out.w2[index]
        for offset, part in ((0, expert.gate), (i, expert.up)):
            _place(w13[offset : offset + i], part, fill)
        _place(w2, expert.down, fill)
        _place_scales(case, out, index, expert, i, fill)
        if out.bias13 is not None and out.bias2 is not None:
            for offset, bias in ((0, expert.gate_bias), (i, expert.up_bias)):
                _place_bias(out.bias13[index, offset : offset + i], bias)
            _place_bias(out.bias2[index], expert.down_bias)
    if fnuz:
        for scale in (out.w13_scale, out.w2_scale):
            if scale is not None:
                scale.mul_(2.0)
    return out


def _allocate(case: SmokeCase, device: torch.device, h: int, i: int, fnuz: bool) -> Stacked:
    e = case.experts

    def empty(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device=device)

    if case.scheme.startswith("mxfp4"):
        u8 = torch.uint8
        out = Stacked(empty(e, 2 * i, h // 2, dtype=u8), empty(e, h, i // 2, dtype=u8))
        out.w13_scale, out.w2_scale = empty(e, 2 * i, h // MX_GROUP, dtype=u8), empty(e, h, i // MX_GROUP, dtype=u8)
    else:
        fp8 = torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn
        dtype = DTYPES[case.dtype] if case.scheme == "none" else fp8
        out = Stacked(empty(e, 2 * i, h, dtype=dtype), empty(e, h, i, dtype=dtype))
        shapes = {
            "fp8_tensor": ((e,), (e,)),
            "fp8_channel": ((e, 2 * i, 1), (e, h, 1)),
            "fp8_block": ((e, 2 * (-(-i // BLOCK)), -(-h // BLOCK)), (e, -(-h // BLOCK), -(-i // BLOCK))),
        }.get(case.scheme)
        if shapes:
            out.w13_scale, out.w2_scale = (empty(*shape, dtype=torch.float32) for shape in shapes)
    if case.expert_bias:
        out.bias13, out.bias2 = empty(e, 2 * i, dtype=torch.float32), empty(e, h, dtype=torch.float32)
    return out


class _Tail:
    """What the padding is filled with. Data is written through a view of bytes or shorts, so that every dtype can hold it."""

    def __init__(self, case: SmokeCase, fnuz: bool, poison: bool) -> None:
        nan_fp8 = 0x80 if fnuz else 0x7F
        self.fnuz = fnuz
        if case.scheme == "none":
            self.data = (torch.int16, (0x7FC0 if case.dtype == "bf16" else 0x7E00) if poison else 0)
        else:
            # e2m1 has no NaN; a poisoned MXFP4 tail has it in its scales.
            self.data = (torch.uint8, nan_fp8 if poison and case.scheme.startswith("fp8") else 0)
        if case.scheme.startswith("mxfp4"):
            self.scale: float = 0xFF if poison else 0
        else:
            self.scale = float("nan") if poison else 1.0


def _place(target: Tensor, part: Matrix, fill: _Tail) -> None:
    """Copy ``part`` to the top left of ``target`` and fill the rest."""
    kind, value = fill.data
    data = to_fnuz(part.data) if fill.fnuz and part.data.dtype == torch.float8_e4m3fn else part.data
    raw, source = target.view(kind), data.contiguous().view(kind)
    rows, columns = source.shape
    raw[:rows, :columns] = source
    raw[rows:] = value
    raw[:rows, columns:] = value


def _place_scales(case: SmokeCase, out: Stacked, index: int, expert: Expert, i: int, fill: _Tail) -> None:
    if out.w13_scale is None or out.w2_scale is None:
        return
    if case.scheme == "fp8_tensor":
        assert expert.gate.scale is not None
        assert expert.down.scale is not None
        out.w13_scale[index], out.w2_scale[index] = expert.gate.scale, expert.down.scale
        return
    half = -(-i // BLOCK) if case.scheme == "fp8_block" else i
    for target, part in (
        (out.w13_scale[index, :half], expert.gate),
        (out.w13_scale[index, half:], expert.up),
        (out.w2_scale[index], expert.down),
    ):
        assert part.scale is not None
        rows, columns = part.scale.shape
        target.fill_(fill.scale)
        target[:rows, :columns] = part.scale


def _place_bias(target: Tensor, bias: Tensor | None) -> None:
    target.zero_()
    if bias is not None:
        target[: bias.numel()] = bias
