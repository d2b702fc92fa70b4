"""Group counts, the guard, and the router class - against statements of the rule that share no code with it."""

from __future__ import annotations

import pytest

from moe_preflight.engine.facts.vllm_releases import RELEASES
from moe_preflight.engine.router import engine_groups, naive_groups, takes_aiter
from tests.unit.engine.build import K2, model, run

OLD = [r for r in RELEASES if r.version in ("0.29.0", "0.30.0", "0.31.0")]
NEW = [r for r in RELEASES if r.version in ("0.32.0", "0.33.0")]


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@pytest.mark.parametrize("release", OLD, ids=lambda r: r.version)
def test_groups_before_0_32_are_the_least_divisor_that_leaves_at_most_32(release):
    for experts in range(1, 1025):
        least = min(d for d in divisors(experts) if experts / d <= 32)
        assert naive_groups(experts) == engine_groups(experts, release) == least
        for topk in (1, 2, 4, 6, 8, 10, 16):
            assert takes_aiter(experts, topk, release) is (topk >= least)


@pytest.mark.parametrize("release", NEW, ids=lambda r: r.version)
def test_groups_from_0_32_are_compiled_ones_where_one_fits(release):
    for experts in range(1, 1025):
        least = min(d for d in divisors(experts) if experts / d <= 32)
        fitting = [c for c in (1, 2, 4, 8) if experts % c == 0 and experts / c <= 32]
        expected = least if least in (1, 2, 4, 8) or not fitting else max(fitting)
        assert engine_groups(experts, release) == expected
        for topk in (1, 2, 4, 6, 8, 10, 16):
            assert takes_aiter(experts, topk, release) is (expected in (1, 2, 4, 8) and topk >= expected)


def test_rounding_moves_only_these_sizes():
    moved = [e for e in range(1, 1025) if engine_groups(e, NEW[-1]) != naive_groups(e)]
    assert moved == [72, 84, 96, 144, 160, 168, 192, 224]


@pytest.mark.parametrize(
    ("version", "groups", "kernel"),
    [("0.33.0", 8, "biased_grouped_topk"), ("0.32.0", 8, "biased_grouped_topk"), ("0.31.0", 6, "biased_grouped_topk")],
)
def test_k2_horizon(version, groups, kernel):
    call = run(K2, version=version, tp=8).layers[0].router
    assert (call.kind, call.num_expert_group_naive, call.num_expert_group, call.kernel) == (
        "FusedTopKBiasRouter",
        6,
        groups,
        kernel,
    )
    assert call.topk_group == groups
    assert call.on_aiter
    assert call.scaling_inside == 1.0
    assert call.falls_back_to is None


def test_step_with_288_experts_never_reaches_the_kernel():
    call = run(model(experts=288, topk=8, scoring="sigmoid", selection_bias=True)).layers[0].router
    assert (call.kernel, call.falls_back_to, call.num_expert_group, call.on_aiter) == ("torch", "torch", 9, False)
    assert "1, 2, 4 and 8" in call.fallback_reason


def test_small_topk_falls_back():
    call = run(model(experts=96, topk=4, scoring="sigmoid", selection_bias=True)).layers[0].router
    assert (call.kernel, call.num_expert_group_naive, call.num_expert_group) == ("torch", 3, 8)


def test_softmax_takes_topk_gating_up_to_4096_tokens_on_0_33_only():
    call = run(model()).layers[0].router
    assert (call.kind, call.kernel, call.alternatives) == ("FusedTopKRouter", "topk_gating", ((4097, "topk_softmax"),))
    assert run(model(), version="0.32.0").layers[0].router.kernel == "topk_softmax"
    assert run(model(), gfx="gfx1250").layers[0].router.kernel == "topk_softmax"


