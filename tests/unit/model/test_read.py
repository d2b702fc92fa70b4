"""Reading a config: families, kinds of layer, where values came from, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.errors import ConfigError
from moe_preflight.model.families import FAMILIES
from moe_preflight.model.moe import MoEModel
from moe_preflight.model.read import read_config

QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 6,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_attention_heads": 32, "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 6,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1, "n_group": 8,
    "topk_group": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "dtype": "bfloat16",
}  # fmt: skip


def read(base: dict[str, Any], **changes: Any) -> MoEModel:
    return read_config({**base, **changes}, id="m")


def refusal(base: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ConfigError) as e:
        read(base, **changes)
    assert "\n" not in str(e.value)
    return e.value.message


def test_a_plain_model() -> None:
    model = read(QWEN)
    (layer,) = model.layers
    assert (layer.name, layer.count, layer.experts, layer.topk) == ("main", 6, 128, 8)
    assert (layer.model_dim, layer.moe_intermediate_size, layer.activation) == (2048, 768, "silu")
    assert (layer.scoring, layer.selection_bias, layer.renormalize, layer.n_group) == ("softmax", False, True, None)
    assert (model.dtype, model.num_attention_heads, model.confidence, model.unknown) == ("bf16", 32, "read", ())
    assert model.fields["experts"] == "num_experts"


def test_dense_layers_and_mtp_layers_are_told_apart() -> None:
    main, mtp = read(DEEPSEEK).layers
    assert (main.name, main.count, main.layers, main.n_group, main.topk_group) == ("main", 3, (3, 4, 5), 8, 4)
    assert (mtp.name, mtp.count, mtp.first_layer) == ("mtp", 1, 6)


def test_an_mtp_layer_left_out_of_the_quantization_is_a_kind_of_its_own() -> None:
    """ModelOpt leaves the last layers of many NVFP4 exports in bf16."""
    quant = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.6*"]}
    main, mtp = read(DEEPSEEK, quantization_config=quant).layers
    assert (main.quantization.scheme, mtp.quantization.scheme) == ("nvfp4", "none")


def test_a_text_section_is_found_and_named() -> None:
    model = read_config(
        {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "text_config": QWEN}, id="m"
    )
    assert model.layers[0].experts == 128
    assert model.fields["experts"] == "text_config.num_experts"


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_sections_wrap_any_family(section: str) -> None:
    model = read_config({"architectures": ["SomeWrapper"], section: DEEPSEEK}, id="m")
    assert (model.layers[0].experts, model.confidence) == (256, "read")


def test_omni_wrappers_are_two_sections_deep() -> None:
    model = read_config({"thinker_config": {"text_config": QWEN}, "model_type": "qwen3_omni_moe"}, id="m")
    assert model.fields["topk"] == "thinker_config.text_config.num_experts_per_tok"


def test_the_architecture_decides_before_the_model_type() -> None:
    """QuantTrio/MiniMax-M2-AWQ says model_type mixtral; the engine goes by the architecture."""
    model = read_config(
        {
            "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
            "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 32, "scoring_func": "sigmoid",
            "use_routing_bias": True,
        },
        id="m",
    )  # fmt: skip
    assert (model.layers[0].scoring, model.layers[0].selection_bias) == ("sigmoid", True)


def test_an_unknown_architecture_is_read_by_the_aliases_and_marked() -> None:
    model = read_config(
        {
            "architectures": ["NobodyKnowsForCausalLM"], "model_type": "nobody_knows", "hidden_size": 1024,
            "num_hidden_layers": 4, "moe_num_experts": 16, "moe_top_k": 2, "moe_intermediate_size": 256, "scoring_func": "sigmoid",
            "first_k_dense_replace": 1,
        },
        id="m",
    )  # fmt: skip
    assert model.confidence == "modelled"
    assert (model.layers[0].experts, model.layers[0].topk, model.layers[0].count) == (16, 2, 3)
    assert model.fields["experts"] == "moe_num_experts"
    assert model.unknown == ()


def test_a_dense_model_is_no_error() -> None:
    model = read_config({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32}, id="m")
    assert (model.layers, model.unknown) == ((), ())
    assert "dense" in model.notes[0]
    assert read(QWEN, num_experts=0).layers == ()


def test_a_hybrid_without_expert_layers_is_dense() -> None:
    model = read_config(
        {
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 4,
            "hybrid_override_pattern": "M-*-",
        },
        id="m",
    )  # fmt: skip
    assert model.is_dense
    assert "hybrid_override_pattern" in model.notes[0]


def test_nothing_known_is_not_dense() -> None:
    model = read_config({"quantization_config": {"quant_method": "mxfp4"}}, id="m")
    assert (model.layers, model.is_dense, model.sizes_known) == ((), False, False)
    assert model.quantization.scheme == "mxfp4"


def test_a_missing_size_is_named_and_not_guessed() -> None:
    """The config class of qwen3_moe has a default of 768: another checkpoint's number."""
    config = {k: v for k, v in QWEN.items() if k != "moe_intermediate_size"}
    model = read_config(config, id="m")
    assert model.unknown == ("moe_intermediate_size",)
    assert model.layers[0].moe_intermediate_size == 0
    assert not model.sizes_known


