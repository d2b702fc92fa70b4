"""`check --checkpoint`: the weights beside the config, through the command line. Headers are written by hand: no torch needed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONFIG = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8, "torch_dtype": "bfloat16",
}  # fmt: skip
SHAPES = {"w1": [128, 64], "w3": [128, 64], "w2": [64, 128]}


def tensors() -> dict[str, list[int]]:
    return {
        f"model.layers.{layer}.block_sparse_moe.experts.{e}.{w}.weight": shape
        for layer in range(2) for e in range(4) for w, shape in SHAPES.items()
    }  # fmt: skip


def write(folder: Path, shapes: dict[str, list[int]], dtype: str = "BF16") -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        size = (1 if dtype.startswith("F8") else 2) * shape[0] * shape[1]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def check(folder: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", str(folder), "--checkpoint", "--no-tuned", "--engine-version", "0.32.0", "--gpu",
         "mi300x", "--aiter-version", "0.1.20.post1", "--format", "json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def said(report: dict[str, Any], code: str) -> list[str]:
    return [f["message"] for f in report["findings"] if f["code"] == code]


def test_agreement_is_an_info(tmp_path: Path) -> None:
    write(tmp_path, tensors())
    code, report = check(tmp_path)
    assert code == 0
    (message,) = said(report, "MP512")
    assert "24 tensors, 24 of them of experts" in message


@pytest.mark.parametrize("fault", ["shape", "dtype", "missing"])
def test_a_mismatch_names_the_tensor(tmp_path: Path, fault: str) -> None:
    shapes = tensors()
    name = "model.layers.1.block_sparse_moe.experts.2.w2.weight"
    if fault == "shape":
        shapes[name] = [64, 96]
    elif fault == "missing":
        del shapes[name]
    write(tmp_path, shapes, "F8_E4M3" if fault == "dtype" else "BF16")
    code, report = check(tmp_path)
    assert code == 1
    assert any("experts.2.w2" in m or fault == "dtype" for m in said(report, "MP511")), report["findings"]


def test_no_weights_is_inconclusive_and_a_broken_file_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    code, report = check(tmp_path)
    assert (code, report["verdict"]) == (3, "inconclusive")
    assert said(report, "MP514")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    code, report = check(tmp_path)
    assert (code, report["verdict"]) == (2, "fail")
    assert said(report, "MP513")
