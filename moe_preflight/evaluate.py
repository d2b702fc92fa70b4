"""From a plan to AITER's answers: one target (model x split x GPU) at every reachable token bucket. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.key import Dispatch, Key
from moe_preflight.aiter.lookup import buckets
from moe_preflight.aiter.router import RouterVerdict
from moe_preflight.aiter.router import judge as judge_router
from moe_preflight.aiter.sorting import SortCall, judge_sorting
from moe_preflight.engine.plan import EnginePlan, LayerPlan, RankProblem
from moe_preflight.errors import UsageError
from moe_preflight.settings import DECODE_MAX, Tokens


@dataclass(frozen=True, slots=True)
class LayerEvaluation:
    """One kind of MoE layer. ``dispatches`` holds one answer per judged bucket for what AITER is asked (the padded sizes);
    ``native`` the same buckets for the unpadded sizes, empty when nothing was padded. Both are empty when the experts do not
    reach AITER. ``router`` is None when the layer has no router AITER could see."""

    plan: LayerPlan
    dispatches: tuple[Dispatch, ...]
    native: tuple[Dispatch, ...]
    router: RouterVerdict | None
    sorting: tuple[Defect, ...]
    lookup_topk: int
    """The topk AITER looks tuned rows up by: from v0.1.16 one less than asked under expert parallelism."""

    @property
    def coverage(self) -> dict[str, int]:
        """Judged buckets by how their tuned row was found: hit, tier, miss, unknown."""
        out = {"hit": 0, "tier": 0, "miss": 0, "unknown": 0}
        for d in self.dispatches:
            out[d.tuned] += 1
        return out


@dataclass(frozen=True, slots=True)
class TargetEvaluation:
    """One model under one split on one GPU. ``model`` indexes the run's models."""

    index: int
    model: int
    plan: EnginePlan
    layers: tuple[LayerEvaluation, ...]

    @property
    def name(self) -> str:
        """``TP8 MI300X``, the words a person would use for it."""
        d = self.plan.deployment
        parts = [f"TP{d.tp}"]
        parts += [f"{label}{n}" for label, n in (("DP", d.dp), ("PCP", d.pcp), ("PP", d.pp)) if n != 1]
        if d.ep or (d.ep_size or 1) > 1:
            parts.append(f"EP{self.plan.ep_size}")
        return f"{' '.join(parts)} {d.gpu.name.upper() if d.gpu.name.startswith('mi') else d.gpu.name}"


def token_buckets(dispatcher: Dispatcher) -> tuple[int, ...]:
    """Every token bucket of the dispatcher's AITER, ascending."""
    return buckets(dispatcher.rules.padding)


def judged_buckets(dispatcher: Dispatcher, tokens: Tokens, max_tokens: int | None) -> tuple[int, ...]:
    """Those of AITER's token buckets that were asked for and can be reached with at most ``max_tokens`` (None: no bound)."""
    every = token_buckets(dispatcher)
    limit = None if max_tokens is None else dispatcher.bucket(max_tokens)
    if tokens.name == "counts":
        spans = [(dispatcher.bucket(first), dispatcher.bucket(last)) for first, last in tokens.ranges]
        counts = {dispatcher.bucket(n) for n in tokens.counts}
        wanted: Iterable[int] = (b for b in every if b in counts or any(first <= b <= last for first, last in spans))
    elif tokens.name == "decode":
        wanted = (b for b in every if b <= DECODE_MAX)
    elif tokens.name == "prefill":
        wanted = (b for b in every if b > DECODE_MAX)
    else:
        wanted = every
    judged = tuple(b for b in wanted if limit is None or b <= limit)
    if not judged:
        raise UsageError(
            f"--tokens and --max-num-batched-tokens {max_tokens} leave no token bucket to judge.",
            hint=f"Buckets of this AITER: {every[0]} to {every[-1]}.",
        )
    return judged


def key_of(problem: RankProblem, rules: Rules, *, padded: bool = True, token: int = 1) -> Key:
    """The question AITER's fused_moe is asked for this rank; ``padded=False`` asks it for the sizes before padding.

    Engines hand gate_mode over only where fused_moe has that parameter (vLLM 0.33.0 _aiter_ops.py; AITER v0.1.14 and newer)."""
    assert problem.q_type is not None
    assert problem.q_dtype_w is not None
    return Key(
        token=token,
        model_dim=problem.model_dim_padded if padded else problem.model_dim,
        inter_dim=problem.inter_dim_padded if padded else problem.inter_dim,
        expert=problem.expert,
        topk=problem.topk,
        act=problem.act_type,
        dtype=problem.dtype,
        q_dtype_w=problem.q_dtype_w,
        q_type=problem.q_type,
        use_g1u1=problem.use_g1u1,
        doweight_stage1=problem.doweight_stage1,
        gate_mode=problem.gate_mode if rules.has_gate_mode else "separated",
        is_ep=problem.is_ep,
        env=problem.aiter_env,
    )


def evaluate_layer(
    plan: LayerPlan,
    dispatcher: Dispatcher,
    judged: Sequence[int],
    *,
    max_tokens: int | None,
    group_counts: frozenset[int] | None,
    aiter_env: Mapping[str, str],
) -> LayerEvaluation:
    """AITER's answers for one kind of layer; ``judged`` as from judged_buckets()."""
    problem = plan.problem
    dispatches: tuple[Dispatch, ...] = ()
    native: tuple[Dispatch, ...] = ()
    sorting: tuple[Defect, ...] = ()
    lookup_topk = problem.topk
    asked = plan.backend.on_aiter and not plan.refusals and problem.q_type is not None and problem.q_dtype_w is not None
    if asked:
        key = key_of(problem, dispatcher.rules)
        lookup_topk -= int(problem.is_ep and dispatcher.rules.ep_topk)
        dispatches = tuple(dispatcher.dispatch(replace(key, token=b)) for b in judged)
        bare = key_of(problem, dispatcher.rules, padded=False)
        if bare != key:
            native = tuple(dispatcher.dispatch(replace(bare, token=b)) for b in judged)
        call = sort_call(plan, dispatches, aiter_env)
        sorting = judge_sorting(call, dispatcher.version, dispatcher.gfx, max_tokens=max_tokens).defects
    router = None
    if plan.router.on_aiter:
        router = judge_router(
            plan.router,
            dispatcher.version,
            dispatcher.gfx,
            dispatcher.cu_num,
            max_tokens=max_tokens,
            largest_bucket=token_buckets(dispatcher)[-1],
            group_counts=group_counts,
        )
    return LayerEvaluation(plan, dispatches, native, router, sorting, lookup_topk)


def sort_call(plan: LayerPlan, dispatches: Sequence[Dispatch], aiter_env: Mapping[str, str]) -> SortCall:
    """What moe_sorting is handed. Under expert parallelism the sort sees the mask: all experts, the fused ones and a sentinel
    (vLLM 0.33.0 fused_moe/experts/rocm_aiter_moe.py; facts/vllm.md 4.3)."""
    p = plan.problem
    return SortCall(
        experts=(p.global_experts or p.expert) + p.num_shared_fused + 1 if p.is_ep else p.expert,
        topk=p.topk,
        dispatch_policy=p.sorting_policy,
        is_ep=p.is_ep,
        fake_column=p.is_ep and p.num_shared_fused > 0,
        port=any("flydsl_mxmoe" in d.stage1.kernel for d in dispatches),
        situv2_a16w4=p.act_type == "situv2" and p.q_dtype_a == "bf16",
        env=aiter_env,
    )
