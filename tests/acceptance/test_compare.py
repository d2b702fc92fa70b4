"""``compare`` end to end: two folders, a folder and the built-in facts, two engine releases."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.corpus import corpus, needs_corpus
from tests.unit.coverage.tables import row, table, tree

SHAPE = ("--shape", "experts=128,topk=8,hidden=4096,inter=192", "--engine", "aiter", "--gpu", "mi300x")


def compare(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moe_preflight", "compare", *args], capture_output=True, text=True, timeout=120, check=False
    )


def changes(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str, str | None]]:
    return [(o["what"], o["status"], o["at_tokens"]) for o in json.loads(done.stdout)["observations"] if o["kind"] == "change"]


@pytest.fixture
def trees(tmp_path: Path) -> tuple[str, str]:
    rich = tree(tmp_path / "rich", x_tuned_fmoe=table(row(), row(token="128"), row(token="32768")))
    poor = tree(tmp_path / "poor", x_tuned_fmoe=table(row()))
    return str(rich), str(poor)


V = ("--aiter-version", "0.1.20.post1")


def test_lost_hits_are_worse_and_exit_1(trees: tuple[str, str]) -> None:
    rich, poor = trees
    done = compare(*SHAPE, "--aiter", rich, "--aiter", poor, *V, "--format", "json")
    found = changes(done)
    assert ("tuned-coverage-changed", "worse", "128, 32,768") in found
    assert ("tuned-coverage-changed", "worse", "131,072") in found, "the tier fallback went with the row it fell back to"
    assert done.returncode == 1
    assert compare(*SHAPE, "--aiter", rich, "--aiter", poor, *V, "--fail-on", "error").returncode == 0
    text = compare(*SHAPE, "--aiter", rich, "--aiter", poor, *V).stdout
    assert "- tuned-coverage-changed, 128, 32,768 tokens" in text


def test_gained_hits_are_better_and_exit_0(trees: tuple[str, str]) -> None:
    rich, poor = trees
    done = compare(*SHAPE, "--aiter", poor, "--aiter", rich, *V, "--format", "json")
    assert ("tuned-coverage-changed", "better", "128, 32,768") in changes(done)
    assert done.returncode == 0
    assert {f["severity"] for f in json.loads(done.stdout)["findings"]} == {"info"}


def test_no_change(trees: tuple[str, str], tmp_path: Path) -> None:
    same = tree(tmp_path / "same", y_tuned_fmoe=table(row()))
    done = compare(*SHAPE, "--aiter", trees[1], "--aiter", str(same), *V)
    assert done.returncode == 0
    assert "1 of 1 targets unchanged" in done.stderr


def test_acceptance_by_release() -> None:
    """bf16 width 192: a 128-wide tile up to v0.1.7, the 64-wide one from v0.1.8 (AITER e69f59bd)."""
    facts = ("--aiter", "0.1.7.post2", "--aiter", "0.1.20.post1", "--no-tuned", "--format", "json")
    done = compare(*SHAPE, *facts)
    mine = [c for c in changes(done) if c[0] == "acceptance-changed"]
    assert mine
    assert {status for _, status, _ in mine} == {"better"}
    back = compare(*SHAPE, "--aiter", "0.1.20.post1", "--aiter", "0.1.7.post2", "--no-tuned", "--format", "json")
    assert {s for w, s, _ in changes(back) if w == "acceptance-changed"} == {"worse"}
    assert back.returncode == 1
    assert json.loads(back.stdout)["verdict"] == "fail"


def test_a_folder_and_the_built_in_facts(trees: tuple[str, str]) -> None:
    """The facts hold no tables: without --no-tuned, tuned coverage was asked for and could not be compared."""
    done = compare(*SHAPE, "--aiter", trees[0], "--aiter", "0.1.20.post1", *V)
    assert done.returncode == 3
    said = " ".join(done.stdout.split())
    assert "tuned rows of the new side" in said
    assert "is compared. Name a folder" in said
    assert compare(*SHAPE, "--aiter", trees[0], "--aiter", "0.1.20.post1", *V, "--no-tuned").returncode == 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_rows_kernel_is_not_held_against_a_heuristic(trees: tuple[str, str], order: int) -> None:
    """One release against itself, once with tables and once without: nothing changed, either way."""
    sides = [trees[0], "0.1.20.post1"][::order]
    done = compare(*SHAPE, "--aiter", sides[0], "--aiter", sides[1], *V, "--format", "json")
    assert changes(done) == []
    assert done.returncode == 3
    assert "what AITER chooses by itself is compared" in json.loads(done.stdout)["not_evaluated"][0]["why"]


def test_a_tree_that_does_not_say_its_version_is_told_of(trees: tuple[str, str]) -> None:
    engine = ("--shape", "experts=128,topk=8,hidden=4096,inter=192", "--engine", "vllm", "--gpu", "mi300x")
    told = "it does not say its version, which is taken from the engine's pin: name it with --aiter-version"
    both = [o["detail"] for o in json.loads(compare(*engine, "--aiter", trees[0], "--aiter", trees[1], "--format", "json").stdout)
            ["observations"] if o["kind"] == "side"]  # fmt: skip
    assert [told in x for x in both] == [True, True]
    done = compare(*engine, "--aiter", trees[0], "--aiter", trees[1], *V, "--format", "json")
    assert told not in done.stdout


def test_two_wheels(trees: tuple[str, str], tmp_path: Path) -> None:
    wheels = []
    for version, root in zip(("0.1.19", "0.1.20"), trees, strict=True):
        path = tmp_path / f"amd_aiter-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as z:
            for p in Path(root).rglob("*.csv"):
                z.write(p, p.relative_to(root))
        wheels.append(str(path))
    done = compare(*SHAPE, "--aiter", wheels[0], "--aiter", wheels[1], "--format", "json")
    assert ("tuned-coverage-changed", "worse", "128, 32,768") in changes(done)
    sides = [o["detail"] for o in json.loads(done.stdout)["observations"] if o["kind"] == "side"]
    assert "AITER 0.1.19 (" in sides[0]
    assert "AITER 0.1.20 (" in sides[1]


@needs_corpus
def test_an_engine_that_starts_to_pad() -> None:
    """vLLM 0.31.0 hands AITER 224 (rejected, and 6 expert groups); 0.33.0 pads to 256 and passes 8 groups."""
    args = (str(corpus("hf-configs", "IFM__K2-Horizon-375B-A23B.json")), "--tp", "8", "--gpu", "mi300x", *V)
    tree_args = ("--aiter", str(corpus("aiter-trees", "v0.1.20.post1")))
    done = compare(*args, *tree_args, "--engine-version", "0.31.0", "--engine-version", "0.33.0", "--format", "json")
    found = changes(done)
    assert {(w, s) for w, s, _ in found} == {
        ("padding-changed", "other"),
        ("router-changed", "better"),
        ("acceptance-changed", "better"),
    }
    assert done.returncode == 0
    back = compare(*args, *tree_args, "--engine-version", "0.33.0", "--engine-version", "0.31.0", "--format", "json")
    assert ("router-changed", "worse") in {(w, s) for w, s, _ in changes(back)}
    assert back.returncode == 1


@needs_corpus
def test_two_releases_of_tables() -> None:
    args = (str(corpus("hf-configs", "Qwen__Qwen3-235B-A22B.json")), "--tp", "8", "--gpu", "mi300x")
    old, new = (str(corpus("aiter-trees", f"v{v}")) for v in ("0.1.13", "0.1.20.post1"))
    done = compare(*args, "--aiter", old, "--aiter", new, "--aiter-version", "0.1.13", *V, "--format", "json")
    found = changes(done)
    assert ("tuned-coverage-changed", "better", "1-32,768") in found
    assert ("tuned-coverage-changed", "better", "131,072") in found
    evidence = [e for f in json.loads(done.stdout)["findings"] if f["name"] == "tuned-coverage-changed" for e in f["evidence"]]
    assert evidence[0]["file"].endswith("qwen3_235b_bf16_tuned_fmoe.csv")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "both sides are the same"),
        (("--aiter", "0.1.13"), 2, "both sides are the same"),
        (("--aiter", "0.1.13", "--aiter", "0.1.14", "--aiter", "0.1.15"), 2, "given 3 times"),
        (("--aiter", "0.1.13", "--aiter", "/nonexistent-tree"), 3, "no such file"),
    ],
)
def test_refusals_are_one_line(args: tuple[str, ...], code: int, words: str) -> None:
    done = compare(*SHAPE, *args)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
