"""The rules that turn a public report into a question to the tool."""

from __future__ import annotations

import json

import pytest

from moe_preflight.model.shape import parse_shape
from tests.acceptance.releases import RELEASES, newest_before
from tests.acceptance.reports_map import Ask, CannotAsk, ask
from tests.corpus import corpus, needs_corpus

PLAIN: dict[str, object] = {
    "cls": "A-CK-ALIGN", "date": "2026-03-01", "engine": "vLLM", "engine_version": None, "aiter_version": None, "gfx": "gfx950",
    "gfx_list": ["gfx950"], "gpu": None, "model": "Qwen/Qwen3-30B-A3B", "tp": 8, "ep": 1, "dp": None, "quant": "bf16", "E": 128,
    "topk": 8, "model_dim": 2048, "moe_intermediate_size": 768, "inter_dim": 96, "tokens": None, "cause": "",
}  # fmt: skip


def asked(**change: object) -> Ask:
    question = ask({**PLAIN, **change})
    assert isinstance(question, Ask)
    return question


@pytest.mark.parametrize(
    ("project", "date", "version"),
    [
        ("aiter", "2025-11-17", "0.1.7.post2"),
        ("aiter", "2026-06-15", "0.1.16"),
        ("aiter", "2026-07-15", "0.1.17"),
        ("aiter", "2026-07-20", "0.1.17"),
        ("aiter", "2026-07-21", "0.1.18"),
        ("aiter", "2026-12-01", "0.1.20.post1"),
        ("aiter", "2025-02-05", "0.1.1"),
        ("vllm", "2025-12-01", "0.11.2"),
        ("vllm", "2026-09-10", "0.29.0"),
        ("sglang", "2026-06-15", "0.5.13"),
    ],
)
def test_newest_release_before_a_date(project: str, date: str, version: str) -> None:
    assert str(newest_before(project, date)) == version


def test_release_tables_are_in_order_of_date_where_the_line_is_one() -> None:
    for project in ("vllm", "sglang"):
        versions = [v for v, _ in RELEASES[project]]
        assert versions == sorted(versions)
        assert [d for _, d in RELEASES[project]] == sorted(d for _, d in RELEASES[project])


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vLLM (VLLM_ROCM_USE_AITER=1, V0 engine) + standalone AITER repro", "vllm"),
        ("vLLM-style engine", "vllm"),
        ("vLLM/ATOM (found via vLLM #55104)", "vllm"),
        ("SGLang/ATOM", "sglang"),
        ("ATOM + SGLang", "sglang"),
        ("ATOM", "aiter"),
        ("AITER tuner (for vLLM)", "aiter"),
        ("MAD benchmarks", "aiter"),
        ("not stated", "aiter"),
    ],
)
def test_engine(text: str, engine: str) -> None:
    question = asked(engine=text)
    assert question.engine == engine
    assert (question.engine_version is None) == (engine == "aiter")


@pytest.mark.parametrize(
    ("engine", "text", "version"),
    [
        ("vLLM", "v0.25.1 image", "0.25.1"),
        ("vLLM", "0.16.0, 0.17.0", "0.17.0"),
        ("vLLM", "0.21.1rc1.dev141+g87e31455b", "0.21.1rc1"),
        ("vLLM", "omni0.25.0rc1 rocm7.15.0", "0.25.0rc1"),
        ("vLLM", "0.27.0 (rocm10.0.0 image)", "0.27.0"),
        ("vLLM", "v0.1.1.dev4+ge6821ceac", "0.16.0"),
        ("vLLM", "0.1.dev19253+g5f76ae224", "0.16.0"),
        ("SGLang", "rocm/sgl-dev:v0.5.10rc0-rocm720-mi35x-20260330", "0.5.10rc0"),
    ],
)
def test_engine_version(engine: str, text: str, version: str) -> None:
    assert asked(engine=engine, engine_version=text).engine_version == version


@pytest.mark.parametrize(
    ("text", "version", "tree"),
    [
        ("0.1.21.post2, main 36a076b8", "0.1.21.post2", "v0.1.20.post1"),
        ("v0.1.19 vs v0.1.20", "0.1.19", "v0.1.16.post4"),
        ("44146e6ef", "0.1.10.post3", None),
        ("older than vLLM pin", "0.1.10.post3", None),
    ],
)
def test_aiter_version(text: str, version: str, tree: str | None) -> None:
    question = asked(aiter_version=text)
    assert (question.aiter_version, question.tree) == (version, tree)


