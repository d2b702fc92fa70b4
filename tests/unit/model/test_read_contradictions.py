"""Fields that contradict each other are one line that names both."""

from __future__ import annotations

from typing import Any

import pytest

from moe_preflight.errors import ConfigError
from moe_preflight.model.read import read_config

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2,
    "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "n_group": 8, "topk_group": 4, "n_shared_experts": 1,
    "first_k_dense_replace": 0, "num_attention_heads": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [({"topk_group": 9}, "topk_group: 9 is more than the 8 groups"), ({"num_experts_per_tok": 17}, "expected at most 16")],
)
def test_contradictions(change: dict[str, Any], said: str) -> None:
    assert read_config(DEEPSEEK, id="m").layers[0].topk_group == 4
    with pytest.raises(ConfigError, match=said):
        read_config(DEEPSEEK | change, id="m")


QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 4, "num_experts": 16,
    "num_experts_per_tok": 4, "moe_intermediate_size": 64, "num_attention_heads": 4, "hidden_act": "silu", "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "torch_dtype": "bfloat16",
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "architectures": ["NobodyKnowsForCausalLM"], "model_type": "nobody", "hidden_size": 64, "num_hidden_layers": 4, "num_experts": 16,
    "num_experts_per_tok": 4, "moe_intermediate_size": 64, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip


def _refused(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        read_config(config, id="m")
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("base", [DEEPSEEK, QWEN, PLAIN])
@pytest.mark.parametrize("word", ["abc", "", "SiLU", "silu "])
def test_an_activation_nobody_knows(base: dict[str, Any], word: str) -> None:
    assert _refused(base | {"hidden_act": word}).startswith(f'hidden_act: "{word}" is not valid')


@pytest.mark.parametrize(
    ("word", "name"), [("swish", "silu"), ("gelu_pytorch_tanh", "gelu_tanh"), ("relu2", "relu2"), ("relu", "relu")]
)
def test_one_that_somebody_knows_is_the_engines_to_judge(word: str, name: str) -> None:
    assert read_config(PLAIN | {"hidden_act": word}, id="m").layers[0].activation == name


def test_a_model_file_that_takes_silu_alone_says_so() -> None:
    assert "deepseek_v2.py" in _refused(DEEPSEEK | {"hidden_act": "gelu"})
    assert read_config(DEEPSEEK | {"hidden_act": "swish"}, id="m").layers[0].activation == "silu"


@pytest.mark.parametrize("base", [DEEPSEEK, PLAIN])
def test_a_scoring_nobody_knows(base: dict[str, Any]) -> None:
    assert _refused(base | {"scoring_func": "softmin"}).startswith('scoring_func: "softmin" is not valid')


@pytest.mark.parametrize("change", [{"n_group": 3, "topk_group": 2}, {"n_group": 32}, {"n_routed_experts": 20}])
def test_groups_that_do_not_divide_the_experts(change: dict[str, Any]) -> None:
    text = _refused(DEEPSEEK | change)
    assert text.startswith(f"n_group: {change.get('n_group', 8)} groups of {change.get('n_routed_experts', 16)} experts")


@pytest.mark.parametrize("value", [[1, 1], [1], [], "1", 1.0, True, -1])
def test_shared_experts_are_a_number_where_the_engine_takes_a_number(value: Any) -> None:
    assert _refused(DEEPSEEK | {"n_shared_experts": value}).startswith("n_shared_experts: ")


def test_hunyuans_list_has_one_per_layer() -> None:
    config = QWEN | {"architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe", "moe_topk": 4}
    assert read_config(config | {"num_shared_expert": [1, 2, 1, 1]}, id="m").layers[0].n_shared == 2


@pytest.mark.parametrize("value", [[1], {}, 3, True, [""], ["A", None], "", [["A"]]])
def test_architectures_are_names(value: Any) -> None:
    assert _refused(QWEN | {"architectures": value}).startswith("architectures: ")


@pytest.mark.parametrize("value", [[], None])
def test_without_architectures_the_model_type_says_it(value: Any) -> None:
    model = read_config(QWEN | {"architectures": value}, id="m")
    assert (model.architecture, model.confidence, model.layers[0].experts) == (None, "read", 16)


@pytest.mark.parametrize(("field", "value"), [("decoder_sparse_step", 5), ("mlp_only_layers", [0, 1, 2, 3])])
def test_no_expert_layer_where_the_model_file_needs_one(field: str, value: Any) -> None:
    text = _refused(QWEN | {field: value})
    assert text.startswith(f"{field} is {value}: none of the 4 layers holds experts")
    assert "qwen3_moe.py" in text


@pytest.mark.parametrize("first", [2, 3, 4000])
def test_no_expert_layer_elsewhere_is_a_dense_model_and_says_why(first: int) -> None:
    model = read_config(DEEPSEEK | {"first_k_dense_replace": first}, id="m")
    assert model.is_dense
    assert model.notes == (f"first_k_dense_replace is {first}: none of the 2 layers holds experts: a dense model",)


@pytest.mark.parametrize(
    "field", ["moe_layer_freq", "first_k_dense_replace", "num_hidden_layers", "moe_intermediate_size", "hidden_size"]
)
@pytest.mark.parametrize("value", [-1, "1", 1.0, True, [1]])
def test_a_size_that_is_none(field: str, value: Any) -> None:
    assert _refused(DEEPSEEK | {field: value}).startswith(field)


@pytest.mark.parametrize("listed", [[99], [-1], [-1, 99]])
def test_a_dense_layer_that_is_not_there_takes_nothing_out(listed: list[int]) -> None:
    """The model file asks whether the layer's index is in the list, and no more."""
    assert read_config(QWEN | {"mlp_only_layers": listed}, id="m").layers[0].count == 4


@pytest.mark.parametrize(
    "block", [[0, 128], ["128", "128"], [128, 128, 128], [128], 128, [], {}, [True, 128], [128.0, 128], [-1, 1]]
)
def test_a_block_is_two_whole_numbers(block: Any) -> None:
    quant = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block}
    assert _refused(DEEPSEEK | {"quantization_config": quant}).startswith("quantization_config.weight_block_size")


def test_what_a_wrapper_tells_twice_is_read_from_the_section_and_named() -> None:
    outer = QWEN | {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "text_config": QWEN}
    assert read_config(outer, id="m").notes == ()
    model = read_config(outer | {"hidden_size": 128, "num_experts": 8}, id="m")
    assert (model.hidden_size, model.layers[0].experts) == (64, 16)
    assert model.notes == (
        "hidden_size: 128 at the root, 64 in text_config, which is what counts",
        "num_experts: 8 at the root, 16 in text_config, which is what counts",
    )


@pytest.mark.parametrize("section", [False, True])
def test_layers_that_differ_by_per_layer_config_are_named(section: bool) -> None:
    inner = QWEN | {
        "per_layer_config": {"1": {"num_experts": 8}, "2": {"num_experts": 8, "sliding_window": 4}, "3": {"num_experts": 16}}
    }
    where = "text_config." if section else ""
    outer = {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "text_config": inner}
    model = read_config(outer if section else inner, id="m")
    assert model.notes == (
        f"{where}num_experts: {where}per_layer_config gives another value for 2 layers, which is not taken into account (unverified)",
    )


@pytest.mark.parametrize("value", [None, {}, [], 3, "x", {"1": 3}, {"1": {"sliding_window": 4}}, {"1": None}])
def test_a_per_layer_config_without_experts_says_nothing(value: Any) -> None:
    assert read_config(QWEN | {"per_layer_config": value}, id="m").notes == ()
