"""Reading one layer's experts out of safetensors files in the layouts public checkpoints have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'moe-preflight[smoke]')")
pytest.importorskip("safetensors", reason="safetensors is not installed (pip install 'moe-preflight[smoke]')")

from safetensors.torch import save_file  # noqa: E402

from moe_preflight.smoke.case import RealWeights, RouterSpec, SmokeCase  # noqa: E402
from moe_preflight.smoke.checkpoint import CheckpointProblem, RealSource, parse  # noqa: E402
from moe_preflight.smoke.quantize import dequantize, quantize  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
E, H, WHOLE, START, I = 3, 128, 256, 128, 128  # noqa: E741


def the_case(folder: Path, **changes: Any) -> SmokeCase:
    real = RealWeights(str(folder), 3, START, WHOLE, changes.pop("model_type", None))
    fields: dict[str, Any] = {
        "tokens": 4, "model_dim": H, "inter_dim": I, "inter_dim_padded": 192, "experts": E, "topk": 2,
        "router": RouterSpec("topk_softmax", E, 2), "weights": real,
    }  # fmt: skip
    fields.update(changes)
    return SmokeCase(**fields)


def experts() -> list[dict[str, Any]]:
    gen = torch.Generator().manual_seed(3)
    return [
        {
            "gate": torch.randn(WHOLE, H, generator=gen),
            "up": torch.randn(WHOLE, H, generator=gen),
            "down": torch.randn(H, WHOLE, generator=gen),
        }
        for _ in range(E)
    ]


def expect(source: RealSource, all_experts: list[dict[str, Any]], tolerance: float = 0.01) -> None:
    part = slice(START, START + I)
    for n, whole in enumerate(all_experts):
        e = source.expert(n)
        for got, want in ((e.gate, whole["gate"][part]), (e.up, whole["up"][part]), (e.down, whole["down"][:, part])):
            value = dequantize(got)
            assert value.shape == want.shape
            assert float((value - want).norm() / want.norm()) < tolerance


def bf16(t: Any) -> Any:
    return t.to(torch.bfloat16).contiguous()


@pytest.mark.parametrize("names", [("mlp", "gate_proj", "up_proj", "down_proj"), ("block_sparse_moe", "w1", "w3", "w2")])
def test_one_tensor_per_expert(tmp_path: Path, names: tuple[str, ...]) -> None:
    block, *roles = names
    whole = experts()
    tensors = {"model.layers.3.mlp.shared_experts.gate_proj.weight": torch.zeros(4, 4)}
    for n, e in enumerate(whole):
        for role, key in zip(roles, ("gate", "up", "down"), strict=True):
            tensors[f"model.layers.3.{block}.experts.{n}.{role}.weight"] = bf16(e[key])
            tensors[f"model.layers.13.{block}.experts.{n}.{role}.weight"] = torch.zeros(4, 4)
    half = len(tensors) // 2
    files = {"a.safetensors": dict(list(tensors.items())[:half]), "b.safetensors": dict(list(tensors.items())[half:])}
    for file, part in files.items():
        save_file(part, tmp_path / file)
    expect(RealSource(the_case(tmp_path), CPU), whole)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    expect(RealSource(the_case(tmp_path), CPU), whole)


@pytest.mark.parametrize("turned", [False, True])
def test_stacked_and_fused(tmp_path: Path, turned: bool) -> None:
    whole = experts()
    gate_up = torch.stack([torch.cat((e["gate"], e["up"])) for e in whole])
    down = torch.stack([e["down"] for e in whole])
    if turned:
        gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)
    save_file(
        {"model.layers.3.mlp.experts.gate_up_proj": bf16(gate_up), "model.layers.3.mlp.experts.down_proj": bf16(down)},
        tmp_path / "model.safetensors",
    )
    expect(RealSource(the_case(tmp_path), CPU), whole)


def test_granite_and_step_names(tmp_path: Path) -> None:
    whole = experts()
    save_file(
        {
            "model.layers.3.block_sparse_moe.input_linear.weight": bf16(
                torch.stack([torch.cat((e["gate"], e["up"])) for e in whole])
            ),
            "model.layers.3.block_sparse_moe.output_linear.weight": bf16(torch.stack([e["down"] for e in whole])),
        },
        tmp_path / "model.safetensors",
    )
    expect(RealSource(the_case(tmp_path), CPU), whole)
    save_file(
        {f"model.layers.3.moe.{k}_proj.weight": bf16(torch.stack([e[k] for e in whole])) for k in ("gate", "up", "down")},
        tmp_path / "model.safetensors",
    )
    expect(RealSource(the_case(tmp_path), CPU), whole)


def test_gpt_oss_in_bf16_is_transposed_and_interleaved(tmp_path: Path) -> None:
    whole = experts()
    gate_up = torch.stack([torch.stack((e["gate"], e["up"]), 1).view(2 * WHOLE, H).T for e in whole])
    bias = torch.arange(2 * WHOLE).float().expand(E, -1)
    save_file(
        {
            "model.layers.3.mlp.experts.gate_up_proj": bf16(gate_up),
            "model.layers.3.mlp.experts.down_proj": bf16(torch.stack([e["down"].T for e in whole])),
            "model.layers.3.mlp.experts.gate_up_proj_bias": bias.contiguous(),
            "model.layers.3.mlp.experts.down_proj_bias": bf16(torch.ones(E, H)),
        },
        tmp_path / "model.safetensors",
    )
    source = RealSource(the_case(tmp_path, model_type="gpt_oss", expert_bias=True), CPU)
    expect(source, whole)
    one = source.expert(1)
    assert one.gate_bias[:3].tolist() == [2 * START, 2 * START + 2, 2 * START + 4]
    assert one.up_bias[0] == 2 * START + 1
    assert one.down_bias.shape == (H,)


def test_gpt_oss_in_mxfp4(tmp_path: Path) -> None:
    whole = experts()
    blocks, scales, down_blocks, down_scales = [], [], [], []
    for e in whole:
        gate_up = quantize(torch.stack((e["gate"], e["up"]), 1).view(2 * WHOLE, H), "mxfp4", torch.bfloat16)
        down = quantize(e["down"], "mxfp4", torch.bfloat16)
        blocks.append(gate_up.data.view(2 * WHOLE, H // 32, 16))
        scales.append(gate_up.scale)
        down_blocks.append(down.data.view(H, WHOLE // 32, 16))
        down_scales.append(down.scale)
    base = "model.layers.3.mlp.experts"
    save_file(
        {
            f"{base}.gate_up_proj_blocks": torch.stack(blocks), f"{base}.gate_up_proj_scales": torch.stack(scales),
            f"{base}.down_proj_blocks": torch.stack(down_blocks), f"{base}.down_proj_scales": torch.stack(down_scales),
        },
        tmp_path / "model.safetensors",
    )  # fmt: skip
    expect(RealSource(the_case(tmp_path, model_type="gpt_oss", scheme="mxfp4"), CPU), whole, tolerance=0.16)


@pytest.mark.parametrize(
    ("scheme", "suffix", "kind", "loss"),
    [
        ("fp8_block", "weight_scale_inv", "weight", 0.04),
        ("fp8_channel", "weight_scale", "weight", 0.04),
        ("fp8_tensor", "weight_scale", "weight", 0.06),
        ("mxfp4_a4", "weight_scale", "weight_packed", 0.16),
        ("mxfp4", "scale", "weight", 0.16),
    ],
)
def test_quantized_experts(tmp_path: Path, scheme: str, suffix: str, kind: str, loss: float) -> None:
    whole = experts()
    whole[1]["up"] *= 3  # per-tensor scales of gate and up differ
    tensors = {}
    for n, e in enumerate(whole):
        for role in ("gate", "up", "down"):
            m = quantize(e[role], scheme, torch.bfloat16)
            name = f"model.layers.3.mlp.experts.{n}.{role}_proj"
            tensors[f"{name}.{kind}"] = m.data.contiguous()
            tensors[f"{name}.{suffix}"] = m.scale.contiguous().clone()
    save_file(tensors, tmp_path / "model.safetensors")
    source = RealSource(the_case(tmp_path, scheme=scheme), CPU)
    expect(source, whole, loss)
    if scheme == "fp8_tensor":
        assert source.expert(1).gate.scale == source.expert(1).up.scale


def refused(folder: Path, words: str, **changes: Any) -> None:
    with pytest.raises(CheckpointProblem, match=words):
        RealSource(the_case(folder, **changes), CPU).expert(0)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    refused(tmp_path, "no safetensors files")
    base = "model.layers.3.mlp.experts.0"
    save_file({f"{base}.gate_proj.weight": bf16(torch.zeros(WHOLE, H))}, tmp_path / "model.safetensors")
    refused(tmp_path, "no up data tensor")
    refused(tmp_path, "stored as BF16", scheme="fp8_tensor")
    save_file({f"{base}.gate_proj.weight": bf16(torch.zeros(H, WHOLE))}, tmp_path / "model.safetensors")
    refused(tmp_path, r"expected \[256, 128\]")
    save_file({"model.layers.4.mlp.experts.0.gate_proj.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    refused(tmp_path, "no routed expert tensors of layer 3")


def test_a_shape_that_fits_two_layouts_needs_the_model_type(tmp_path: Path) -> None:
    square = torch.randn(E, 2 * WHOLE, 2 * WHOLE)
    down = torch.randn(E, 2 * WHOLE, WHOLE)
    base = "model.layers.3.mlp.experts"
    save_file({f"{base}.gate_up_proj": bf16(square), f"{base}.down_proj": bf16(down)}, tmp_path / "model.safetensors")
    refused(tmp_path, "fits both layouts", model_dim=2 * WHOLE)
    part = slice(START, START + I)
    plain = RealSource(the_case(tmp_path, model_dim=2 * WHOLE, model_type="qwen3_5_moe"), CPU).expert(0)
    assert torch.equal(plain.gate.data, bf16(square[0, part]))
    turned = RealSource(the_case(tmp_path, model_dim=2 * WHOLE, model_type="qwen3_vl_moe"), CPU).expert(0)
    assert torch.equal(turned.gate.data, bf16(square[0].T[part]))


def test_a_rank_inside_a_scale_group_is_refused(tmp_path: Path) -> None:
    whole = experts()
    tensors = {f"model.layers.3.mlp.experts.0.{r}_proj.weight": bf16(whole[0][r]) for r in ("gate", "up", "down")}
    save_file(tensors, tmp_path / "model.safetensors")
    case = the_case(tmp_path, scheme="fp8_block")
    assert case.weights is not None
    with pytest.raises(CheckpointProblem, match="inside a group of 128"):
        RealSource(replace(case, weights=replace(case.weights, start=64)), CPU)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "../../etc/passwd"}}', '{"weight_map": {"a": "x/y.safetensors"}}'],
)
def test_a_hostile_index(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    refused(tmp_path, "model.safetensors.index.json")


def test_a_file_that_is_no_safetensors(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    refused(tmp_path, "model.safetensors")


def test_names() -> None:
    assert parse("model.layers.3.mlp.experts.17.up_proj.weight", 3) == (17, "up", "data")
    assert parse("layers.3.ffn.experts.2.w2.scale", 3) == (2, "down", "scale")
    assert parse("model.language_model.layers.3.mlp.experts.gate_up_proj", 3) == (None, "gate_up", "data")
    assert parse("model.layers.3.mlp.experts.down_proj_bias", 3) == (None, "down", "bias")
    for other in (
        "model.layers.3.mlp.gate.weight",
        "model.layers.3.mlp.shared_experts.up_proj.weight",
        "model.layers.30.mlp.experts.0.w1.weight",
        "layers",
        "",
    ):
        assert parse(other, 3) is None