def test_a_default_names_its_source() -> None:
    config = {k: v for k, v in DEEPSEEK.items() if k != "n_group"}
    model = read_config(config, id="m")
    assert model.layers[0].n_group == 8
    assert model.fields["n_group"] == "default (transformers 5.24.0 configuration_deepseek_v3.py)"


def test_null_is_absent() -> None:
    layer = read(DEEPSEEK, n_group=None, topk_group=None, n_shared_experts=None, routed_scaling_factor=None).layers[0]
    assert (layer.n_group, layer.topk_group, layer.n_shared, layer.routed_scaling_factor) == (None, None, 0, 1.0)


def test_per_layer_lists_make_kinds() -> None:
    hunyuan = {
        "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan", "hidden_size": 64, "num_hidden_layers": 4,
        "num_experts": 8, "moe_topk": [1, 2, 2, 1], "moe_intermediate_size": [32] * 4, "num_shared_expert": [1] * 4,
    }  # fmt: skip
    main, other = read_config(hunyuan, id="m").layers
    assert (main.topk, main.layers, other.topk, other.layers, other.name) == (1, (0, 3), 2, (1, 2), "kind1")


def test_two_populations_are_two_kinds_in_the_same_layers() -> None:
    ernie = {
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_moe_vl", "hidden_size": 64,
        "num_hidden_layers": 3, "moe_num_experts": [64, 64], "moe_intermediate_size": [1536, 512], "moe_k": 6,
        "moe_layer_start_index": [1, 1], "moe_layer_end_index": [2, 2], "moe_layer_interval": 1,
    }  # fmt: skip
    text, vision = read_config(ernie, id="m").layers
    assert (text.moe_intermediate_size, vision.moe_intermediate_size) == (1536, 512)
    assert text.layers == vision.layers == (1, 2)


def test_a_latent_model_and_experts_without_gate() -> None:
    nemotron = {
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 5,
        "hybrid_override_pattern": "ME*E-", "n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688,
        "moe_latent_size": 1024, "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 5376, "n_group": 1,
        "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 5.0, "mlp_hidden_act": "relu2",
    }  # fmt: skip
    (layer,) = read_config(nemotron, id="m").layers
    assert (layer.model_dim, layer.gated, layer.activation, layer.layers) == (1024, False, "relu2_no_mul", (1, 3))


def test_hash_routed_layers_come_after_main() -> None:
    v4 = {
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "hidden_size": 64, "num_hidden_layers": 5,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
        "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True, "num_hash_layers": 2,
        "routed_scaling_factor": 1.5,
    }  # fmt: skip
    main, hashed = read_config(v4, id="m").layers
    assert (main.name, main.layers, main.selection_bias) == ("main", (2, 3, 4), True)
    assert (hashed.name, hashed.layers, hashed.selection_bias, hashed.hash_routed) == ("hash", (0, 1), False, True)


