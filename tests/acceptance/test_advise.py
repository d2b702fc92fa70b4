"""`advise`: the table and the one recommendation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.advise import Hits, Row, recommend
from tests.corpus import CORPUS, corpus, needs_corpus

GIB = 1 << 30


def row(tp: int = 8, **changes: Any) -> Row:
    base: dict[str, Any] = {
        "tp": tp, "ep": False, "ep_size": 1, "outcome": "accepted", "runs": True, "accepted": True, "padded": False,
        "extra_compute_pct": 0.0, "decode": Hits(0, 9), "prefill": Hits(0, 8), "router": "biased_grouped_topk",
        "expert_bytes": 100 * GIB, "memory_bytes": 192 * GIB,
    }  # fmt: skip
    return Row(**(base | changes))


# Each pair: the better row first. The order is that of the issue: fits, accepted, unpadded, decode hits, bytes.
BETTER = [
    (row(padded=True, expert_bytes=170 * GIB), row(expert_bytes=180 * GIB)),
    (row(padded=True, extra_compute_pct=14.3), row(accepted=None, decode=Hits(9, 9))),
    (row(expert_bytes=150 * GIB), row(padded=True, extra_compute_pct=1.0, decode=Hits(9, 9))),
    (row(decode=Hits(5, 9), expert_bytes=150 * GIB), row(decode=Hits(4, 9))),
    (row(expert_bytes=99 * GIB), row(prefill=Hits(8, 8))),
]


@pytest.mark.parametrize(("better", "worse"), BETTER)
def test_order_of_preference(better: Row, worse: Row) -> None:
    assert recommend([worse, better])[0] is better
    assert recommend([better, worse])[0] is better


def test_nothing_is_recommended_when_nothing_runs_or_fits() -> None:
    best, why = recommend([row(runs=False, accepted=False), row(expert_bytes=180 * GIB)])
    assert best is None
    assert "starts and fits" in why


def test_the_reason_is_in_words() -> None:
    _, why = recommend([row(decode=Hits(7, 9))])
    assert why == "its expert weights fit, every reachable bucket is accepted, nothing is padded, 7 of 9 decode buckets are tuned"


@pytest.mark.parametrize("errors", [("MP201 router-kernel",), ("MP801 advisory", "MP201 router-kernel")])
def test_a_split_with_an_error_of_any_kind_is_not_recommended(errors: tuple[str, ...]) -> None:
    clean = row(padded=True, extra_compute_pct=30.0, expert_bytes=170 * GIB)
    assert recommend([row(decode=Hits(9, 9), errors=errors), clean])[0] is clean
    best, why = recommend([row(errors=errors), row(tp=4, errors=errors)])
    assert best is None
    assert all(why.count(e) == 1 for e in errors)


def run(*args: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "advise", "--offline", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@needs_corpus
def test_k2_horizon_is_sent_to_expert_parallelism() -> None:
    tree = ("--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1")
    code, out, _ = run("IFM/K2-Horizon-375B-A23B", "--gpu", "mi300x", "--tp", "1,2,4,8", "--format", "json", *tree)
    assert code == 0
    (gpu,) = json.loads(out)["gpus"]
    rows = {r["split"]: r for r in gpu["rows"]}
    assert list(rows) == ["TP1", "TP2", "TP2 EP2", "TP4", "TP4 EP4", "TP8", "TP8 EP8"]
    assert "padded to 256 (+14.3 %)" in rows["TP8"]["outcome"]
    assert rows["TP8 EP8"]["outcome"] == "accepted"
    assert rows["TP1"]["fits"] is False
    assert rows["TP8 EP8"]["expert_weight_bytes"] == 58 * 24 * 3 * 6144 * 1792 * 2
    assert gpu["recommended"] == "TP8 EP8"


@needs_corpus
def test_rejected_under_load_and_refused_are_told_apart() -> None:
    tree = (
        "--aiter",
        str(corpus("aiter-trees", "v0.1.20.post1")),
        "--aiter-version",
        "0.1.20.post1",
        "--engine-version",
        "0.31.0",
    )
    _, out, _ = run("--shape", "experts=128,topk=8,hidden=4096,inter=2560", "--gpu", "mi300x", "--format", "json", *tree)
    rows = {r["split"]: r for r in json.loads(out)["gpus"][0]["rows"]}
    assert rows["TP8"]["outcome"].startswith("rejected under load (512")
    assert rows["TP16"]["outcome"] == "rejected"
    code, out, _ = run("--shape", "experts=8,topk=2,hidden=4096,inter=100", "--tp", "3", "--gpu", "mi300x", *tree)
    assert code == 1
    assert "refused by the engine" in out
    assert "No recommendation" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "No model given"),
        (("--shape", "experts=8,topk=2,hidden=64,inter=64", "IFM/K2-Horizon-375B-A23B"), 2, "one model"),
        (("IFM/K2-Horizon-375B-A23B", "--gpu", "mi999"), 2, "unknown GPU"),
        (("no/such-model-anywhere",), 3, "no bundled card"),
    ],
)
def test_what_cannot_be_advised_is_one_line(args: tuple[str, ...], code: int, said: str) -> None:
    got, out, err = run(*args, "--no-tuned")
    assert got == code
    assert said in err
    assert not out
    assert len(err.strip().splitlines()) == 1


TREE = ("--aiter", str(corpus("aiter-trees", "v0.1.20.post1")) if CORPUS else "auto", "--aiter-version", "0.1.20.post1")
K2 = ("IFM/K2-Horizon-375B-A23B", "--gpu", "mi300x", "--tp", "8", *TREE)


@needs_corpus
def test_a_missing_router_kernel_is_no_recommendation() -> None:
    """vLLM 0.31.0 asks for 6 expert groups, which AITER does not compile: check fails, so advise must not say take it."""
    code, out, _ = run(*K2, "--engine-version", "0.31.0", "--format", "json")
    (gpu,) = json.loads(out)["gpus"]
    assert code == 1
    assert gpu["recommended"] is None
    assert all("MP201 router-kernel" in r["errors"] for r in gpu["rows"])
    assert "MP201 router-kernel" in gpu["reason"]


@needs_corpus
def test_formats_files_quiet_and_colour(tmp_path: Path) -> None:
    text, file = tmp_path / "a.txt", tmp_path / "a.md"
    code, out, _ = run(*K2, "--format", "json", "--format", f"markdown={file}", "--format", f"text={text}")
    assert code == 0
    assert json.loads(out)["gpus"]
    assert "| **TP8 EP8** |" in file.read_text()
    whole = text.read_text()
    assert whole == run(*K2)[1]
    brief = run(*K2, "-q")[1]
    assert "Recommended: TP8 EP8" in brief
    assert "weights/GPU" not in brief
    assert "\x1b[1m" in run(*K2, "--color", "always")[1]
    assert run(*K2, "--output", str(tmp_path / "b.txt"))[1] == ""
    assert (tmp_path / "b.txt").read_text() == whole
    assert run(*K2, "--format", "html")[0] == 2
