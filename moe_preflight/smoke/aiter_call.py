"""The call of AITER's fused_moe that an engine makes, as data, and its binding to whatever signature is installed. Pure.

A release that lacks a parameter is reported, never a crash: a parameter whose value says "not used" is left out and named,
one that matters stops the launch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moe_preflight.smoke.case import SmokeCase

VLLM_POSITIONAL = (
    "hidden_states", "w1", "w2", "topk_weight", "topk_ids", "expert_mask", "activation", "quant_type", "doweight_stage1",
    "w1_scale", "w2_scale", "a1_scale", "a2_scale",
)  # fmt: skip
"""vLLM 0.29.0 to 0.33.0, vllm/_aiter_ops.py _rocm_aiter_fused_moe_impl: thirteen by position, in this order."""

VLLM_KEYWORDS = (
    "num_local_tokens", "dtype", "hidden_pad", "intermediate_pad", "bias1", "bias2", "moe_sorting_dispatch_policy",
    "swiglu_limit",
)  # fmt: skip
"""The same place: these by name always; gate_mode only when not empty and accepted, beta and linear_beta for SiTUv2 only."""

SGLANG_KEYWORDS = (
    "hidden_states", "w1", "w2", "topk_weight", "topk_ids", "quant_type", "activation", "w1_scale", "w2_scale", "a1_scale",
    "a2_scale", "bias1", "bias2", "expert_mask", "doweight_stage1", "hidden_pad", "intermediate_pad",
)  # fmt: skip
"""SGLang 0.5.23, srt/layers/moe/moe_runner/aiter.py: everything by name."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "swiglu_limit": (None, 0.0),
    "bias1": (None,),
    "bias2": (None,),
    "num_local_tokens": (None,),
    "hidden_pad": (0,),
    "intermediate_pad": (0,),
    "moe_sorting_dispatch_policy": (0,),
    "expert_mask": (None,),
    "beta": (None,),
    "linear_beta": (None,),
    "a1_scale": (None,),
    "a2_scale": (None,),
    "dtype": (None,),
}
"""Values that ask for nothing: leaving the parameter out changes no result."""

DROPPED_SILENTLY = ("gate_mode",)
"""vLLM looks first whether fused_moe has it and else goes on without (_aiter_ops.py fused_moe_supports_gate_mode)."""

QUANT_TYPES = {
    "none": ("No", 0),
    "fp8_tensor": ("per_Tensor", 1),
    "fp8_channel": ("per_Token", 2),
    "mxfp4": ("per_1x32", 3),
    "mxfp4_a4": ("per_1x32", 3),
    "fp8_block": ("per_128x128", 5),
}
"""AITER's QuantType by name and the number vLLM passes (experts/rocm_aiter_moe.py QuantMethod)."""

ACTIVATION_TYPES = {"silu": ("Silu", 0), "gelu": ("Gelu", 1), "swiglu": ("Swiglu", 2), "situv2": ("Situv2", 3)}
"""AITER's ActivationType by name and number (csrc/include/aiter_enum.h). Situv2 is not in every release."""


@dataclass(frozen=True, slots=True)
class Bound:
    """``args`` / ``kwargs`` fit the signature. ``unknown`` are parameters the engine passes and this release lacks; ``required``
    those it insists on and the engine does not pass. ``problem`` is why the call cannot be made, empty when it can."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    unknown: tuple[str, ...]
    required: tuple[str, ...]
    problem: str


def engine_call(case: SmokeCase) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names the engine passes (by position, by keyword) for this case."""
    if case.engine == "sglang":
        return (), SGLANG_KEYWORDS
    extra: tuple[str, ...] = ("gate_mode",) if case.gate_mode else ()
    if case.activation == "situv2":
        extra += ("beta", "linear_beta")
    return VLLM_POSITIONAL, VLLM_KEYWORDS + extra


def _neutral(name: str, value: Any) -> bool:
    # Compared by type first: a tensor must not be asked whether it equals None.
    return any(type(value) is type(v) and value == v for v in NEUTRAL.get(name, ()))


def bind(function: Callable[..., Any], case: SmokeCase, values: Mapping[str, Any]) -> Bound:
    """Fit the engine's call to ``function``. ``values`` holds a value for every name of engine_call().

    Names given by position are bound by position, so that a release which moved one shows: its own name at that place must
    be the engine's.
    """
    positional, keywords = engine_call(case)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return Bound(tuple(values[n] for n in positional), {n: values[n] for n in keywords}, (), (), "")
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    by_place = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    moved = [n for n, own in zip(positional, by_place, strict=False) if n != own]
    unknown = tuple(n for n in positional + keywords if n not in parameters and not open_ended)
    passed = set(positional) | set(keywords)
    required = tuple(
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in passed
    )
    lost = [n for n in unknown if n not in DROPPED_SILENTLY and not _neutral(n, values[n])]
    problem = ""
    if lost:
        problem = f"fused_moe here has no parameter {', '.join(lost)}, which the engine needs for this layer"
    elif required:
        problem = f"fused_moe here requires {', '.join(required)}, which the engine does not pass"
    elif moved:
        problem = f"fused_moe here has its parameters in another order than the engine passes them: {', '.join(moved)}"
    args = tuple(values[n] for n in positional if n not in unknown)
    kwargs = {n: values[n] for n in keywords if n not in unknown}
    return Bound(args, kwargs, unknown, required, problem)
