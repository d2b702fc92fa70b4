"""The quantization methods vLLM knows and those its ROCm platform takes (0.29 - 0.33 agree)."""

from __future__ import annotations

KNOWN: tuple[str, ...] = (
    "awq", "auto_awq", "fp8", "fbgemm_fp8", "fp_quant", "modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed",
    "auto_gptq", "gptq", "gptq_marlin", "awq_marlin", "humming", "compressed-tensors", "experts_int8", "quark", "moe_wna16",
    "torchao", "inc", "mxfp4", "gpt_oss_mxfp4", "deepseek_v4_fp8", "online", "fp8_per_tensor", "fp8_per_block",
    "fp8_per_channel", "int8_per_channel_weight_only", "nvfp4_per_token", "mxfp8",
)  # fmt: skip
"""QuantizationMethods (vllm/model_executor/layers/quantization/__init__.py:15), in its order: an error text lists them so."""

ROCM: frozenset[str] = frozenset(
    (
        "awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "fp8", "deepseek_v4_fp8", "compressed-tensors", "fbgemm_fp8",
        "inc", "quark", "mxfp4", "mxfp8", "torchao", "modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed",
        "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "online", "gpt_oss_mxfp4",
    )
)  # fmt: skip
"""supported_quantization (vllm/platforms/rocm.py:668)."""

DEPRECATED: frozenset[str] = frozenset(("fbgemm_fp8", "fp_quant"))
"""Refused unless --allow-deprecated-quantization is given (quantization/__init__.py:54)."""
