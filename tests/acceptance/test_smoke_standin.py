"""The aiter worker in real child processes, against a stand-in module that behaves like AITER's API and breaks in AITER's ways."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.smoke import repro
from moe_preflight.smoke.case import Prediction, RouterSpec
from moe_preflight.smoke.parent import SmokeOptions, outcome, run_case
from tests.unit.smoke.cases import BIASED, small

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install 'moe-preflight[smoke]')"),
]

STANDIN = Path(__file__).parents[1] / "unit" / "smoke" / "standin"
MISS = Prediction(path="ck2stages", stages=2, tuned="miss", accepted=True)
SIX = RouterSpec("biased_grouped_topk", 192, 8, 6, 6, scoring="sigmoid", bias=True)

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "fork": ("fork", {}),
    "abort-native": ("abort-native", {"prediction": MISS}),
    "ok": ("ok", {"poison": True, "prediction": MISS}),
    "ck": ("ck", {"prediction": replace(MISS, accepted=False, reason="N tile 128 does not divide 96")}),
    "abort": ("abort", {"prediction": MISS}),
    "chatty": ("chatty", {"prediction": MISS, "native": False}),
    "garbage": ("garbage", {}),
    "router-aborts": ("router-aborts", {"router": SIX, "experts": 192, "topk": 8, "model_dim": 32}),
}
LIMITS = {"fork": 12.0}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the stand-in with a prebuilt module, so that a write into the tree would show."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(STANDIN, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "aiter" / "jit").mkdir()
    (root / "aiter" / "jit" / "module_moe.so").write_bytes(b"prebuilt")
    return root


def fingerprint(root: Path) -> str:
    lines = [f"{p.relative_to(root)} {p.is_file() and p.read_bytes()!r}" for p in sorted(root.rglob("*"))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.fixture(scope="module")
def runs(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All of RUNS, two at a time."""
    before = fingerprint(tree)

    folders = {name: tmp_path_factory.mktemp(name) for name in RUNS}

    def one(name: str) -> dict[str, Any]:
        mode, changes = RUNS[name]
        env = {"PYTHONPATH": str(tree), "MOE_STANDIN": mode, "AITER_ONLINE_TUNE": "1", "OMP_NUM_THREADS": "1"}
        options = SmokeOptions(device="cpu", timeout=LIMITS.get(name, 60.0), env=env)
        return run_case(small(**changes), "aiter", options, folders[name])

    os.environ["HF_TOKEN"] = "hf_secretsecret"
    pool = ThreadPoolExecutor(3)  # the first only waits
    futures: dict[str, Future[dict[str, Any]]] = {n: pool.submit(one, n) for n in RUNS}
    yield lambda name: futures[name].result() | {"folder": folders[name]}
    pool.shutdown()
    del os.environ["HF_TOKEN"]
    assert fingerprint(tree) == before, "something wrote into the AITER tree"


def test_right_numbers_by_the_predicted_path(runs: Any) -> None:
    o = runs("ok")
    assert (o["status"], o["prediction"]["verdict"], o["detail"]) == ("confirmed", "confirmed", "")
    assert o["rel_err"] < 0.02
    assert (o["experts_match"], o["router_kernel"], o["bit_identical"]) == (True, "biased_grouped_topk", True)
    assert o["median_us"] > 0
    assert o["native_us"] > 0
    assert o["padding_cost_pct"] is None  # a CPU's clock is no measure of that
    assert o["tail_read"] is True
    assert o["machine"]["aiter"] == "0.1.20.post1"


def test_a_rejection_that_was_predicted_is_confirmed_and_still_fails_the_run(runs: Any) -> None:
    o = runs("ck")
    assert o["status"] == "confirmed"
    assert "does not support this GEMM problem" in o["detail"]
    assert outcome([o]).exit_code == 1


def test_an_abort_is_an_observation_with_the_last_words(runs: Any) -> None:
    o = runs("abort")
    assert o["status"] == "crashed"
    assert "SIGABRT (6) while: launch" in o["detail"]
    assert "Memory access fault by GPU" in o["detail"]
    assert any("Memory access fault" in line for line in o["output_tail"])


def test_a_crash_after_the_result_costs_only_what_came_after(runs: Any) -> None:
    o = runs("abort-native")
    assert o["status"] == "confirmed"
    assert o["rel_err"] < 0.02
    assert o["native_us"] is None
    assert any("died of SIGABRT (6), while: native" in n for n in o["notes"])


def test_what_is_printed_beside_the_protocol_does_no_harm(runs: Any) -> None:
    o = runs("chatty")
    assert o["status"] == "confirmed"
    assert len("".join(o["output_tail"])) <= 30 * 400
    assert runs("garbage")["status"] == "error"
    assert "exit code 3" in runs("garbage")["detail"]


def test_an_abort_in_the_router(runs: Any) -> None:
    o = runs("router-aborts")
    assert o["status"] == "failed"
    assert "SIGABRT (6) while: route" in o["detail"]
    assert "Unsupported num_expert_group: 6" in o["detail"]


def test_nothing_is_shared_tuned_or_told(runs: Any) -> None:
    """Where AITER would write, what it may read, and what is left of it afterwards: seen from inside the child."""
    o = runs("ck")
    folder = o["folder"]
    said = dict(line.split("[standin] ")[1].split("=", 1) for line in o["output_tail"] if "[standin] " in line)
    assert said["AITER_ONLINE_TUNE"] == "0"
    assert said["AITER_CONFIG_FMOE"] == str(folder / "tuned_fmoe.csv")
    assert said["AITER_JIT_DIR"] == str(folder / "jit")
    assert said["TMPDIR"] == str(folder)
    assert said["HF_TOKEN"] == "None"
    assert (folder / "jit" / "module_moe.so").is_symlink()


def test_a_hang_is_cut_off_and_its_children_with_it(runs: Any) -> None:
    o = runs("fork")
    assert o["status"] == "timeout"
    assert "within 12 s, while: launch; AITER was still compiling" in o["detail"]
    pid = next(line for line in o["output_tail"] if "grandchild" in line).rsplit(" ", 1)[1]
    end = time.monotonic() + 5
    while time.monotonic() < end and alive(pid):
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("mode", "scheme", "code"), [("wrong", "none", 1), ("ok", "fp8_block", 0)])
def test_the_reproducer_runs_by_itself(tree: Path, tmp_path: Path, runs: Any, mode: str, scheme: str, code: int) -> None:
    text = repro.script(small(scheme=scheme, router=replace(BIASED, scaling_inside=2.5)), runs("abort"))
    assert "moe_preflight" not in text
    assert "Memory access fault" in text
    path = tmp_path / "repro.py"
    path.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(tree), "MOE_STANDIN": mode, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert "relative error" in done.stdout
