"""``audit`` end to end: a whole folder of real configs, exit codes, every format, and no growth with the number of models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import corpus, needs_corpus
from tests.unit.coverage.tables import row, table, tree

SHAPE = ("--shape", "experts=128,topk=8,hidden=4096,inter=192", "--engine", "aiter", "--gpu", "mi300x")


def audit(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moe_preflight", "audit", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@needs_corpus
def test_every_config_times_four_splits_times_two_gpus() -> None:
    tree_args = ("--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1")
    done = audit(str(corpus("hf-configs")), "--tp", "1,2,4,8", *tree_args, "--format", "json")
    doc = json.loads(done.stdout)
    found = {(Path(r["model"]).name, r["target"], r["layer"]): r for r in doc["rows"]}
    assert len({name for name, _, _ in found}) > 130
    qwen = found["Qwen__Qwen3-235B-A22B.json", "TP8 MI300X", "main"]
    assert (qwen["decode_hit_pct"], qwen["coverage"]) == (100.0, {"hit": 16, "tier": 1, "miss": 0, "unknown": 0})
    assert qwen["files"][0]["file"].endswith("qwen3_235b_bf16_tuned_fmoe.csv")
    horizon = found["IFM__K2-Horizon-375B-A23B.json", "TP8 MI300X", "main"]
    assert horizon["coverage"]["hit"] == 0, "no v0.1.20 table has 192 experts of 6144 x 256"
    assert horizon["key"]["inter_dim"] == 256
    on_aiter = [r for r in doc["rows"] if r["buckets"]]
    shares = [(any(b["problem"] for b in r["buckets"]), r["decode_hit_pct"]) for r in on_aiter]
    tail = [share for broken, share in shares if not broken]
    assert tail == sorted(tail), "worst first"
    assert done.returncode in (1, 3), done.stderr


@needs_corpus
def test_an_audit_agrees_with_check() -> None:
    config = str(corpus("hf-configs", "Qwen__Qwen3-235B-A22B-FP8.json"))
    common = (
        config,
        "--tp",
        "4",
        "--aiter",
        str(corpus("aiter-trees", "v0.1.20.post1")),
        "--aiter-version",
        "0.1.20.post1",
        "--format",
        "json",
    )
    rows = {r["target"]: r for r in json.loads(audit(*common).stdout)["rows"]}
    command = [sys.executable, "-m", "moe_preflight", "check", *common]
    checked = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout)
    for t in checked["targets"]:
        mine = rows[f"TP{t['deployment']['tp']} {t['deployment']['gpu'].upper()}"]
        for layer in t["layers"]:
            assert mine["coverage"] == layer["coverage"]
            assert [(b["token"], b["tuned"], b["path"]) for b in mine["buckets"]] == [
                (b["token"], b["tuned"], b["path"]) for b in layer["buckets"]
            ]


@needs_corpus
def test_memory_does_not_grow_with_the_number_of_models(tmp_path: Path) -> None:
    """Four times the models, less than half as much memory again: rows are small and equal questions share their cells."""
    configs = sorted(p for p in corpus("hf-configs").glob("*.json") if "hf_quant" not in p.name)[:60]
    folder = tmp_path / "many"
    folder.mkdir()
    for n in range(4):
        for p in configs:
            (folder / f"{n}-{p.name}").symlink_to(p)
    few, many = _peak(str(folder), limit="0-"), _peak(str(folder), limit="")
    assert many < 1.5 * few, (few, many)


def _peak(folder: str, *, limit: str) -> int:
    code = (
        "import os, resource, sys\n"
        f"words = [os.path.join({folder!r}, n) for n in sorted(os.listdir({folder!r})) if n.startswith({limit!r})]\n"
        f"sys.argv = ['moe-preflight', 'audit', *words, '--tp', '1,2,4,8', '--aiter', {str(corpus('aiter-trees', 'v0.1.20.post1'))!r},"
        " '--aiter-version', '0.1.20.post1', '--output', os.devnull]\n"
        "from moe_preflight.cli.app import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize(
    ("files", "args", "code"),
    [
        (("1",), ("--tokens", "1"), 0),
        (("1",), ("--tokens", "2"), 0),
        (("1",), ("--tokens", "2", "--fail-on", "warning"), 1),
        ((), ("--shape", "experts=128,topk=8,hidden=4096,inter=224"), 1),
        ((), ("nowhere/config.json",), 2),
        ((), ("--format", "sarif"), 2),
    ],
)
def test_exit_codes(tmp_path: Path, files: tuple[str, ...], args: tuple[str, ...], code: int) -> None:
    rows = [row(token=t) for t in files]
    root = tree(tmp_path, x_tuned_fmoe=table(*rows))
    done = audit(*SHAPE, *args, "--aiter", str(root), "--aiter-version", "0.1.20.post1")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr + done.stdout, "progress and colour are for terminals"


def test_a_tree_that_is_not_there_is_not_green() -> None:
    done = audit(*SHAPE, "--aiter", "/nonexistent-tree")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


@needs_corpus
@pytest.mark.parametrize(("tp", "words"), [("8", "1 row, 1 on AITER"), ("4,8", "2 rows, 2 on AITER")])
def test_the_head_counts_in_words_and_stays_in_80_columns(tp: str, words: str) -> None:
    tree_args = ("--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1")
    done = audit(str(corpus("hf-configs") / "IFM__K2-Horizon-375B-A23B.json"), "--gpu", "mi300x", "--tp", tp, *tree_args)
    head = done.stdout.partition("\n\n")[0].splitlines()
    assert words in head[0]
    assert words in done.stderr
    assert max(map(len, head)) <= 80


def test_cards_are_called_what_they_stand_for_and_folders_are_said_once(tmp_path: Path) -> None:
    """No format shows where this package, or a folder of configs, happens to lie."""
    root = tree(tmp_path / "t", x_tuned_fmoe=table(row()))
    base = ("--gpu", "mi300x", "--tokens", "1", "--aiter", str(root), "--aiter-version", "0.1.20.post1", "--fail-on", "never")
    written = {f: tmp_path / f"out.{f}" for f in ("text", "json", "markdown", "html", "csv")}
    outputs = [x for f, path in written.items() for x in ("--format", f"{f}={path}")]
    audit("--cards", *base, *outputs)
    for path in written.values():
        text = path.read_text()
        assert "/configs/models/" not in text
        assert "Qwen3-30B-A3B" in text
    folder = tmp_path / "mine"
    folder.mkdir()
    card = (Path(__file__).parents[2] / "configs/models/Qwen__Qwen3-30B-A3B.json").read_bytes()
    for name in ("a.json", "b.json"):
        (folder / name).write_bytes(card)
    audit(str(folder), *base, *outputs)
    for f in ("text", "markdown", "csv"):
        text = written[f].read_text()
        assert "a.json" in text
        assert str(folder) not in text.replace(str(root), "")
