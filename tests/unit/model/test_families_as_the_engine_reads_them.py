"""What the engine's own model file does with a field, a missing field and a changed one: found by comparing every config class with
expert fields in transformers 5.24.0 and every FusedMoE call of vLLM 0.33.0 with the table."""

from __future__ import annotations

from typing import Any

import pytest

from moe_preflight.errors import ConfigError
from moe_preflight.model.moe import ExpertLayer, MoEModel
from moe_preflight.model.read import read_config

SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 8, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 32,
    "num_attention_heads": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
ROUTED = {**{k: v for k, v in SIZES.items() if k != "num_experts"}, "n_routed_experts": 16}


def read(architecture: str, model_type: str | None, **fields: Any) -> MoEModel:
    config = {"architectures": [architecture], **({"model_type": model_type} if model_type else {}), **fields}
    return read_config(config, id="m")


def main(architecture: str, model_type: str | None, **fields: Any) -> ExpertLayer:
    return read(architecture, model_type, **fields).layers[0]


@pytest.mark.parametrize(
    ("architecture", "model_type", "sizes", "routing"),
    [
        ("MellumForCausalLM", "mellum", SIZES, ("softmax", False, True)),
        ("LaraMiniForCausalLM", "lara_mini", SIZES, ("softmax", False, True)),
        ("Kolibri1ForCausalLM", "kolibri1", SIZES, ("sigmoid", True, False)),
        ("AXK2ForCausalLM", "axk2", ROUTED, ("sigmoid", True, True)),
        ("MistralLarge4ForConditionalGeneration", "mistral_large4_text", ROUTED, ("softmax", False, True)),
        ("JambaForSequenceClassification", "jamba", {**SIZES, "intermediate_size": 32}, ("softmax", False, False)),
    ],
)
def test_families_that_were_read_by_general_names(
    architecture: str, model_type: str, sizes: dict[str, Any], routing: tuple[str, bool, bool]
) -> None:
    model = read(architecture, model_type, **sizes)
    layer = model.layers[0]
    assert (model.confidence, layer.experts, layer.topk, layer.moe_intermediate_size) == ("read", 16, 4, 32)
    assert (layer.scoring, layer.selection_bias, layer.renormalize) == routing


@pytest.mark.parametrize("name", ["AXK2ForCausalLM", "MistralLarge4ForCausalLM"])
def test_a_first_layer_that_is_dense_unless_the_file_says_otherwise(name: str) -> None:
    model_type = "axk2" if name.startswith("A") else "mistral_large4_text"
    assert main(name, model_type, **ROUTED).first_layer == 1
    assert main(name, model_type, **ROUTED, first_k_dense_replace=3).first_layer == 3
    kinds = ["dense"] * 5 + ["sparse"] * 3
    assert main(name, model_type, **ROUTED, mlp_layer_types=kinds).layers == (5, 6, 7)


@pytest.mark.parametrize(
    ("architecture", "model_type"), [("LaraMiniForCausalLM", "lara_mini"), ("Kolibri1ForCausalLM", "kolibri1")]
)
def test_one_shared_expert_of_its_own_width(architecture: str, model_type: str) -> None:
    layer = main(architecture, model_type, **SIZES, shared_expert_intermediate_size=96)
    assert (layer.n_shared, layer.shared_intermediate_size) == (1, 96)


MOBIUS = {"architecture": "InternS2MobiusForConditionalGeneration", "model_type": "interns2_mobius_text"}


def test_banks_of_experts_that_layers_share_are_counted_once() -> None:
    """interns2_mobius.py:307: a module list of num_blocks; layer i uses bank i modulo that."""
    layer = main(**MOBIUS, **SIZES, num_blocks=3)
    assert (layer.count, layer.layers, layer.renormalize) == (3, (0, 1, 2), True)
    with pytest.raises(ConfigError, match="num_blocks: 0 is not valid"):
        read(**MOBIUS, **SIZES, num_blocks=0)


