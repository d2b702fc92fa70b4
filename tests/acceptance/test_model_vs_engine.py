"""What we read from a config must be what vLLM 0.33.0 read from it: sizes, router settings and kinds of layer.

The golden file was made by building vLLM's own model classes without weights; each line is one layer kind of one config.
MTP layers are not in it (vLLM builds them only when speculation is asked for).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.model.moe import ExpertLayer, MoEModel
from moe_preflight.model.read import read_config
from moe_preflight.model.strict_json import load_object
from tests.corpus import CORPUS, corpus, needs_corpus

pytestmark = [needs_corpus, pytest.mark.corpus]

SCHEMES_OF_CLASS = {
    "UnquantizedFusedMoEMethod": {"none"},
    "Fp8MoEMethod": {"fp8_block", "fp8_tensor"},
    "GptOssMxfp4MoEMethod": {"mxfp4"},
    "Mxfp4MoEMethod": {"mxfp4"},
    "MoeWNA16Method": {"int4", "int8_w8a16"},
    "CompressedTensorsWNA16MoEMethod": {"int4", "int8_w8a16"},
    "CompressedTensorsW8A8Fp8MoEMethod": {"fp8_channel", "fp8_block", "fp8_tensor"},
    "CompressedTensorsW4A4Nvfp4MoEMethod": {"nvfp4"},
    "ModelOptNvFp4FusedMoE": {"nvfp4"},
    "ModelOptFp8MoEMethod": {"fp8_tensor"},
}
"""The schemes a vLLM quantization class can mean."""

ENGINE_IGNORES_QUANTIZATION = {
    "mlx-community__meta-llama-Llama-4-Scout-17B-16E-6bit.json": "no quant_method: vLLM takes MLX 6-bit weights for bf16"
}


@cache
def answers() -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    if CORPUS is not None:
        for line in corpus("golden", "vllm_plan.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row.get("num_experts") is not None:
                found.setdefault((row["config"], row["layer"]), []).append(row)
    return found


@cache
def model(config: str) -> MoEModel:
    path: Path = corpus("hf-configs", config)
    beside = path.with_suffix(".hf_quant_config.json")
    quant = load_object(beside.read_bytes(), beside.name) if beside.exists() else None
    return read_config(load_object(path.read_bytes(), path.name), id=config, hf_quant_config=quant)


def kind(config: str, layer: str) -> ExpertLayer:
    found = [x for x in model(config).layers if x.name == layer]
    assert found, f"{config} has no layer kind {layer}"
    return found[0]


@pytest.mark.parametrize(("config", "layer"), sorted(answers()))
def test_sizes_and_router_settings(config: str, layer: str) -> None:
    for row in answers()[config, layer]:
        ours = kind(config, layer)
        if row["stage"] != "done" and row["hash_routing"]:
            ours = kind(config, "hash")  # a run that stopped at the first layer calls it main
        compare(ours, row)


def compare(ours: ExpertLayer, row: dict[str, Any]) -> None:
    read = {
        "num_experts": ours.experts,
        "top_k": ours.topk,
        "intermediate_size": ours.moe_intermediate_size,
        "activation": ours.activation,
        "scoring_func": ours.scoring,
        "renormalize": ours.renormalize,
        "select_bias": ours.selection_bias,
        "n_group": ours.n_group,
        "topk_group": ours.topk_group,
        "has_bias": ours.expert_bias,
        "hash_routing": ours.hash_routed,
    }
    assert read == {k: row[k] for k in read}
    assert ours.model_dim == row["hidden"][0]
    assert f".{ours.first_layer}." in row["first_prefix"]


@pytest.mark.parametrize(("config", "layer"), sorted(answers()))
def test_layer_counts(config: str, layer: str) -> None:
    """A run that stopped in a layer has seen some of them only, so the count of a finished run is the right one."""
    counts = {row["moe_layers"] for row in answers()[config, layer] if row["stage"] == "done" and row["moe_layers"]}
    if not counts:
        pytest.skip("vLLM finished no run of this config")
    assert {kind(config, layer).count} == counts


@pytest.mark.parametrize(("config", "layer"), sorted(answers()))
def test_scheme(config: str, layer: str) -> None:
    if config in ENGINE_IGNORES_QUANTIZATION:
        pytest.skip(ENGINE_IGNORES_QUANTIZATION[config])
    classes = {row["quant_method_class"] for row in answers()[config, layer]}
    for name in classes:
        assert kind(config, layer).quantization.scheme in SCHEMES_OF_CLASS[name]


def test_no_kind_is_missing() -> None:
    """vLLM saw no kind of layer that we do not name, and we name none (but MTP) that it did not see."""
    finished = {c for (c, _), rows in answers().items() if any(r["stage"] == "done" for r in rows)}
    for config in sorted(finished):
        theirs = {layer for c, layer in answers() if c == config}
        ours = {x.name for x in model(config).layers if not x.name.startswith("mtp")}
        assert ours == theirs, config
