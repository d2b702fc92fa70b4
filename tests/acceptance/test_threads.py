"""Public threads beyond the shared reports, put to the tool as their authors would have: the facts of each, and what must be said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from moe_preflight.cli.app import app, normalise
from tests.corpus import corpus, needs_corpus

GFX942, MI308X, GFX950 = "--gfx gfx942 --cu 304", "--gfx gfx942 --cu 80", "--gfx gfx950 --cu 256"
R1 = "experts=256,topk=8,hidden=7168,inter=2048,n_group=8,topk_group=4,scoring=sigmoid,bias=1"
M2 = "experts=256,topk=8,hidden=3072,inter=1536,scoring=sigmoid,bias=1"
GLM47 = "experts=160,topk=8,hidden=5120,inter=1536,n_group=1,topk_group=1,scoring=sigmoid,bias=1"
K2 = "experts=384,topk=8,hidden=7168,inter=2048,n_group=1,topk_group=1,scoring=sigmoid,bias=1"
V4_PRO = "experts=384,topk=6,hidden=7168,inter=3072,scoring=sqrtsoftplus,bias=1"

STOPS = (
    ("ROCm/aiter/issues/1167", f"--shape experts=96,topk=8,hidden=2048,inter=1600 --quant fp8_channel --engine aiter {MI308X} "
     "--aiter-version 0.1.6 --no-tuned", "MP101"),
    ("ROCm/aiter/issues/614", f"--shape experts=256,topk=8,hidden=7168,inter=2048 --quant int4_fp8 --tp 8 --engine aiter {GFX942} "
     "--aiter-version 0.1.4 --no-tuned", "MP102"),
    ("ROCm/aiter/issues/3202", f"--shape experts=192,topk=8,hidden=4096,inter=1536,scoring=sigmoid,bias=1 --quant fp8_tensor --tp 8 "
     f"{GFX950} --engine-version 0.23.0 --aiter-version 0.1.16.post2 --no-tuned", "MP101"),
    ("ROCm/aiter/pull/3412", f"--shape experts=256,topk=8,hidden=3072,inter=1536 --quant mxfp4_a4 --tp 8 --engine aiter {GFX950} "
     "--aiter-version 0.1.13 --no-tuned", "MP101"),
    ("ROCm/aiter/pull/3208", "openai/gpt-oss-120b --offline --gpu mi355x --tp 8 --ep --engine-version 0.21.0 --aiter-version 0.1.13 "
     "--no-tuned", "MPA-0049"),
    ("vllm-project/vllm/issues/45750", f"--shape {R1} --quant fp8_block --dp 8 --ep --all2all-backend deepep_low_latency {GFX942} "
     "--engine-version 0.29.0 --aiter-version 0.1.16.post4 --no-tuned", "MP401"),
    ("vllm-project/vllm/pull/48173", f"--shape {M2} --quant fp8_block --tp 8 {GFX942} --engine-version 0.29.0 --aiter-version 0.1.19 "
     "--no-tuned", "MP401"),
    ("vllm-project/vllm/issues/25292", f"--shape experts=128,topk=8,hidden=2048,inter=768 --quant fp8_block --tp 4 {GFX942} "
     "--engine-version 0.29.0 --aiter-version 0.1.7.post3 --no-tuned", "MP401"),
    ("vllm-project/vllm/pull/49758", f"--shape {K2} --quant int4 --tp 4 --ep {GFX950} --engine-version 0.25.0 --aiter-version 0.1.19 "
     "--no-tuned", "MPA-0048"),
)  # fmt: skip
"""(thread, arguments, the code or advisory that must be an error)."""

WARNS = (
    ("ROCm/aiter/issues/3471", f"--shape {M2} --quant fp8_block --tp 8 --ep {GFX950} --engine-version 0.22.0 --aiter-version 0.1.13 "
     "--no-tuned", "MPA-0013"),
    ("vllm-project/vllm/issues/43605", f"--shape {M2} --quant fp8_block --tp 8 --ep {GFX950} --engine-version 0.21.0 "
     "--aiter-version 0.1.13 --no-tuned", "MPA-0013"),
    ("ROCm/aiter/issues/5049", f"--shape experts=288,topk=8,hidden=4096,inter=2048 --quant fp8_block --tp 8 {GFX950} "
     "--engine-version 0.28.0 --aiter TREE/v0.1.20.post1", "MPA-0014"),
    ("ROCm/aiter/issues/3853", f"--shape {R1} --quant fp8_block --tp 8 {GFX942} --engine-version 0.23.0 --aiter TREE/v0.1.13", "MP301"),
    ("ROCm/aiter/issues/4492", "--shape experts=256,topk=8,hidden=2048,inter=512 --quant none --gfx gfx1201 --cu 64 "
     "--engine-version 0.29.0 --aiter-version 0.1.20 --no-tuned", "MP402"),
)  # fmt: skip

RUNS = (
    ("vllm-project/vllm/pull/48173", f"--shape {M2} --quant fp8_block --tp 4 {GFX942} --engine-version 0.29.0 --aiter TREE/v0.1.20.post1"),
    ("vllm-project/vllm/pull/49758", f"--shape {K2} --quant int4 --tp 4 --ep {GFX950} --engine-version 0.33.0 --no-tuned "
     "--aiter-version 0.1.20.post1"),
    ("vllm-project/vllm/issues/31475", f"--shape {GLM47} --quant none --tp 8 {GFX942} --engine-version 0.33.0 --aiter-version 0.1.9 "
     "--no-tuned"),
    ("vllm-project/vllm/pull/42595", f"--shape {V4_PRO} --quant mxfp4 --tp 8 --moe-backend aiter {GFX950} --engine-version 0.33.0 "
     "--aiter TREE/v0.1.20.post1"),
    ("vllm-project/vllm/pull/45681", f"--shape {V4_PRO} --quant mxfp4 --tp 8 {GFX942} --engine-version 0.33.0 --no-tuned "
     "--aiter-version 0.1.20.post1"),
    ("vllm-project/vllm/pull/18205", "meta-llama/Llama-4-Scout-17B-16E-Instruct --offline --gpu mi300x --tp 8 --engine-version 0.29.0 "
     "--no-tuned --aiter-version 0.1.7.post3"),
    ("ROCm/ATOM/issues/1944", f"--shape experts=256,topk=8,hidden=2048,inter=512 --quant fp8_block --tp 8 --engine sglang {GFX950} "
     "--aiter TREE/v0.1.20.post1"),
)  # fmt: skip
"""What a thread says works must not be an error."""


def judged(arguments: str) -> dict[str, Any]:
    trees = str(corpus("aiter-trees")) if "TREE" in arguments else ""
    line = arguments.replace("TREE", trees).split()
    result = CliRunner().invoke(app, normalise(["check", "--format", "json", *line]))
    assert result.exit_code in (0, 1), result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def said(document: dict[str, Any], severity: str) -> set[str]:
    return {name for f in document["findings"] if f["severity"] == severity for name in (f["code"], f["advisory"]) if name}


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize(("thread", "arguments", "code"), STOPS, ids=[t[0] for t in STOPS])
def test_what_stopped_is_an_error(thread: str, arguments: str, code: str) -> None:
    document = judged(arguments)
    assert document["verdict"] == "fail"
    assert code in said(document, "error")


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize(("thread", "arguments", "code"), WARNS, ids=[t[0] for t in WARNS])
def test_what_may_go_wrong_is_a_warning(thread: str, arguments: str, code: str) -> None:
    document = judged(arguments)
    assert document["verdict"] == "warn"
    assert code in said(document, "warning")


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize(("thread", "arguments"), RUNS, ids=[t[0] for t in RUNS])
def test_what_works_is_not_blocked(thread: str, arguments: str) -> None:
    assert judged(arguments)["verdict"] in ("pass", "warn")


def config(tmp_path: Path, quantization: dict[str, Any], **fields: Any) -> str:
    base = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "torch_dtype": "bfloat16", "hidden_act": "silu",
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**base, **fields, "quantization_config": quantization}))
    return str(path)


@pytest.mark.parametrize(("desc_act", "words"), [(False, "negative dimension"), (True, "negative dimension")])
def test_gptq_without_groups(tmp_path: Path, desc_act: bool, words: str) -> None:
    """https://github.com/vllm-project/vllm/issues/52715"""
    weights = {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": desc_act, "sym": True}
    document = judged(
        f"{config(tmp_path, weights)} --gpu mi300x --tp 2 --engine-version 0.29.0 --no-tuned --aiter-version 0.1.20"
    )
    assert any(words in f["message"] for f in document["findings"] if f["severity"] == "error")


def test_sglang_meets_no_kernel_for_deepseek_v4s_small_batches(tmp_path: Path) -> None:
    """https://github.com/ROCm/ATOM/issues/2022: interleaved gates, bf16 activations below AITER's bound, nothing compiled for them."""
    fields = {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "swiglu_limit": 10.0}
    weights = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    sizes = {"n_routed_experts": 256, "num_experts_per_tok": 6, "hidden_size": 4096, "moe_intermediate_size": 2048}
    path = config(tmp_path, weights, **fields, **sizes, expert_dtype="fp4", scoring_func="sqrtsoftplus", n_shared_experts=1)
    document = judged(f"{path} --engine sglang --gpu mi355x --tp 8 --no-tuned --aiter-version 0.1.20")
    assert document["verdict"] == "fail"
    assert "MP102" in said(document, "error")
