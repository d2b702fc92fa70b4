"""From a layer's quantization to the vLLM method that serves it: one row a scheme."""

from __future__ import annotations

from collections.abc import Callable

from moe_preflight.engine import fp8, unquantized
from moe_preflight.engine.choice import Choice, Question, refused
from moe_preflight.engine.plan import Refusal

Chooser = Callable[[Question], Choice]

SCHEMES: dict[str, Chooser] = {
    "none": unquantized.choose,
    "fp8_tensor": fp8.choose,
    "fp8_channel": fp8.choose,
    "fp8_block": fp8.choose,
}


def choose(q: Question) -> Choice:
    """The method's answer for ``q``; a scheme no method of vLLM serves is refused."""
    scheme = q.layer.quantization.scheme
    chooser = SCHEMES.get(scheme)
    if chooser is None:
        method = q.layer.quantization.method
        why = f"we know no vLLM method for experts stored as {method or scheme}."
        text = f"Unknown quantization method: {method}."
        source = "vllm/model_executor/layers/quantization/__init__.py (0.33.0)"
        return refused("", q.sizes, Refusal("config", text, why, "Use --engine aiter to judge the bare shape.", source))
    return chooser(q)
