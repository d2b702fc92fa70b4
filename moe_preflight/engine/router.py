"""Which router vLLM builds for a layer, which kernel it asks of AITER, with how many groups (fused_moe/router/*.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from moe_preflight.engine.facts.vllm_blocks import Block
from moe_preflight.engine.facts.vllm_releases import Release, at_least
from moe_preflight.engine.plan import RouterCall
from moe_preflight.model.moe import ExpertLayer

SUPPORTED_GROUPS = (1, 2, 4, 8)
EXPERTS_PER_GROUP = 32
TOPK_GATING_MAX_TOKENS = 4096

_FACTORY = "vllm/model_executor/layers/fused_moe/router/router_factory.py"
_BIAS = "vllm/model_executor/layers/fused_moe/router/fused_topk_bias_router.py"
_GROUPED = "vllm/model_executor/layers/fused_moe/router/grouped_topk_router.py"
_PLAIN = "vllm/model_executor/layers/fused_moe/router/fused_topk_router.py"


def naive_groups(experts: int) -> int:
    """The smallest group count that divides ``experts`` with at most 32 in each group (fused_topk_bias_router.py:112)."""
    groups = max(1, -(-experts // EXPERTS_PER_GROUP))
    while experts % groups:
        groups += 1
    return groups


def engine_groups(experts: int, release: Release) -> int:
    """The group count vLLM passes: from 0.32.0 the largest of 8, 4, 2, 1 that fits replaces one AITER has no kernel for."""
    groups = naive_groups(experts)
    if not release.group_count_rounding or groups in SUPPORTED_GROUPS:
        return groups
    fits = (c for c in reversed(SUPPORTED_GROUPS) if experts % c == 0 and experts // c <= EXPERTS_PER_GROUP)
    return next(fits, groups)


def takes_aiter(experts: int, topk: int, release: Release) -> bool:
    """The guard in front of AITER's kernel: top-k reaches every group and, from 0.32.0, the group count is compiled."""
    groups = engine_groups(experts, release)
    return topk >= groups and (groups in SUPPORTED_GROUPS or not release.group_count_rounding)


class Routing(NamedTuple):
    """What the model file hands to the router factory."""

    experts: int
    topk: int
    scoring: str
    bias: bool
    renormalize: bool
    grouped: bool
    n_group: int | None
    topk_group: int | None
    scale: float
    custom: str | None
    custom_kernel: str
    zero_experts: int
    hash_routed: bool
    logits_dtype: str
    fused_shared: int


def logits_dtype(block: Block, config: Mapping[str, object], model_type: str | None, dtype: str) -> str:
    """dtype of the router logits: what the file widens its gate to, which some files read from the config."""
    if block.logits in ("fp32", "model"):
        return "fp32" if block.logits == "fp32" else dtype
    if block.name == "deepseek_v2" and model_type == "glm_moe_dsa":
        return "fp32"  # older GLM-5 configs need fp32 but do not say so (deepseek_v2.py:139)
    value = config.get(block.logits, block.logits_default)
    if value in ("fp32", "float32"):
        return "fp32"
    return dtype if value is None or block.name == "deepseek_v2" else "bf16"


def routing(layer: ExpertLayer, block: Block, logits: str, *, aiter_moe: bool, fused_shared: int = 0) -> Routing:
    """The factory arguments of ``layer`` as ``block``'s file computes them; ``logits`` as from logits_dtype()."""
    n_group, topk_group, grouped = _groups(layer, block)
    outside = block.scale == "output" or (block.scale == "aiter" and not aiter_moe)
    return Routing(
        experts=layer.experts + layer.zero_experts,
        topk=layer.topk,
        scoring=block.scoring or layer.scoring,
        bias=layer.selection_bias,
        renormalize=layer.renormalize if block.renormalize is None else block.renormalize,
        grouped=grouped,
        n_group=n_group,
        topk_group=topk_group,
        scale=1.0 if outside else layer.routed_scaling_factor,
        custom=block.custom if block.custom_scoring in (None, layer.scoring) else None,
        custom_kernel=block.custom_kernel,
        zero_experts=layer.zero_experts,
        hash_routed=layer.hash_routed,
        logits_dtype=logits,
        fused_shared=fused_shared,
    )


