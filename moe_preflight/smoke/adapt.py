"""From what was planned and predicted to cases to launch: the one place that knows both the nouns of the other rooms and ours.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moe_preflight.aiter.key import Dispatch
from moe_preflight.engine.plan import EnginePlan, LayerPlan, RankProblem, RouterCall
from moe_preflight.smoke.case import MX_GROUP, ROUTERS, Prediction, RealWeights, RouterSpec, SmokeCase

_SCHEME_OF_Q_TYPE = {
    "No": "none",
    "per_Tensor": "fp8_tensor",
    "per_Token": "fp8_channel",
    "per_1x128": "fp8_block",
    "per_128x128": "fp8_block",
}
_INSIDE_AITER = {"moe_fused_gate": "biased_grouped_topk"}
"""Kernels AITER picks itself behind the name the engine calls."""

_STAGES = {"1stage": 1}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to launch. ``folder`` and ``layer_index`` (a decoder index) ask for real weights; None means random ones."""

    tokens: tuple[int, ...] = (1, 64, 4096)
    seed: int = 0
    poison: bool = False
    native: bool = True
    folder: str | None = None
    layer_index: int | None = None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the static side said of one layer: answers by token bucket for the padded and the unpadded sizes, and by batch size
    (first token, compiled) whether the router kernel exists. ``bucket`` maps a token count to the bucket it is looked up by."""

    dispatches: Sequence[Dispatch] = ()
    native: Sequence[Dispatch] = ()
    router_compiled: Sequence[tuple[int, bool | None]] = ()
    bucket: Mapping[int, int] | None = None
    aiter_version: str | None = None


def cases_of(plan: EnginePlan, foreseen: Sequence[Foreseen], wanted: Wanted, target: int = 0) -> list[SmokeCase]:
    """One case per layer kind and token count, in that order. ``foreseen`` goes with ``plan.layers``. With real weights only
    the layer kind that holds ``layer_index`` is launched."""
    out = []
    for index, layer in enumerate(plan.layers):
        if wanted.layer_index is not None and wanted.layer_index not in _decoder_layers(layer):
            continue
        seen = foreseen[index] if index < len(foreseen) else Foreseen()
        out += [case_of(plan, layer, seen, wanted, tokens, target, index) for tokens in wanted.tokens]
    return out


def case_of(
    plan: EnginePlan, layer: LayerPlan, seen: Foreseen, wanted: Wanted, tokens: int, target: int, index: int
) -> SmokeCase:
    """One launch. What cannot be launched is still a case: its ``unsupported`` says why."""
    p, kind = layer.problem, layer.layer
    scheme = scheme_of(layer)
    answer = _answer(seen, tokens)
    engine = plan.deployment.engine
    expert_bias = kind.expert_bias
    return SmokeCase(
        target=target,
        layer=index,
        layer_name=kind.name,
        tokens=tokens,
        model_dim=_whole_groups(p.model_dim, p.model_dim_padded, scheme),
        model_dim_padded=p.model_dim_padded,
        inter_dim=_loaded(p, kind.moe_intermediate_size, scheme),
        inter_dim_padded=p.inter_dim_padded,
        experts=p.expert,
        topk=p.topk,
        router=router_of(layer, tokens),
        dtype=p.dtype if p.dtype in ("bf16", "fp16") else "bf16",
        scheme=scheme or "none",
        q_dtype_a=answer.q_dtype_a if answer is not None else p.q_dtype_a,
        activation=p.act_type,
        expert_bias=expert_bias,
        bias_passed=expert_bias and (scheme == "mxfp4" or engine == "sglang"),
        num_shared_fused=p.num_shared_fused,
        is_ep=p.is_ep,
        doweight_stage1=p.doweight_stage1,
        gate_mode=p.gate_mode if scheme == "mxfp4" or p.act_type in ("swiglu", "situv2") else "",
        hidden_pad=p.hidden_pad,
        intermediate_pad=p.intermediate_pad,
        swiglu_limit=_number(plan.model.config.get("swiglu_limit")),
        engine=engine,
        seed=wanted.seed,
        poison=wanted.poison,
        native=wanted.native,
        weights=_weights(plan, layer, wanted, scheme),
        prediction=prediction_of(plan, layer, seen, tokens),
        unsupported=_unsupported(plan, layer, scheme),
        off_aiter=_off_aiter(plan, layer),
    )


def scheme_of(layer: LayerPlan) -> str | None:
    """How the weights are handed to AITER; by the checkpoint where the experts never get there. None: not ours to launch."""
    p = layer.problem
    if p.q_type is None:
        stored = layer.layer.quantization.scheme
        return stored if stored in ("none", "fp8_tensor", "fp8_channel", "fp8_block", "mxfp4", "mxfp4_a4") else None
    if p.q_type == "per_1x32":
        if p.q_dtype_w != "fp4x2":
            return None
        return {"fp4x2": "mxfp4_a4", "bf16": "mxfp4", "fp16": "mxfp4", None: _by_layout(p)}.get(p.q_dtype_a)
    if p.q_type != "No" and p.q_dtype_w != "fp8":
        return None
    return _SCHEME_OF_Q_TYPE.get(p.q_type)


def _by_layout(p: RankProblem) -> str:
    """Which weights an engine shuffles for, where AITER picks the activation's dtype itself: interleaved gate and up, and
    gpt-oss's swiglu, are the weight-only layout."""
    return "mxfp4" if p.gate_mode == "interleave" or p.act_type == "swiglu" else "mxfp4_a4"