def test_a_limited_activation_is_a_kind_of_its_own() -> None:
    step = {
        "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 64, "num_hidden_layers": 4,
        "moe_num_experts": 16, "moe_top_k": 4, "moe_intermediate_size": 32, "share_expert_dim": 32, "moe_layers_enum": "1,2,3",
        "swiglu_limits": [0, 0, 0, 7.0], "moe_router_scaling_factor": 3.0,
    }  # fmt: skip
    main, limited = read_config(step, id="m").layers
    assert (main.activation, main.layers) == ("silu", (1, 2))
    assert (limited.activation, limited.layers) == ("swiglustep", (3,))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_experts": "abc"}, 'num_experts: "abc" is not valid; expected a whole number from 0 to 65536'),
        ({"num_experts": True}, "num_experts: true"),
        ({"num_experts": 8.0}, "num_experts: 8.0"),
        ({"num_experts": "64"}, 'num_experts: "64"'),
        ({"num_experts": -1}, "num_experts: -1"),
        ({"num_experts": [[8]]}, "num_experts[0]: [8]"),
        ({"num_experts": {}}, "num_experts: {}"),
        ({"num_experts": 2**31}, "num_experts: 2147483648"),
        ({"hidden_size": 0}, "hidden_size: 0"),
        ({"hidden_size": float("inf")}, "hidden_size: Infinity"),
        ({"hidden_size": 2**40}, "hidden_size: 1099511627776"),
        ({"moe_intermediate_size": -768}, "moe_intermediate_size: -768"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok: 0"),
        ({"num_experts_per_tok": 129}, "num_experts_per_tok: 129 experts per token of 128 experts (num_experts)"),
        ({"norm_topk_prob": "yes"}, 'norm_topk_prob: "yes" is not valid; expected true or false'),
        ({"norm_topk_prob": 1}, "norm_topk_prob: 1"),
        ({"mlp_only_layers": "0"}, 'mlp_only_layers: "0" is not valid; expected an array'),
        ({"mlp_only_layers": [0.5]}, "mlp_only_layers[0]: 0.5"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step: 0"),
        ({"torch_dtype": "int7"}, 'torch_dtype: "int7"'),
        ({"torch_dtype": 16}, "torch_dtype: 16"),
        ({"architectures": [1]}, "architectures: [1]"),
        ({"architectures": {}}, "architectures: {}"),
        ({"model_type": 3}, "model_type: 3"),
        ({"hidden_act": 7}, "hidden_act: 7"),
        ({"num_attention_heads": "32"}, 'num_attention_heads: "32"'),
        ({"quantization_config": "fp8"}, 'quantization_config: "fp8" is not valid; expected an object'),
        ({"quantization_config": {"quant_method": 4}}, "quantization_config.quant_method: 4"),
    ],
)
def test_a_wrong_shape_names_field_value_and_expectation(changes: dict[str, Any], says: str) -> None:
    assert says in refusal(QWEN, **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mlp_layer_types": ["sparse"], "first_k_dense_replace": None}, "mlp_layer_types: 1 entries for 6 layers"),
        ({"routed_scaling_factor": "2.5"}, 'routed_scaling_factor: "2.5"'),
        ({"n_group": 0}, "n_group: 0"),
        ({"num_nextn_predict_layers": -1}, "num_nextn_predict_layers: -1"),
    ],
)
def test_wrong_shapes_of_the_deepseek_line(changes: dict[str, Any], says: str) -> None:
    assert says in refusal(DEEPSEEK, **changes)


def test_a_long_value_is_cut_and_stays_one_line() -> None:
    message = refusal(QWEN, num_experts="x\n" * 5000)
    assert len(message) < 250
    assert "\n" not in message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([QWEN, DEEPSEEK]), st.data())
@settings(max_examples=250, deadline=None)
def test_any_value_in_any_field_is_read_or_refused(base: dict[str, Any], data: st.DataObject) -> None:
    """Never another exception than ConfigError, whatever a field holds."""
    key = data.draw(st.sampled_from([*base, "quantization_config", "text_config", "mlp_layer_types", "layer_types"]))
    try:
        model = read(base, **{key: data.draw(JSON)})
    except ConfigError as e:
        lines, layers = len(str(e).splitlines()), ()
    else:
        lines, layers = 1, model.layers
    assert lines == 1
    assert all(layer.count == len(layer.layers) for layer in layers)


def test_no_name_belongs_to_two_families() -> None:
    for names in ([n for f in FAMILIES for n in f.architectures], [n for f in FAMILIES for n in f.model_types]):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_a_row_says_where_it_was_checked(family: Any) -> None:
    assert family.source
    assert all("{}" in p for p in family.prefix)
