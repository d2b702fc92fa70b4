"""``--quant NAME``: a quantization for a model that has no config yet, as the format most checkpoints use would say it."""

from __future__ import annotations

from moe_preflight.errors import UsageError
from moe_preflight.model.moe import Quantization

_CT, _PACKED = "compressed-tensors", {"format": "pack-quantized"}

FLAGS: dict[str, Quantization] = {
    "none": Quantization(),
    "fp8_tensor": Quantization("fp8", "fp8_tensor", "fp8", "fp8", "tensor", "tensor", True, detail={"activation_scheme": "dynamic"}),
    "fp8_channel": Quantization(_CT, "fp8_channel", "fp8", "fp8", "channel", "token", True, detail={"format": "float-quantized"}),
    "fp8_block": Quantization("fp8", "fp8_block", "fp8", "fp8", "block", "group", True, (128, 128)),
    "mxfp4": Quantization("mxfp4", "mxfp4", "fp4", weight_strategy="group", group_size=32),
    "mxfp4_a4": Quantization("quark", "mxfp4_a4", "fp4", "fp4", "group", "group", True, group_size=32),
    "mxfp4_a8": Quantization("quark", "mxfp4_a8", "fp4", "fp8", "group", "tensor", False, group_size=32),
    "mxfp6": Quantization("quark", "mxfp6", "fp6_e3m2", None, "group", group_size=32),
    "mxfp8": Quantization("modelopt", "mxfp8", "fp8", "fp8", "group", "group", True, group_size=32, detail={"quant_algo": "MXFP8"}),
    "nvfp4": Quantization("modelopt", "nvfp4", "fp4", "fp4", "group", "group", True, group_size=16, detail={"quant_algo": "NVFP4"}),
    "nvfp4_a16": Quantization("modelopt", "nvfp4_a16", "fp4", weight_strategy="group", group_size=16, detail={"quant_algo": "W4A16_NVFP4"}),
    "int4": Quantization(_CT, "int4", "int4", weight_strategy="group", group_size=128, detail=_PACKED),
    "int8_w8a16": Quantization(_CT, "int8_w8a16", "int8", weight_strategy="group", group_size=128, detail=_PACKED),
    "int8": Quantization(_CT, "int8", "int8", "int8", "channel", "token", True, detail={"format": "int-quantized"}),
    "int4_fp8": Quantization("quark", "int4_fp8", "int4", "fp8", "channel", "token", True),
}  # fmt: skip


def from_flag(name: str) -> Quantization:
    """The quantization ``--quant NAME`` stands for. Raises UsageError for a name that is none of FLAGS."""
    found = FLAGS.get(name.strip().lower().replace("-", "_"))
    if found is None:
        from difflib import get_close_matches

        close = get_close_matches(name, FLAGS, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(f"--quant {name}: unknown quantization.", hint=f"{guess}Known: {', '.join(FLAGS)}.")
    return found
