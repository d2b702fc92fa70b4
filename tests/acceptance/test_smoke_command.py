"""``moe-preflight smoke`` from the command line, torch backend, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install 'moe-preflight[smoke]')"),
]

# The command by itself, as the root command runs it.
RUN = (
    "import sys, typer\n"
    "from moe_preflight.cli.app import fail\n"
    "from moe_preflight.cli.smoke import smoke\n"
    "from moe_preflight.errors import PreflightError\n"
    "app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)\n"
    "app.command()(smoke)\n"
    "try:\n    app()\nexcept PreflightError as e:\n    fail(e)\n"
)
SHAPE = "experts=16,topk=4,hidden=128,inter=768,scoring=sigmoid,bias=1"


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}  # tiny sizes: threads only wait for each other
    command = [sys.executable, "-c", RUN, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=cwd, env=env)


def test_torch_proves_the_arithmetic_and_says_what_it_does_not(tmp_path: Path) -> None:
    args = ("--shape", SHAPE, "--tp", "8", "--backend", "torch", "--tokens", "1,33", "--device", "cpu", "--poison-padding")
    done = run(*args, "--format", "json", "--bundle", "evidence.json", "--emit-repro", "repro.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    doc = json.loads(done.stdout)
    assert doc["schema_version"] == 1
    assert [(o["tokens"], o["status"], o["backend"]) for o in doc["observations"]] == [(1, "ok", "torch"), (33, "ok", "torch")]
    for o in doc["observations"]:
        assert {
            "target",
            "layer",
            "tokens",
            "backend",
            "status",
            "rel_err",
            "tolerance",
            "median_us",
            "experts_match",
            "kernels",
            "prediction",
        } <= set(o)
        assert o["case"] == "E16 top4 128 x 96->128 bf16"
        assert 0 < o["rel_err"] <= o["tolerance"]
        assert o["tail_read"] is True
        assert o["bit_identical"] is True
    assert any("AITER" in n["what"] for n in doc["not_evaluated"])
    assert not any(f["code"].startswith("MP7") for f in doc["findings"])
    assert json.loads((tmp_path / "evidence.json").read_text())["cases"][1]["tokens"] == 33
    assert "no launch failed" in done.stderr
    assert not (tmp_path / "repro.py").exists()


def test_auto_without_rocm_says_what_is_missing_and_exits_3(tmp_path: Path) -> None:
    import torch

    if torch.version.hip:
        pytest.skip("this machine's torch is a ROCm build")
    done = run("--shape", SHAPE, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "a ROCm build of torch" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--backend", "cuda"), "--backend cuda"),
        (("--tokens", "decode"), "--tokens decode"),
        (("--weights", "real"), "--layer"),
        (("--device", "x"), "--device x"),
        (("--weights", "real", "--layer", "3"), "exactly one model"),
        (("--timeout", "0"), "--timeout 0"),
    ],
)
def test_usage(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    done = run("--shape", SHAPE, *args, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_too_large_is_refused_with_the_number(tmp_path: Path) -> None:
    args = ("--shape", SHAPE, "--backend", "torch", "--device", "cpu", "--tokens", "64", "--memory-limit", "0.001")
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 3
    assert "MiB" in done.stdout
    assert "--memory-limit: 1.0 MiB" in done.stdout


def test_real_weights_of_one_layer(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed (pip install 'moe-preflight[smoke]')")
    import torch
    from safetensors.torch import save_file

    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 128, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 192, "intermediate_size": 256, "num_hidden_layers": 2, "norm_topk_prob": True,
        "num_attention_heads": 8, "num_key_value_heads": 8, "torch_dtype": "bfloat16", "hidden_act": "silu", "decoder_sparse_step": 1,
        "mlp_only_layers": [], "vocab_size": 100,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {}
    for e in range(4):
        for role, shape in (("gate_proj", (192, 128)), ("up_proj", (192, 128)), ("down_proj", (128, 192))):
            tensors[f"model.layers.1.mlp.experts.{e}.{role}.weight"] = torch.randn(shape, dtype=torch.bfloat16) * 0.1
    save_file(tensors, tmp_path / "model.safetensors")
    args = (
        str(tmp_path),
        "--tp",
        "2",
        "--backend",
        "torch",
        "--device",
        "cpu",
        "--tokens",
        "5",
        "--weights",
        "real",
        "--format",
        "json",
    )
    done = run(*args, "--layer", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    o = json.loads(done.stdout)["observations"][0]
    assert (o["weights"], o["status"], o["case"]) == ("real", "ok", "E4 top2 128 x 96->128 bf16")
    done = run(*args, "--layer", "0", cwd=tmp_path)
    assert done.returncode == 3
    assert "no routed expert tensors of layer 0" in json.loads(done.stdout)["observations"][0]["detail"]
