"""Limits of vLLM's selectors that published configs at the default settings never reach: other GPUs, formats, flags and releases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moe_preflight.engine.plan import LayerPlan
from tests.unit.engine.build import model, quantized, run

FP8 = quantized(
    "fp8_block", block_shape=(128, 128), weight_strategy="block", activation_strategy="group", activation_dynamic=True
)
GPTQ = {"method": "gptq", "weight_strategy": "group", "group_size": 128, "detail": {"desc_act": False}}


def layer(gfx: str = "gfx942", version: str = "0.33.0", *, deployment: dict | None = None, **fields) -> LayerPlan:
    return run(model(**fields), gfx, version, **(deployment or {})).layers[0]


def error(planned: LayerPlan) -> str | None:
    return planned.refusals[0].error if planned.refusals else None


# GPUs


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx1151"])
@pytest.mark.parametrize(("version", "backend"), [("0.32.0", None), ("0.33.0", "TRITON")])
@pytest.mark.parametrize("scheme", ["fp8_block", "fp8_tensor", "fp8_channel"])
def test_rdna3_has_no_fp8_experts_before_0_33(gfx, version, backend, scheme):
    weights = FP8 if scheme == "fp8_block" else quantized(scheme)
    planned = layer(gfx, version, quantization=weights, deployment={"env": {"VLLM_ROCM_USE_AITER": "0"}})
    assert planned.backend.name == backend
    assert (error(planned) == "No FP8 MoE backend supports the deployment configuration.") == (backend is None)


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx942", "gfx1201"])
def test_fp8_experts_elsewhere_were_always_there(gfx):
    planned = layer(gfx, "0.29.0", quantization=FP8, deployment={"env": {"VLLM_ROCM_USE_AITER": "0"}})
    assert (planned.backend.name, error(planned)) == ("TRITON", None)


def test_rdna3s_integer_kernel_takes_four_bits_only():
    pack = {"method": "compressed-tensors", "weight_strategy": "group", "group_size": 128}
    four, eight = (layer("gfx1100", quantization=quantized(s, **pack)).backend.name for s in ("int4", "int8_w8a16"))
    assert (four, eight) == ("RDNA3", "TRITON")


def test_gfx1250_is_none_of_the_gpus_of_the_oai_triton_kernels():
    weights = quantized("mxfp4", method="quark")
    asked = {"moe_backend": "triton_unfused", "env": {"VLLM_ROCM_USE_AITER": "0"}}
    planned = layer("gfx1250", quantization=weights, deployment=asked)
    assert "kernel does not support current device rocm" in (error(planned) or "")
    assert layer("gfx950", quantization=weights, deployment=asked).backend.name == "TRITON_UNFUSED"


# formats


@pytest.mark.parametrize(("activation", "version", "backend"), [
    ("silu", "0.31.0", "TRITON_MXFP8"), ("silu", "0.32.0", "TRITON_MXFP8"), ("silu", "0.33.0", "AITER_MXFP8"),
    ("swigluoai_uninterleave", "0.31.0", "AITER_MXFP8"), ("gelu", "0.33.0", "TRITON_MXFP8"),
])  # fmt: skip
def test_aiters_mxfp8_kernel_learnt_silu_with_0_33(activation, version, backend):
    weights = quantized("mxfp8", method="modelopt")
    assert layer("gfx950", version, activation=activation, quantization=weights).backend.name == backend


@pytest.mark.parametrize(("method", "refused"), [("modelopt", True), ("quark", True), ("compressed-tensors", False)])
def test_mxfp8_wants_whole_blocks_of_32(method, refused):
    planned = layer("gfx950", moe_intermediate_size=1408, quantization=quantized("mxfp8", method=method), deployment={"tp": 8})
    assert ("divisible by 32" in (error(planned) or "")) == refused


@pytest.mark.parametrize("activation", ["fp6_e3m2", "fp6_e2m3"])
@pytest.mark.parametrize("gfx", ["gfx942", "gfx950"])
def test_fp4_weights_with_fp6_activations_are_emulated(gfx, activation):
    weights = quantized(
        "other", method="quark", weight_dtype="fp4", activation_dtype=activation, weight_strategy="group", group_size=32
    )
    planned = layer(gfx, quantization=weights, moe_intermediate_size=1400)
    assert (planned.backend.name, error(planned), planned.problem.inter_dim_padded) == ("EMULATION", None, 1408)


def test_an_unknown_format_is_still_refused():
    assert error(layer(quantization=quantized("other", method="quark", weight_dtype="int2")))


@pytest.mark.parametrize(("version", "refused"), [("0.29.0", True), ("0.30.0", False), ("0.33.0", False)])
def test_quarks_block_scaled_experts_came_with_0_30(version, refused):
    weights = quantized("fp8_block", method="quark", block_shape=(128, 128))
    assert ("Found per_block, per_group" in (error(layer(version=version, quantization=weights)) or "")) == refused


# scale groups


@pytest.mark.parametrize(("width", "tp", "runs"), [
    (1024, 8, True), (768, 4, True), (768, 8, True), (1408, 8, False), (2880, 8, False), (2880, 1, True), (1408, 1, True),
])  # fmt: skip
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_gptq_and_awq_halve_the_group_down_to_32(method, width, tp, runs):
    weights = quantized("int4", **{**GPTQ, "method": method})
    planned = layer(moe_intermediate_size=width, quantization=weights, deployment={"tp": tp})
    assert (planned.backend.name, error(planned)) == ("TRITON", None if runs else "AssertionError")


def test_expert_parallelism_keeps_the_group_whole():
    planned = layer(moe_intermediate_size=1408, quantization=quantized("int4", **GPTQ), deployment={"tp": 8, "ep": True})
    assert error(planned) is None


def test_gptq_with_one_scale_per_channel_does_not_load():
    weights = quantized("int4", method="gptq", weight_strategy="channel")
    planned = layer(experts=64, moe_intermediate_size=1024, model_dim=2048, quantization=weights, deployment={"tp": 2})
    assert error(planned) == "Trying to create tensor with negative dimension -2048: [64, 1024, -2048]"


@pytest.mark.parametrize(("method", "detail"), [("gptq", {"desc_act": True}), ("compressed-tensors", {"actorder": "group"})])
def test_activation_ordering_within_groups_is_gone_with_0_30(method, detail):
    m = model(quantization=quantized("int4", **{**GPTQ, "method": method, "detail": detail}))
    assert not [r for r in run(m, version="0.29.0").refusals if "activation ordering" in r.error]
    (stop,) = [r for r in run(m, version="0.30.0").refusals if "activation ordering" in r.error]
    assert "no longer supported" in stop.error


@pytest.mark.parametrize(("method", "detail"), [
    ("gptq", {"desc_act": False}), ("compressed-tensors", {"actorder": "static"}), ("compressed-tensors", {"actorder": None}),
])  # fmt: skip
def test_other_orderings_are_not(method, detail):
    m = model(quantization=quantized("int4", **{**GPTQ, "method": method, "detail": detail}))
    assert not [r for r in run(m).refusals if "ordering" in r.error]


# flags and variables


@pytest.mark.parametrize(("env", "refused"), [
    ({"VLLM_USE_DEEP_GEMM": "1"}, True), ({"VLLM_MOE_USE_DEEP_GEMM": "1"}, True), ({"VLLM_USE_DEEP_GEMM": "0"}, False),
    ({"VLLM_USE_DEEP_GEMM": "1", "VLLM_MOE_USE_DEEP_GEMM": "0"}, False), ({}, False),
])  # fmt: skip
def test_deep_gemm_set_by_variable_stops_fp8_experts(env, refused):
    planned = layer(quantization=FP8, deployment={"env": env})
    assert ((error(planned) or "").startswith("FP8 MoE backend DEEPGEMM")) == refused
    assert error(layer(deployment={"env": env})) is None, "experts without fp8 never ask"


def test_batched_triton_by_name_needs_no_batched_all2all():
    assert layer(deployment={"moe_backend": "batched_triton"}).backend.name == "BATCHED_TRITON"
    assert layer(deployment={"moe_backend": "triton"}).backend.name == "TRITON"


def test_batch_invariance_leaves_integer_experts_on_triton():
    pack = {"method": "compressed-tensors", "weight_strategy": "group", "group_size": 128}
    env = {"VLLM_BATCH_INVARIANT": "1"}
    assert layer(quantization=quantized("int4", **pack), deployment={"env": env}).backend.name == "TRITON"


@pytest.mark.parametrize(("version", "method"), [("0.32.0", "Simulated"), ("0.33.0", "RenormalizeNaive")])
def test_a_simulated_router_advertises_itself_before_0_33(version, method):
    planned = layer(version=version, deployment={"env": {"VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}})
    assert planned.routing_method == method


@pytest.mark.parametrize(("version", "method"), [("0.30.0", "MiniMax2"), ("0.31.0", "Unspecified"), ("0.33.0", "Unspecified")])
def test_a_router_with_zero_experts_advertises_nothing_from_0_31(version, method):
    planned = layer(version=version, zero_experts=16, scoring="sigmoid", selection_bias=True)
    assert (planned.router.kind, planned.routing_method) == ("ZeroExpertRouter", method)


@pytest.mark.parametrize(("weights", "refused"), [
    (quantized("none", method=None), False), (FP8, False), (quantized("fp8_channel", method="quark"), True),
    (quantized("int4", **GPTQ), True), (quantized("mxfp8", method="modelopt"), True), (quantized("nvfp4", method="modelopt"), False),
    (quantized("mxfp4_a4", method="quark"), False),
])  # fmt: skip
def test_the_load_balancer_moves_experts_of_some_methods_only(weights, refused):
    planned = layer("gfx950", quantization=weights, deployment={"tp": 8, "ep": True, "redundant_experts": 8})
    assert ((error(planned) or "").startswith("EPLB is not supported ")) == refused


# all2all


@pytest.mark.parametrize(("all2all", "hidden", "padded"), [
    ("deepep_high_throughput", 2880, 3072), ("deepep_high_throughput", 2816, 2816), ("deepep_v2", 2880, 3072),
    ("deepep_low_latency", 2880, 3072), ("deepep_low_latency", 1024, 2048), ("nixl_ep", 4096, 4096),
    ("mori_high_throughput", 2880, 2880), ("allgather_reducescatter", 2880, 2880),
])  # fmt: skip
def test_all2all_kernels_round_the_hidden_size(all2all, hidden, padded):
    asked = {"tp": 1, "dp": 8, "ep": True, "all2all": all2all}
    planned = layer(model_dim=hidden, deployment=asked)
    assert planned.problem.model_dim_padded == padded
    assert layer(model_dim=hidden, deployment={**asked, "dp": 1, "tp": 8}).problem.model_dim_padded == hidden, (
        "no all2all without DP"
    )


def test_a_hidden_size_no_low_latency_kernel_has():
    planned = layer(model_dim=12288, deployment={"dp": 8, "ep": True, "all2all": "deepep_low_latency"})
    assert error(planned) == "Hidden Size 12288 is greater than the maximum supported hidden size 8192"


# what the messages say


def test_messages_show_what_vllm_shows():
    weights = quantized("mxfp4_a4", method="quark")
    named = layer(
        quantization=weights, scoring="sigmoid", selection_bias=True, deployment={"moe_backend": "aiter_triton_mxfp4_bf16"}
    )
    assert (error(named) or "").endswith("kernel does not support routing method 7.")
    other = layer(quantization=weights, deployment={"moe_backend": "cutlass"})
    assert (error(other) or "").endswith("'aiter_mxfp4_mxfp4', 'xpu', 'cpu', 'emulation'].")
    marlin = layer(quantization=weights, deployment={"moe_backend": "marlin"})
    assert (error(marlin) or "").startswith("Mxfp4 MoE backend 'MARLIN' does not support")
    low = layer(version="0.32.0", quantization=FP8, deployment={"dp": 8, "ep": True, "all2all": "deepep_low_latency"})
    assert (error(low) or "").endswith("kernel does not support ('batched_experts',) activation format.")


# SGLang


@pytest.mark.parametrize(("env", "limit", "gate"), [
    ({}, 10.0, "interleave"), ({"SGLANG_USE_AITER_MOE_GU_ITLV": "0"}, 10.0, "separated"), ({}, None, "separated"),
])  # fmt: skip
def test_sglang_pads_deepseek_v4s_fp4_experts_to_128(env, limit, gate):
    m = model(
        moe_intermediate_size=3072, model_dim=7104, quantization=quantized("mxfp4", method="fp8"), config={"swiglu_limit": limit}
    )
    problem = run(m, "gfx950", "0.5.23", engine="sglang", tp=8, env=env).layers[0].problem
    assert (problem.inter_dim_padded, problem.model_dim_padded, problem.intermediate_pad) == (384, 7104, 0)
    assert problem.gate_mode == gate
    odd = run(m, "gfx950", "0.5.23", engine="sglang", tp=16, env=env).layers[0].problem
    assert (odd.inter_dim, odd.inter_dim_padded, odd.intermediate_pad) == (192, 256, 64)


@pytest.mark.parametrize(("model_type", "fixed"), [("deepseek_v4", False), ("deepseek_v41", True)])
def test_sglang_gives_deepseek_v41_fp8_activations(model_type, fixed):
    m = model(quantization=quantized("mxfp4", method="fp8"), config={"swiglu_limit": 10.0})
    planned = run(replace(m, model_type=model_type), "gfx950", "0.5.23", engine="sglang", tp=8)
    assert bool(planned.layers[0].problem.aiter_env) == fixed


def test_sglang_pads_other_mxfp4_checkpoints_to_256():
    m = model(moe_intermediate_size=3072, quantization=quantized("mxfp4", method="mxfp4"))
    assert run(m, "gfx950", "0.5.23", engine="sglang", tp=8).layers[0].problem.inter_dim_padded == 512
