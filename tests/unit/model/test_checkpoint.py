"""Headers of safetensors files against the config: what fits, what does not, and headers that mean harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.errors import InputError, ModelUnavailable
from moe_preflight.model.checkpoint import check_checkpoint
from moe_preflight.model.checkpoint_check import CheckpointReport, compare
from moe_preflight.model.expert_tensors import recognise
from moe_preflight.model.read import read_config
from moe_preflight.model.safetensors import BITS, MAX_HEADER, Tensor, header_length, parse
from moe_preflight.model.source import load
from tests.hubserver import serve

E, W, H, N = 4, 256, 128, 2
QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": H, "num_hidden_layers": N,
    "num_experts": E, "num_experts_per_tok": 2, "moe_intermediate_size": W, "norm_topk_prob": True, "dtype": "bfloat16",
}  # fmt: skip
BLOCK = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
PACKED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}},
}  # fmt: skip
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def per_expert(
    dtype: str = "BF16", suffix: str = "weight", pack: int = 1, scale: str | None = None, prefix: str = "model.layers"
) -> Shapes:
    found: Shapes = {}
    for layer in range(N):
        for expert in range(E):
            for part, (out, inner) in {"gate_proj": (W, H), "up_proj": (W, H), "down_proj": (H, W)}.items():
                name = f"{prefix}.{layer}.mlp.experts.{expert}.{part}"
                found[f"{name}.{suffix}"] = (dtype, (out, inner // pack))
                if scale:
                    found[f"{name}.{scale}"] = ("F32", (2, 1))
    return found


def check(tensors: Shapes, config: dict[str, Any] = QWEN, **more: Any) -> CheckpointReport:
    model = read_config({**config, **more}, id="m")
    return compare(model, [Tensor(n, d, s, "f") for n, (d, s) in tensors.items()])


def said(report: CheckpointReport) -> list[tuple[str, str]]:
    return [(m.kind, m.tensor) for m in report.mismatches]


def test_a_checkpoint_that_fits() -> None:
    report = check(
        {**per_expert(), "model.embed_tokens.weight": ("BF16", (100, H)), "model.layers.0.mlp.gate.weight": ("BF16", (E, H))}
    )
    assert said(report) == []
    (layout,) = report.layouts
    assert (layout.layer, layout.layers_found, layout.experts, layout.stored) == ("main", N, E, "per expert")
    assert (layout.orientation, layout.gate_up, layout.dtypes) == ("linear", "separate", ("BF16",))
    assert (report.tensors, report.expert_tensors) == (26, 24)


@pytest.mark.parametrize(
    ("tensors", "quant", "scales"),
    [
        (per_expert("F8_E4M3", scale="weight_scale_inv"), BLOCK, ("weight_scale_inv",)),
        (per_expert("I32", "weight_packed", 8, "weight_scale"), PACKED, ("weight_scale",)),
        (per_expert("U8", "weight", 2, "weight_scale"), {"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("weight_scale",)),
    ],
)
def test_quantized_experts_with_their_scales(tensors: Shapes, quant: dict[str, Any], scales: tuple[str, ...]) -> None:
    report = check(tensors, quantization_config=quant)
    assert said(report) == []
    assert report.layouts[0].scales == scales


def test_a_missing_expert_is_named() -> None:
    tensors = per_expert()
    gone = "model.layers.1.mlp.experts.2.up_proj.weight"
    del tensors[gone]
    assert said(check(tensors)) == [("missing", gone)]


def test_a_missing_layer_is_named() -> None:
    tensors = {k: v for k, v in per_expert().items() if ".1.mlp" not in k}
    (mismatch,) = check(tensors).mismatches
    assert (mismatch.kind, mismatch.tensor) == ("missing", "layer 1")


def test_a_wrong_shape_names_tensor_found_and_expected() -> None:
    tensors = per_expert()
    name = "model.layers.0.mlp.experts.3.gate_proj.weight"
    tensors[name] = ("BF16", (W // 2, H))
    (mismatch,) = check(tensors).mismatches
    assert (mismatch.kind, mismatch.tensor) == ("shape", name)
    assert mismatch.message == f"[{W // 2}, {H}]; expected [{W}, {H}] for unquantized experts"


def test_a_wrong_dtype_and_a_missing_scale() -> None:
    assert {k for k, _ in said(check(per_expert("BF16"), quantization_config=BLOCK))} == {"dtype"}
    assert {k for k, _ in said(check(per_expert("F8_E4M3"), quantization_config=BLOCK))} == {"scale"}
    assert {k for k, _ in said(check(per_expert("F8_E4M3", scale="weight_scale")))} == {"dtype"}


def test_more_experts_or_layers_than_the_config_says() -> None:
    tensors = per_expert()
    assert said(check(tensors, num_experts=2)) == [
        ("extra", f"model.layers.{i}.mlp.experts.2.gate_proj.weight") for i in range(N)
    ]
    assert ("extra", "model.layers.1.mlp.experts.0.gate_proj.weight") in said(check(tensors, mlp_only_layers=[1]))


def test_many_mismatches_are_counted_and_few_are_listed() -> None:
    report = check(per_expert("F16"), moe_intermediate_size=W * 2)
    assert report.mismatch_count == N * E * 3
    assert len(report.mismatches) == 20


def test_nothing_recognised_is_said() -> None:
    assert said(check({"a.b": ("BF16", (1,))})) == [("unread", "")]


@pytest.mark.parametrize(("shape_gate_up", "shape_down", "orientation"), [
    ((E, 2 * W, H), (E, H, W), "linear"), ((E, H, 2 * W), (E, W, H), "transposed"),
])  # fmt: skip
def test_stacked_experts(shape_gate_up: tuple[int, ...], shape_down: tuple[int, ...], orientation: str) -> None:
    tensors: Shapes = {}
    for layer in range(N):
        at = f"model.language_model.layers.{layer}.mlp.experts"
        tensors |= {f"{at}.gate_up_proj": ("BF16", shape_gate_up), f"{at}.down_proj": ("BF16", shape_down)}
    report = check(tensors)
    assert said(report) == []
    (layout,) = report.layouts
    assert (layout.stored, layout.orientation, layout.gate_up) == ("stacked", orientation, "halves")


def test_a_stack_that_is_square_cannot_be_told_apart() -> None:
    square = {
        **QWEN,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": E,
        "intermediate_size": H // 2,
    }
    tensors: Shapes = {
        f"model.layers.{i}.block_sparse_moe.experts.gate_up_proj": ("BF16", (E, H, H)) for i in range(N)
    }  # fmt: skip
    assert check(tensors, square).layouts[0].orientation == "ambiguous"


def test_gpt_oss_blocks_are_interleaved() -> None:
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": H, "num_hidden_layers": 1,
        "num_local_experts": E, "num_experts_per_tok": 2, "intermediate_size": W, "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    at = "model.layers.0.mlp.experts"
    tensors: Shapes = {
        f"{at}.gate_up_proj_blocks": ("U8", (E, 2 * W, H // 32, 16)), f"{at}.gate_up_proj_scales": ("U8", (E, 2 * W, H // 32)),
        f"{at}.gate_up_proj_bias": ("BF16", (E, 2 * W)), f"{at}.down_proj_blocks": ("U8", (E, H, W // 32, 16)),
        f"{at}.down_proj_scales": ("U8", (E, H, W // 32)), f"{at}.down_proj_bias": ("BF16", (E, H)),
    }  # fmt: skip
    report = check(tensors, config)
    assert said(report) == []
    assert report.layouts[0].gate_up == "interleaved"
    del tensors[f"{at}.down_proj_scales"]
    assert said(check(tensors, config)) == [("scale", f"{at}.down_proj_blocks")]


def test_dbrx_joins_its_experts_on_the_first_axis() -> None:
    config = {
        "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": H, "n_layers": 1,
        "ffn_config": {"moe_num_experts": E, "moe_top_k": 2, "ffn_hidden_size": W},
    }  # fmt: skip
    tensors: Shapes = {f"transformer.blocks.0.ffn.experts.mlp.{x}": ("BF16", (E * W, H)) for x in ("w1", "v1", "w2")}
    report = check(tensors, config)
    assert said(report) == []
    assert report.layouts[0].stored == "concatenated"


def test_two_populations_share_one_list() -> None:
    config = {
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_moe_vl", "hidden_size": H,
        "num_hidden_layers": 1, "moe_num_experts": [E, E], "moe_intermediate_size": [W, W // 2], "moe_k": 2,
        "moe_layer_start_index": 0,
    }  # fmt: skip
    tensors: Shapes = {}
    for expert in range(2 * E):
        width = W if expert < E else W // 2
        for part, shape in {"gate_proj": (width, H), "up_proj": (width, H), "down_proj": (H, width)}.items():
            tensors[f"model.layers.0.mlp.experts.{expert}.{part}.weight"] = ("BF16", shape)
    assert said(check(tensors, config)) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.mlp.experts.17.gate_proj.weight", (3, False, 17, "gate", "weight")),
        ("model.layers.3.block_sparse_moe.experts.0.w2.weight", (3, False, 0, "down", "weight")),
        ("language_model.model.layers.1.feed_forward.experts.gate_up_proj", (1, False, None, "gate_up", "")),
        ("backbone.layers.1.mixer.experts.5.up_proj.weight", (1, False, 5, "up", "weight")),
        ("layers.2.ffn.experts.9.w1.scale", (2, False, 9, "gate", "scale")),
        ("mtp.0.ffn.experts.9.w3.weight", (0, True, 9, "up", "weight")),
        ("mtp.layers.0.mlp.experts.9.down_proj.weight_scale_inv", (0, True, 9, "down", "weight_scale_inv")),
        ("model.layers.4.moe.gate_proj.weight_scale_inv", (4, False, None, "gate", "weight_scale_inv")),
        ("model.layers.4.block_sparse_moe.input_linear.weight", (4, False, None, "gate_up", "weight")),
        ("model.layers.4.mlp.experts.w13_weight", (4, False, None, "gate_up", "weight")),
        ("model.layers.4.mlp.shared_experts.gate_proj.weight", None),
        ("model.layers.4.mlp.shared_expert_gate.weight", None),
        ("model.layers.4.mlp.gate.weight", None),
        ("model.layers.4.mlp.experts.e_score_correction_bias", None),
        ("model.layers.4.self_attn.q_proj.weight", None),
        ("experts.0.gate_proj.weight", None),
    ],
)
def test_names(name: str, expected: tuple[object, ...] | None) -> None:
    found = recognise(Tensor(name, "BF16", (), "f"))
    assert (None if found is None else (found.layer, found.mtp, found.expert, found.role, found.suffix)) == expected


# --- headers ------------------------------------------------------------------------------------------------------------


def header(tensors: Shapes, **extra: Any) -> bytes:
    at, entries = 0, dict(extra)
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for n in shape:
            size *= n
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    return json.dumps(entries).encode()


def write(path: Path, tensors: Shapes) -> None:
    """A real file whose data is a hole: nothing reads it."""
    head = header(tensors, __metadata__={"format": "pt"})
    end = max((e["data_offsets"][1] for k, e in json.loads(head).items() if k != "__metadata__"), default=0)
    with path.open("wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        f.truncate(8 + len(head) + end)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"a": 1}, "expected an object"),
        ({"a": {"dtype": "BF17", "shape": [], "data_offsets": [0, 2]}}, 'dtype "BF17"'),
        ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, "shape [true]"),
        ({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}, "shape [-1]"),
        ({"a": {"dtype": "U8", "shape": [1] * 9, "data_offsets": [0, 1]}}, "up to 8"),
        ({"a": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 1]}}, "shape"),
        ({"a": {"dtype": "U8", "shape": [2**40, 2**40], "data_offsets": [0, 1]}}, "does not take the 1 bytes"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}}, "data_offsets [1, 0]"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}, "data_offsets [0]"),
        ({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 2]}}, "does not take the 2 bytes"),
        (
            {
                "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]},
            },
            "overlaps",
        ),
        ({"a": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}, "belong to no tensor"),
        ({"a": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}, "the file is cut"),
    ],
)
def test_headers_that_lie(entries: dict[str, Any], says: str) -> None:
    data = json.dumps(entries).encode()
    with pytest.raises(InputError) as e:
        parse(data, "f", 8 + len(data) + 4)
    assert says in str(e.value)
    assert len(str(e.value).splitlines()) == 1


@pytest.mark.parametrize("first", [b"", b"1234", b"\xff" * 8, (1).to_bytes(8, "little"), (MAX_HEADER + 1).to_bytes(8, "little")])
def test_a_length_that_cannot_be(first: bytes) -> None:
    with pytest.raises(InputError):
        header_length(first, "f")


def test_a_length_beyond_the_file() -> None:
    with pytest.raises(InputError, match="cut"):
        header_length((1000).to_bytes(8, "little"), "f", 500)


@given(st.binary(max_size=120))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_header_or_one_line(data: bytes) -> None:
    try:
        found: object = parse(data, "f")
    except InputError as e:
        found = str(e)
    assert isinstance(found, list) or len(str(found).splitlines()) == 1


# --- files and the hub ----------------------------------------------------------------------------------------------------


def checkpoint(folder: Path) -> Path:
    """Two shards, an index and the config."""
    folder.mkdir()
    tensors = per_expert()
    shards: dict[str, Shapes] = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    for name, what in tensors.items():
        shards[f"model-0000{1 + (name.count('.1.mlp'))}-of-00002.safetensors"][name] = what
    for name, own in shards.items():
        write(folder / name, own)
    weight_map = {name: shard for shard, own in shards.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(QWEN))
    return folder


def test_a_local_checkpoint_with_progress(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    steps: list[tuple[int, int]] = []
    report = check_checkpoint(str(folder), load(str(folder)), progress=lambda done, all: steps.append((done, all)))
    assert (report.files, report.expert_tensors, said(report)) == (2, 24, [])
    assert steps == [(1, 2), (2, 2)]


def test_a_checkpoint_without_index(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    (folder / "model.safetensors.index.json").unlink()
    assert said(check_checkpoint(str(folder / "config.json"), load(str(folder)))) == []


def test_a_shard_that_is_not_there_or_leads_elsewhere(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    model = load(str(folder))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match="model-00002"):
        check_checkpoint(str(folder), model)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../etc/passwd.safetensors"}}))
    with pytest.raises(InputError, match="beside the index"):
        check_checkpoint(str(folder), model)


def test_no_weights_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    with pytest.raises(ModelUnavailable, match="no safetensors"):
        check_checkpoint(str(tmp_path), load(str(tmp_path)))


HUB = """
import sys
from moe_preflight.errors import PreflightError
from moe_preflight.model.checkpoint import check_checkpoint
from moe_preflight.model.source import load
try:
    r = check_checkpoint("org/m", load("org/m"))
    print(r.files, r.expert_tensors, r.mismatch_count)
except PreflightError as e:
    print(type(e).__name__, e)
"""


@pytest.mark.parametrize("ranges", [True, False])
def test_headers_from_the_hub_by_range(tmp_path: Path, ranges: bool) -> None:
    """Nothing but the start of each file is read, even from a server that sends all of it."""
    folder = checkpoint(tmp_path / "m")
    with serve() as hub:
        repo = hub.add("org/m", QWEN, ranges=ranges)
        for path in folder.iterdir():
            repo.files[path.name] = path.read_bytes()
        env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        done = subprocess.run([sys.executable, "-c", HUB], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "2 24 0", done.stderr
    assert not list((tmp_path / "hf").rglob("*.safetensors"))
