"""From a layer's quantization to the vLLM method that serves it: one row a scheme.

The rows import what they need when they are used: most runs see one scheme, and start-up time is counted.
"""

from __future__ import annotations

from collections.abc import Callable

from moe_preflight.engine import unquantized
from moe_preflight.engine.choice import Choice, Question, refused, with_notes
from moe_preflight.engine.facts.vllm_releases import at_least
from moe_preflight.engine.plan import BackendChoice, Note, Refusal
from moe_preflight.model.moe import Quantization

Chooser = Callable[[Question], Choice]


def _fp8(q: Question) -> Choice:
    from moe_preflight.engine import fp8

    return fp8.choose(q)


def _mxfp4(q: Question) -> Choice:
    from moe_preflight.engine import mxfp4

    return mxfp4.choose(q)


def _other(q: Question) -> Choice:
    from moe_preflight.engine import otherquant

    return otherquant.CHOOSERS[q.layer.quantization.scheme](q)


SCHEMES: dict[str, Chooser] = {
    "none": unquantized.choose,
    **dict.fromkeys(("fp8_tensor", "fp8_channel", "fp8_block"), _fp8),
    **dict.fromkeys(("mxfp4", "mxfp4_a4", "mxfp4_a8", "mxfp6"), _mxfp4),
    **dict.fromkeys(("mxfp8", "nvfp4", "nvfp4_a16", "int4", "int8_w8a16", "int8", "int4_fp8"), _other),
}


_BALANCED = frozenset(
    (
        "UnquantizedFusedMoEMethod", "Fp8MoEMethod", "CompressedTensorsW8A8Fp8MoEMethod", "ModelOptNvFp4FusedMoE",
        "Mxfp4MoEMethod", "QuarkOCP_MX_MoEMethod",
    )
)  # fmt: skip
"""Methods whose experts the load balancer may move (supports_eplb). Quark's MXFP8 joined with 0.33.0 (quark_moe.py:2140)."""


def unbalanced(choice: Choice, q: Question) -> Refusal | None:
    """vLLM's refusal of the expert load balancer for a method that does not support it (routed_experts.py:186)."""
    method = choice.method
    fits = method in _BALANCED or (method == "QuarkW8A8Mxfp8MoEMethod" and at_least(q.ask.release, "0.33.0"))
    if method == "CompressedTensorsWNA16MoEMethod":
        fits = choice.backend.name == "TRITON"
    if fits or not method or not q.ask.split.eplb:
        return None
    why = f"{method} does not say that its experts may be moved between ranks."
    remedy = "Drop --enable-eplb and its redundant experts."
    where = "vllm/model_executor/layers/fused_moe/routed_experts.py:197 (0.33.0)"
    return Refusal("layer", f"EPLB is not supported {method}.", why, remedy, where)


def is_fp4_by_fp6(quantization: Quantization) -> bool:
    """Quark's MXFP4 weights with MXFP6 activations (ocp_mx_utils.py:103): no scheme of ours, but vLLM emulates it."""
    activation = quantization.activation_dtype or ""
    return quantization.method == "quark" and quantization.weight_dtype == "fp4" and activation.startswith("fp6")


def choose(q: Question) -> Choice:
    """The method's answer for ``q``; a scheme no method of vLLM serves is refused."""
    quantization = q.layer.quantization
    if q.block == "deepseek_v4" and q.ask.backend == "aiter_mega_moe":
        source = "vllm/models/deepseek_v4/amd/model.py:720 (0.33.0)"
        backend = BackendChoice("AITER_MEGA_MOE", "asked for by --moe-backend aiter_mega_moe", (), False, source)
        return Choice("DeepseekV4AiterMegaMoEExperts", backend, q.sizes, bytes_per_element=0.5)
    if quantization.scheme == "other" and quantization.method in (None, "mlx"):
        # A quantization_config without quant_method (MLX writes such) is none to vLLM: it builds plain layers.
        text = "quantization_config names no quant_method: vLLM builds unquantized experts, which the checkpoint does not fit."
        return with_notes(unquantized.choose(q), Note("quantization-ignored", text, "vllm/config/model.py (0.33.0)"))
    chooser = SCHEMES.get(quantization.scheme)
    if is_fp4_by_fp6(quantization):
        chooser = _mxfp4
    if chooser is None:
        why = f"we know no vLLM method for experts stored as {quantization.method or quantization.scheme}."
        text = f"Unsupported FusedMoe scheme: {quantization.weight_dtype}, {quantization.activation_dtype}"
        source = "vllm/model_executor/layers/quantization (0.33.0)"
        return refused("", q.sizes, Refusal("layer", text, why, "Use --engine aiter to judge the bare shape.", source))
    return chooser(q)
