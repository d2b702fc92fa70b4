"""`check --ask-aiter` against AMD's own wheel: really imported, really asked, nothing written.

Needs the installed amd-aiter and what its Python imports; CI's `aiter` job has them. The harness of the corpus asks the same
wheel in its own way, on tables AITER merged itself: the answers must be the same ones.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.aiter.basis import Basis, open_basis
from moe_preflight.aiter.rawkey import reader
from moe_preflight.ask.child import NEEDED
from moe_preflight.ask.compare import differing
from moe_preflight.ask.parent import AskOptions, ask
from moe_preflight.ask.questions import Sheet
from moe_preflight.hardware import Gpu, named
from tests.corpus import corpus, needs_corpus
from tests.dispatch_keys import keys


def _wheel() -> Path | None:
    spec = find_spec("aiter")
    places = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return next((p.parent for p in places if (p / "fused_moe.py").is_file()), None)


WHEEL = _wheel()
MISSING = [m for m in NEEDED if find_spec(m) is None]

pytestmark = [
    pytest.mark.aiter,
    pytest.mark.skipif(WHEEL is None, reason="amd-aiter is not installed (pip install --pre amd-aiter)"),
    pytest.mark.skipif(bool(MISSING), reason=f"AITER's Python needs {', '.join(MISSING)}"),
]

SHARED = Path("/tmp/aiter_configs")
"""Where AITER writes its merged tables, for everybody on the machine."""


def check(*args: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", "--ask-aiter", "--offline", "--format", "json", *args],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def _state(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file below the wheel's two folders."""
    files = (p for name in ("aiter", "aiter_meta") for p in (root / name).rglob("*") if "__pycache__" not in p.parts)
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}


def test_the_wheel_agrees_and_nothing_is_written() -> None:
    assert WHEEL is not None
    before, shared = _state(WHEEL), SHARED.exists()
    code, report = check("IFM/K2-Horizon-375B-A23B", "deepseek-ai/DeepSeek-V3", "--tp", "8", "--fail-on", "never")
    assert _state(WHEEL) == before
    assert SHARED.exists() == shared
    seen = report["observations"]
    asked = [(t, i) for t, target in enumerate(report["targets"]) for i, x in enumerate(target["layers"]) if x["buckets"]]
    assert [(o["target"], o["layer"]) for o in seen] == asked
    assert len(seen) >= 4
    assert {o["status"] for o in seen} == {"confirmed"}, [o["detail"] for o in seen]
    assert not [f for f in report["findings"] if f["code"] == "MP605"]
    assert code == 0
    for o in seen:
        buckets = report["targets"][o["target"]]["layers"][o["layer"]]["buckets"]
        assert o["tokens"] == [b["token"] for b in buckets]
        assert "tried to write" not in o["detail"]


# --- the same questions to the harness --------------------------------------------------------------------------------


def _sheet(basis: Basis, gpu: Gpu, raws: list[dict[str, Any]]) -> Sheet:
    sheet, read, dispatcher = Sheet(gpu), reader(gpu.gfx), basis.dispatcher(gpu)
    for raw in raws:
        key, _ = read(raw)
        sheet.ask((0, 0), dispatcher.dispatch(key), asdict(key) | {"hidden_pad": 0, "intermediate_pad": 0})
    return sheet