FIRST_ALONE = [
    ("BailingMoeForCausalLM", "bailing_moe", SIZES, "first_k_dense_replace"),
    ("BailingMoeV2_5ForCausalLM", "bailing_moe_linear", SIZES, "first_k_dense_replace"),
    ("BailingMoeV3ForCausalLM", "bailing_moe_v3", SIZES, "first_k_dense_replace"),
    ("Glm4MoeForCausalLM", "glm4_moe", ROUTED, "first_k_dense_replace"),
    ("HYV3ForCausalLM", "hy_v3", SIZES, "first_k_dense_replace"),
    ("PanguUltraMoEForCausalLM", "pangu_ultra_moe", ROUTED, "first_k_dense_replace"),
    ("SarvamMoEForCausalLM", "sarvam_moe", SIZES, "first_k_dense_replace"),
    ("Param2MoEForCausalLM", "param2moe", SIZES, "first_k_dense_replace"),
    ("AfmoeForCausalLM", "afmoe", SIZES, "num_dense_layers"),
    ("Lfm2MoeForCausalLM", "lfm2_moe", SIZES, "num_dense_layers"),
]


@pytest.mark.parametrize(("architecture", "model_type", "sizes", "first"), FIRST_ALONE)
def test_model_files_that_look_at_the_first_layers_alone(
    architecture: str, model_type: str, sizes: dict[str, Any], first: str
) -> None:
    assert main(architecture, model_type, **sizes, **{first: 3}, moe_layer_freq=2).layers == (3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("architecture", "model_type", "sizes", "layers"),
    [
        ("DeepseekV3ForCausalLM", "deepseek_v3", ROUTED, (4, 6)),
        ("Glm4MoeLiteForCausalLM", "glm4_moe_lite", ROUTED, (4, 6)),
        ("AXK1ForCausalLM", "axk1", ROUTED | {"n_group": 1, "topk_group": 1}, (4, 6)),
        ("SarvamMLAForCausalLM", "sarvam_mla", SIZES, (3, 5, 7)),
    ],
)
def test_model_files_that_count_in_steps(
    architecture: str, model_type: str, sizes: dict[str, Any], layers: tuple[int, ...]
) -> None:
    assert main(architecture, model_type, **sizes, first_k_dense_replace=3, moe_layer_freq=2).layers == layers


@pytest.mark.parametrize("name", ["SarvamMLAForCausalLM", "Param2MoEForCausalLM"])
def test_without_a_word_one_layer_is_dense_and_one_expert_shared(name: str) -> None:
    layer = main(name, None, **SIZES)
    assert (layer.first_layer, layer.n_shared, layer.shared_intermediate_size) == (1, 1, 32)


def test_param2s_shared_width_is_that_of_all_together() -> None:
    whole = {"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 96}
    assert main("Param2MoEForCausalLM", "param2moe", **SIZES, **whole).shared_intermediate_size == 96
    assert main("SarvamMoEForCausalLM", "sarvam_moe", **SIZES, **whole).shared_intermediate_size == 192
    assert main("Param2MoEForCausalLM", "param2moe", **SIZES, **(whole | {"num_shared_experts": 0})).n_shared == 0


def test_solar_open_has_experts_everywhere() -> None:
    assert main("SolarOpenForCausalLM", "solar_open", **ROUTED, first_k_dense_replace=3).count == 8


def test_qwen3_5_has_experts_everywhere_and_qwen3_next_has_not() -> None:
    dense = {"mlp_only_layers": [0, 1]}
    assert main("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", **SIZES, **dense).count == 8
    assert main("Qwen3NextForCausalLM", "qwen3_next", **SIZES, **dense).count == 6


@pytest.mark.parametrize(
    ("score", "route_norm", "renormalize"), [("sigmoid", True, True), ("sigmoid", False, False), ("softmax", True, False)]
)
def test_afmoe_renormalizes_sigmoid_scores_only(score: str, route_norm: bool, renormalize: bool) -> None:
    assert main("AfmoeForCausalLM", "afmoe", **SIZES, score_func=score, route_norm=route_norm).renormalize is renormalize


@pytest.mark.parametrize(
    ("fields", "renormalize"),
    [({}, True), ({"num_experts_per_tok": 1}, False), ({"num_experts_per_tok": 1, "norm_topk_prob": True}, True),
     ({"norm_topk_prob": None}, True), ({"norm_topk_prob": False}, False)],
)  # fmt: skip
def test_the_transformers_backend_renormalizes_more_than_one(fields: dict[str, Any], renormalize: bool) -> None:
    """model_executor/models/transformers/moe.py:332."""
    layer = main("NobodyKnowsForCausalLM", "nobody", **(SIZES | fields))
    assert layer.renormalize is renormalize


def test_the_transformers_backend_knows_top_k() -> None:
    sizes = {k: v for k, v in SIZES.items() if k != "num_experts_per_tok"}
    assert main("NobodyKnowsForCausalLM", "nobody", **sizes, top_k=2).topk == 2
