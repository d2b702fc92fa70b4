"""Cases out of hand-built nouns of the engine and aiter rooms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moe_preflight.aiter.key import Dispatch, Stage, TunedRow
from moe_preflight.engine.plan import BackendChoice, Deployment, EnginePlan, LayerPlan, RankProblem, Refusal, RouterCall
from moe_preflight.hardware import GPUS
from moe_preflight.model.moe import ExpertLayer, MoEModel, Quantization
from moe_preflight.smoke.adapt import Foreseen, Wanted, cases_of
from moe_preflight.smoke.case import Prediction, RouterSpec, SmokeCase

LAYER = ExpertLayer(
    "main", 58, 3, experts=192, topk=8, model_dim=6144, moe_intermediate_size=1792, scoring="sigmoid", selection_bias=True,
    routed_scaling_factor=2.5, layers=tuple(range(3, 61)),
)  # fmt: skip
PROBLEM = RankProblem(
    6144,
    6144,
    224,
    256,
    64,
    expert=192,
    topk=8,
    act_type="silu",
    dtype="bf16",
    q_dtype_a="bf16",
    q_dtype_w="bf16",
    q_type="No",
    moe_tp_size=8,
)
ROUTER = RouterCall(
    "FusedTopKBiasRouter", "biased_grouped_topk", 192, 8, num_expert_group_naive=6, num_expert_group=8, topk_group=8,
    scoring="sigmoid", bias=True, on_aiter=True,
)  # fmt: skip
AITER = BackendChoice("AITER", "asked for", on_aiter=True)
CK = Stage("ck_moe_stage1", "ck", "", 64, 64, True, "")
MISS = Dispatch(64, 64, "bf16", "ck2stages", CK, replace(CK, func="ck_moe_stage2"), 32, 0, False, "miss", None, (), "verified")


def plan(*layers: LayerPlan, refusals: tuple[Refusal, ...] = (), engine: str = "vllm", **config: Any) -> EnginePlan:
    model = MoEModel("m", "local", None, "X", "k2_horizon", 6144, 61, "bf16", 48, tuple(p.layer for p in layers), config=config)
    return EnginePlan(model, Deployment(GPUS["mi300x"], engine=engine, tp=8), layers, refusals)


def one(layer: ExpertLayer = LAYER, problem: RankProblem = PROBLEM, router: RouterCall = ROUTER, backend: BackendChoice = AITER,
        seen: Foreseen | None = None, **wanted: Any) -> SmokeCase:  # fmt: skip
    p = plan(LayerPlan(layer, backend, problem, router))
    cases = cases_of(p, [seen or Foreseen()], Wanted(**({"tokens": (64,)} | wanted)))
    assert len(cases) == 1
    return cases[0]


def test_k2_horizon_at_tp8() -> None:
    case = one()
    assert case.problem() == ""
    assert (case.inter_dim, case.inter_dim_padded, case.model_dim_padded) == (224, 256, 6144)
    assert (case.experts, case.topk, case.scheme, case.dtype) == (192, 8, "none", "bf16")
    assert case.router == RouterSpec("biased_grouped_topk", 192, 8, 8, 8, scoring="sigmoid", bias=True, scaling_outside=2.5)
    assert case.unsupported == case.off_aiter == case.gate_mode == ""


def test_one_case_per_layer_and_token_count_in_order() -> None:
    layers = (
        LayerPlan(LAYER, AITER, PROBLEM, ROUTER),
        LayerPlan(replace(LAYER, name="mtp", layers=(61,)), AITER, PROBLEM, ROUTER),
    )
    cases = cases_of(plan(*layers), [], Wanted(tokens=(1, 64)), target=3)
    assert [(c.target, c.layer, c.layer_name, c.tokens) for c in cases] == [
        (3, 0, "main", 1), (3, 0, "main", 64), (3, 1, "mtp", 1), (3, 1, "mtp", 64),
    ]  # fmt: skip
    real = cases_of(plan(*layers), [], Wanted(tokens=(1,), folder="/m", layer_index=61))
    assert [(c.layer_name, c.weights and c.weights.layer) for c in real] == [("mtp", 61)]


def test_scaling_given_to_the_kernel_is_not_multiplied_again() -> None:
    case = one(router=replace(ROUTER, scaling_inside=2.5))
    assert (case.router.scaling_inside, case.router.scaling_outside) == (2.5, 1.0)


def test_a_router_that_falls_back_is_torch_with_the_model_s_own_groups() -> None:
    case = one(router=replace(ROUTER, falls_back_to="torch", num_expert_group=6, topk_group=6))
    assert (case.router.kernel, case.router.groups, case.router.topk_group) == ("torch", 1, 1)
    case = one(layer=replace(LAYER, n_group=8, topk_group=4), router=replace(ROUTER, on_aiter=False))
    assert (case.router.kernel, case.router.groups, case.router.topk_group) == ("torch", 8, 4)


def test_a_router_that_changes_with_the_batch() -> None:
    call = replace(
        ROUTER,
        kernel="topk_gating",
        scoring="softmax",
        bias=False,
        num_expert_group=None,
        topk_group=None,
        alternatives=((4097, "topk_softmax"),),
    )
    assert one(router=call).router.kernel == "topk_gating"
    assert one(router=call, tokens=(8192,)).router.kernel == "topk_softmax"
    assert one(router=replace(ROUTER, kernel="moe_fused_gate")).router.kernel == "biased_grouped_topk"


def test_schemes() -> None:
    def scheme(q_type: str, a: str, w: str) -> tuple[str, str]:
        case = one(problem=replace(PROBLEM, q_type=q_type, q_dtype_a=a, q_dtype_w=w, inter_dim=256, model_dim=6144))
        return case.scheme, case.unsupported

    assert scheme("per_Tensor", "fp8", "fp8") == ("fp8_tensor", "")
    assert scheme("per_Token", "fp8", "fp8") == ("fp8_channel", "")
    assert scheme("per_128x128", "fp8", "fp8") == ("fp8_block", "")
    assert scheme("per_1x32", "fp4x2", "fp4x2") == ("mxfp4_a4", "")
    assert scheme("per_1x32", "bf16", "fp4x2") == ("mxfp4", "")
    aiter_decides = replace(PROBLEM, q_type="per_1x32", q_dtype_a=None, q_dtype_w="fp4x2")
    assert one(problem=aiter_decides).scheme == "mxfp4_a4"
    seen = Foreseen([replace(MISS, q_dtype_a="fp8")])
    case = one(problem=replace(aiter_decides, act_type="swiglu", gate_mode="interleave"), seen=seen)
    assert (case.scheme, case.q_dtype_a) == ("mxfp4", "fp8")
    for other in (("per_1x32", "fp8", "fp8"), ("per_Token", "fp8", "i4x2"), ("per_1x32", "fp8", "fp4x2")):
        assert "cannot be launched" in scheme(*other)[1]


def test_off_aiter_the_arithmetic_can_still_be_checked() -> None:
    problem = replace(PROBLEM, q_type=None, q_dtype_a=None, q_dtype_w=None)
    triton = BackendChoice("TRITON", "AITER was not asked for")
    case = one(layer=replace(LAYER, quantization=Quantization("fp8", "fp8_channel")), problem=problem, backend=triton)
    assert (case.scheme, case.unsupported) == ("fp8_channel", "")
    assert "TRITON" in case.off_aiter
    assert one(layer=replace(LAYER, quantization=Quantization("awq", "int4")), problem=problem, backend=triton).unsupported != ""


def test_what_a_rank_really_loads_where_one_scale_covers_a_group() -> None:
    fp4 = replace(
        PROBLEM,
        q_type="per_1x32",
        q_dtype_a="bf16",
        q_dtype_w="fp4x2",
        model_dim=2880,
        model_dim_padded=3072,
        inter_dim=360,
        inter_dim_padded=512,
    )
    case = one(layer=replace(LAYER, moe_intermediate_size=2880, model_dim=2880, expert_bias=True), problem=fp4)
    assert (case.inter_dim, case.model_dim, case.bias_passed, case.problem()) == (384, 2880, True, "")
    block = replace(PROBLEM, q_type="per_128x128", q_dtype_a="fp8", q_dtype_w="fp8")
    assert one(problem=block).inter_dim == 256


def test_an_expert_bias_the_engine_drops() -> None:
    case = one(layer=replace(LAYER, expert_bias=True))
    assert (case.expert_bias, case.bias_passed) == (True, False)
    p = plan(LayerPlan(replace(LAYER, expert_bias=True), AITER, PROBLEM, ROUTER), engine="sglang")
    assert cases_of(p, [], Wanted(tokens=(1,)))[0].bias_passed


def test_what_cannot_be_launched_says_why() -> None:
    refusal = Refusal("layer", "ValueError: no", "", "", "")
    p = plan(LayerPlan(LAYER, AITER, PROBLEM, ROUTER, refusals=(refusal,)))
    assert "ValueError: no" in cases_of(p, [], Wanted())[0].unsupported
    assert (
        "ValueError: no"
        in cases_of(plan(LayerPlan(LAYER, AITER, PROBLEM, ROUTER), refusals=(refusal,)), [], Wanted())[0].unsupported
    )
    assert "no gate" in one(layer=replace(LAYER, gated=False, activation="relu2_no_mul")).unsupported
    assert "router" in one(layer=replace(LAYER, zero_experts=4)).unsupported


def test_prediction_of_the_bucket() -> None:
    row = TunedRow("aiter/configs/tuned_fmoe.csv", 12, "k1", "k2", 52.3)
    hit = replace(MISS, tuned="hit", row=row)
    native = replace(MISS, stage1=replace(CK, accepted=False, reason="N 448 % 128"))
    seen = Foreseen(
        [hit, replace(MISS, token=4096)], [native], [(1, True), (5000, False)], {64: 64, 4000: 4096, 9000: 8192}, "0.1.20.post1"
    )
    p = one(seen=seen).prediction
    assert (p.path, p.stages, p.tuned, p.kernels, p.row) == (
        "ck2stages",
        2,
        "hit",
        ("k1", "k2"),
        "aiter/configs/tuned_fmoe.csv:12",
    )
    assert (p.accepted, p.native_accepted, p.router_compiled, p.aiter_version, p.gfx, p.cu_num) == (
        True,
        False,
        True,
        "0.1.20.post1",
        "gfx942",
        304,
    )
    later = one(seen=seen, tokens=(4000,)).prediction
    assert (later.tuned, later.kernels, later.native_accepted) == ("miss", ("", ""), None)
    assert one(seen=seen, tokens=(9000,)).prediction == Prediction(
        router_compiled=False, aiter_version="0.1.20.post1", gfx="gfx942", cu_num=304
    )


def test_a_rejecting_stage_is_not_hidden_by_an_unknown_one() -> None:
    unknown, rejects = replace(CK, accepted=None), replace(CK, accepted=False, reason="K")
    for pair, accepted in (((unknown, rejects), False), ((CK, unknown), None), ((CK, CK), True)):
        seen = Foreseen([replace(MISS, stage1=pair[0], stage2=pair[1])])
        assert one(seen=seen).prediction.accepted is accepted
    assert one(seen=Foreseen([replace(MISS, path="1stage", stage2=None)])).prediction.stages == 1


def test_swiglu_limit_of_the_config() -> None:
    p = plan(LayerPlan(LAYER, AITER, replace(PROBLEM, act_type="swiglu", gate_mode="interleave"), ROUTER), swiglu_limit=7)
    case = cases_of(p, [], Wanted(tokens=(1,)))[0]
    assert (case.swiglu_limit, case.gate_mode) == (7.0, "interleave")
    assert (
        cases_of(plan(LayerPlan(LAYER, AITER, PROBLEM, ROUTER), swiglu_limit=True), [], Wanted(tokens=(1,)))[0].swiglu_limit
        == 0.0
    )