def _harness(gpu: Gpu, raws: list[dict[str, Any]]) -> list[dict[str, Any]]:
    command = [sys.executable, str(corpus("tools", "oracle_harness.py")), str(WHEEL), "--gfx", gpu.gfx, "--cu", str(gpu.cu_num)]
    text = "".join(json.dumps(raw) + "\n" for raw in raws)
    done = subprocess.run([*command, "--keys", "-"], input=text, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def _in_words(said: dict[str, Any]) -> dict[str, Any]:
    """A harness answer in the words of ours."""
    if "error" in said:
        return {"error": said["error"].partition(":")[0]}
    stages = {1: said["stage1"], 2: said["stage2"]}
    out = {f"stage{n}": s and s["func"] for n, s in stages.items()}
    out |= {f"kernelName{n}": (s or {}).get("kernelName") or None for n, s in stages.items()}
    out |= {name: said[name] for name in ("tuned", "block_m", "ksplit", "run_1stage")}
    return out | {"asked_token": int(said["asked"]["token"]), "q_dtype_a": said["asked"]["q_dtype_a"]}


@needs_corpus
@pytest.mark.parametrize("name", ["mi308x", "mi355x"])
def test_the_harness_and_the_prediction_say_the_same(name: str) -> None:
    seed = int(os.environ.get("MOE_PREFLIGHT_SEED", str(time.time_ns() % 10**9)))
    print(f"MOE_PREFLIGHT_SEED={seed}")
    gpu = named(name)
    basis = open_basis("auto", asked_version=None, pin=None, tuned=True)
    assert basis.tree is not None
    assert basis.table is not None
    assert basis.witness is not None
    rows = [row for _, _, row in basis.table if row["cu_num"] == str(gpu.cu_num)]
    drawn = keys(random.Random(seed), rows, 1200, gates=False)
    # Only whole calls are asked here, and this release has no SiTUv2 member to call it with.
    raws = [k for k in drawn if "q_dtype_a" not in k and k["act"] != "situv2"][:300]
    sheet = _sheet(basis, gpu, raws)
    heard = ask(sheet, basis.tree, basis.table, basis.witness.rules, flydsl=True, env={}, options=AskOptions())
    assert heard.ended is None, heard.ended
    assert heard.told["refused"] == []
    theirs = _harness(gpu, raws)
    assert len(raws) == len(theirs) == 300
    assert sum(bool(a.get("tuned")) for a in heard.answers.values()) > 20
    for raw, asked, said in zip(raws, sheet.layers[0, 0], theirs, strict=True):
        mine = heard.answers[asked.number]
        assert differing(asked.expected, mine, gpu.gfx) == {}, raw
        known = (
            {"error": mine["error"].partition(":")[0]}
            if "error" in mine
            else {k: v if v != "" else None for k, v in mine.items()}
        )
        assert known == _in_words(said), raw


def test_a_wheel_file_is_asked_without_being_installed(tmp_path: Path) -> None:
    assert WHEEL is not None
    path = tmp_path / "amd_aiter-0.1.7.post2.dev18-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        for under in ("aiter", "aiter_meta/csrc"):
            for file in (WHEEL / under).rglob("*"):
                if file.is_file() and file.suffix in (".py", ".csv", ".json", ".h", ".hpp", ".cu", ".jinja", ""):
                    z.write(file, file.relative_to(WHEEL).as_posix())
    _, report = check(
        "--shape", "experts=128,topk=8,hidden=4096,inter=1536", "--engine", "aiter", "--gpu", "mi355x", "--aiter", str(path)
    )
    (o,) = report["observations"]
    assert (o["status"], o["standins"]) == ("confirmed", True), o["detail"]


# --- an AITER we have not read ----------------------------------------------------------------------------------------


def test_an_aiter_that_chooses_otherwise_is_believed(tmp_path: Path) -> None:
    """The wheel with one number of its block_m heuristic changed, calling itself a release of the future."""
    assert WHEEL is not None
    root = tmp_path / "checkout"
    shutil.copytree(WHEEL / "aiter", root / "aiter", ignore=shutil.ignore_patterns("*.so", "__pycache__", "build"))
    for name in ("include", "cpp_itfs"):
        shutil.copytree(WHEEL / "aiter_meta" / "csrc" / name, root / "csrc" / name)
    code = root / "aiter" / "fused_moe.py"
    text = code.read_text()
    assert text.count("support_list = [32, 64, 128]") == 1
    code.write_text(text.replace("support_list = [32, 64, 128]", "support_list = [64, 128]"))
    (root / "aiter" / "install_mode").unlink(missing_ok=True)
    (root / "aiter" / "_version.py").write_text('__version__ = "0.9.9"\n')
    exit_code, report = check(
        *("--shape", "experts=192,topk=8,hidden=4096,inter=1536", "--engine", "aiter", "--gpu", "mi300x", "--aiter", str(root))
    )
    (o,) = report["observations"]
    assert o["status"] == "contradicted"
    first = o["differences"][0]
    assert first["block_m"] == {"predicted": 32, "answer": 64}
    assert o["answer"]["block_m"] == 64
    assert "AITER 0.9.9's own dispatch" in o["detail"]
    codes = {f["code"] for f in report["findings"]}
    assert {"MP601", "MP605"} <= codes
    assert exit_code in (0, 1)
