"""SGLang 0.5.23 on ROCm, by the rules of its own source (facts: vllm.md section 8)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from moe_preflight.engine import plan
from moe_preflight.engine.plan import Deployment, EnginePlan, LayerPlan
from moe_preflight.errors import UsageError
from moe_preflight.hardware import named
from moe_preflight.model.moe import MoEModel
from moe_preflight.model.read import read_config
from tests.corpus import corpus, needs_corpus
from tests.unit.engine.build import K2, model, quantized

BASE = Deployment(named("mi300x"), engine="sglang", engine_version="0.5.23")


def run(m: MoEModel, **deployment: Any) -> EnginePlan:
    return plan(m, replace(BASE, **deployment))


def one(m: MoEModel, **deployment: Any) -> LayerPlan:
    return run(m, **deployment).layers[0]


@pytest.mark.parametrize(
    ("tp", "backend"), [(1, "AITER"), (2, "AITER"), (4, "TRITON"), (8, "TRITON"), (16, "TRITON")], ids=lambda x: str(x)
)
def test_k2_horizon_is_not_padded(tp: int, backend: str) -> None:
    layer = one(K2, tp=tp)
    width = 1792 // tp
    assert (layer.backend.name, layer.problem.inter_dim, layer.problem.inter_dim_padded) == (backend, width, width)
    if backend == "TRITON":
        assert layer.notes[0].message == (
            "aiter CK fused-MoE does not support this layer: "
            f"intermediate_size_per_partition={width} is not 128-aligned; using triton MoE runner."
        )


def test_192_goes_to_triton_where_vllm_takes_aiter() -> None:
    narrow = model(moe_intermediate_size=1536)
    assert one(narrow, tp=8).backend.name == "TRITON"
    assert plan(narrow, replace(BASE, engine="vllm", engine_version="0.33.0", tp=8)).layers[0].backend.name == "AITER"


def test_a_named_aiter_that_does_not_fit_is_an_error() -> None:
    layer = one(K2, tp=8, moe_backend="aiter")
    assert layer.refusals[0].error == (
        "moe_runner_backend=aiter is not supported: intermediate_size_per_partition=224 is not 128-aligned; "
        "use --moe-runner-backend triton."
    )


def test_expert_parallelism_is_a_number_and_must_be_even() -> None:
    layer = one(K2, tp=8, ep_size=8)
    assert (layer.problem.expert, layer.problem.inter_dim, layer.problem.moe_tp_size, layer.problem.is_ep) == (24, 1792, 1, True)
    half = one(K2, tp=8, ep_size=4)
    assert (half.problem.expert, half.problem.inter_dim, half.problem.moe_tp_size) == (48, 896, 2)
    uneven = one(model(experts=60, topk=4), tp=8, ep_size=8)
    assert [r.error for r in uneven.refusals] == ["AssertionError"]
    assert run(K2, tp=8, ep_size=3).refusals[0].error == "tp_size 8 must be divisible by ep_size 3"


def test_fp8_blocks_are_padded_instead_of_refused() -> None:
    fp8 = model(moe_intermediate_size=768, quantization=quantized("fp8_block", block_shape=(128, 128), activation_dynamic=True))
    layer = one(fp8, tp=8)
    assert (layer.backend.name, layer.problem.inter_dim_padded, layer.problem.alignment) == ("AITER", 128, 128)
    assert (layer.problem.q_type, layer.problem.q_dtype_a, layer.problem.q_dtype_w) == ("per_128x128", "fp8", "fp8")
    assert layer.zero_filled_by is not None
    listed = replace(fp8.layers[0].quantization, method="compressed-tensors")
    compressed = model(moe_intermediate_size=768, quantization=listed)
    assert "block_n = 128" in one(compressed, tp=8).refusals[0].error


def test_compressed_tensors_sends_channels_only_to_aiter() -> None:
    for scheme, backend in (("fp8_channel", "AITER"), ("fp8_tensor", "TRITON")):
        layer = one(model(quantization=quantized(scheme, method="compressed-tensors")))
        assert layer.backend.name == backend
    assert one(model(quantization=quantized("fp8_tensor", method="modelopt"))).backend.name == "TRITON"


def test_routers() -> None:
    grouped = one(model(experts=256, n_group=8, topk_group=4, scoring="sigmoid", selection_bias=True, routed_scaling_factor=2.5))
    call = grouped.router
    assert (call.kernel, call.num_expert_group, call.topk_group, call.scaling_inside) == ("biased_grouped_topk", 8, 4, 2.5)
    assert one(K2).router.kernel == "other"
    assert not one(K2).router.on_aiter
    assert one(model()).router.kernel == "topk_softmax"
    assert one(model(scoring="sqrtsoftplus", selection_bias=True)).router.kernel == "topk_gating"
    assert one(model(n_group=8, topk_group=3)).router.kernel == "torch"


def test_switched_off() -> None:
    layer = one(K2, env={"SGLANG_USE_AITER": "0"})
    assert (layer.backend.name, layer.router.on_aiter) == ("TRITON", False)
    assert any(n.code == "aiter-taken-as-on" for n in run(K2).notes)


def test_versions_and_names() -> None:
    assert (run(K2).confidence, run(K2, engine_version="0.5.22").confidence) == ("read", "unverified")
    with pytest.raises(UsageError, match="Did you mean aiter"):
        run(K2, moe_backend="aitr")


@needs_corpus
def test_real_configs() -> None:
    """gpt-oss and Kimi-K3 by their configs: 256 for both dimensions, and experts that reach AITER."""
    expected = {
        ("openai__gpt-oss-120b.json", 8): ("AITER", 360, 512, 3072, "swiglu"),
        ("Qwen__Qwen3-30B-A3B-FP8.json", 4): ("AITER", 192, 256, 2048, "silu"),
        ("zai-org__GLM-4.5-Air.json", 8): ("TRITON", 176, 176, 4096, "silu"),
    }
    for (name, tp), want in expected.items():
        layer = one(read_config(json.loads(corpus("hf-configs", name).read_text()), id=name), tp=tp)
        problem = layer.problem
        got = (layer.backend.name, problem.inter_dim, problem.inter_dim_padded, problem.model_dim_padded, problem.act_type)
        assert got == want, name
