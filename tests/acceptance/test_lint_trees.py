"""What lint says about three AITER releases, each number checked against AITER's own code (shared facts, section D)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.corpus import corpus, needs_corpus
from tests.unit.coverage.tables import row, table, tree

EXPECTED: dict[str, dict[tuple[str, str], int]] = {
    "0.1.13": {
        ("bad-time", "warning"): 6,
        ("column-layout", "info"): 13,
        ("unknown-kernel", "error"): 1,
        ("unreachable-token", "warning"): 10,
    },
    "0.1.16.post4": {
        ("activation-shadowed", "warning"): 397,
        ("bad-time", "warning"): 5,
        ("column-layout", "info"): 18,
        ("unreachable-token", "warning"): 2,
    },
    "0.1.20.post1": {
        ("activation-shadowed", "warning"): 397,
        ("bad-time", "warning"): 13,
        ("column-layout", "info"): 18,
        ("column-layout", "warning"): 14,  # gptoss rows tagged flydsl_fallback: AITER answers their keys with the untagged row
        ("error-above-tolerance", "warning"): 268,
        ("ragged-row", "warning"): 19,
        ("tuned-row-unused", "warning"): 5,
        ("unreachable-token", "warning"): 11,
    },
}


def lint(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moe_preflight", "lint", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


@needs_corpus
@pytest.mark.parametrize("version", EXPECTED)
def test_every_finding_of_a_release(version: str) -> None:
    done = lint(str(corpus("aiter-trees", f"v{version}")), "--aiter-version", version, "--format", "json")
    doc = json.loads(done.stdout)
    assert Counter((f["name"], f["severity"]) for f in doc["findings"]) == EXPECTED[version]
    assert done.returncode == (1 if version == "0.1.13" else 0), done.stderr
    assert all(f["evidence"][0]["line"] for f in doc["findings"])


@needs_corpus
def test_where_the_shadowed_rows_are() -> None:
    """AITER's own round trip: on gfx942/80 375 rows, on gfx950/256 22, on gfx942/304 none get another activation's row."""
    done = lint(
        str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1", "--select", "MP704", "--format", "json"
    )
    messages = [f["message"] for f in json.loads(done.stdout)["findings"]]
    on = Counter(
        "gfx942/80" if " on gfx942 with 80 CUs" in m else "gfx950/256" if " on gfx950 with 256 CUs" in m else m for m in messages
    )
    assert on == {"gfx942/80": 375, "gfx950/256": 22}


@needs_corpus
def test_the_rows_no_branch_takes() -> None:
    done = lint(
        str(corpus("aiter-trees", "v0.1.20.post1")),
        "--aiter-version",
        "0.1.20.post1",
        "--select",
        "tuned-row-unused",
        "--format",
        "json",
    )
    at = [(Path(f["evidence"][0]["file"]).name, f["evidence"][0]["line"]) for f in json.loads(done.stdout)["findings"]]
    assert at == [("dsv4_fp8fp4_tuned_fmoe.csv", n) for n in range(165, 170)]


@needs_corpus
def test_the_tree_is_not_written(tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "tree"
    shutil.copytree(corpus("aiter-trees", "v0.1.13"), copy)
    default = copy / "aiter/configs/tuned_fmoe.csv"
    default.write_text(default.read_text() + default.read_text().splitlines()[1] + "\n")
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in copy.rglob("*.csv")}
    done = lint(str(copy), "--aiter-version", "0.1.13")
    assert "duplicate-key" in done.stdout
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in copy.rglob("*.csv")} == before


class TestCommand:
    def test_files_exit_codes_and_summary(self, tmp_path: Path) -> None:
        good, bad = tmp_path / "a_tuned_fmoe.csv", tmp_path / "b_tuned_fmoe.csv"
        good.write_text(table(row()))
        bad.write_text(table(row(token="128", block_m="64")))
        assert lint(str(good), "--aiter-version", "0.1.20.post1").returncode == 0
        done = lint(str(bad), "--aiter-version", "0.1.20.post1")
        assert done.returncode == 1
        assert "block-m-mismatch" in done.stdout
        assert done.stderr.startswith("moe-preflight: FAIL: 1 tables, 1 rows, 2 errors")
        assert lint(str(bad), "--fail-on", "never").returncode == 0

    @pytest.mark.parametrize(
        ("args", "code", "words"),
        [
            (["nowhere.csv"], 2, "no such file"),
            (["."], 2, "no CSV file"),
            (["x.csv", "--aiter-version", "soon"], 2, "not a version"),
            (["x.csv", "--select", "MP999"], 2, "no rule"),
            (["x.csv", "--format", "csv"], 2, "unknown format"),
            (["other.csv"], 3, ""),
        ],
    )
    def test_refusals_are_one_line(self, tmp_path: Path, args: list[str], code: int, words: str) -> None:
        if "x.csv" in args:
            (tmp_path / "x.csv").write_text(table(row()))
        (tmp_path / "sub").mkdir()
        if args[0] == "other.csv":
            (tmp_path / "other.csv").write_text("M,N\n1,2\n")
        done = lint(*args, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_a_file_of_a_tree_is_judged_among_the_others(self, tmp_path: Path) -> None:
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row()), y_tuned_fmoe=table(row(token="56")))
        done = lint(
            str(root / "aiter/configs/model_configs/x_tuned_fmoe.csv"), "--aiter-version", "0.1.20.post1", "--format", "json"
        )
        assert [f["name"] for f in json.loads(done.stdout)["findings"]] == ["duplicate-key"]

    def test_sarif_and_github_point_at_the_row(self, tmp_path: Path) -> None:
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(token="56"), row(token="57")))
        done = lint(str(root), "--aiter-version", "0.1.20.post1", "--format", "sarif")
        run = json.loads(done.stdout)["runs"][0]
        assert [r["ruleId"] for r in run["results"]] == ["MP703", "MP703"]
        where = [r["locations"][0]["physicalLocation"] for r in run["results"]]
        assert [w["region"]["startLine"] for w in where] == [2, 3]
        assert where[0]["artifactLocation"]["uri"] == "aiter/configs/model_configs/x_tuned_fmoe.csv"
        assert run["tool"]["driver"]["rules"][0]["shortDescription"]["text"].startswith("The row's token count")
        done = lint(str(root), "--aiter-version", "0.1.20.post1", "--format", "github")
        assert done.stdout.startswith("::warning file=")
        assert "line=2" in done.stdout

    def test_hostile_cells_stay_text(self, tmp_path: Path) -> None:
        path = tmp_path / "h_tuned_fmoe.csv"
        path.write_text(table(row(kernelName1="\x1b[2J::error::x\u202e")))
        for form in ("text", "github", "json", "sarif"):
            done = lint(str(path), "--format", form)
            assert "\x1b" not in done.stdout
            assert "\u202e" not in done.stdout
            assert "Traceback" not in done.stderr

    def test_a_wheel_and_a_tree_without_tables(self, tmp_path: Path) -> None:
        import zipfile

        root = tree(tmp_path / "t", x_tuned_fmoe=table(row(token="56")))
        wheel = tmp_path / "amd_aiter-0.1.20-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as z:
            for p in root.rglob("*.csv"):
                z.write(p, p.relative_to(root))
        done = lint(str(wheel), "--format", "json")
        doc = json.loads(done.stdout)
        assert [f["name"] for f in doc["findings"]] == ["unreachable-token"]
        assert doc["aiter"]["version"] == "0.1.20"
        (tmp_path / "bare" / "aiter" / "configs").mkdir(parents=True)
        assert lint(str(tmp_path / "bare")).returncode == 3
