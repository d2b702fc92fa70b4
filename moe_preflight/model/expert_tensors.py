"""Which tensors of a checkpoint are routed experts, and what each is: the names and layouts in use, as tables.

Names by family: github vllm model files, transformers 5.24.0 ``conversion_mapping.py`` and modeling files. w1 is gate, w3 up and
w2 down everywhere; what a stacked tensor holds is decided by its shape where that can tell, else by the family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from moe_preflight.model.safetensors import Tensor

ROLES: dict[str, str] = {
    "gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "v1": "up", "down_proj": "down", "w2": "down",
    "gate_up_proj": "gate_up", "w13": "gate_up", "input_linear": "gate_up", "fc1": "gate_up", "output_linear": "down",
    "fc2": "down",
}  # fmt: skip

WEIGHTS = ("weight", "weight_packed", "qweight", "blocks", "")
SCALES = (
    "weight_scale", "weight_scale_inv", "scale", "scales", "weight_scale_2", "input_scale", "qzeros", "g_idx", "weight_shape",
    "weight_zero_point", "weight_global_scale", "input_global_scale", "activation_scale", "input_scale_inv",
)  # fmt: skip

TRANSPOSED_FAMILIES = frozenset({"llama4", "gpt_oss", "qwen3_moe"})
"""Families whose stacked bf16 experts are stored [E, in, out]: llama4, gpt_oss, qwen3_vl_moe. Others keep Linear's [E, out, in]."""
INTERLEAVED_FAMILIES = frozenset({"gpt_oss", "inkling"})
"""Even rows gate, odd rows up; the other fused families keep two halves, gate first."""

_EXPERT = re.compile(r"experts\.(\d{1,6})\.(\w+)\.(\w+)\Z")
_STACK = re.compile(r"experts\.(?:mlp\.)?([a-z]\w*?)(?:[._](weight\w*|blocks|scales|bias|scale|input_scale))?\Z")
_BARE = re.compile(r"(?:block_sparse_moe|moe)\.(input_linear|output_linear|gate_proj|up_proj|down_proj)\.(\w+)\Z")
_LAYER = re.compile(r"(?:\A|\.)(mtp\.)?(?:layers|blocks|h)\.(\d{1,5})\.")
_MTP = re.compile(r"(?:\A|\.)mtp\.(\d{1,4})\.")


@dataclass(frozen=True, slots=True)
class ExpertTensor:
    """One tensor of one layer's routed experts. ``expert`` is None for a tensor that holds all of them."""

    tensor: Tensor
    layer: int
    mtp: bool
    expert: int | None
    role: str
    suffix: str

    @property
    def is_weight(self) -> bool:
        return self.suffix in WEIGHTS


def recognise(tensor: Tensor) -> ExpertTensor | None:
    """What this tensor is among the experts, or None: attention, shared experts, routers and norms are not asked for."""
    name = tensor.name
    at = name.rfind("experts.")
    if at > 0 and name[at - 1] == ".":
        tail = name[at:]
        if (m := _EXPERT.match(tail)) and m[2] in ROLES:
            return _placed(tensor, name[:at], int(m[1]), ROLES[m[2]], m[3])
        if (m := _STACK.match(tail)) and (role := _stacked_role(m[1])) is not None:
            return _placed(tensor, name[:at], None, role, m[2] or "")
        return None
    m = _BARE.search(name)
    return _placed(tensor, name[: m.start()], None, ROLES[m[1]], m[2]) if m else None


def _stacked_role(word: str) -> str | None:
    return ROLES.get(word)


def _placed(tensor: Tensor, prefix: str, expert: int | None, role: str, suffix: str) -> ExpertTensor | None:
    if suffix != "bias" and suffix not in WEIGHTS and suffix not in SCALES:
        return None
    if m := _LAYER.search(prefix + "."):
        return ExpertTensor(tensor, int(m[2]), bool(m[1]), expert, role, suffix)
    if m := _MTP.search(prefix + "."):
        return ExpertTensor(tensor, int(m[1]), True, expert, role, suffix)
    return None
