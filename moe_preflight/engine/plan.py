"""What an engine will ask of AITER: the nouns of the engine room.

An engine module offers ``plan(model, deployment) -> EnginePlan``. It always returns a plan: a refusal is part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moe_preflight.hardware import Gpu
from moe_preflight.model.moe import ExpertLayer, MoEModel


@dataclass(frozen=True, slots=True)
class Deployment:
    """How the model is to be served. ``env`` is what the engine process would see beyond our defaults (AITER and its MoE
    switched on). ``ep_size`` is given for SGLang only; vLLM computes it from ``ep``."""

    gpu: Gpu
    engine: str = "vllm"
    engine_version: str = "0.33.0"
    tp: int = 1
    dp: int = 1
    pcp: int = 1
    pp: int = 1
    ep: bool = False
    ep_size: int | None = None
    redundant_experts: int = 0
    moe_backend: str = "auto"
    all2all: str | None = None
    lora: bool = False
    max_num_batched_tokens: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine itself stops. ``error`` is its own text, so that a log can be matched; ``stage`` is config, model or layer."""

    stage: str
    error: str
    why: str
    remedy: str
    source: str


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """``name`` is the engine's own (AITER, TRITON, EMULATION, AITER_MXFP4_BF16 ...), None when it refuses. ``rejected`` are
    (name, reason) pairs in the order the engine tried them. ``on_aiter``: do the experts reach aiter.fused_moe?"""

    name: str | None
    reason: str
    rejected: tuple[tuple[str, str], ...] = ()
    on_aiter: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class RankProblem:
    """One rank's expert GEMMs. ``inter_dim`` / ``model_dim`` before padding, ``*_padded`` what AITER is asked.

    ``expert`` and ``topk`` are what AITER sees (fused shared experts included, EP-local); ``lookup_expert`` /
    ``lookup_topk`` what the tuned key holds before AITER's own EP adjustment. ``alignment`` is the rounding unit applied
    to inter_dim, None when no rule applied. dtypes and q_type are AITER's short names (aiter/key.py); None when the
    experts never reach AITER. A ``q_dtype_a`` of None beside a q_type: the engine passes none, AITER's own rule decides.
    ``hidden_pad`` / ``intermediate_pad`` are the arguments passed along.
    """

    model_dim: int
    model_dim_padded: int
    inter_dim: int
    inter_dim_padded: int
    alignment: int | None
    expert: int
    topk: int
    act_type: str
    dtype: str
    q_dtype_a: str | None
    q_dtype_w: str | None
    q_type: str | None
    use_g1u1: bool = True
    doweight_stage1: bool = False
    num_shared_fused: int = 0
    hidden_pad: int = 0
    intermediate_pad: int = 0
    gate_mode: str = "separated"
    is_ep: bool = False
    moe_tp_size: int = 1
    ep_size: int = 1
    global_experts: int = 0
    weight_bytes_per_element: float = 2.0
    aiter_env: tuple[tuple[str, str], ...] = ()
    """AITER variables that the engine sets in its own process before it calls AITER, over whatever the user gave."""
    sorting_policy: int = 0
    """moe_sorting_dispatch_policy: 0 auto, 1 single kernel, 2 multi-phase."""


@dataclass(frozen=True, slots=True)
class RouterCall:
    """How the engine routes. ``kind`` is the engine's router class; ``kernel`` the kernel asked at the smallest batches, in
    the words of DESIGN section 6 (biased_grouped_topk, grouped_topk, topk_softmax, topk_sigmoid, topk_gating, torch, other ...).

    ``num_expert_group`` is what the engine would pass, even when it then falls back (``falls_back_to``, ``fallback_reason``).
    ``scaling_inside`` is the routed_scaling_factor handed *into* AITER (1.0 when the engine multiplies itself).
    ``alternatives`` are (from_tokens, kernel) where the engine itself switches by batch size, e.g. topk_gating -> topk_softmax.
    """

    kind: str
    kernel: str
    experts: int
    topk: int
    num_expert_group_naive: int | None = None
    num_expert_group: int | None = None
    topk_group: int | None = None
    renormalize: bool = True
    scoring: str = "softmax"
    bias: bool = False
    scaling_inside: float = 1.0
    falls_back_to: str | None = None
    fallback_reason: str = ""
    on_aiter: bool = False
    alternatives: tuple[tuple[int, str], ...] = ()
    logits_dtype: str = "bf16"
    ids_dtype: str = "int32"
    source: str = ""
    passes: tuple[tuple[str, str], ...] = ()
    """(kernel, argument) pairs the engine hands over beyond AITER's oldest signature, such as (topk_softmax,
    num_shared_experts): an older AITER has no such parameter."""
    prefers_asm: bool = False
    """True when softmax routing goes through aiter.fused_moe.fused_topk, which takes the assembly kernel where it has one."""
    num_shared: int = 0
    """Shared experts scored by the routing kernel itself (topk_softmax only)."""
    bias_dtype: str | None = None
    """dtype of the selection bias as handed to AITER; None: the same as the logits."""
    logits_strided: bool = False
    """Are rows of the logits further apart than experts?"""
    outputs_strided: bool = False
    """Are rows of weights and ids further apart than topk (a slice of a wider buffer)?"""


@dataclass(frozen=True, slots=True)
class Note:
    """Something the engine does silently that a rule turns into a finding. ``code`` is stable (``expert-bias-dropped``,
    ``padding-not-zeroed`` ...), ``data`` its numbers, ``source`` file:line or the facts' section."""

    code: str
    message: str
    source: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One kind of layer under one deployment. ``layers_per_rank`` is the most layers of this kind one rank owns under PP."""

    layer: ExpertLayer
    backend: BackendChoice
    problem: RankProblem
    router: RouterCall
    zero_filled_by: str | None = None
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Note, ...] = ()
    layers_per_rank: int = 0
    quant_method: str | None = None
    """The engine's own class or method that serves the layer's quantization (Fp8MoEMethod ...)."""
    routing_method: str | None = None
    """vLLM's RoutingMethodType of the router, by which it chooses fused kernels."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """``refusals`` stop the engine before any MoE layer; ``confidence`` is ``unverified`` outside the versions we read.
    ``facts_version`` is the engine version whose facts were used. ``aiter_pin`` is the AITER its image ships, if known."""

    model: MoEModel
    deployment: Deployment
    layers: tuple[LayerPlan, ...]
    refusals: tuple[Refusal, ...] = ()
    confidence: str = "read"
    facts_version: str = ""
    aiter_pin: str | None = None
    ep_size: int = 1
    notes: tuple[Note, ...] = ()
