"""MXFP4, NVFP4, integer and MXFP8 experts on vLLM: backends by GPU and release, rounding, and what never reaches AITER."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.version import Version
from moe_preflight.engine.facts.vllm_releases import RELEASES
from moe_preflight.engine.mxfp4 import alignment
from moe_preflight.evaluate import key_of
from tests.unit.engine.build import model, quantized, run

RELEASE = {r.version: r for r in RELEASES}


def gpt_oss(**layer):
    fields = {
        "experts": 128, "topk": 4, "model_dim": 2880, "moe_intermediate_size": 2880, "expert_bias": True,
        "quantization": quantized("mxfp4", method="mxfp4"),
    }  # fmt: skip
    m = model("GptOssForCausalLM", **{**fields, **layer})
    return replace(m, model_type="gpt_oss")


@pytest.mark.parametrize(("tp", "inter"), [(1, 3072), (2, 1536), (4, 768), (8, 512)])
def test_gpt_oss_on_gfx950(tp, inter):
    layer = run(gpt_oss(), "gfx950", tp=tp).layers[0]
    problem = layer.problem
    assert (layer.backend.name, problem.inter_dim_padded, problem.model_dim_padded) == ("AITER_MXFP4_BF16", inter, 3072)
    assert (problem.q_type, problem.q_dtype_w, problem.act_type, problem.gate_mode) == (
        "per_1x32",
        "fp4x2",
        "swiglu",
        "interleave",
    )
    assert problem.intermediate_pad == {1: 384, 2: 64, 4: 0, 8: 128}[tp]
    assert problem.hidden_pad == 128
    assert "expert-bias-dropped" not in [n.code for n in layer.notes]


@pytest.mark.parametrize(
    ("version", "ep", "backend"),
    [
        ("0.29.0", False, "TRITON"), ("0.30.0", True, "AITER_TRITON_MXFP4_BF16"), ("0.31.0", False, "AITER_TRITON_MXFP4_BF16"),
        ("0.31.0", True, "TRITON"), ("0.32.0", True, "TRITON"), ("0.33.0", True, "AITER_TRITON_MXFP4_BF16"),
    ],
)  # fmt: skip
def test_gpt_oss_on_gfx942_moved_with_every_release(version, ep, backend):
    layer = run(gpt_oss(), "gfx942", version, tp=4, ep=ep).layers[0]
    assert (layer.backend.name, layer.backend.on_aiter, layer.problem.q_type) == (backend, False, None)


def test_without_a_bias_w4a16_is_known_to_be_wrong():
    assert "w4a16-without-bias-wrong" in [n.code for n in run(gpt_oss(expert_bias=False), "gfx950").layers[0].notes]


def test_quark_w4a4():
    weights = quantized("mxfp4_a4", method="quark")
    deepseek = model("DeepseekV3ForCausalLM", moe_intermediate_size=1408, quantization=weights)
    new, old = (run(deepseek, "gfx950", v, tp=8).layers[0] for v in ("0.33.0", "0.31.0"))
    assert (new.backend.name, new.problem.inter_dim_padded, old.problem.inter_dim_padded) == ("AITER_MXFP4_MXFP4", 256, 256)
    wide = model("DeepseekV3ForCausalLM", moe_intermediate_size=2816, quantization=weights)
    assert run(wide, "gfx950", "0.33.0", tp=8).layers[0].problem.inter_dim_padded == 384
    assert run(wide, "gfx950", "0.31.0", tp=8).layers[0].problem.inter_dim_padded == 512
    assert run(deepseek, "gfx942", tp=8).layers[0].backend.name == "EMULATION"
    assert run(deepseek, "gfx950", env={"VLLM_ROCM_USE_AITER": "0"}).layers[0].backend.name == "EMULATION"


def test_deepseek_v4_fp4_experts():
    fields = {"experts": 256, "topk": 6, "scoring": "sqrtsoftplus", "selection_bias": True, "moe_intermediate_size": 1408}
    v4 = model("DeepseekV4ForCausalLM", quantization=quantized("mxfp4", method="fp8"), **fields)
    on950, on942 = run(v4, "gfx950", tp=8).layers[0], run(v4, "gfx942", tp=8).layers[0]
    assert (on950.backend.name, on950.problem.inter_dim_padded) == ("AITER_MXFP4_BF16", 256)
    assert (on942.backend.name, on942.problem.inter_dim_padded) == ("TRITON_UNFUSED", 256)
    asked = run(v4, "gfx942", tp=2, moe_backend="aiter").layers[0]
    assert (asked.backend.name, asked.problem.inter_dim_padded) == ("AITER_TRITON_MXFP4_BF16", 768)
    assert alignment("TRITON_UNFUSED", "silu", "gfx942", RELEASE["0.33.0"]) == (128, 128)
    assert alignment("TRITON_UNFUSED", "silu", "gfx950", RELEASE["0.33.0"]) == (256, 256)


def kimi_k3(**layer):
    return model(
        "KimiK3ForConditionalGeneration", experts=896, topk=16, activation="situ", scoring="sigmoid", selection_bias=True,
        model_dim=3584, moe_intermediate_size=3072, n_group=1, topk_group=1,
        quantization=quantized("mxfp4", method="compressed-tensors"), **layer,
    )  # fmt: skip


def test_kimi_k3():
    layer = run(kimi_k3(), "gfx950", tp=8).layers[0]
    assert (layer.backend.name, layer.problem.inter_dim_padded, layer.problem.act_type) == ("AITER_MXFP4_BF16", 384, "situv2")
    assert (layer.problem.q_dtype_a, layer.problem.gate_mode) == ("fp4x2", "separated")
    a8 = run(kimi_k3(), "gfx950", tp=8, env={"VLLM_ROCM_USE_AITER_MOE_SITUV2": "a8w4"}).layers[0].problem
    assert (a8.q_dtype_a, a8.gate_mode) == ("fp8", "interleave")
    stop = run(kimi_k3(), "gfx942", tp=8).layers[0]
    assert stop.refusals[0].error == "No MXFP4 MoE backend supports the deployment configuration."
    assert "emulation-needs-quark" in [n.code for n in stop.notes]


def test_kimi_widens_narrow_shards_itself():
    layer = run(kimi_k3(), "gfx950", tp=16).layers[0]
    assert layer.problem.inter_dim == 256
    assert "model-pads-width" in [n.code for n in layer.notes]


def test_compressed_tensors_mxfp4_is_bound_to_marlin():
    layer = run(model(quantization=quantized("mxfp4", method="compressed-tensors")), "gfx950").layers[0]
    assert (layer.backend.name, layer.refusals[0].stage) == ("MARLIN", "load")


@pytest.mark.parametrize("gfx", ["gfx942", "gfx950"])
def test_nvfp4_is_emulated(gfx):
    nvfp4 = quantized("nvfp4", method="modelopt")
    assert run(model(quantization=nvfp4), gfx).layers[0].backend.name == "EMULATION"
    asked = run(model(quantization=nvfp4), gfx, moe_backend="aiter").layers[0].refusals[0].error
    assert asked.startswith("moe_backend='aiter' is not supported for NvFP4 MoE. Expected one of ['b12x', 'cutlass',")
    assert "flashinfer_moe_ep_cutedsl" in asked
    old = run(model(quantization=nvfp4), gfx, "0.31.0", moe_backend="aiter").layers[0].refusals[0].error
    assert "flashinfer_moe_ep_cutedsl" not in old


def test_weight_only_nvfp4_stops_in_the_linear_layers():
    a16 = quantized("nvfp4_a16", method="modelopt")
    plan = run(model(quantization=a16, shared_intermediate_size=512))
    assert plan.refusals[0].error.startswith("Forced NVFP4 kernel MarlinNvFp4LinearKernel is not supported")


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed-tensors"])
def test_integer_weights_never_reach_aiter(method):
    int4 = quantized("int4", method=method, group_size=128, weight_strategy="group")
    layer = run(model(quantization=int4)).layers[0]
    assert (layer.backend.name, layer.backend.on_aiter, layer.problem.q_type) == ("TRITON", False, None)
    asked = run(model(quantization=int4), moe_backend="aiter").layers[0].refusals[0].error
    assert asked.startswith("moe_backend='aiter' is not supported for WNA16 MoE.")


def test_scale_groups_must_not_cross_shards():
    int4 = quantized("int4", method="compressed-tensors", group_size=128, weight_strategy="group")
    assert (
        "(64) to be divisible by group_size (128)"
        in run(model(moe_intermediate_size=512, quantization=int4), tp=8).layers[0].refusals[0].error
    )
    assert not run(model(moe_intermediate_size=512, quantization=int4), tp=8, ep=True).layers[0].refusals


def test_flydsl_int4_by_name():
    int4 = quantized("int4", method="compressed-tensors", group_size=32, weight_strategy="group")
    layer = run(model(quantization=int4), "gfx950", moe_backend="flydsl").layers[0]
    assert layer.quant_method == "CompressedTensorsW4A16FlydslMoEMethod"
    assert "not supported for WNA16" in run(model(quantization=int4), "gfx942", moe_backend="flydsl").layers[0].refusals[0].error


def test_mxfp8():
    for gfx, backend in (("gfx950", "AITER_MXFP8"), ("gfx942", "EMULATION")):
        layer = run(model(quantization=quantized("mxfp8", method="modelopt")), gfx).layers[0]
        assert layer.backend.name == backend
    problem = run(model(quantization=quantized("mxfp8", method="modelopt")), "gfx950").layers[0].problem
    assert (problem.q_type, problem.q_dtype_w, problem.gate_mode) == ("per_1x32", "fp8", "interleave")
    assert (
        run(model(quantization=quantized("mxfp8")), "gfx950", env={"VLLM_ROCM_USE_AITER": "0"}).layers[0].backend.name
        == "TRITON_MXFP8"
    )


def test_int8_and_quark_w4a8():
    assert run(model(quantization=quantized("int8", method="compressed-tensors"))).layers[0].backend.name == "TRITON"
    w4a8 = run(model(quantization=quantized("int4_fp8", method="quark"))).layers[0]
    assert (w4a8.backend.name, w4a8.problem.q_type, w4a8.problem.q_dtype_w) == ("AITER", "per_Token", "i4x2")
    off = run(model(quantization=quantized("int4_fp8", method="quark")), env={"VLLM_ROCM_USE_AITER": "0"}).layers[0]
    assert off.refusals[0].error == "W4A8 FP8 MoE requires ROCm AITER fused MoE support."


def test_a_scheme_nobody_knows_is_said_so():
    layer = run(model(quantization=quantized("other", method="bitnet"))).layers[0]
    plan = run(model(quantization=quantized("other", method="bitnet")))
    assert plan.refusals[0].error.startswith("Unknown quantization method: bitnet. Must be one of [")
    assert layer.refusals
    mlx = run(model(quantization=quantized("other", method="mlx"))).layers[0]
    assert (mlx.backend.name, mlx.notes[0].code) == ("AITER", "quantization-ignored")


def test_vllm_keeps_small_batches_of_deepseek_v4_off_bf16_activations():
    m = model("DeepseekV4ForCausalLM", scoring="sqrtsoftplus", selection_bias=True, quantization=quantized("mxfp4", method="fp8"))
    layer = run(m, "gfx950", tp=4).layers[0]
    assert layer.problem.aiter_env == (("AITER_BF16_FP8_MOE_BOUND", "0"),)
    ask = Dispatcher(Version.of("0.1.20.post1"), "gfx950", 256, env={"AITER_BF16_FP8_MOE_BOUND": "256"})
    answers = [ask.dispatch(key_of(layer.problem, ask.rules, token=t)) for t in (1, 64, 512)]
    assert [a.q_dtype_a for a in answers] == ["fp8"] * 3, "the engine's own setting goes over the environment's"
    bare = replace(layer.problem, aiter_env=())
    assert ask.dispatch(key_of(bare, ask.rules, token=64)).q_dtype_a == "bf16"


def test_gpt_oss_and_quark_leave_aiters_bound_alone():
    assert run(gpt_oss(), "gfx950").layers[0].problem.aiter_env == ()
    assert run(model(quantization=quantized("mxfp4_a4", method="quark")), "gfx950").layers[0].problem.aiter_env == ()


@pytest.mark.parametrize(("version", "chosen", "a_dtype"), [
    ("0.33.0", "auto", "fp4x2"), ("0.33.0", "a8w4", "fp8"), ("0.33.0", "a16w4", "bf16"), ("0.30.0", None, "bf16"),
])  # fmt: skip
def test_situ_experts_are_asked_for_as_vllm_sets_aiter_up(version, chosen, a_dtype):
    env = {} if chosen is None else {"VLLM_ROCM_USE_AITER_MOE_SITUV2": chosen}
    m = model("KimiK3ForConditionalGeneration", activation="situ", quantization=quantized("mxfp4", method="mxfp4"))
    problem = run(m, "gfx950", version, env=env).layers[0].problem
    ask = Dispatcher(Version.of("0.1.20.post1"), "gfx950", 256)
    assert ask.dispatch(key_of(problem, ask.rules, token=64)).q_dtype_a == a_dtype == problem.q_dtype_a
