"""Names of dtypes, activations and quantizations: our short ones and AITER's, as its CSVs and log lines write them."""

from __future__ import annotations

_TORCH = {
    "bf16": "torch.bfloat16",
    "fp16": "torch.float16",
    "i8": "torch.int8",
    "u32": "torch.uint32",
    # torch has both since 2.7; an older torch makes AITER fall back to uint8 (aiter/utility/dtypes.py), which no row names.
    "i4x2": "torch.int4",
    "fp4x2": "torch.float4_e2m1fn_x2",
}
FP8 = ("torch.float8_e4m3fn", "torch.float8_e4m3fnuz")
SHORT = {v: k for k, v in _TORCH.items()} | dict.fromkeys(FP8, "fp8")
DTYPES = (*_TORCH, "fp8")
"""Short names a key may use."""

PACK = {"u32": 8, "i4x2": 2, "fp4x2": 2}
"""Logical elements per stored element of a packed weight dtype."""

ACTS = {
    "no": "ActivationType.No",
    "silu": "ActivationType.Silu",
    "gelu": "ActivationType.Gelu",
    "swiglu": "ActivationType.Swiglu",
    "situv2": "ActivationType.Situv2",
    "gelutanh": "ActivationType.GeluTanh",
}
QUANTS = {
    q: f"QuantType.{q}"
    for q in ("No", "per_Tensor", "per_Token", "per_1x32", "per_1x128", "per_128x128", "per_256x128", "per_1024x128")
}
GATE_MODES = ("separated", "mock_gate_only", "gate_only", "interleave")
"""aiter/ops/flydsl/moe_common.py GateMode, v0.1.14 and later."""


def fp8_of(gfx: str) -> str:
    """The fp8 type of an architecture (aiter/utility/dtypes.py defaultDtypes): fnuz on gfx942, fn elsewhere."""
    return FP8[1] if gfx == "gfx942" else FP8[0]


def torch_name(short: str, gfx: str) -> str:
    """``fp8`` -> ``torch.float8_e4m3fnuz``; a name that is torch's already stays. KeyError for an unknown one."""
    if short == "fp8":
        return fp8_of(gfx)
    return _TORCH[short] if short in _TORCH else {s: s for s in SHORT}[short]
