"""What each of vLLM's expert kernels accepts, and the common test every selector runs (modular_kernel.py:580).

A kernel is a row: where it runs, gated or not, activations, quantization keys, parallel limits, routing methods. The order
of the questions is vLLM's, so that the first objection is the one its error text names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moe_preflight.engine.environment import Environment
from moe_preflight.engine.facts.vllm_releases import Release
from moe_preflight.engine.parallel import Split

SOURCE = "vllm/model_executor/layers/fused_moe/modular_kernel.py:580 (0.33.0)"

CDNA = {"gfx90a": 2, "gfx942": 3, "gfx950": 4, "gfx1250": 5}
"""get_cdna_version (vllm/platforms/rocm.py:367); anything else is 0."""


METHOD_NUMBERS = {
    "Default": 0, "Renormalize": 1, "DeepSeekV3": 2, "Llama4": 3, "RenormalizeNaive": 4, "TopK": 5, "SigmoidRenorm": 6,
    "MiniMax2": 7, "Sigmoid": 8, "Unspecified": 9, "DeepseekV4": 100, "Custom": 101, "Simulated": 102,
}  # fmt: skip
"""RoutingMethodType (fused_moe/config.py:105), an IntEnum: vLLM's messages show the number."""


class Ask(NamedTuple):
    """One deployment's question to a kernel. ``weight`` / ``activation_key`` are vLLM's QuantKey texts, None when plain."""

    gfx: str
    env: Environment
    release: Release
    split: Split
    activation: str
    method: str
    weight: str | None = None
    activation_key: str | None = None
    lora: bool = False
    hash_routed: bool = False
    hidden: int = 0
    backend: str = "auto"
    model_type: str | None = None
    quark: bool = False
    """Is the amd-quark package taken as installed? It comes with vLLM's ROCm requirements; the emulation kernels need it."""

    batched_by_name: bool = False
    """--moe-backend batched_triton on an unquantized layer: the batched format without a batched all2all."""

    @property
    def batched(self) -> bool:
        """Does the experts' input come expert by expert?"""
        return self.split.batched or self.batched_by_name

    @property
    def aiter_found(self) -> bool:
        """is_aiter_found_and_supported: ROCm, the package is there (taken as given), CDNA3 or newer (_aiter_ops.py)."""
        return CDNA.get(self.gfx, 0) > 2

    @property
    def aiter_moe(self) -> bool:
        """rocm_aiter_ops.is_fused_moe_enabled()."""
        return self.aiter_found and self.env.aiter_moe

    @property
    def aiter(self) -> bool:
        """rocm_aiter_ops.is_enabled(): the master switch only."""
        return self.aiter_found and self.env.aiter

    @property
    def mx(self) -> bool:
        """current_platform.supports_mx() (platforms/rocm.py)."""
        return self.gfx.startswith("gfx95") or self.gfx == "gfx1250"

    @property
    def gated(self) -> bool:
        return not self.activation.endswith("_no_mul")


Device = Callable[[Ask], bool]
Scheme = Callable[[Ask], bool]


def _no_nvlink(split: Split) -> bool:
    return not split.nvlink


def _any_rocm(ask: Ask) -> bool:
    return True


def _any_scheme(ask: Ask) -> bool:
    return True


class Kernel(NamedTuple):
    """One expert kernel class. ``activations`` None: every one vLLM can apply. ``fits`` takes the parallel limits."""

    name: str
    source: str
    device: Device = _any_rocm
    scheme: Scheme = _any_scheme
    activations: frozenset[str] | None = None
    non_gated: bool = False
    fits: Callable[[Split], bool] = _no_nvlink
    methods: frozenset[str] | None = None
    monolithic: bool = False
    hash_routing: bool = False
    batched: bool = False
    batch_invariant: bool = False
    lora: bool = False
    on_aiter: bool = False
    needs_quark: bool = False
    names_switches: bool = False
    """Does the objection go on to name AITER's two switches when they are off (AiterExperts.is_supported_config)?"""
    hardwired: tuple[str, ...] = ()
    """The only activations a kernel computes although its class lists more."""


def objection(kernel: Kernel, ask: Ask) -> str | None:
    """Why ``kernel`` does not take ``ask``, in vLLM's words, or None when it does."""
    if kernel.needs_quark and not ask.quark:
        return "kernel requires amd-quark package"
    reason = _first(kernel, ask)
    if reason is None and kernel.hardwired and ask.activation not in kernel.hardwired:
        wanted = f"hardcodes SwiGLU-OAI activation and requires activation={kernel.hardwired[0]}"
        if len(kernel.hardwired) > 1:
            wanted = "supports only SiLU or SwiGLU-OAI activation"
        return f"kernel {wanted}; got activation={ask.activation}"
    if reason is None:
        return None
    text = f"kernel does not support {reason}"
    if kernel.names_switches and not ask.aiter_moe:
        text += ". AITER MoE is not enabled — set VLLM_ROCM_USE_AITER=1 and VLLM_ROCM_USE_AITER_MOE=1 to enable it"
    return text


_FORMATS = ("standard", "('batched_experts',)")
"""FusedMoEActivationFormat's values as vLLM's messages show them: the second is a tuple by a stray comma."""


def _first(kernel: Kernel, ask: Ask) -> str | None:
    tests: tuple[tuple[bool, str], ...] = (
        (kernel.device(ask), "current device rocm"),
        (ask.gated or kernel.non_gated, "no act_and_mul MLP layer"),
        (
            kernel.activations is None or ask.activation in kernel.activations,
            f"MoEActivation.{ask.activation.upper()} activation",
        ),
        (kernel.scheme(ask), f"quantization scheme {ask.weight}x{ask.activation_key}"),
        (kernel.fits(ask.split), f"parallel config ep={ask.split.use_ep} all2all={ask.split.all2all}"),
        (not (ask.hash_routed and kernel.monolithic) or kernel.hash_routing, "hash routing"),
        (kernel.methods is None or ask.method in kernel.methods, f"routing method {METHOD_NUMBERS.get(ask.method, ask.method)}"),
        (kernel.batched == ask.batched, f"{_FORMATS[ask.batched]} activation format"),
        (not ask.env.batch_invariant or kernel.batch_invariant, "batch invariance"),
        (not ask.lora or kernel.lora, "LoRA"),
    )
    return next((reason for ok, reason in tests if not ok), None)
