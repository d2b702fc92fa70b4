"""FP8 experts on vLLM: block refinement, shard padding, odd mappings, and the texts of the refusals."""

from __future__ import annotations

import pytest

from moe_preflight.engine.fp8 import refine
from tests.unit.engine.build import model, quantized, run

BLOCK = quantized("fp8_block", block_shape=(128, 128), weight_strategy="block", activation_dynamic=True)


def block_model(width: int, **layer):
    return model(moe_intermediate_size=width, quantization=BLOCK, **layer)


@pytest.mark.parametrize(
    ("width", "tp", "auto", "padded"),
    [  # facts 2.4: a [128,128] checkpoint; auto None = AITER takes it, a number = the refined block it refuses
        (768, 4, 64, 256), (768, 8, 32, 128), (1536, 8, 64, 256), (1408, 2, 64, 768), (1408, 4, 32, 384),
        (2048, 8, None, 256), (2048, 16, None, 128), (1792, 4, 64, 512), (1792, 8, 32, 256),
    ],
)  # fmt: skip
def test_the_table_of_block_shards(width, tp, auto, padded):
    layer = run(block_model(width), tp=tp).layers[0]
    if auto is None:
        assert (layer.backend.name, layer.problem.inter_dim_padded) == ("AITER", width // tp)
        assert (layer.problem.q_type, layer.problem.q_dtype_a, layer.problem.q_dtype_w) == ("per_128x128", "fp8", "fp8")
    else:
        assert f"GroupShape(row={auto}, col={auto})" in layer.refusals[0].error
        assert layer.refusals[0].error.startswith("FP8 MoE backend AITER does not support the deployment configuration since")
    asked = run(block_model(width), tp=tp, moe_backend="aiter").layers[0]
    assert (asked.backend.name, asked.problem.inter_dim_padded) == ("AITER", padded)
    assert (asked.problem.alignment == 128) == (padded != width // tp)


def test_a_block_too_small_to_refine_names_the_width():
    layer = run(block_model(1408), tp=8).layers[0]
    assert refine((128, 128), 176, 4096, 8) is None
    assert layer.refusals[0].error == (
        "The output_size of gate's and up's weight = 176 is not divisible by weight quantization block_n = 128."
    )
    assert run(block_model(1408), tp=8, moe_backend="aiter").layers[0].problem.inter_dim_padded == 256


def test_padding_needs_pure_tp_and_a_release_that_has_it():
    ragged = block_model(1000)
    assert (
        "Block-aligned FP8 TP sharding requires 128-aligned" in run(ragged, tp=8, moe_backend="aiter").layers[0].refusals[0].error
    )
    old = run(block_model(768), version="0.30.0", tp=4, moe_backend="aiter").layers[0]
    assert "GroupShape(row=64, col=64)" in old.refusals[0].error


def test_triton_takes_refined_blocks():
    for deployment in ({"env": {"VLLM_ROCM_USE_AITER_MOE": "0"}}, {"moe_backend": "triton"}):
        layer = run(block_model(768), tp=4, **deployment).layers[0]
        assert (layer.backend.name, layer.problem.inter_dim_padded, layer.problem.q_type) == ("TRITON", 192, None)
        assert "fp8-block-refined" in [n.code for n in layer.notes]


def test_the_fnuz_note_and_key_texts_follow_the_gpu():
    on942 = run(block_model(768), "gfx942", tp=4).layers[0]
    on950 = run(block_model(768), "gfx950", tp=4).layers[0]
    assert "f8e4m3fnuz" in on942.refusals[0].error
    assert "f8e4m3fn," in on950.refusals[0].error
    assert "fp8-fnuz" in [n.code for n in run(block_model(2048), "gfx942").layers[0].notes]
    assert "fp8-fnuz" not in [n.code for n in run(block_model(2048), "gfx950").layers[0].notes]


@pytest.mark.parametrize(
    ("method", "scheme", "fields", "backend", "q_type"),
    [
        ("fp8", "fp8_tensor", {"activation_dynamic": True}, "AITER", "per_Tensor"),
        ("fp8", "fp8_tensor", {"activation_dynamic": False}, "AITER", "per_Tensor"),
        ("modelopt", "fp8_tensor", {"activation_dynamic": False}, "AITER", "per_Tensor"),
        (
            "compressed-tensors",
            "fp8_channel",
            {"weight_strategy": "channel", "activation_strategy": "token"},
            "AITER",
            "per_Token",
        ),
        ("quark", "fp8_channel", {"weight_strategy": "channel", "activation_strategy": "token"}, "AITER", "per_Token"),
        ("quark", "fp8_block", {"block_shape": (128, 128)}, "AITER", "per_128x128"),
    ],
)
def test_schemes_aiter_lists(method, scheme, fields, backend, q_type):
    layer = run(model(quantization=quantized(scheme, method=method, **fields))).layers[0]
    assert (layer.backend.name, layer.problem.q_type, layer.problem.q_dtype_w) == (backend, q_type, "fp8")


def test_per_tensor_weights_with_dynamic_per_tensor_activations_are_misfiled_by_compressed_tensors():
    odd = quantized(
        "fp8_tensor", method="compressed-tensors", weight_strategy="tensor", activation_strategy="tensor", activation_dynamic=True
    )
    assert "per_tensor),symmetric)xQuantKey" in run(model(quantization=odd)).layers[0].refusals[0].error
    static = quantized(
        "fp8_channel",
        method="compressed-tensors",
        weight_strategy="channel",
        activation_strategy="token",
        activation_dynamic=False,
    )
    assert "channelwise, dynamic per token" in run(model(quantization=static)).layers[0].refusals[0].error


def test_aiter_asked_for_by_environment_has_no_way_back():
    nemotron = model(
        "NemotronHForCausalLM", activation="relu2", gated=False, quantization=quantized("fp8_tensor", method="modelopt")
    )
    assert run(nemotron).layers[0].refusals[0].error.endswith("kernel does not support no act_and_mul MLP layer.")
    assert run(nemotron, env={"VLLM_ROCM_USE_AITER": "0"}).layers[0].backend.name == "TRITON"
    mi200 = run(block_model(2048), "gfx90a").layers[0].refusals[0].error
    assert "current device rocm. AITER MoE is not enabled" in mi200
    assert run(block_model(2048), "gfx1201").layers[0].backend.name == "TRITON"


def test_named_backends_that_do_not_exist_on_rocm():
    text = run(block_model(2048), moe_backend="deep_gemm").layers[0].refusals[0].error
    assert text == (
        "FP8 MoE backend DEEPGEMM does not support the deployment configuration since kernel does not support current device rocm."
    )
    assert "Expected one of ['triton', 'deep_gemm'" in run(block_model(2048), moe_backend="flydsl").layers[0].refusals[0].error


def test_router_weight_on_the_input_asserts_with_blocks():
    layer = run(model("Llama4ForCausalLM", topk=1, weight_on_input=True, quantization=BLOCK)).layers[0]
    assert "weight-on-input-asserts" in [n.code for n in layer.notes]


def test_a_block_fp8_shared_expert_stops_the_model():
    narrow = model("Qwen3NextForCausalLM", quantization=BLOCK, shared_intermediate_size=512, n_shared=1)
    for ep in (False, True):
        plan = run(narrow, tp=8, ep=ep)
        assert plan.refusals[0].error == (
            "Weight input_size_per_partition = 64 is not divisible by weight quantization block_k = 128."
        )
    listed = quantized("fp8_block", method="compressed-tensors", block_shape=(128, 128))
    plan = run(model("LagunaForCausalLM", quantization=listed, shared_intermediate_size=512, n_shared=1), tp=8)
    assert plan.refusals[0].error == ("Weight output_partition_size = 64 is not divisible by weight quantization block_n = 128.")
    plain = {"quantization_config": {"modules_to_not_convert": ["model.layers.0.mlp.shared_expert"]}}
    assert not run(model("Qwen3NextForCausalLM", quantization=BLOCK, shared_intermediate_size=512, config=plain), tp=8).refusals
