"""Every number of the main job, through the command line as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from typing import Any

import pytest

from tests.corpus import CORPUS, corpus, needs_corpus

MODEL = "IFM/K2-Horizon-375B-A23B"
TREE = "v0.1.20.post1"
TILE_TEXT = "device_gemm with the specified compilation parameters does not support this GEMM problem"


@lru_cache(maxsize=64)
def run(*args: str) -> tuple[int, dict[str, Any], str]:
    """(exit code, JSON report, stderr) of one `check`."""
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", "--format", "json", "--offline", *args],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def tree(tag: str = TREE) -> tuple[str, ...]:
    return ("--aiter", str(corpus("aiter-trees", tag)), "--aiter-version", tag)


def codes(report: dict[str, Any], severity: str) -> set[str]:
    return {f["code"] for f in report["findings"] if f["severity"] == severity}


def layer(report: dict[str, Any], target: int = 0) -> dict[str, Any]:
    return report["targets"][target]["layers"][0]


@needs_corpus
class TestK2Horizon:
    @pytest.mark.parametrize(("tp", "native", "padded"), [(8, 224, 256), (4, 448, 512), (2, 896, 896), (1, 1792, 1792)])
    def test_padded_width(self, tp: int, native: int, padded: int) -> None:
        code, report, _ = run(MODEL, "--tp", str(tp), *tree())
        for i in range(2):
            p = layer(report, i)["problem"]
            assert (p["inter_dim"], p["inter_dim_padded"]) == (native, padded)
            assert (p["model_dim"], p["model_dim_padded"]) == (6144, 6144)
        assert code == 0
        assert report["verdict"] == "warn"

    def test_tp8_costs_a_seventh_and_four_gib(self) -> None:
        _, report, _ = run(MODEL, "--tp", "8", *tree())
        pad = layer(report)["padding"]
        assert round(pad["extra_compute_pct"], 1) == 14.3
        assert pad["extra_weight_bytes_per_rank"] == 58 * 192 * 3 * 6144 * 32 * 2
        assert pad["zero_filled_by"]
        assert layer(report)["problem"]["alignment"] == 128
        assert layer(report)["problem"]["intermediate_pad"] == 0

    def test_router_rounds_six_groups_to_eight(self) -> None:
        _, report, _ = run(MODEL, "--tp", "8", *tree())
        r = layer(report)["router"]
        assert (r["num_expert_group_naive"], r["num_expert_group"], r["topk_group"]) == (6, 8, 8)
        assert (r["kernel"], r["compiled"], r["falls_back_to"]) == ("biased_grouped_topk", True, None)

    def test_every_bucket_is_accepted_and_none_is_tuned(self) -> None:
        _, report, _ = run(MODEL, "--tp", "8", *tree())
        for t in range(2):
            buckets = layer(report, t)["buckets"]
            assert all(b["stage1"]["accepted"] and b["stage2"]["accepted"] for b in buckets)
            assert {b["tuned"] for b in buckets} == {"miss"}
        assert codes(report, "warning") >= {"MP111", "MP301", "MP602"}
        assert not codes(report, "error")

    def test_before_padding_ck_rejects_and_the_group_count_has_no_kernel(self) -> None:
        code, report, _ = run(MODEL, "--tp", "8", "--engine-version", "0.31.0", *tree())
        assert (code, report["verdict"]) == (1, "fail")
        assert codes(report, "error") == {"MP101", "MP201"}
        said = [f for f in report["findings"] if f["code"] == "MP101"]
        assert any(TILE_TEXT in f["why"] for f in said)
        router = layer(report)["router"]
        assert (router["num_expert_group"], router["compiled"]) == (6, False)
        above = router["by_tokens"][1]
        assert (above["from"], above["kernel"]) == (212 * 304 + 1, "moe_fused_gate")
        assert above["defects"], "above 212 x CU tokens the gate is wrong silently"

    def test_before_0_30_there_is_no_model_file(self) -> None:
        code, report, _ = run(MODEL, "--tp", "8", "--engine-version", "0.29.0", *tree())
        assert (code, report["verdict"]) == (1, "fail")
        assert codes(report, "error") == {"MP401"}

    def test_engine_older_than_the_tables_uses_the_oldest_and_says_so(self) -> None:
        _, report, _ = run(MODEL, "--tp", "8", "--engine-version", "0.20.0", *tree())
        assert "MP603" in codes(report, "warning")


@needs_corpus
class TestAcceptanceByTokens:
    SHAPE = ("--shape", "experts=128,topk=8,hidden=4096,inter=320", "--engine-version", "0.31.0", "--gpu", "mi300x")

    def test_320_fails_only_under_load_on_mi300x(self) -> None:
        code, report, _ = run(*self.SHAPE, *tree())
        assert code == 1
        accepted = {b["token"]: b["stage1"]["accepted"] and b["stage2"]["accepted"] for b in layer(report)["buckets"]}
        assert all(ok for token, ok in accepted.items() if token <= 256)
        assert not any(ok for token, ok in accepted.items() if token >= 512)
        (finding,) = [f for f in report["findings"] if f["code"] == "MP101"]
        assert "under load" in finding["message"]
        assert "512" in finding["message"]

    def test_batches_that_cannot_be_reached_are_not_judged(self) -> None:
        code, report, _ = run(*self.SHAPE, "--max-num-batched-tokens", "256", *tree())
        assert code == 0
        assert max(b["token"] for b in layer(report)["buckets"]) == 256

    @pytest.mark.parametrize("tp", [1, 2, 4, 8])
    def test_gpt_oss_bf16_padded_and_still_rejected_by_model_dim(self, tp: int) -> None:
        shape = "experts=128,topk=4,hidden=2880,inter=2880"
        code, report, _ = run("--shape", shape, "--tp", str(tp), "--gpu", "mi300x,mi355x", *tree())
        assert code == 1
        mi300x, mi355x = layer(report, 0), layer(report, 1)
        assert {b["stage2"]["accepted"] for b in mi355x["buckets"]} == {False}
        for b in mi300x["buckets"]:
            # up to width 192 both stages use 64-wide tiles, and 2880 is a multiple of 64
            small = mi300x["problem"]["inter_dim_padded"] <= 192
            assert b["stage2"]["accepted"] is (small or b["block_m"] not in (64, 128))


@needs_corpus
def test_a_range_never_folds_over_a_gap() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", *TestAcceptanceByTokens.SHAPE, *tree()],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "ck2stages" in line]
    assert any("REJECTED" in line and line.split()[0].startswith("512") for line in lines), done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.isascii()


@needs_corpus
@pytest.mark.parametrize(
    ("tag", "flat", "flat_tuned"), [("v0.1.13", 143, None), ("v0.1.16.post4", 207, 175), ("v0.1.20.post1", 207, 175)]
)
def test_the_64_128_rule_moves_no_row_off_its_key(tag: str, flat: int, flat_tuned: int | None) -> None:
    from moe_preflight.aiter.census import take
    from moe_preflight.aiter.tree import open_tree

    census = take(open_tree(str(corpus("aiter-trees", tag))))
    assert census.moved_by_rule == 0
    assert census.moved_by_flat_128 == flat
    if flat_tuned is not None:
        assert (census.moved_by_flat_128_tuned, census.moved_by_flat_128 - census.moved_by_flat_128_tuned) == (flat_tuned, 32)


@needs_corpus
def test_census_of_the_full_tree_and_the_env_line() -> None:
    _, report, _ = run(MODEL, "--tp", "8", "--env", *tree())
    a = report["aiter"]
    assert (a["csv_files"], a["csv_rows"], a["moe_csv_files"], a["moe_csv_rows"]) == (151, 63527, 63, 3690)
    assert "moves 0" in report["environment"]["rounding_rule"]
    assert "207" in report["environment"]["rounding_rule"]


def test_no_tree_is_inconclusive_unless_tuned_coverage_is_not_wanted() -> None:
    """The suite may run with amd-aiter installed: a search that finds nothing stands for a bare machine."""
    for extra, want in (((), 3), (("--no-tuned",), 0)):
        script = (
            "import sys\n"
            "from moe_preflight.errors import TreeUnavailable\n"
            "def none(spec='auto', **k):\n    raise TreeUnavailable('no AITER found')\n"
            "import moe_preflight.aiter.basis as b\n"
            "b.open_tree = none\n"
            f"sys.argv = ['x', 'check', {MODEL!r}, '--offline', '--tp', '8', '--format', 'json', *{extra!r}]\n"
            "from moe_preflight.cli.app import run\nrun()\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == want, done.stderr
        report = json.loads(done.stdout)
        assert layer(report)["buckets"], "dispatch is still predicted"
        assert {b["tuned"] for b in layer(report)["buckets"]} == {"unknown"}
        assert bool(report["not_evaluated"]) is (want == 3)


@pytest.mark.parametrize(
    ("tp", "reason"),
    [
        ("3", "does not divide"),
        ("0", "greater than or equal to 1"),
        ("256", "greater than the number of experts"),
        ("-1", "greater than"),
    ],
)
def test_impossible_splits_are_the_engines_own_errors(tp: str, reason: str) -> None:
    code, report, _ = run(MODEL, "--tp", tp, "--no-tuned", "--gpu", "mi300x")
    assert code == 1
    refusals = [f for f in report["findings"] if f["code"] == "MP401"]
    assert refusals
    assert any(reason in f["message"] + f["why"] for f in refusals), refusals


def test_corpus_is_used_where_it_is() -> None:
    """A run beside the corpus must not skip the numbers by accident."""
    if CORPUS is not None:
        assert corpus("aiter-trees", TREE, "aiter", "configs").is_dir()