def _loaded(p: RankProblem, whole: int, scheme: str | None) -> int:
    """Columns of the intermediate that rank 0 really loads. Where one scale covers a group, engines give a rank whole groups:
    32 columns for MXFP4 (vLLM's gpt-oss loader), and with padded block fp8 whole 128-blocks (facts/vllm.md 2.4)."""
    if scheme == "fp8_block" and p.inter_dim_padded != p.inter_dim:
        return min(p.inter_dim_padded, whole) if whole else p.inter_dim_padded
    return min(_whole_groups(p.inter_dim, p.inter_dim_padded, scheme), whole or p.inter_dim_padded)


def _whole_groups(size: int, padded: int, scheme: str | None) -> int:
    if scheme is not None and scheme.startswith("mxfp4"):
        return min(-(-size // MX_GROUP) * MX_GROUP, padded)
    return size


def router_of(layer: LayerPlan, tokens: int) -> RouterSpec:
    """The kernel the engine asks at this batch size, and the model's own routing beside it."""
    call, kind = layer.router, layer.layer
    kernel = _kernel(call, tokens)
    if kernel == "torch":
        grouped = kind.n_group is not None and kind.topk_group is not None and kind.experts % kind.n_group == 0
        groups, topk_group = (kind.n_group or 1, kind.topk_group or 1) if grouped else (1, 1)
    else:
        groups, topk_group = call.num_expert_group or 1, call.topk_group or call.num_expert_group or 1
    inside = call.scaling_inside or 1.0
    return RouterSpec(
        kernel=kernel,
        experts=call.experts,
        topk=call.topk,
        groups=groups,
        topk_group=topk_group,
        renormalize=call.renormalize,
        scoring=call.scoring,
        bias=call.bias,
        scaling_inside=inside,
        scaling_outside=kind.routed_scaling_factor / inside,
        logits_dtype=call.logits_dtype,
    )


def _kernel(call: RouterCall, tokens: int) -> str:
    if not call.on_aiter or call.falls_back_to is not None:
        return "torch"
    name = call.kernel
    for first, later in call.alternatives:
        if tokens >= first:
            name = later
    name = _INSIDE_AITER.get(name, name)
    return name if name in ROUTERS else "torch"


def _answer(seen: Foreseen, tokens: int) -> Dispatch | None:
    bucket = (seen.bucket or {}).get(tokens, tokens)
    return next((d for d in seen.dispatches if d.token == bucket), None)


def prediction_of(plan: EnginePlan, layer: LayerPlan, seen: Foreseen, tokens: int) -> Prediction:
    """The static side's answer for the bucket of ``tokens``; empty where there is none."""
    gpu = plan.deployment.gpu
    compiled = None
    for first, value in seen.router_compiled:
        if tokens >= first:
            compiled = value
    if not layer.router.on_aiter or layer.router.falls_back_to is not None:
        compiled = None
    d = _answer(seen, tokens)
    if d is None:
        return Prediction(router_compiled=compiled, aiter_version=seen.aiter_version, gfx=gpu.gfx, cu_num=gpu.cu_num)
    bare = next((n for n in seen.native if n.token == d.token), None)
    tuned = d.tuned in ("hit", "tier") and d.row is not None
    return Prediction(
        path=d.path,
        stages=_STAGES.get(d.path, 1 if d.stage2 is None else 2),
        tuned=d.tuned,
        kernels=(d.row.kernel1, d.row.kernel2) if tuned and d.row is not None else ("", ""),
        row=f"{d.row.file}:{d.row.line}" if d.row is not None else None,
        block_m=d.block_m,
        accepted=_accepted(d),
        native_accepted=None if bare is None else _accepted(bare),
        reason=next((s.reason for s in (d.stage1, d.stage2) if s is not None and s.accepted is False), ""),
        error=d.error,
        router_compiled=compiled,
        notes=d.notes,
        aiter_version=seen.aiter_version,
        gfx=gpu.gfx,
        cu_num=gpu.cu_num,
    )


def _accepted(d: Dispatch) -> bool | None:
    """False when a stage rejects, None when one is not known and none rejects."""
    said = [s.accepted for s in (d.stage1, d.stage2) if s is not None]
    if False in said:
        return False
    return None if None in said else True


def _weights(plan: EnginePlan, layer: LayerPlan, wanted: Wanted, scheme: str | None) -> RealWeights | None:
    if wanted.folder is None or wanted.layer_index is None:
        return None
    return RealWeights(
        folder=wanted.folder,
        layer=wanted.layer_index,
        start=0,
        moe_intermediate_size=layer.layer.moe_intermediate_size,
        model_type=plan.model.model_type,
    )


def _decoder_layers(layer: LayerPlan) -> tuple[int, ...]:
    return layer.layer.layers or (layer.layer.first_layer,)


def _unsupported(plan: EnginePlan, layer: LayerPlan, scheme: str | None) -> str:
    engine = plan.deployment.engine
    if stop := (*plan.refusals, *layer.refusals):
        return f"{engine} itself refuses this model: {stop[0].error}"
    kind = layer.layer
    if scheme is None:
        return (
            f"{kind.quantization.scheme} experts ({layer.problem.q_type}, {layer.problem.q_dtype_w}) cannot be launched by smoke"
        )
    if not kind.gated:
        return f"{kind.activation} experts have no gate; smoke launches gated experts only"
    if kind.zero_experts or kind.hash_routed:
        return "this router (zero experts or a hash table) cannot be run by smoke"
    return ""


def _off_aiter(plan: EnginePlan, layer: LayerPlan) -> str:
    b = layer.backend
    if b.on_aiter:
        return ""
    return f"{plan.deployment.engine} does not run these experts on AITER but on {b.name}: {b.reason}"


def _number(value: object) -> float:
    return float(value) if type(value) in (int, float) else 0.0  # type: ignore[arg-type]
