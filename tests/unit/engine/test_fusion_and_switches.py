"""Shared-expert fusion, and switches that some models or set-ups refuse."""

from __future__ import annotations

import pytest

from tests.unit.engine.build import model, quantized, run

FSE = {"VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": "1"}
GLM = {
    "experts": 128, "topk": 8, "scoring": "sigmoid", "selection_bias": True, "n_group": 1, "topk_group": 1, "n_shared": 1,
    "shared_intermediate_size": 2048,
}  # fmt: skip


def test_fusion_is_off_by_default_and_adds_slots_when_on():
    off = run(model("Glm4MoeForCausalLM", **GLM), tp=8).layers[0].problem
    on = run(model("Glm4MoeForCausalLM", **GLM), tp=8, env=FSE).layers[0].problem
    assert (off.expert, off.topk, off.num_shared_fused) == (128, 8, 0)
    assert (on.expert, on.topk, on.num_shared_fused) == (129, 9, 1)


def test_under_ep_each_rank_gets_the_slots_and_each_token_a_sentinel():
    problem = run(model("Glm4MoeForCausalLM", **GLM), tp=8, ep=True, env=FSE).layers[0].problem
    assert (problem.expert, problem.topk, problem.is_ep) == (17, 10, True)


def test_gated_shared_experts_change_the_router():
    qwen = model("Qwen3NextForCausalLM", experts=512, topk=10, n_shared=1, shared_intermediate_size=512)
    assert run(qwen, env=FSE).layers[0].router.kind == "AiterSharedRoutedFusedMoERouter"
    assert run(qwen).layers[0].router.kind == "FusedTopKRouter"


@pytest.mark.parametrize(
    ("m", "why"),
    [
        (model("K2HorizonForCausalLM", n_shared=1, shared_intermediate_size=2048), "no fused path"),
        (
            model("Glm4MoeForCausalLM", **GLM, quantization=quantized("fp8_channel", method="compressed-tensors")),
            "compressed-tensors",
        ),
        (model("DeepseekV4ForCausalLM", n_shared=1, shared_intermediate_size=2048, scoring="sqrtsoftplus"), "Quark MXFP4"),
    ],
)
def test_where_it_does_not_fuse_the_reason_is_said(m, why):
    layer = run(m, env=FSE).layers[0]
    assert layer.problem.num_shared_fused == 0
    assert why in next(n for n in layer.notes if n.code == "shared-experts-not-fused").message


def test_minimax_m3_rides_in_the_grouped_kernel_on_gfx950():
    m3 = model(
        "MiniMaxM3SparseForCausalLM",
        experts=128,
        topk=4,
        scoring="sigmoid",
        selection_bias=True,
        n_shared=1,
        shared_intermediate_size=3072,
    )
    on950, on942 = (run(m3, gfx, env=FSE).layers[0].router for gfx in ("gfx950", "gfx942"))
    assert (on950.kind, on950.num_expert_group) == ("GroupedTopKRouter", 1)
    assert (on942.kind, on942.num_expert_group) == ("FusedTopKBiasRouter", 4)


def test_mori():
    deployment = {"tp": 1, "dp": 8, "ep": True, "all2all": "mori_high_throughput"}
    assert not run(model(), **deployment).layers[0].refusals
    off = run(model(), **deployment, env={"VLLM_ROCM_USE_AITER_MOE": "0"}).layers[0].refusals[0].error
    assert off == "Mori needs to be used with aiter fused_moe for now."
    fused = run(model(), **deployment, env=FSE).layers[0].refusals[0].error
    assert fused.startswith("Mori does not support fusion shared expert now.")


def test_deepseek_v4_switches():
    v4 = model("DeepseekV4ForCausalLM", experts=256, topk=6, scoring="sqrtsoftplus", n_shared=1, shared_intermediate_size=2048,
               quantization=quantized("mxfp4"))  # fmt: skip
    assert "data_parallel_size > 1" in run(v4, dp=2, env=FSE).refusals[0].error
    assert run(v4, moe_backend="aiter_mega_moe").refusals[0].error == "AITER MegaMoE requires gfx950."
    good = run(v4, "gfx950", dp=8, ep=True, all2all="mori_high_throughput", moe_backend="aiter_mega_moe")
    assert (good.refusals, good.layers[0].backend.name) == ((), "AITER_MEGA_MOE")
    a4w4 = run(v4, "gfx950", env={"VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4": "1"}).layers[0].refusals[0].error
    assert a4w4.startswith("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4=1 only supports model_type in")
