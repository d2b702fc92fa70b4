"""Shared-expert fusion: do a model's shared experts join the routed ones in AITER's kernel?

The switch is VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS.

Source: ``resolve_layer_fused_shared_expert`` (fused_moe/utils.py:55) and ``is_shared_expert_quant_fse_compatible``
(quantization/utils/config_utils.py:59), vLLM 0.33.0.
"""

from __future__ import annotations

from typing import NamedTuple

from moe_preflight.engine.experts import Ask
from moe_preflight.engine.facts.vllm_blocks import Block
from moe_preflight.engine.plan import Note
from moe_preflight.model.moe import ExpertLayer, MoEModel

_SOURCE = "vllm/model_executor/layers/quantization/utils/config_utils.py:59 (0.33.0)"


class Fused(NamedTuple):
    """``slots`` expert slots added on every rank (0: nothing is fused), and what the reader should know of it."""

    slots: int
    notes: tuple[Note, ...] = ()


def fused_shared(model: MoEModel, layer: ExpertLayer, block: Block, ask: Ask) -> Fused:
    """The fused slots of ``layer``. Nothing is fused unless the three switches are on and the GPU is one of AITER's."""
    requested = ask.env.flag("VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS")
    if block.fse != "own":  # MiniMax-M3 and DeepSeek-V4 look at that one variable alone
        requested = requested and ask.aiter_moe
    if not requested or not layer.shared_intermediate_size or not ask.gated or ask.split.mori:
        return Fused(0)
    why_not = _why_not(model, layer, block, ask)
    if why_not:
        message = f"VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS is on, but vLLM does not fuse here: {why_not}."
        return Fused(0, (Note("shared-experts-not-fused", message, _SOURCE),))
    count = 1 if block.fse == "gated" else layer.n_shared
    message = f"{count} shared expert{'s' if count > 1 else ''} run inside the routed kernel on every rank."
    return Fused(count, (Note("shared-experts-fused", message, _SOURCE, {"count": count}),))


def _why_not(model: MoEModel, layer: ExpertLayer, block: Block, ask: Ask) -> str | None:
    if block.fse == "no":
        return "this model file has no fused path"
    if block.fse == "own" and ask.split.use_ep:
        return "this model does not fuse under expert parallelism"
    if block.name == "deepseek_v4":
        quark = layer.quantization.method == "quark" and layer.quantization.scheme.startswith("mxfp4")
        return None if quark else "DeepSeek-V4 fuses only with Quark MXFP4"
    if block.name == "glm5next" and not (
        ask.gfx == "gfx950" and ask.split.flat in (4, 8) and ask.split.dp == 1 and ask.split.pcp == 1 and not ask.split.use_ep
    ):
        return "GLM-5.3-Flash fuses only on gfx950 with tensor parallelism 4 or 8 alone"
    if block.fse == "gated" and layer.n_shared > 1:
        return "more than one shared expert"
    quantization = layer.quantization
    if quantization.scheme == "none" and model.quantization.scheme == "none":
        return None
    if quantization.method == "quark" or (quantization.method == "fp8" and quantization.scheme == "fp8_block"):
        return None
    return f"fused shared experts are not implemented for {quantization.method or 'a layer left out of quantization'}"
