"""The environment the engine process would see: our defaults (AITER and its MoE switched on) under the user's overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moe_preflight.engine.plan import Note
from moe_preflight.errors import UsageError

SOURCE = "vllm/envs.py:1267 (0.33.0)"

DEFAULTS: dict[str, str] = {"VLLM_ROCM_USE_AITER": "1"}
"""Set before the user's own: the report says that AITER MoE is taken as switched on."""

# The VLLM_ROCM_* names of 0.29.0 - 0.33.0 and the few others a MoE rule reads, by how envs.py parses them.
# bool: lower() in ("true", "1"), anything else is off without a word. int: int(), a ValueError stops the engine.
_BOOLS = {
    "VLLM_ROCM_USE_AITER": False, "VLLM_ROCM_USE_AITER_MOE": True, "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": False,
    "VLLM_ROCM_USE_AITER_CUSTOM_AR": True, "VLLM_ROCM_USE_AITER_LINEAR": True, "VLLM_ROCM_USE_AITER_LINEAR_HIPBMM": False,
    "VLLM_ROCM_USE_AITER_RMSNORM": True, "VLLM_ROCM_USE_AITER_MLA": True, "VLLM_ROCM_USE_AITER_MHA": True,
    "VLLM_ROCM_USE_AITER_TRITON_SPARSE_MLA": False, "VLLM_ROCM_USE_AITER_TRITON_ROPE": False,
    "VLLM_ROCM_USE_AITER_FP8BMM": True, "VLLM_ROCM_USE_AITER_FP4BMM": True, "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION": False,
    "VLLM_ROCM_USE_AITER_TRITON_GEMM": True, "VLLM_ROCM_USE_SKINNY_GEMM": True, "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": False,
    "VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16": True, "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": False,
}  # fmt: skip
_INTS = (
    "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY", "VLLM_ROCM_MOE_PADDING", "VLLM_ROCM_FP8_PADDING", "VLLM_BATCH_INVARIANT",
    "VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE", "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4", "VLLM_ROCM_FP8_MFMA_PAGE_ATTN",
    "VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB", "VLLM_ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB",
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB", "VLLM_USE_DEEP_GEMM", "VLLM_MOE_USE_DEEP_GEMM",
)  # fmt: skip
_CHOICES = {"VLLM_ROCM_USE_AITER_MOE_SITUV2": ("auto", "a4w4", "a8w4", "a16w4", "0", "1")}
_TEXTS = (
    "VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "VLLM_PP_LAYER_PARTITION", "VLLM_ROCM_AITER_MLA_ASM_PADDING",
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION", "VLLM_ROCM_MUSE_MOE_REDUCE_DTYPE", "VLLM_ROCM_MUSE_MOE_ONLINE_QUANT",
)  # fmt: skip
_POLICIES = (0, 1, 2)


class Environment(NamedTuple):
    """Parsed values; ``values`` holds the raw texts of everything that is set (vLLM's ``is_set`` asks for that)."""

    values: Mapping[str, str]
    notes: tuple[Note, ...] = ()

    def is_set(self, name: str) -> bool:
        """Is the variable in the environment at all (envs.py:2346)?"""
        return name in self.values

    def flag(self, name: str) -> bool:
        """A boolean switch: ``true`` or ``1`` is on, its default when unset."""
        raw = self.values.get(name)
        return _BOOLS.get(name, False) if raw is None else raw.lower() in ("true", "1")

    def number(self, name: str, default: int = 0) -> int:
        raw = self.values.get(name)
        return default if raw is None else int(raw)

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    @property
    def aiter(self) -> bool:
        return self.flag("VLLM_ROCM_USE_AITER")

    @property
    def aiter_moe(self) -> bool:
        """The two switches of AITER's MoE; the GPU still has to be one of AITER's (experts.py)."""
        return self.aiter and self.flag("VLLM_ROCM_USE_AITER_MOE")

    @property
    def fuse_shared_experts(self) -> bool:
        return self.aiter_moe and self.flag("VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS")

    @property
    def batch_invariant(self) -> bool:
        return bool(self.number("VLLM_BATCH_INVARIANT"))


def read(overrides: Mapping[str, str]) -> Environment:
    """The environment under ``overrides``. Raises UsageError for a VLLM_ROCM_* name nobody reads or a value vLLM refuses."""
    notes: list[Note] = []
    for name, value in overrides.items():
        _check(name, value, notes)
    values = {**DEFAULTS, **overrides}
    if not overrides.keys() & {"VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE"}:
        notes.append(Note("aiter-taken-as-on", "AITER MoE is taken as switched on (VLLM_ROCM_USE_AITER=1).", SOURCE))
    return Environment(values, tuple(notes))


def _check(name: str, value: str, notes: list[Note]) -> None:
    if name in _BOOLS:
        if value.lower() not in ("true", "false", "1", "0"):
            notes.append(Note("env-reads-as-off", f"{name}={value} reads as off: vLLM accepts only 1 and true.", SOURCE))
    elif name in _INTS:
        if not value.strip().lstrip("+-").isdecimal() or len(value) > 18:
            raise UsageError(f"--engine-env {name}={value}: vLLM stops here.", hint="Expected a whole number.")
        if name == "VLLM_ROCM_AITER_MOE_DISPATCH_POLICY" and int(value) not in _POLICIES:
            raise UsageError(f"--engine-env {name}={value}: no such sorting policy.", hint="Expected 0, 1 or 2.")
    elif name in _CHOICES:
        if value.lower() not in _CHOICES[name]:
            raise UsageError(f"--engine-env {name}={value}: vLLM stops here.", hint=f"Expected {', '.join(_CHOICES[name])}.")
    elif name not in _TEXTS and name.startswith("VLLM_ROCM_"):
        from difflib import get_close_matches

        known = [*_BOOLS, *_INTS, *_CHOICES, *_TEXTS]
        close = get_close_matches(name, known, n=1)
        raise UsageError(
            f"--engine-env {name}: vLLM 0.29 - 0.33 reads no such variable.", hint=f"Did you mean {close[0]}?" if close else ""
        )