def test_one_group_stays_grouped_only_when_the_method_would_change():
    grouped = {"n_group": 1, "topk_group": 1}
    sigmoid = run(model(scoring="sigmoid", selection_bias=True, **grouped)).layers[0].router
    assert (sigmoid.kind, sigmoid.kernel, sigmoid.num_expert_group) == ("GroupedTopKRouter", "biased_grouped_topk", 1)
    plain = run(model(scoring="softmax", **grouped)).layers[0].router
    assert plain.kind == "FusedTopKRouter"
    unnormalized = run(model(scoring="sigmoid", selection_bias=True, renormalize=False, **grouped)).layers[0].router
    assert unnormalized.kind == "FusedTopKBiasRouter"
    scaled = run(model(scoring="softmax", routed_scaling_factor=16.0, **grouped)).layers[0].router
    assert (scaled.kind, scaled.kernel, scaled.scaling_inside) == ("GroupedTopKRouter", "grouped_topk", 16.0)


def test_groups_that_do_not_divide_fall_to_the_ungrouped_paths():
    call = run(model(experts=60, topk=4, n_group=8, topk_group=4, scoring="sigmoid", selection_bias=True)).layers[0].router
    assert (call.kind, call.kernel) == ("GroupedTopKRouter", "biased_grouped_topk")
    assert "60 experts do not split into 8 groups" in call.fallback_reason
    plain = run(model(experts=60, topk=4, n_group=8, topk_group=4)).layers[0].router
    assert plain.kernel == "topk_gating"


def test_with_aiter_off_no_router_kernel_is_aiters():
    for layer in ({}, {"scoring": "sigmoid", "selection_bias": True}, {"n_group": 8, "topk_group": 4}):
        call = run(model(**layer), env={"VLLM_ROCM_USE_AITER": "0"}).layers[0].router
        assert not call.on_aiter
        assert call.falls_back_to in ("torch", "other")
    assert not run(model(), gfx="gfx90a").layers[0].router.on_aiter


def test_ernie_scores_with_softmax_so_its_bias_keeps_it_off_aiter():
    call = run(model("Ernie4_5_MoeForCausalLM", topk=6, selection_bias=True)).layers[0].router
    assert (call.kind, call.kernel, call.num_expert_group, call.logits_dtype) == ("FusedTopKBiasRouter", "torch", 2, "fp32")


def test_hash_layers_and_sqrtsoftplus_use_vllms_own_kernel():
    call = run(model(experts=384, topk=6, scoring="sqrtsoftplus", hash_routed=True)).layers[0].router
    assert (call.kind, call.kernel, call.num_expert_group, call.on_aiter) == ("FusedTopKBiasRouter", "other", 12, False)


def test_arguments_beyond_the_oldest_signature():
    call = run(model()).layers[0].router
    assert ("topk_gating", "num_shared_experts") in call.passes
    assert ("topk_softmax", "shared_expert_scoring_func") in call.passes
    assert run(model(), version="0.31.0").layers[0].router.passes[0][0] == "topk_softmax"
    assert run(model(), version="0.20.0").layers[0].router.passes == ()
    assert run(K2).layers[0].router.passes == ()


@pytest.mark.parametrize(
    ("architecture", "config", "logits"),
    [
        ("K2HorizonForCausalLM", {}, "bf16"), ("MiniMaxM2ForCausalLM", {}, "fp32"), ("Glm4MoeForCausalLM", {}, "fp32"),
        ("DeepseekV3ForCausalLM", {}, "bf16"), ("DeepseekV3ForCausalLM", {"moe_router_dtype": "float32"}, "fp32"),
        ("BailingMoeV2ForCausalLM", {"router_dtype": "fp32"}, "fp32"), ("BailingMoeForCausalLM", {}, "bf16"),
        ("SarvamMoEForCausalLM", {}, "fp32"),
    ],
)  # fmt: skip
def test_logits(architecture, config, logits):
    m = model(architecture, config={"num_experts": 64, **config}, scoring="sigmoid", selection_bias=True)
    assert run(m).layers[0].router.logits_dtype == logits


def test_the_sorting_policy_reaches_the_problem():
    assert run(K2).layers[0].problem.sorting_policy == 0
    assert run(K2, env={"VLLM_ROCM_AITER_MOE_DISPATCH_POLICY": "2"}).layers[0].problem.sorting_policy == 2
    assert run(K2, tp=1, engine="sglang", version="0.5.23").layers[0].problem.sorting_policy == 2