@pytest.mark.parametrize(
    ("gfx", "gpu", "found"),
    [
        (["gfx942"], "8x MI325X", [("gfx942", 304)]),
        (["gfx942"], "MI308X (80 CU)", [("gfx942", 80)]),
        (["gfx942"], "gfx942, 304 CU", [("gfx942", 304)]),
        (["gfx942", "gfx950"], "MI300X, MI325X, MI355X", [("gfx942", 304), ("gfx950", 256)]),
        (["gfx1151"], None, [("gfx1151", 40)]),
        ([], None, [("gfx942", 304), ("gfx950", 256)]),
    ],
)
def test_gpus(gfx: list[str], gpu: str | None, found: list[tuple[str, int]]) -> None:
    assert list(asked(gfx_list=gfx, gpu=gpu).gpus) == found


@pytest.mark.parametrize(
    ("quant", "model", "scheme"),
    [
        ("bf16 (QuantType.No)", "x", "none"),
        ("any", "x", "none"),
        ("main fp8 PTPC; MTP draft bf16", "x", "none"),
        ("MXFP4 w4a4 (Quark, per_1x32)", "x", "mxfp4_a4"),
        ("MXFP4 (Quark)", "x", "mxfp4_a4"),
        ("MXFP4", "amd/Qwen3.5-397B-A17B-MXFP4", "mxfp4_a4"),
        ("MXFP4, bf16 act, Swiglu", "amd/MiniMax-M3-MXFP4", "mxfp4"),
        ("MXFP4", "openai/gpt-oss-120b", "mxfp4"),
        ("a8w4 (fp8 x MXFP4, per_1x32)", "deepseek-ai/DeepSeek-V4-Flash", "mxfp4"),
        ("fp8 e4m3fnuz per_1x128", "x", "fp8_block"),
        ("fp8 block 128x128 (per_1x128)", "x", "fp8_block"),
        ("fp8 per_Token", "x", "fp8_channel"),
        ("fp8 per_Tensor", "x", "fp8_tensor"),
        ("fp8 per-tensor", "x", "fp8_tensor"),
    ],
)
def test_quantization(quant: str, model: str, scheme: str) -> None:
    assert asked(quant=quant, model=model).quant == scheme


def test_expert_counts_of_one_rank_become_the_model_s() -> None:
    shape = dict(asked(E=96, ep=4, tp=4, moe_intermediate_size=2048, inter_dim=2048).shape)
    assert (shape["experts"], shape["inter"]) == (384, 2048)
    shape = dict(asked(moe_intermediate_size=None, inter_dim=96, tp=8, dp=4).shape)
    assert shape["inter"] == 96 * 32


def test_routing_comes_from_the_family_and_the_report() -> None:
    assert dict(asked(model="deepseek-ai/DeepSeek-R1", E=256).shape)["n_group"] == 8
    assert dict(asked(model="GLM-5 (n_group 1, 256 experts)", E=256).shape)["n_group"] == 1
    assert "n_group" not in dict(asked(model="deepseek-ai/DeepSeek-R1", E=33).shape), "33 experts do not split into 8 groups"
    fused = dict(asked(model="DeepSeek-R1 with shared-expert fusion", E=33, ep=8).shape)
    assert "n_group" not in fused, "the router does not see the shared expert"
    router = asked(cls="G-ROUTER", model_dim=None, moe_intermediate_size=None, inter_dim=None, tokens=">64448")
    assert router.max_tokens == 64449
    assert dict(router.shape)["hidden"] == 4096


def test_a_report_without_sizes_cannot_be_asked() -> None:
    assert ask({**PLAIN, "E": None}) == CannotAsk("no expert count")
    assert ask({**PLAIN, "model_dim": None}) == CannotAsk("no sizes")
    assert isinstance(ask({}), CannotAsk)


@pytest.mark.corpus
@needs_corpus
def test_every_concrete_report_makes_a_command_line() -> None:
    for report in json.loads(corpus("cases", "public_reports.json").read_text()):
        question = ask(report)
        if not report["concrete"]:
            continue
        assert isinstance(question, Ask), (report["id"], question)
        parse_shape(",".join(f"{k}={v}" for k, v in question.shape))
        lines = question.args(corpus("aiter-trees"))
        assert len(lines) == len(question.gpus)
        assert all("--gfx" in line and "--aiter-version" in line for line in lines)
        assert question.tree is None or corpus("aiter-trees", question.tree).is_dir()
