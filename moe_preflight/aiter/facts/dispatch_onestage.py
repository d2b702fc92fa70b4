"""For which combinations AITER has a one-stage asm kernel, by release (``fused_moe_1stage_dict`` of aiter/fused_moe.py).

A row: gfx, activation, quantization, dtype, q_dtype_a, q_dtype_w, gated (g1u1), weights applied in stage 1. ``fp8`` is
the architecture's own.
"""

from __future__ import annotations

OneStage = tuple[str, str, str, str, str, str, bool, bool]

_GFX942: tuple[OneStage, ...] = (
    ("gfx942", "silu", "No", "bf16", "bf16", "bf16", False, False),
    ("gfx942", "silu", "No", "fp16", "fp16", "fp16", False, False),
    ("gfx942", "gelu", "per_Token", "bf16", "fp8", "i4x2", True, False),
    ("gfx942", "silu", "per_1x32", "bf16", "fp4x2", "fp4x2", True, False),
    ("gfx942", "silu", "per_Token", "bf16", "i8", "i8", True, False),
    ("gfx942", "gelu", "per_Token", "bf16", "i8", "i8", True, False),
    ("gfx942", "silu", "per_Token", "bf16", "fp8", "fp8", True, False),
    ("gfx942", "gelu", "per_Token", "bf16", "fp8", "fp8", True, False),
    ("gfx942", "silu", "per_1x128", "bf16", "fp8", "fp8", True, False),
    ("gfx942", "silu", "per_Token", "bf16", "i8", "i8", False, False),
    ("gfx942", "gelu", "per_Token", "bf16", "i8", "i8", False, False),
)
_FIRST: tuple[OneStage, ...] = (
    *_GFX942,
    ("gfx950", "silu", "per_1x32", "bf16", "fp4x2", "fp4x2", True, False),
    ("gfx950", "silu", "per_1x128", "bf16", "fp8", "fp8", True, False),
)
_TKW1: tuple[OneStage, ...] = (
    *_FIRST,
    ("gfx950", "silu", "per_Token", "bf16", "bf16", "bf16", False, False),
    ("gfx950", "silu", "per_Token", "bf16", "fp8", "fp8", True, True),
)
_PER_TOKEN: tuple[OneStage, ...] = (
    *_TKW1,
    ("gfx950", "silu", "per_Token", "bf16", "fp8", "fp8", True, False),
    ("gfx950", "gelu", "per_Token", "bf16", "fp8", "fp8", True, False),
)
_GELU_BLOCK: tuple[OneStage, ...] = (*_PER_TOKEN, ("gfx950", "gelu", "per_1x128", "bf16", "fp8", "fp8", True, False))

ONE_STAGE: dict[str, frozenset[OneStage]] = {
    "v0.1.7.post2": frozenset(_FIRST),
    "v0.1.7.post3": frozenset(_TKW1),
    "v0.1.11": frozenset(_PER_TOKEN),
    "v0.1.12": frozenset(_GELU_BLOCK),
}
"""Keyed by the release the map starts at; ``Rules.one_stage_map`` names one."""

ARCHITECTURES = frozenset(("gfx942", "gfx950"))
"""What the map has entries for. Other architectures raise KeyError up to v0.1.18 and find nothing afterwards."""
