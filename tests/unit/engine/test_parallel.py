"""Splits, refusals of sizes, pipeline shares."""

from __future__ import annotations

import pytest

from moe_preflight.engine.parallel import most_on_one_rank, pipeline_partition
from moe_preflight.errors import UsageError
from tests.unit.engine.build import K2, model, run


def test_without_ep_the_width_is_split_by_tp_dp_pcp():
    problem = run(model(), tp=2, dp=4, pcp=2).layers[0].problem
    assert (problem.inter_dim, problem.moe_tp_size, problem.expert) == (128, 16, 64)


def test_with_ep_the_first_ranks_hold_one_expert_more():
    layer = run(model(experts=60, topk=4), tp=8, ep=True).layers[0]
    assert (layer.problem.expert, layer.problem.ep_size, layer.problem.inter_dim) == (8, 8, 2048)
    assert layer.notes[-1].code == "experts-uneven"
    assert layer.notes[-1].data == {"most": 8, "least": 7}


def test_one_gpu_has_no_expert_parallelism():
    problem = run(model(), ep=True).layers[0].problem
    assert (problem.is_ep, problem.ep_size, problem.expert) == (False, 1, 64)


@pytest.mark.parametrize("tp", [0, -8])
def test_a_size_below_one_is_refused(tp):
    plan = run(K2, tp=tp)
    assert plan.refusals[0].error == "Input should be greater than or equal to 1"
    assert plan.layers[0].problem.inter_dim == 1792


def test_tp_beyond_the_experts():
    plan = run(model("K2HorizonForCausalLM", experts=8, topk=2), tp=16)
    assert [r.error for r in plan.refusals] == ["Tensor parallel size 16 is greater than the number of experts 8."]
    assert not run(model("MixtralForCausalLM", experts=8, topk=2), tp=16).refusals


def test_a_width_that_does_not_divide_is_a_bare_assertion():
    layer = run(model(moe_intermediate_size=1000), tp=16).layers[0]
    assert [(r.stage, r.error) for r in layer.refusals] == [("layer", "AssertionError")]


def test_attention_heads():
    plan = run(model(heads=20), tp=8)
    assert plan.refusals[0].error == "Total number of attention heads (20) must be divisible by tensor parallel size (8)."


def test_deepseek_v4_asserts_on_tp():
    plan = run(model("DeepseekV4ForCausalLM", experts=36, topk=6, scoring="sqrtsoftplus"), tp=8)
    assert [(r.stage, r.error) for r in plan.refusals] == [("model", "AssertionError")]


def test_ep_needs_a_count_vllm_can_find():
    hidden = model("DbrxForCausalLM", config={"ffn_config": {"moe_num_experts": 16}})
    plan = run(hidden, tp=2, ep=True)
    assert plan.refusals[0].error.startswith("Number of experts in the model must be greater than 0")
    assert not run(hidden, tp=2).refusals


def test_redundant_experts_belong_to_ep():
    assert "EPLB" in run(model(), tp=8, redundant_experts=8).layers[0].refusals[0].error
    uneven = run(model(), tp=8, ep=True, redundant_experts=4).layers[0]
    assert uneven.refusals[0].error.endswith("Got 68 experts and 8 EP ranks.")
    assert run(model(), tp=8, ep=True, redundant_experts=8).layers[0].problem.expert == 9


def test_pipeline_shares():
    assert pipeline_partition(61, 4) == (15, 15, 16, 15)
    assert pipeline_partition(62, 4) == (15, 16, 16, 15)
    assert pipeline_partition(61, 8) == (7, 7, 8, 8, 8, 8, 8, 7)
    assert most_on_one_rank(tuple(range(3, 61)), 58, 61, 4) == 16
    assert most_on_one_rank((61,), 1, 61, 4) == 1
    assert run(K2, tp=8, pp=2).layers[0].layers_per_rank == 30


def test_names_nobody_has():
    with pytest.raises(UsageError, match="VLLM_ROCM_USE_AITER_MOE"):
        run(K2, env={"VLLM_ROCM_USE_AITR_MOE": "1"})
    with pytest.raises(UsageError, match="Did you mean aiter"):
        run(K2, moe_backend="aitre")
    with pytest.raises(UsageError):
        run(K2, engine="vlm")
    with pytest.raises(UsageError):
        run(K2, version="newest")


@pytest.mark.parametrize(
    ("version", "facts", "confidence"),
    [
        ("0.33.0", "0.33.0", "read"), ("0.33.0rc1", "0.33.0", "read"), ("v0.32.0", "0.32.0", "read"),
        ("0.32.1", "0.32.0", "unverified"), ("0.28.0", "0.29.0", "unverified"), ("1.0.0", "0.33.0", "unverified"),
    ],
)  # fmt: skip
def test_versions(version, facts, confidence):
    plan = run(K2, version=version)
    assert (plan.facts_version, plan.confidence) == (facts, confidence)
    assert any(n.code.startswith("engine-version") for n in plan.notes) == (version != facts and version != f"v{facts}")


def test_pins():
    pins = {v: run(K2, version=v).aiter_pin for v in ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")}
    assert pins == {"0.29.0": None, "0.30.0": None, "0.31.0": "v0.1.23", "0.32.0": "v0.1.24.post1", "0.33.0": "v0.1.26"}


def test_key_value_heads():
    config = {"num_experts": 64, "num_key_value_heads": 8}
    plan = run(model("Qwen3MoeForCausalLM", heads=96, config=config, moe_intermediate_size=3072), tp=6)
    assert [(r.stage, r.error) for r in plan.refusals] == [("model", "AssertionError")]
    assert not run(model("Qwen3MoeForCausalLM", heads=96, config=config), tp=16).refusals
    latent = {**config, "kv_lora_rank": 512}
    assert not run(model("DeepseekV3ForCausalLM", heads=96, config=latent, moe_intermediate_size=3072), tp=6).refusals


def test_a_vision_tower_is_a_note():
    config = {"vision_config": {"num_heads": 12}, "text_config": {"model_type": "glm4v_moe_text"}}
    plan = run(model("Glm4vMoeForConditionalGeneration", config=config), tp=8)
    assert not plan.refusals
    assert "'12 is not divisible by 8'" in next(n for n in plan.notes if n.code == "vision-tower-heads").message
    assert not [n for n in run(model("Glm4vMoeForConditionalGeneration", config=config), tp=4).notes if "vision" in n.code]


def test_more_pipeline_ranks_than_layers():
    assert "pipeline-ranks-without-layers" in [n.code for n in run(model(), pp=5).notes]


def test_a_given_partition():
    given = {"VLLM_PP_LAYER_PARTITION": "11,50"}
    assert run(K2, tp=8, pp=2, env=given).layers[0].layers_per_rank == 50
    assert run(K2, tp=8, pp=2, env={"VLLM_PP_LAYER_PARTITION": "1,2"}).refusals[0].error == (
        "sum(partitions)=3 does not match num_hidden_layers=61."
    )
    assert "does not match pp_size=2" in run(K2, pp=2, env={"VLLM_PP_LAYER_PARTITION": "61"}).refusals[0].error
    assert "Invalid partition string" in run(K2, pp=2, env={"VLLM_PP_LAYER_PARTITION": "a,b"}).refusals[0].error


def test_simulated_routing():
    call = run(K2, env={"VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}).layers[0].router
    assert (call.kind, call.on_aiter) == ("RoutingSimulatorRouter", False)
