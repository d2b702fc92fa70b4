"""``tune`` end to end. The round trip: the emitted keys, fed back as a tuned table, turn every miss into a hit."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import corpus, needs_corpus
from tests.unit.coverage.tables import HEADER, tree

SHAPE = ("--shape", "experts=128,topk=8,hidden=4096,inter=192", "--engine", "aiter")
COLUMNS = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moe_preflight", *args], capture_output=True, text=True, timeout=120, check=False
    )


def as_tuned(untuned: str, cu: int) -> str:
    """What a tuner would write for these keys, kernels aside."""
    measured = {
        "cu_num": str(cu),
        "block_m": "32",
        "ksplit": "0",
        "us": "1.0",
        "kernelName1": "k1",
        "kernelName2": "k2",
        "run_1stage": "0",
    }
    rows = [{**measured, **r} for r in csv.DictReader(io.StringIO(untuned))]
    return "\n".join([HEADER, *(",".join(r.get(c, "") for c in HEADER.split(",")) for r in rows)]) + "\n"


@needs_corpus
@pytest.mark.parametrize(
    ("config", "tp", "gpu", "cu", "version"),
    [
        ("IFM__K2-Horizon-375B-A23B", 8, "mi300x", 304, "0.1.20.post1"),
        ("Qwen__Qwen3-235B-A22B", 8, "mi355x", 256, "0.1.20.post1"),
        ("Qwen__Qwen3-235B-A22B-FP8", 4, "mi300x", 304, "0.1.20.post1"),
        ("openai__gpt-oss-120b", 1, "mi355x", 256, "0.1.20.post1"),
        ("moonshotai__Kimi-K2-Instruct", 8, "mi308x", 80, "0.1.20.post1"),
        ("IFM__K2-Horizon-375B-A23B", 8, "mi300x", 304, "0.1.13"),
    ],
)
def test_round_trip(tmp_path: Path, config: str, tp: int, gpu: str, cu: int, version: str) -> None:
    model = corpus("hf-configs", f"{config}.json")
    if not model.exists():
        pytest.skip(f"{config} is not in this corpus")
    root = tmp_path / "tree"
    shutil.copytree(corpus("aiter-trees", f"v{version}"), root)
    common = (str(model), "--tp", str(tp), "--gpu", gpu, "--aiter", str(root), "--aiter-version", version)
    before = json.loads(run("check", *common, "--format", "json").stdout)
    done = run("tune", *common)
    assert done.returncode == 0, done.stderr
    missed = sum(x["coverage"]["miss"] for t in before["targets"] for x in t["layers"])
    assert done.stdout.startswith(COLUMNS + "\n")
    assert done.stdout.count("\n") - 1 >= (1 if missed else 0)
    (root / "aiter/configs/model_configs/zz_tuned_fmoe.csv").write_text(as_tuned(done.stdout, cu))
    after = json.loads(run("check", *common, "--format", "json").stdout)
    coverage = [x["coverage"] for t in after["targets"] for x in t["layers"]]
    assert [c["miss"] for c in coverage] == [0] * len(coverage)
    assert (
        sum(c["hit"] for c in coverage) > sum(x["coverage"]["hit"] for t in before["targets"] for x in t["layers"]) or not missed
    )
    again = run("tune", *common)
    assert again.stdout == COLUMNS + "\n", "nothing is left to tune"
    assert not any(f["name"] == "tables-refused-by-aiter" for f in after["findings"])


@needs_corpus
def test_the_keys_are_the_padded_ones() -> None:
    """1792 / 8 = 224 is padded to 256 by the engine: that is what AITER is asked."""
    args = (str(corpus("hf-configs", "IFM__K2-Horizon-375B-A23B.json")), "--tp", "8", "--gpu", "mi300x")
    done = run("tune", *args, "--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {(r["inter_dim"], r["model_dim"], r["expert"], r["topk"]) for r in rows} == {("256", "6144", "192", "8")}
    assert [int(r["token"]) for r in rows] == [1 << i for i in range(16)] + [131072]
    assert "gemm_moe_tune.py -i untuned_fmoe.csv" in done.stderr


@needs_corpus
def test_a_bucket_with_two_activation_dtypes_is_asked_in_both() -> None:
    """gpt-oss: below 256 tokens AITER keeps bf16 activations, and 129 to 255 tokens are looked up as 256 too."""
    args = (str(corpus("hf-configs", "openai__gpt-oss-120b.json")), "--gpu", "mi355x", "--format", "json")
    doc = json.loads(
        run("tune", *args, "--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1").stdout
    )
    assert [(r[0], r[7]) for r in doc["rows"]] == [("256", "torch.bfloat16")]


def test_what_no_tuning_can_help(tmp_path: Path) -> None:
    root = tree(tmp_path)
    args = ("--shape", "experts=128,topk=8,hidden=4096,inter=224", "--engine", "aiter", "--gpu", "mi300x", "--aiter", str(root))
    done = run("tune", *args, "--aiter-version", "0.1.20.post1", "--format", "json")
    doc = json.loads(done.stdout)
    assert done.returncode == 1
    assert doc["rows"] == []
    (hopeless,) = doc["hopeless"]
    assert len(hopeless["tokens"]) == 17
    assert "no stage 1 kernel of a16w16" in hopeless["reason"]
    assert run("tune", *args, "--aiter-version", "0.1.20.post1", "--fail-on", "never").returncode == 0


def test_a_width_another_instance_takes_is_worth_tuning(tmp_path: Path) -> None:
    """320 is rejected by the heuristic 128-wide tile at larger batches; the 64-wide instance takes it, and a tuner can name it."""
    args = (
        "--shape",
        "experts=128,topk=8,hidden=4096,inter=320",
        "--engine",
        "aiter",
        "--gpu",
        "mi300x",
        "--aiter",
        str(tree(tmp_path)),
    )
    done = run("tune", *args, "--aiter-version", "0.1.20.post1")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 18


@pytest.mark.parametrize(
    ("version", "script"),
    [("0.1.20.post1", "csrc/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py"), ("0.1.9", "hsa/gfx942/fmoe_2stages/tune.py")],
)
def test_the_tuner_of_that_release(tmp_path: Path, version: str, script: str) -> None:
    done = run("tune", *SHAPE, "--gpu", "mi300x", "--aiter", str(tree(tmp_path)), "--aiter-version", version)
    assert script in done.stderr


def test_buckets_follow_the_release(tmp_path: Path) -> None:
    done = run("tune", *SHAPE, "--gpu", "mi300x", "--aiter", str(tree(tmp_path)), "--aiter-version", "0.1.7.post2")
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == ["16", "32", "64", "128", "256", "512", "1024"]


def test_formats_files_and_refusals(tmp_path: Path) -> None:
    root = tree(tmp_path / "t")
    args = (*SHAPE, "--gpu", "mi300x", "--aiter", str(root), "--aiter-version", "0.1.20.post1")
    out = tmp_path / "keys.csv"
    done = run("tune", *args, "--output", str(out))
    assert out.read_text().startswith(COLUMNS)
    assert f"-i {out}" in done.stderr
    assert done.stdout == ""
    assert run("tune", *args, "--format", "sarif").returncode == 2
    assert run("tune", *SHAPE, "--aiter", "/nonexistent-tree").returncode == 3
    both = run("tune", *SHAPE, "--aiter", str(root), "--aiter-version", "0.1.20.post1", "--format", "text")
    assert "Name one with --gpu" in " ".join(both.stdout.split())
    assert not list(root.rglob("*untuned*.csv"))[1:], "nothing is written into the tree"
