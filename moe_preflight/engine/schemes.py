"""From a layer's quantization to the vLLM method that serves it: one row a scheme."""

from __future__ import annotations

from collections.abc import Callable

from moe_preflight.engine import fp8, mxfp4, otherquant, unquantized
from moe_preflight.engine.choice import Choice, Question, refused, with_notes
from moe_preflight.engine.plan import BackendChoice, Note, Refusal

Chooser = Callable[[Question], Choice]

SCHEMES: dict[str, Chooser] = {
    "none": unquantized.choose,
    "fp8_tensor": fp8.choose,
    "fp8_channel": fp8.choose,
    "fp8_block": fp8.choose,
    "mxfp4": mxfp4.choose,
    "mxfp4_a4": mxfp4.choose,
    "mxfp4_a8": mxfp4.choose,
    "mxfp6": mxfp4.choose,
    "mxfp8": otherquant.mxfp8,
    "nvfp4": otherquant.nvfp4,
    "nvfp4_a16": otherquant.nvfp4,
    "int4": otherquant.wna16,
    "int8_w8a16": otherquant.wna16,
    "int8": otherquant.int8,
    "int4_fp8": otherquant.int4_fp8,
}


def choose(q: Question) -> Choice:
    """The method's answer for ``q``; a scheme no method of vLLM serves is refused."""
    scheme = q.layer.quantization.scheme
    if q.block == "deepseek_v4" and q.ask.backend == "aiter_mega_moe":
        source = "vllm/models/deepseek_v4/amd/model.py:720 (0.33.0)"
        backend = BackendChoice("AITER_MEGA_MOE", "asked for by --moe-backend aiter_mega_moe", (), False, source)
        return Choice("DeepseekV4AiterMegaMoEExperts", backend, q.sizes, bytes_per_element=0.5)
    if scheme == "other" and q.layer.quantization.method in (None, "mlx"):
        # A quantization_config without quant_method (MLX writes such) is none to vLLM: it builds plain layers.
        text = "quantization_config names no quant_method, so vLLM builds unquantized experts; the checkpoint will not load into them."
        return with_notes(unquantized.choose(q), Note("quantization-ignored", text, "vllm/config/model.py (0.33.0)"))
    chooser = SCHEMES.get(scheme)
    if chooser is None:
        method = q.layer.quantization.method
        why = f"we know no vLLM method for experts stored as {method or scheme}."
        text = f"Unsupported FusedMoe scheme: {q.layer.quantization.weight_dtype}, {q.layer.quantization.activation_dtype}"
        source = "vllm/model_executor/layers/quantization (0.33.0)"
        return refused("", q.sizes, Refusal("layer", text, why, "Use --engine aiter to judge the bare shape.", source))
    return chooser(q)