def _groups(layer: ExpertLayer, block: Block) -> tuple[int | None, int | None, bool]:
    if block.custom is not None or block.groups == "none":
        return layer.n_group, layer.topk_group, False
    if block.groups == "one":
        return 1, 1, True
    if block.groups == "both":
        return layer.n_group, layer.topk_group, layer.n_group is not None and layer.topk_group is not None
    # ``config``: the file passes what the config class holds, whose default is one group.
    return layer.n_group or 1, layer.topk_group or 1, True


def _method(r: Routing, groups: int | None, scaled: bool) -> str:
    """get_routing_method_type (fused_moe/config.py:141); ``scaled`` is the clause releases up to 0.30.0 had."""
    if r.scoring == "sqrtsoftplus":
        return "DeepseekV4" if r.renormalize else "Unspecified"
    if r.bias:
        if r.scoring != "sigmoid" or not r.renormalize:
            return "Unspecified"
        if (groups or 0) > 0:
            return "DeepSeekV3"
        return "Unspecified" if scaled else "MiniMax2"
    if r.scoring == "sigmoid":
        return "SigmoidRenorm" if r.renormalize else "Sigmoid"
    if r.scoring == "softmax":
        return "RenormalizeNaive" if r.renormalize else "Default"
    return "Unspecified"


def kind(r: Routing, release: Release) -> str:
    """The router class, first match wins (create_fused_moe_router, router_factory.py:126)."""
    if r.zero_experts:
        return "ZeroExpertRouter"
    if r.grouped and not _degenerates(r, release):
        return "GroupedTopKRouter"
    if r.custom is not None:
        return "CustomRoutingRouter"
    if r.bias or r.hash_routed:
        return "FusedTopKBiasRouter"
    if r.fused_shared and r.scoring == "softmax":
        return "AiterSharedRoutedFusedMoERouter"
    return "FusedTopKRouter"


def _degenerates(r: Routing, release: Release) -> bool:
    """One group is dropped when the plain router can apply the scale and advertises the same method (router_factory.py:177)."""
    scaled = release.scale_in_routing_method and r.scale != 1.0
    return (
        (r.n_group or 1) <= 1
        and (r.topk_group or 1) <= 1
        and (r.scale == 1.0 or r.bias)
        and _method(r, r.n_group or 1, scaled) == _method(r, None, scaled)
    )


def advertised(r: Routing, release: Release, simulated: str = "") -> str:
    """RoutingMethodType of the router that is built; monolithic kernels are chosen by it. A simulated router passes on the
    method of the one it replaces from 0.33.0 (routing_simulator_router.py:362); before, it advertised its own."""
    if simulated and not at_least(release, "0.33.0"):
        return "Simulated"  # routing_simulator_router.py:318 (0.32.0)
    name = kind(r, release)
    if name == "CustomRoutingRouter":
        return "Llama4" if r.custom and r.custom.startswith("Llama4") else "Custom"
    if name == "ZeroExpertRouter" and at_least(release, "0.31.0"):
        return "Unspecified"  # zero_expert_router.py:55 (0.30.0) computed it, later releases leave it to the base class
    scaled = release.scale_in_routing_method and r.scale != 1.0
    if name == "GroupedTopKRouter":
        return _method(r, r.n_group or 1, scaled)
    return _method(r._replace(bias=True) if name == "FusedTopKBiasRouter" else r, None, scaled)


def call(r: Routing, release: Release, gfx: str, *, aiter_moe: bool, simulated: str = "") -> RouterCall:
    """How ``r`` is routed. ``aiter_moe``: AITER's MoE is on for this process; routers ask that, not the experts' backend.
    ``simulated`` is VLLM_MOE_ROUTING_SIMULATION_STRATEGY, which replaces every router by a made-up one."""
    name = "RoutingSimulatorRouter" if simulated else kind(r, release)
    base = RouterCall(
        name, "other", r.experts, r.topk, renormalize=r.renormalize, scoring=r.scoring, bias=r.bias, logits_dtype=r.logits_dtype
    )
    if name == "GroupedTopKRouter":
        return _grouped(base, r, release, gfx, aiter_moe)
    if name == "RoutingSimulatorRouter":
        why = f"VLLM_MOE_ROUTING_SIMULATION_STRATEGY={simulated} makes the routing up"
        return replace(base, kernel="torch", fallback_reason=why, source=f"{_FACTORY}:268")
    if name == "CustomRoutingRouter":
        return replace(
            base,
            kernel=r.custom_kernel,
            fallback_reason=f"the model routes with its own {r.custom}, which AITER never sees",
            source=f"{_FACTORY}:220",
        )
    if name in ("FusedTopKBiasRouter", "ZeroExpertRouter"):
        return _biased(base, r, release, aiter_moe)
    return _plain(base, r, release, gfx, aiter_moe)


