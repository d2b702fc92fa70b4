"""AITER's own dispatch of the installed wheel against ours, on fresh random keys. The seed changes with every run and is
part of every failure; MOE_PREFLIGHT_SEED repeats one. Needs the amd-aiter wheel, torch, pandas and the corpus' harness."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.aiter import tuned
from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.facts.dispatch_rules import rules_for
from moe_preflight.aiter.rawkey import answer, reader
from moe_preflight.aiter.tree import Tree, open_tree
from moe_preflight.errors import TreeUnavailable
from tests.corpus import corpus, needs_corpus
from tests.dispatch_keys import Raw, keys

COUNT = int(os.environ.get("MOE_PREFLIGHT_KEYS", "2000"))
MODULES = ("torch", "pandas", "einops", "psutil", "packaging")

pytestmark = [needs_corpus, pytest.mark.aiter, pytest.mark.torch]


def seed() -> int:
    given = os.environ.get("MOE_PREFLIGHT_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)


@pytest.fixture(scope="module")
def wheel() -> Tree:
    missing = [m for m in MODULES if importlib.util.find_spec(m) is None]
    if missing:
        pytest.skip(f"AITER's Python cannot be asked without {', '.join(missing)}")
    try:
        tree = open_tree("auto")
    except TreeUnavailable as e:
        pytest.skip(str(e))
    if not tree.has_python or Path(tree.root) not in (Path(sysconfig.get_path(p)).resolve() for p in ("purelib", "platlib")):
        pytest.skip("the AITER tree found is not the installed wheel")
    return tree


def ask_aiter(tree: Tree, gfx: str, cu: int, asked: list[Raw], tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "keys.jsonl"
    path.write_text("".join(json.dumps(k) + "\n" for k in asked))
    command = [
        sys.executable,
        str(corpus("tools", "oracle_harness.py")),
        tree.root,
        "--gfx",
        gfx,
        "--cu",
        str(cu),
        "--keys",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    out = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(out) == len(asked) + 1, done.stderr[-2000:]
    return out[1:]


def name(stage: dict[str, Any] | None) -> str:
    value = (stage or {}).get("kernelName")
    return "" if value in (None, "Null") else str(value)


@pytest.mark.parametrize(("gfx", "cu"), [("gfx942", 304), ("gfx950", 256)])
def test_fresh_keys(wheel: Tree, gfx: str, cu: int, tmp_path: Path) -> None:
    number = seed()
    assert wheel.version is not None
    rules = rules_for(wheel.version)
    table = tuned.load(wheel, rules)
    near = [cells for _, _, cells in table if cells["cu_num"] == str(cu)]
    asked = list(keys(random.Random(f"{number}{gfx}"), near, COUNT, gates=rules.has_gate_mode))
    ours, read = Dispatcher(wheel.version, gfx, cu, flydsl=False, table=table), reader(gfx)
    wrong, hits = [], 0
    for raw, theirs in zip(asked, ask_aiter(wheel, gfx, cu, asked, tmp_path), strict=True):
        key, padded = read(raw)
        got = answer(raw, ours.dispatch(key, padded=padded), gfx)
        if "error" in theirs or "error" in got:
            if theirs.get("error", "")[:100] != got.get("error", "")[:100]:
                wrong.append((raw, theirs.get("error"), got))
            continue
        said = {
            "asked_token": int(theirs["asked"]["token"]),
            "q_dtype_a": theirs["asked"]["q_dtype_a"],
            "tuned": bool(theirs["tuned"]),
            "stage1": theirs["stage1"]["func"],
            "kernelName1": name(theirs["stage1"]),
            "stage2": theirs["stage2"] and theirs["stage2"]["func"],
            "kernelName2": name(theirs["stage2"]),
            **{f: theirs[f] for f in ("block_m", "ksplit", "run_1stage")},
        }
        want = {f: "" if f.startswith("kernel") and got[f] in (None, "Null") else got[f] for f in said}
        hits += said["tuned"]
        if said != want:
            wrong.append((raw, {f: (said[f], want[f]) for f in said if said[f] != want[f]}, got["notes"]))
    assert hits or not near, "no key met a tuned row: the keys do not test the lookup"
    assert not wrong, f"MOE_PREFLIGHT_SEED={number}: {len(wrong)} of {len(asked)} differ, the first: {wrong[0]}"
