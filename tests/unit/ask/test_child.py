"""The child and its parent, in real processes, against a stand-in AITER that lies, hangs, dies, raises and writes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.ask import parent
from moe_preflight.preflight import Report
from tests.unit.ask import fake


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stand-in tree that is the same, byte for byte, when every test here has run."""
    root = fake.tree(tmp_path_factory.mktemp("ask"))
    before = _content(root)
    yield root
    assert _content(root) == before, "something wrote into the AITER tree"


def _content(root: Path) -> str:
    lines = [f"{p.relative_to(root)} {p.read_bytes() if p.is_file() else ''!r}" for p in sorted(root.rglob("*"))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def only(report: Report) -> dict[str, Any]:
    (observation,) = report.observations
    return observation


def test_agreement_is_confirmed_and_changes_nothing_else(root: Path) -> None:
    report = fake.asked(root)
    o = only(report)
    assert (o["status"], o["tokens"], o["unanswered"], o["differences"]) == ("confirmed", [1, 64, 256, 4096], [], [])
    assert (o["prediction"], o["answer"], o["standins"]) == (None, None, True)
    assert o["kernels"] == ["moe_ck2stages_gemm1_64", "moe_ck2stages_gemm2_64"]  # the merged table was read
    assert "agrees at all 4 token buckets" in o["detail"]
    assert "unverified" in o["detail"]  # this tree's code is none we checked
    assert not [f for f in report.findings if f.code == "MP605"]
    assert not report.not_evaluated


def test_aiters_own_answer_wins(root: Path) -> None:
    report = fake.asked(root, "lies")
    o = only(report)
    assert o["status"] == "contradicted"
    assert o["prediction"] == {"token": 256, "block_m": 128}
    assert o["answer"] == {"token": 256, "block_m": 64}
    assert o["differences"] == [{"token": 256, "block_m": {"predicted": 128, "answer": 64}}]
    (finding,) = [f for f in report.findings if f.code == "MP605"]
    assert (finding.severity, finding.target, finding.layer, finding.confidence) == ("warning", 0, 0, "measured")
    assert "at 1 of 4 token buckets, first at 256: block_m 128 predicted, 64 answered" in finding.message
    assert not report.not_evaluated
    assert not [f for f in fake.asked(root, "lies", ignore=("MP6",)).findings if f.code == "MP605"]


def test_what_aiter_raises_is_its_answer(root: Path) -> None:
    o = only(fake.asked(root, "raises"))
    assert o["status"] == "contradicted"
    assert o["answer"] == {"token": 256, "error": "RuntimeError: wrapped: 'no such key'"}
    assert o["unanswered"] == []


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("hangs", "timeout", "did not answer within 5 s, while: ask"),
        ("aborts", "error", "died of SIGABRT (6) while: ask (Memory access fault by GPU node-1)"),
        ("exits", "error", "exit code 7 and no answer, while: ask"),
    ],
)
def test_a_child_that_dies_on_a_question_keeps_what_it_answered(root: Path, mode: str, status: str, said: str) -> None:
    report = fake.asked(root, mode, timeout=5.0)
    o = only(report)
    assert (o["status"], o["unanswered"]) == (status, [256, 4096])
    assert said in o["detail"]
    (gap,) = report.not_evaluated
    assert said in gap.why
    assert gap.how_to_get_it
    assert report.exit_code("never") == 3


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("import-raises", "error", "import aiter: RuntimeError: ROCm version file not found"),
        ("import-hangs", "timeout", "did not answer within 5 s, while: import aiter"),
    ],
)
def test_an_import_that_fails_is_said_for_every_layer(root: Path, mode: str, status: str, said: str) -> None:
    report = fake.asked(root, mode, timeout=5.0)
    o = only(report)
    assert (o["status"], o["unanswered"]) == (status, o["tokens"])
    assert said in o["detail"]
    assert report.exit_code("never") == 3


@pytest.mark.parametrize(("mode", "hidden", "name"), [("", "einops", "einops"), ("import-lacks", "", "a_module_nobody_has")])
def test_a_missing_module_is_named_with_what_to_install(root: Path, mode: str, hidden: str, name: str) -> None:
    report = fake.asked(root, mode, env={"STANDIN_HIDE": hidden})
    assert not report.observations
    (gap,) = report.not_evaluated
    assert gap.why == f"this Python lacks {name}"
    assert f"pip install {name}" in gap.how_to_get_it
    assert report.verdict == "inconclusive"
    assert report.exit_code("never") == 3


