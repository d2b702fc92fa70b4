"""Quantization configs, by the checkpoint's words, decided for the experts of each layer."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import Any

import pytest

from moe_preflight.errors import ConfigError, UsageError
from moe_preflight.model.moe import SCHEMES, MoEModel, Quantization
from moe_preflight.model.quantization import METHODS
from moe_preflight.model.quantization.flags import FLAGS, from_flag
from moe_preflight.model.quantization.patterns import BUDGET, Matcher
from moe_preflight.model.read import read_config

BASE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 4,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
}  # fmt: skip


def model(quant: dict[str, Any] | None, beside: dict[str, Any] | None = None, **more: Any) -> MoEModel:
    config = {**BASE, **more, **({"quantization_config": quant} if quant is not None else {})}
    return read_config(config, id="m", hf_quant_config=beside)


def scheme(quant: dict[str, Any], **more: Any) -> Quantization:
    (layer,) = model(quant, **more).layers
    return layer.quantization


def group(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"targets": ["Linear"], "weights": weights, "input_activations": inputs, **more}


def ct(*groups: dict[str, Any], ignore: list[str] | None = None, **more: Any) -> dict[str, Any]:
    named = {f"group_{i}": g for i, g in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, "ignore": ignore or [], **more}


LOCAL = {"num_bits": 4, "type": "float", "dynamic": "local"}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False, "symmetric": True}
TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


def quark(weight: Any, inputs: Any = None, **more: Any) -> dict[str, Any]:
    return {"quant_method": "quark", "global_quant_config": {"weight": weight, "input_tensors": inputs}, **more}


def q8(qscheme: str, dtype: str = "fp8_e4m3", **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "qscheme": qscheme, **more}


MX4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "is_dynamic": False}
MX4_IN = {**MX4, "is_dynamic": True}


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_tensor"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": None}, "fp8_tensor"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "store_dtype": "mxfp4"}, "mxfp4"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8_channel"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "mxfp8"}, "mxfp8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8_w8a16"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "other"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "other"),
        ({"load_in_8bit": True}, "other"),
        ({"quant_method": "torchao", "quant_type": "float8wo"}, "other"),
        ({"bits": 6, "group_size": 64}, "other"),
        ({**ct(group(FP8, TOKEN)), "quant_method": "compressed_tensors"}, "fp8_channel"),
        (ct(group(FP8, TOKEN), format="float-quantized"), "fp8_channel"),
        (ct(group({**FP8, "strategy": "tensor"}, {**TOKEN, "strategy": "tensor", "dynamic": False})), "fp8_tensor"),
        (ct(group({**FP8, "strategy": "block", "block_structure": [128, 128]}, {**TOKEN, "strategy": "group"})), "fp8_block"),
        (ct(group(INT4), format="pack-quantized"), "int4"),
        (ct(group({**INT4, "num_bits": 8}), format="pack-quantized"), "int8_w8a16"),
        (ct(group({**FP8, "type": "int"}, {**TOKEN, "type": "int"}), format="int-quantized"), "int8"),
        (ct(group(INT4, TOKEN)), "int4_fp8"),
        (ct(group({**INT4, "type": "float", "group_size": 16, "strategy": "tensor_group"}, LOCAL)), "nvfp4"),
        (ct(group({**INT4, "type": "float", "group_size": 16, "strategy": "tensor_group"})), "nvfp4_a16"),
        (ct(group({**INT4, "type": "float"}), format="mxfp4-pack-quantized"), "mxfp4"),
        (ct(group({**INT4, "type": "float"}, {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True})), "mxfp4_a8"),
        (ct(group({**INT4, "type": "float"}, {"num_bits": 4, "type": "float", "strategy": "group", "dynamic": True})), "mxfp4_a4"),
        (ct(group({**FP8, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}, TOKEN)), "mxfp8"),
        (quark(MX4), "mxfp4"),
        (quark(MX4, MX4_IN), "mxfp4_a4"),
        (quark(MX4, q8("per_tensor", is_dynamic=False, symmetric=True)), "mxfp4_a8"),
        (quark({**MX4, "dtype": "fp6_e3m2"}, {**MX4_IN, "dtype": "fp6_e3m2"}), "mxfp6"),
        (quark(q8("per_tensor"), q8("per_tensor")), "fp8_tensor"),
        (quark(q8("per_channel"), q8("per_channel", is_dynamic=True)), "fp8_channel"),
        (quark(q8("per_block", block_size=[128, 128]), q8("per_group", group_size=128, is_dynamic=True)), "fp8_block"),
        (quark({**MX4, "dtype": "fp8_e4m3"}, {**MX4_IN, "dtype": "fp8_e4m3"}), "mxfp8"),
        (quark([q8("per_tensor"), {"dtype": "int4", "qscheme": "per_channel"}], {"dtype": "fp8_e4m3", "is_dynamic": True}), "int4_fp8"),
        (quark(q8("per_channel", "int8", symmetric=True), q8("per_channel", "int8", is_dynamic=True)), "int8"),
        (quark({"dtype": "uint4", "qscheme": "per_group", "group_size": 128, "symmetric": False}), "int4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_tensor"),
        ({"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}, "fp8_block"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "fp8_channel"),
        ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "nvfp4_a16"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "SOMETHING_NEW"}, "other"),
    ],
)  # fmt: skip
def test_schemes(quant: dict[str, Any], expected: str) -> None:
    found = scheme(quant)
    assert found.scheme == expected
    assert found.scheme in SCHEMES


def test_details_an_engine_rule_needs() -> None:
    block = scheme({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})
    assert (block.block_shape, block.weight_dtype, block.activation_dynamic) == ((128, 128), "fp8", True)
    assert block.detail["scale_fmt"] == "ue8m0"
    channel = scheme(ct(group(FP8, TOKEN), format="float-quantized"))
    assert (channel.weight_strategy, channel.activation_strategy, channel.detail["format"]) == (
        "channel",
        "token",
        "float-quantized",
    )
    awq = scheme({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True})
    assert (awq.symmetric, awq.group_size) == (False, 128)


@pytest.mark.parametrize(
    ("quant", "excluded"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": ["model.layers.1.mlp.experts.0.gate_proj"]}, {1}),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["gate", "lm_head", "model.layers.0.mlp.gate"]}, set()),
        (ct(group(FP8, TOKEN), ignore=[r"re:.*layers\.[23]\.mlp\.experts.*"]), {2, 3}),
        (ct(group(FP8, TOKEN), ignore=[r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:.*self_attn.*"]), set()),
        (ct(group(FP8, TOKEN), ignore=["model.layers.0.mlp.experts.0.down_proj"]), {0}),
        (ct({**group(FP8, TOKEN), "targets": [r"re:.*layers\.[01]\..*(gate|up|down)_proj$"]}), {2, 3}),
        (quark(MX4, MX4_IN, exclude=["model.layers.3.mlp.experts.*.down_proj"]), {3}),
        (quark(MX4, MX4_IN, exclude=["re:.*layers.1.*experts.*", "lm_head"]), {1}),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.0*", "*.mlp.gate"]}, {0}),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["model.layers.[13].*"]}, {1, 3}),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["layers.2."]}, {2}),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"-:.*layers\.0\..*": {}}}, {0}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, set()),
    ],
)  # fmt: skip
def test_experts_left_out(quant: dict[str, Any], excluded: set[int]) -> None:
    layers = model(quant).layers
    none = {i for layer in layers if layer.quantization.scheme == "none" for i in layer.layers}
    assert none == excluded
    assert sum(layer.count for layer in layers) == 4


def test_modelopt_substring_rule_takes_layer_ten_with_layer_one() -> None:
    """vLLM turns ``model.layers.1*`` into ``model.layers.1`` and looks for it anywhere in the name (modelopt.py:197)."""
    layers = model(
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.1*"]}, num_hidden_layers=12
    ).layers
    assert {i for x in layers if x.quantization.scheme == "none" for i in x.layers} == {1, 10, 11}


def test_mixed_schemes_become_kinds() -> None:
    eight = {**group({**INT4, "num_bits": 8}), "targets": [r"re:.*layers\.3\..*_proj$"]}
    four = {**group(INT4), "targets": [r"re:.*layers\.[0-2]\..*_proj$"]}
    main, other = model(ct(four, eight, format="pack-quantized")).layers
    assert (main.quantization.scheme, main.count, other.quantization.scheme, other.count) == ("int4", 3, "int8_w8a16", 1)
    assert other.name == "kind1"


def test_quark_overrides_by_layer() -> None:
    fp8 = {
        "weight": q8("per_tensor"),
        "input_tensors": q8("per_tensor"),
    }
    layers = model(quark(MX4, MX4_IN, layer_quant_config={"*layers.0.mlp.experts*": fp8, "*self_attn*": fp8})).layers
    assert {x.quantization.scheme: x.count for x in layers} == {"mxfp4_a4": 3, "fp8_tensor": 1}


def test_modelopt_mixed_precision_goes_by_the_map() -> None:
    quant = {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            "model.layers.0.mlp.experts": {"quant_algo": "NVFP4"},
            "model.layers.1.mlp.experts.0.gate_proj": {"quant_algo": "FP8"},
            "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        },
    }  # fmt: skip
    layers = model(quant).layers
    assert {x.quantization.scheme: x.count for x in layers} == {"nvfp4": 1, "fp8_tensor": 1, "none": 2}


def test_a_map_that_is_cut_speaks_for_the_layers_it_lost() -> None:
    modules = {"model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "W4A16_NVFP4"}, "...": "5981 more"}
    found = model({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": modules})
    assert {x.quantization.scheme for x in found.layers} == {"nvfp4_a16"}
    assert "is cut" in found.notes[0]


def test_modelopts_own_file_counts_when_the_config_has_nothing_or_no_map() -> None:
    own = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    assert model(None, own).layers[0].quantization.scheme == "fp8_tensor"
    block = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    assert model(block, own).layers[0].quantization.scheme == "fp8_block"
    mixed = {
        "quantization": {
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(4)},
        }
    }
    assert model({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, mixed).layers[0].quantization.scheme == "nvfp4"


@pytest.mark.parametrize(
    ("dtype", "algo", "expected"),
    [("fp4", None, "mxfp4"), (None, None, "mxfp4"), ("fp8", None, "fp8_block"), ("fp4", "NVFP4", "nvfp4")],
)
def test_deepseek_v4_says_elsewhere_what_its_experts_are(dtype: str | None, algo: str | None, expected: str) -> None:
    config = {
        "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "hidden_size": 64, "num_hidden_layers": 2,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "expert_dtype": dtype,
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "moe_quant_algo": algo,
        },
    }  # fmt: skip
    if dtype is None:
        del config["expert_dtype"]
    found = read_config(config, id="m").layers[0].quantization
    assert (found.scheme, found.detail["expert_dtype"]) == (expected, dtype or "fp4")


def test_the_text_sections_quantization_counts() -> None:
    inner = {**BASE, "quantization_config": ct(group(INT4), format="pack-quantized")}
    assert read_config({"architectures": ["X"], "text_config": inner}, id="m").layers[0].quantization.scheme == "int4"


@pytest.mark.parametrize(
    ("quant", "says"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128]}, "quantization_config.weight_block_size: [128]"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "quantization_config.weight_block_size[0]: 0"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, "two whole numbers"),
        ({"quant_method": "fp8", "activation_scheme": "often"}, "static or dynamic"),
        ({"quant_method": "fp8", "ignored_layers": "lm_head"}, "an array of module names"),
        ({"quant_method": "fp8", "ignored_layers": ["x", 3]}, "quantization_config.ignored_layers[1]: 3"),
        ({"quant_method": "gptq", "bits": "4"}, 'quantization_config.bits: "4"'),
        ({"quant_method": "modelopt"}, "quantization_config.quant_algo"),
        (ct({"targets": ["Linear"]}), "config_groups.group_0.weights"),
        (ct(group({"num_bits": 8, "type": "float", "strategy": "block"})), "block_structure"),
        (ct(group(FP8, {**TOKEN, "dynamic": "sometimes"})), 'input_activations.dynamic: "sometimes"'),
        ({"quant_method": "compressed-tensors", "config_groups": []}, "config_groups: []"),
        (quark({"qscheme": "per_tensor"}), "weight.dtype"),
        ({"quant_method": "fp8", "ignored_layers": ["a"] * 100_001}, "100,001 entries"),
    ],
)
def test_refused_with_path_value_and_expectation(quant: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as e:
        model(quant)
    assert says in e.value.message
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_survives_an_empty_config(method: str) -> None:
    try:
        found = scheme({"quant_method": method}).scheme
    except ConfigError as e:
        found = e.message
    assert found in SCHEMES or found.startswith("quantization_config")


def test_the_fused_name_of_a_pattern_never_runs_away() -> None:
    """Patterns from the file: nested repeats are refused, the rest spends from a budget, and the note says so."""
    evil = [
        r"re:(a+)+$",
        r"re:(.*a)*b",
        r"re:(x|x)*y",
        r"re:.*.*.*.*.*z",
        r"re:((a*)*)*",
        r"re:(\w+\s?)+$",
        "re:(",
        r"re:(a)\1",
        r"re:[a",
    ]
    started = time.process_time()
    found = model(ct(group(FP8, TOKEN), ignore=[*evil, *[f"re:.*e.*e.*e{i}" for i in range(2000)]]), num_hidden_layers=200)
    assert time.process_time() - started < 6.0
    assert sum("too complex" in note for note in found.notes) >= len(evil) - 1


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (r".*layers\.([1-9]|[12]\d|30)\..*(w[1-3]|gate_proj|up_proj|down_proj)$", "model.layers.17.mlp.experts.0.up_proj", True),
        (r".*layers\.([1-9]|[12]\d|30)\..*(w[1-3]|gate_proj|up_proj|down_proj)$", "model.layers.31.mlp.experts.0.up_proj", False),
        (r".*\.mlp\.(?!experts).*", "model.layers.1.mlp.experts.0.up_proj", False),
        (r"(?:model\.)?layers\.\d{1,2}\.mlp", "layers.12.mlp.experts", True),
        (r"^model[.]layers[.]0[.]", "model.layers.0.mlp", True),
        (r"colou?r", "color", True),
        (r"ab*c", "ac", True),
        (r"a{0,2}b", "b", True),
        (r"foo|bar", "bar", True),
        (r"[]a]b", "]b", True),
        (r"x\*y", "x*y", True),
    ],
)
def test_ordinary_patterns_mean_what_they_mean(pattern: str, name: str, expected: bool) -> None:
    matcher = Matcher()
    assert matcher.regex(pattern, name) is expected
    assert matcher.refused == []


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*.mlp.shared_expert.*", "model.layers.0.mlp.shared_expert.up_proj", True),
        ("model.layers.0*", "model.layers.0.mlp", True),
        ("model.layers.0*", "model.layers.1.mlp", False),
        ("*a*b*", "xaybz", True),
        ("*b*a*", "xaybz", False),
        ("a*a", "a", False),
        ("mtp*", "mtp.layers.0", True),
        ("layers.?.mlp", "layers.3.mlp", True),
        ("layers.[!0].mlp", "layers.0.mlp", False),
        ("layers.[!0].mlp", "layers.1.mlp", True),
        ("*.[0-3].m?p", "layers.2.mlp", True),
        ("*.[0-3].m?p*", "layers.4.mlp", False),
        ("a[", "a[", True),
        ("*?", "", False),
        ("**a**", "xax", True),
    ],
)
def test_globs(pattern: str, name: str, expected: bool) -> None:
    assert fnmatchcase(name, pattern) is expected
    assert Matcher().glob(pattern, name) is expected


def test_the_budget_ends() -> None:
    matcher = Matcher()
    for _ in range(BUDGET + 10):
        matcher.regex("a.*b", "a b")
    assert matcher.refused == ["a.*b"]


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_flags_name_schemes(name: str) -> None:
    assert from_flag(name).scheme == name
    assert from_flag(name).scheme in SCHEMES


def test_an_unknown_flag_is_put_right() -> None:
    with pytest.raises(UsageError, match="Did you mean fp8_block"):
        from_flag("fp8_blok")
    assert from_flag("FP8-Block").scheme == "fp8_block"
