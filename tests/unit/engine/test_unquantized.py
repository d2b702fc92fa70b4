"""The 64 / 128 rule by release, the backend by GPU, activation and switches, and the texts of the refusals."""

from __future__ import annotations

import pytest

from tests.unit.engine.build import K2, model, run

TABLE = {  # facts: I -> padded width at TP 1, 2, 4, 8, 16
    1792: (1792, 896, 512, 256, 128),
    768: (768, 384, 192, 128, 64),
    1536: (1536, 768, 384, 192, 128),
    1408: (1408, 768, 384, 192, 128),
    1280: (1280, 640, 384, 192, 128),
    640: (640, 384, 192, 128, 64),
    512: (512, 256, 128, 64, 64),
    6400: (6400, 3200, 1664, 896, 512),
    2880: (2944, 1536, 768, 384, 192),
}


@pytest.mark.parametrize("width", TABLE)
@pytest.mark.parametrize("gfx", ["gfx942", "gfx950"])
def test_the_table_of_padded_widths(width, gfx):
    for tp, padded in zip((1, 2, 4, 8, 16), TABLE[width], strict=True):
        problem = run(model(moe_intermediate_size=width), gfx, tp=tp).layers[0].problem
        assert (problem.inter_dim, problem.inter_dim_padded) == (width // tp, padded)
        assert problem.alignment == (64 if width // tp <= 192 else 128)
        old = run(model(moe_intermediate_size=width), gfx, "0.31.0", tp=tp).layers[0].problem
        assert (old.inter_dim_padded, old.alignment) == (width // tp, None)


def test_padding_never_crosses_192():
    for width in range(1, 2049):
        problem = run(model(moe_intermediate_size=width)).layers[0].problem
        assert (problem.inter_dim <= 192) == (problem.inter_dim_padded <= 192)


@pytest.mark.parametrize(("tp", "native", "padded"), [(8, 224, 256), (4, 448, 512), (2, 896, 896), (1, 1792, 1792)])
def test_k2_horizon(tp, native, padded):
    layer = run(K2, tp=tp).layers[0]
    assert (layer.problem.inter_dim, layer.problem.inter_dim_padded, layer.backend.name) == (native, padded, "AITER")
    assert (layer.zero_filled_by is not None) == (padded > native)
    assert layer.problem.q_type == "No"
    assert layer.problem.act_type == "silu"
    assert layer.layers_per_rank == 58
    assert ("intermediate-pad-ignored" in [n.code for n in layer.notes]) == (padded > native)


def test_k2_horizon_before_its_model_file():
    plan = run(K2, version="0.29.0", tp=8)
    assert [r.stage for r in plan.refusals] == ["config"]
    assert "0.30.0" in plan.refusals[0].why
    assert not run(K2, version="0.30.0", tp=8).refusals


def test_expert_parallel_leaves_the_width_whole():
    problem = run(K2, tp=8, ep=True).layers[0].problem
    assert (problem.inter_dim_padded, problem.expert, problem.ep_size, problem.moe_tp_size, problem.is_ep) == (
        1792,
        24,
        8,
        1,
        True,
    )


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx1100", "gfx1201"])
def test_other_gpus_take_triton(gfx):
    layer = run(K2, gfx, tp=8).layers[0]
    assert (layer.backend.name, layer.backend.on_aiter, layer.problem.q_type) == ("TRITON", False, None)
    assert layer.problem.inter_dim_padded == 224
    assert layer.backend.rejected[0][0] == "AITER"


def test_switches():
    for env in ({"VLLM_ROCM_USE_AITER": "0"}, {"VLLM_ROCM_USE_AITER_MOE": "0"}, {"VLLM_ROCM_USE_AITER": "yes"}):
        assert run(K2, env=env).layers[0].backend.name == "TRITON"


def test_gelu_tanh_falls_back_from_0_31_and_stops_before():
    gemma = model("Gemma4ForConditionalGeneration", activation="gelu_pytorch_tanh", moe_intermediate_size=704)
    layer = run(gemma).layers[0]
    assert layer.backend.name == "TRITON"
    assert "GELU_TANH" in layer.backend.rejected[0][1]
    old = run(gemma, version="0.30.0").layers[0]
    assert old.backend.name is None
    assert old.refusals[0].error.startswith("Unquantized MoE backend ROCm AITER does not support")


def test_experts_without_a_gate_are_not_aiters():
    layer = run(model("NemotronHForCausalLM", activation="relu2", gated=False)).layers[0]
    assert layer.backend.name == "TRITON"
    assert layer.backend.rejected[0] == ("AITER", "kernel does not support no act_and_mul MLP layer")


def test_lora_comes_before_aiter():
    assert run(K2, lora=True).layers[0].backend.name == "TRITON"


def test_batched_all2all_is_not_aiters():
    layer = run(K2, tp=1, dp=8, ep=True, all2all="deepep_low_latency").layers[0]
    assert layer.backend.name == "BATCHED_TRITON"


def test_named_backends():
    assert run(K2, moe_backend="triton").layers[0].backend.name == "TRITON"
    assert run(K2, moe_backend="aiter").layers[0].backend.name == "AITER"
    assert run(K2, moe_backend="marlin").layers[0].backend.name == "AITER"
    refusal = run(K2, moe_backend="cutlass").layers[0].refusals[0]
    assert refusal.error == (
        "moe_backend='cutlass' is not supported for unquantized MoE. Expected one of "
        "['triton', 'batched_triton', 'flashinfer_trtllm', 'flashinfer_cutlass', 'aiter']."
    )
    off = run(K2, moe_backend="aiter", env={"VLLM_ROCM_USE_AITER": "0"}).layers[0].refusals[0]
    assert "AITER MoE is not enabled" in off.error


def test_expert_bias_is_dropped_without_a_word():
    layer = run(model("GptOssForCausalLM", expert_bias=True, moe_intermediate_size=2880, model_dim=2880), tp=8).layers[0]
    assert layer.problem.act_type == "swiglu"
    assert "expert-bias-dropped" in [n.code for n in layer.notes]