def _grouped(base: RouterCall, r: Routing, release: Release, gfx: str, aiter_moe: bool) -> RouterCall:
    groups = r.n_group or 1
    base = replace(base, num_expert_group=groups, topk_group=r.topk_group or 1)
    if r.experts <= groups or r.experts % groups:
        why = f"{r.experts} experts do not split into {groups} groups"
        if r.bias:
            inner = _biased(base, r._replace(scale=1.0), release, aiter_moe)
        else:
            inner = _plain(replace(base, scoring="softmax"), r._replace(scoring="softmax"), release, gfx, aiter_moe)
        return replace(inner, fallback_reason=f"{why}; {inner.fallback_reason}" if inner.fallback_reason else why)
    if not aiter_moe:
        return replace(base, kernel="torch", falls_back_to="torch", fallback_reason=_OFF, source=f"{_GROUPED}:327")
    kernel = "biased_grouped_topk" if r.bias else "grouped_topk"
    strided = r.fused_shared > 0  # weights and ids are slices of the buffer that holds the shared columns too
    where = f"{_GROUPED}:317"
    return replace(base, kernel=kernel, scaling_inside=r.scale, on_aiter=True, outputs_strided=strided, source=where)


SOFTMAX_ARGUMENTS = (("topk_softmax", "num_shared_experts"), ("topk_softmax", "shared_expert_scoring_func"))
"""What every release read hands topk_softmax beyond its oldest signature (_aiter_ops.py:519)."""
GATING_ARGUMENTS = (("topk_gating", "num_shared_experts"),)


_OFF = "AITER's MoE is switched off"


def _biased(base: RouterCall, r: Routing, release: Release, aiter_moe: bool) -> RouterCall:
    groups = engine_groups(r.experts, release)
    base = replace(base, num_expert_group_naive=naive_groups(r.experts), num_expert_group=groups, topk_group=groups)
    if r.scoring == "sqrtsoftplus":
        why = "sqrtsoftplus scores go to vLLM's own topk_softplus_sqrt"
        return replace(base, kernel="other", fallback_reason=why, source=f"{_BIAS}:289")
    if not aiter_moe:
        return replace(base, kernel="other", falls_back_to="other", fallback_reason=_OFF, source=f"{_BIAS}:174")
    if r.scoring != "sigmoid":
        why = f"AITER's biased_grouped_topk scores with sigmoid only; this router scores with {r.scoring}"
        return replace(base, kernel="torch", falls_back_to="torch", fallback_reason=why, source=f"{_BIAS}:313")
    if not takes_aiter(r.experts, r.topk, release):
        if groups not in SUPPORTED_GROUPS and release.group_count_rounding:
            why = f"{groups} groups: AITER has kernels for 1, 2, 4 and 8 groups only"
        else:
            why = f"top-{r.topk} is smaller than the {groups} groups that {r.experts} experts need"
        return replace(base, kernel="torch", falls_back_to="torch", fallback_reason=why, source=f"{_BIAS}:262")
    return replace(base, kernel="biased_grouped_topk", on_aiter=True, source=f"{_BIAS}:273")


def _plain(base: RouterCall, r: Routing, release: Release, gfx: str, aiter_moe: bool) -> RouterCall:
    if not aiter_moe:
        return replace(base, kernel="other", falls_back_to="other", fallback_reason=_OFF, source=f"{_PLAIN}:132")
    if r.scoring == "sigmoid":
        return replace(base, kernel="topk_sigmoid", on_aiter=True, source=f"{_PLAIN}:140")
    base = replace(base, num_shared=r.fused_shared, outputs_strided=r.fused_shared > 0, passes=SOFTMAX_ARGUMENTS)
    if release.topk_gating and gfx in ("gfx942", "gfx950"):
        switch = ((TOPK_GATING_MAX_TOKENS + 1, "topk_softmax"),)
        passes = GATING_ARGUMENTS + SOFTMAX_ARGUMENTS
        return replace(base, kernel="topk_gating", on_aiter=True, alternatives=switch, passes=passes, source=f"{_PLAIN}:116")
    return replace(base, kernel="topk_softmax", on_aiter=True, source=f"{_PLAIN}:131")
