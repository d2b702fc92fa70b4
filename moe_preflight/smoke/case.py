"""What one smoke launch is: plain data that crosses a process border as JSON. Nothing here imports torch.

Words and sizes are AITER's: ``w13`` is [experts, 2 x inter_dim, model_dim], ``w2`` is [experts, model_dim, inter_dim].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

SCHEMES = ("none", "fp8_tensor", "fp8_channel", "fp8_block", "mxfp4", "mxfp4_a4")
"""How expert weights are stored (model/moe.py's words): ``none`` is bf16/fp16; ``mxfp4`` has bf16 activations, ``mxfp4_a4``
fp4 ones."""

ACTIVATIONS = ("silu", "gelu", "gelutanh", "swiglu", "situv2")
DTYPES = ("bf16", "fp16")
SCORINGS = ("softmax", "sigmoid", "sqrtsoftplus")
ROUTERS = ("biased_grouped_topk", "grouped_topk", "topk_softmax", "topk_sigmoid", "topk_gating", "torch")

BLOCK = 128
"""Rows and columns of one scale of fp8_block."""

MX_GROUP = 32
"""Columns of one e8m0 scale of MXFP4."""


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How experts are chosen. ``kernel`` is one of ROUTERS; ``scaling_inside`` is handed to the kernel, ``scaling_outside`` is
    what the engine multiplies afterwards. ``experts`` and ``topk`` count routed experts only, over all EP ranks."""

    kernel: str
    experts: int
    topk: int
    groups: int = 1
    topk_group: int = 1
    renormalize: bool = True
    scoring: str = "softmax"
    bias: bool = False
    scaling_inside: float = 1.0
    scaling_outside: float = 1.0
    logits_dtype: str = "bf16"


@dataclass(frozen=True, slots=True)
class RealWeights:
    """Where to read one layer of a checkpoint: a folder with safetensors files, the decoder index of the layer, and which
    part of each expert this rank owns (rows of gate and up, columns of down)."""

    folder: str
    layer: int
    start: int
    moe_intermediate_size: int
    model_type: str | None = None
    first_expert: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the static side said about this launch. ``accepted`` is None when it could not tell; ``kernels`` are the tuned
    row's two names, empty for the heuristic; ``stages`` is 1, 2 or None. ``router_compiled`` False means: no such kernel.
    ``error`` is a text AITER itself was predicted to raise."""

    path: str | None = None
    stages: int | None = None
    tuned: str | None = None
    kernels: tuple[str, str] = ("", "")
    row: str | None = None
    block_m: int | None = None
    accepted: bool | None = None
    native_accepted: bool | None = None
    reason: str = ""
    error: str | None = None
    router_compiled: bool | None = None
    notes: tuple[str, ...] = ()
    aiter_version: str | None = None
    gfx: str | None = None
    cu_num: int | None = None


@dataclass(frozen=True, slots=True)
class SmokeCase:
    """One launch of one kind of layer at one token count.

    ``inter_dim`` / ``model_dim`` before padding, ``*_padded`` what the weights are allocated at. ``experts`` is w13's first
    dimension (fused shared experts included, EP-local); ``topk`` the columns of topk_ids. ``expert_bias``: the model has one;
    ``bias_passed``: the engine hands it to the kernel. ``unsupported`` is why no launch is possible, ``off_aiter`` why none
    of AITER's is (the engine runs these experts elsewhere); empty when one is.
    ``poison`` launches once more with NaN in the padding; ``native`` times the unpadded sizes too; ``deterministic`` asks the
    torch backend to add a token's experts up in a fixed order.
    """

    tokens: int
    model_dim: int
    inter_dim: int
    experts: int
    topk: int
    router: RouterSpec
    model_dim_padded: int = 0
    inter_dim_padded: int = 0
    target: int = 0
    layer: int = 0
    layer_name: str = "main"
    dtype: str = "bf16"
    scheme: str = "none"
    q_dtype_a: str | None = None
    activation: str = "silu"
    expert_bias: bool = False
    bias_passed: bool = False
    num_shared_fused: int = 0
    shared_weight: float = 1.0
    is_ep: bool = False
    doweight_stage1: bool = False
    gate_mode: str = ""
    hidden_pad: int = 0
    intermediate_pad: int = 0
    swiglu_limit: float = 0.0
    engine: str = "vllm"
    seed: int = 0
    poison: bool = False
    native: bool = True
    deterministic: bool = True
    weights: RealWeights | None = None
    prediction: Prediction = field(default_factory=Prediction)
    unsupported: str = ""
    off_aiter: str = ""

    def __post_init__(self) -> None:
        for name in ("model_dim", "inter_dim"):
            if not getattr(self, f"{name}_padded"):
                object.__setattr__(self, f"{name}_padded", getattr(self, name))

    @property
    def padded(self) -> bool:
        """Does this launch have a tail at all?"""
        return (self.model_dim_padded, self.inter_dim_padded) != (self.model_dim, self.inter_dim)

    @property
    def label(self) -> str:
        """``E192 top8 6144 x 224->256 bf16``: what a person calls it."""

        def span(a: int, b: int) -> str:
            return str(a) if a == b else f"{a}->{b}"

        dims = f"{span(self.model_dim, self.model_dim_padded)} x {span(self.inter_dim, self.inter_dim_padded)}"
        scheme = self.dtype if self.scheme == "none" else self.scheme
        return f"E{self.experts} top{self.topk} {dims} {scheme}"

    def problem(self) -> str:
        """Why this case makes no sense, or an empty string. Sizes are not trusted: they may come from a config."""
        for name in ("tokens", "model_dim", "inter_dim", "experts", "topk"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 1 << 31:
                return f"{name} is {value!r}, expected 1 to 2**31"
        if self.inter_dim_padded < self.inter_dim or self.model_dim_padded < self.model_dim:
            return "a padded size is smaller than the size before padding"
        for name, allowed in (("scheme", SCHEMES), ("activation", ACTIVATIONS), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                return f"{name} {getattr(self, name)!r} cannot be launched by smoke (known: {', '.join(allowed)})"
        return self._router_problem() or self._scale_problem()

    def _router_problem(self) -> str:
        r = self.router
        if r.kernel not in ROUTERS:
            return f"router {r.kernel!r} cannot be launched by smoke (known: {', '.join(ROUTERS)})"
        if r.scoring not in SCORINGS:
            return f"router scoring {r.scoring!r} cannot be launched by smoke (known: {', '.join(SCORINGS)})"
        if not 1 <= r.topk <= r.experts or self.topk != r.topk + self.num_shared_fused:
            return f"topk {self.topk} does not fit {r.experts} experts, {r.topk} routed and {self.num_shared_fused} shared"
        if r.groups < 1 or not 1 <= r.topk_group <= r.groups:
            return f"{r.topk_group} of {r.groups} expert groups makes no sense"
        routed_here = self.experts - self.num_shared_fused
        if routed_here < 1 or (routed_here != r.experts and not self.is_ep):
            return f"{routed_here} routed experts on this rank, but the router chooses among {r.experts}"
        return ""

    def _scale_problem(self) -> str:
        if self.scheme == "fp8_block" and (self.inter_dim_padded % BLOCK or self.model_dim_padded % BLOCK):
            return f"sizes {self.model_dim_padded} x {self.inter_dim_padded} are not whole {BLOCK}x{BLOCK} blocks"
        if self.scheme.startswith("mxfp4") and any(
            n % MX_GROUP for n in (self.inter_dim, self.model_dim, self.inter_dim_padded, self.model_dim_padded)
        ):
            return f"sizes {self.model_dim} x {self.inter_dim} are not whole groups of {MX_GROUP}"
        return ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SmokeCase:
        """The inverse of to_json(). Raises TypeError on an unknown or missing field."""
        plain = dict(data)
        plain["router"] = RouterSpec(**plain["router"])
        prediction = dict(plain.get("prediction") or {})
        for name in ("kernels", "notes"):
            if name in prediction:
                prediction[name] = tuple(prediction[name])
        plain["prediction"] = Prediction(**prediction)
        if plain.get("weights") is not None:
            plain["weights"] = RealWeights(**plain["weights"])
        return cls(**plain)


TOLERANCES = {"bf16": 0.02, "fp16": 0.01, "fp8": 0.1, "fp4x2": 0.35}
"""The largest relative error (worst token, L2 over its outputs) that counts as right, by the dtype of the activations.

The reference keeps activations and sums in float32 and uses the very weights the kernel gets, so what is left is the rounding
of activations. One rounding costs, as a share of the value, about 0.0012 for bf16 (8 bits), 0.026 for e4m3 (4 bits) and 0.12
for e2m1 with a shared scale, by the variance of a uniform error. A MoE rounds the input, the intermediate and up to topk
partial sums: bf16 lands near 0.005, fp8 near 0.05, fp4 near 0.2. A wrong expert, scale or offset is an error near 1.
"""


def tolerance(case: SmokeCase, backend: str) -> float:
    """What rel_err may be. The torch backend computes in the model's dtype whatever the weights are stored as."""
    asked = case.q_dtype_a if backend == "aiter" and case.scheme != "none" else None
    if asked is None and backend == "aiter":
        asked = {"mxfp4": "bf16", "mxfp4_a4": "fp4x2", "none": None}.get(case.scheme, "fp8")
    return TOLERANCES.get(asked or case.dtype, TOLERANCES["bf16"])


FIELDS = tuple(f.name for f in fields(SmokeCase))