def test_garbage_on_stdout_is_no_answer(root: Path) -> None:
    assert only(fake.asked(root, "garbage"))["status"] == "confirmed"


def test_a_write_outside_the_childs_folder_is_refused_and_told(root: Path) -> None:
    o = only(fake.asked(root, "writes"))
    assert o["status"] == "confirmed"
    assert "tried to write outside its own folder and was not let" in o["detail"]
    assert str(root / "aiter" / "configs" / "tuned_fmoe.csv") in o["detail"]
    assert not os.path.exists("/tmp/moe-preflight-must-not-exist")


def test_on_the_gpu_it_was_judged_for_aiter_is_imported_as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "machine", lambda: ("gfx942", 304))
    o = only(fake.asked(root, env={"STANDIN_HIP": "7.0"}))
    assert (o["status"], o["standins"]) == ("confirmed", False)
    assert "on this machine's GPU" in o["detail"]


def test_another_gpu_than_this_machines_is_stood_in_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "machine", lambda: ("gfx950", 256))
    assert only(fake.asked(root))["standins"] is True


def test_the_child_sees_the_engines_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AITER_KSPLIT", "AITER_REBUILD", "CU_NUM", "GPU_ARCHS", "HF_TOKEN"):
        monkeypatch.setenv(name, "9")
    monkeypatch.setenv("AITER_JIT_DIR", "/built")
    env = parent._environment(
        tmp_path,
        {"AITER_USE_NT": "1", "AITER_CONFIG_FMOE": "/theirs", "AITER_CONFIG_GEMM_BF16": "/a:/b"},
        parent.AskOptions(env={"X": "y"}),
    )
    assert not {
        "AITER_KSPLIT",
        "AITER_REBUILD",
        "CU_NUM",
        "GPU_ARCHS",
        "HF_TOKEN",
        "AITER_CONFIG_FMOE",
        "AITER_CONFIG_GEMM_BF16",
    } & set(env)
    assert (env["AITER_USE_NT"], env["AITER_JIT_DIR"], env["X"]) == ("1", "/built", "y")
    assert env["TMPDIR"] == str(tmp_path)


# --- what cannot be asked ---------------------------------------------------------------------------------------------


def test_a_tree_without_python_is_a_gap(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare" / "aiter" / "configs"
    bare.mkdir(parents=True)
    (bare / "tuned_fmoe.csv").write_bytes((root / "aiter" / "configs" / "tuned_fmoe.csv").read_bytes())
    (gap,) = fake.asked(tmp_path / "bare").not_evaluated
    assert "no aiter/fused_moe.py" in gap.why


def test_tables_aiter_raises_on_are_a_gap(root: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("cu_num,token\n304,1\n")
    (gap,) = fake.asked(root, aiter_env={"AITER_CONFIG_FMOE": str(broken)}).not_evaluated
    assert "AITER itself raises on these tables: KeyError" in gap.why


def test_nothing_on_aiter_is_a_gap(root: Path) -> None:
    report = fake.asked(root, engine="vllm", engine_version="0.33.0", engine_env={"VLLM_ROCM_USE_AITER": "0"})
    (gap,) = report.not_evaluated
    assert "nothing to ask" in gap.why


def test_no_tables_means_the_heuristics_answer(root: Path) -> None:
    report = fake.asked(root, tuned=False)
    o = only(report)
    assert (o["status"], o["kernels"]) == ("confirmed", [])


def test_a_wheel_is_unpacked_for_its_text(root: Path, tmp_path: Path) -> None:
    import zipfile

    wheel = tmp_path / "amd_aiter-0.1.20.post1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        for path in sorted(root.rglob("*.*")):
            z.write(path, path.relative_to(root).as_posix())
        z.writestr("aiter/../../escaped.py", "")
        z.writestr("aiter/jit/module_moe.so", "a kernel")
    o = only(fake.asked(wheel))
    assert o["status"] == "confirmed"
    assert not list(tmp_path.rglob("escaped.py"))
