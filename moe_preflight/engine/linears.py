"""Quantized linear layers beside the experts that stop vLLM before any expert is built: the shared expert above all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moe_preflight.engine.plan import Deployment, Refusal
from moe_preflight.model.moe import ExpertLayer, MoEModel

_UTILS = "vllm/model_executor/layers/quantization/utils/fp8_utils.py"
_LISTS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude", "exclude_modules")


def refusals(model: MoEModel, layer: ExpertLayer, deployment: Deployment, *, fused: bool) -> list[Refusal]:
    """What the shared expert of ``layer`` refuses. ``fused``: it runs inside the routed kernel, there is no linear layer."""
    out: list[Refusal] = []
    if not fused:
        shared = _shared_blocks(model, layer, deployment)
        out += [shared] if shared else []
    forced = _forced_nvfp4(model, layer)
    out += [forced] if forced else []
    return out


def _shared_blocks(model: MoEModel, layer: ExpertLayer, deployment: Deployment) -> Refusal | None:
    """validate_fp8_block_shape (line 1296): block-fp8 linears are neither refined nor padded, and a shared expert is split by
    the whole TP size even under EP. Fp8Config lets a ragged merged gate_up pass, so its down projection speaks first."""
    quantization, tp = model.quantization, deployment.tp
    width = layer.shared_intermediate_size
    if quantization.scheme != "fp8_block" or tp <= 1 or not width or width % tp or leaves_shared_plain(model.config):
        return None
    if deployment.ep and deployment.dp > 1:
        return None  # sequence parallel: the shared expert is not split
    rows, cols = quantization.block_shape or (128, 128)
    part = width // tp
    why = f"the shared expert is a block-FP8 linear layer, {width} wide; split over {tp} ranks it is {part} on each."
    remedy = "Use a tensor parallel size that leaves whole blocks of the shared expert."
    if quantization.method in ("fp8", "deepseek_v4_fp8", None):
        if part % cols:
            text = f"Weight input_size_per_partition = {part} is not divisible by weight quantization block_k = {cols}."
            return Refusal("model", text, why, remedy, f"{_UTILS}:1324 (0.33.0)")
    elif part % rows:
        text = f"Weight output_partition_size = {part} is not divisible by weight quantization block_n = {rows}."
        return Refusal("model", text, why, remedy, f"{_UTILS}:1340 (0.33.0)")
    return None


def leaves_shared_plain(config: Mapping[str, object]) -> bool:
    """Does the checkpoint exclude its shared experts from quantization (its gate does not count)?"""
    return any("shared_expert" in name and not name.rstrip("$").endswith("gate") for name in _excluded(config))


def _excluded(config: Mapping[str, object]) -> Iterator[str]:
    for section in (config, config.get("text_config")):
        raw = section.get("quantization_config") if isinstance(section, Mapping) else None
        if isinstance(raw, Mapping):
            for key in _LISTS:
                value = raw.get(key)
                if isinstance(value, list):
                    yield from (name for name in value if isinstance(name, str))


def _forced_nvfp4(model: MoEModel, layer: ExpertLayer) -> Refusal | None:
    """Weight-only NVFP4 linears name Marlin's kernel, which a ROCm build does not have (kernels/linear/__init__.py:1256)."""
    if layer.quantization.scheme != "nvfp4_a16" or layer.quantization.method not in ("modelopt", "modelopt_mixed"):
        return None
    if not layer.shared_intermediate_size and model.quantization.scheme != "nvfp4_a16":
        return None
    text = "Forced NVFP4 kernel MarlinNvFp4LinearKernel is not supported: Marlin FP4 not available"
    why = "the checkpoint's W4A16_NVFP4 linear layers need Marlin, which is CUDA only; no MoE layer is reached."
    remedy = "Use a checkpoint in FP8 or MXFP4, or the unquantized one."
    return Refusal("model", text, why, remedy, "vllm/model_executor/kernels/linear/__init__.py:1256 (0.33.0)")
