"""Every golden answer of AITER's own dispatch, also where AITER raised; and that the command says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.aiter import tuned
from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.facts.dispatch_rules import rules_for
from moe_preflight.aiter.rawkey import answer, reader
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.version import Version
from moe_preflight.errors import TreeUnavailable
from tests.corpus import CORPUS, corpus, needs_corpus

Record = dict[str, Any]
FIELDS = ("asked_token", "q_dtype_a", "tuned", "stage1", "stage2", "block_m", "ksplit", "run_1stage")

pytestmark = needs_corpus


def golden() -> list[Any]:
    found = sorted((CORPUS / "golden").glob("dispatch-*.jsonl")) if CORPUS else []
    return [pytest.param(path, id=path.stem) for path in found]


@lru_cache(maxsize=16)
def records(path: Path) -> tuple[Record, list[Record]]:
    first, *rest = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
    return first["meta"], rest


def tree_of(label: str) -> str:
    """Where the tables of a golden file's release are: in the corpus, or the installed wheel."""
    folder = corpus("aiter-trees", label)
    if folder.is_dir():
        return str(folder)
    try:
        installed = open_tree("auto")
    except TreeUnavailable:
        pytest.skip(f"amd-aiter is not installed, and the corpus has no tables of {label}")
    if str(installed.version) != label.removeprefix("wheel-").removeprefix("v"):
        pytest.skip(f"the installed amd-aiter is {installed.version}, the golden answers are {label}'s")
    return "auto"


def dispatcher(meta: Record) -> Dispatcher:
    version = Version.of(meta["aiter"].removeprefix("wheel-").removeprefix("v"))
    table = tuned.load(open_tree(tree_of(meta["aiter"])), rules_for(version))
    return Dispatcher(version, meta["gfx"], meta["cu_num"], flydsl=meta["flydsl"] != "off", table=table)


def name(value: object) -> str:
    return "" if value is None or str(value) in ("nan", "None", "Null") else str(value)


@pytest.mark.parametrize("path", golden())
def test_golden_answers(path: Path) -> None:
    meta, rest = records(path)
    asked = dispatcher(meta)
    read = reader(asked.gfx)
    wrong = []
    for record in rest:
        key, padded = read(record["key"])
        got = answer(record["key"], asked.dispatch(key, padded=padded), asked.gfx)
        if "error" in record:
            if got.get("error", "")[:150] != record["error"][:150]:
                wrong.append((record["key"], record["error"], got))
            continue
        differs = {f: (record[f], got.get(f)) for f in FIELDS if record[f] != got.get(f)}
        differs |= {f: (record[f], got.get(f)) for f in ("kernelName1", "kernelName2") if name(record[f]) != name(got.get(f))}
        if sorted(record["rows"]) != sorted(got.get("rows", [])):
            differs["rows"] = (record["rows"], got.get("rows"))
        if differs:
            wrong.append((record["key"], differs, got.get("notes")))
    assert not wrong, f"{len(wrong)} of {len(rest)} differ, the first: {wrong[0]}"


@pytest.mark.parametrize("path", golden())
def test_an_accepted_answer_names_its_row(path: Path) -> None:
    """A tuned answer names one row, and that row is among those of the key unless a smaller tier stood in."""
    meta, rest = records(path)
    asked = dispatcher(meta)
    read = reader(asked.gfx)
    for record in rest[:200]:
        d = asked.dispatch(read(record["key"])[0])
        assert (d.row is not None) == (d.tuned in ("hit", "tier")) or d.error is not None
        assert d.tuned != "hit" or d.row in d.rows


def test_the_command_says_the_same(tmp_path: Path) -> None:
    path = corpus("golden", "dispatch-v0.1.20.post1-gfx950-256.jsonl")
    meta, rest = records(path)
    asked = dispatcher(meta)
    read = reader(asked.gfx)
    keys = tmp_path / "keys.jsonl"
    keys.write_text("".join(json.dumps(r["key"]) + "\n" for r in rest[:120]))
    command = [
        sys.executable,
        "-m",
        "moe_preflight",
        "dispatch",
        "--aiter",
        tree_of(meta["aiter"]),
        "--aiter-version",
        "0.1.20.post1",
    ]
    done = subprocess.run([*command, "--gfx", "gfx950", "--cu", "256", str(keys)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    untold = ("tile1", "tile2", "accepted1", "accepted2", "reason1", "reason2")
    for line, record in zip(done.stdout.splitlines(), rest[:120], strict=True):
        said = json.loads(line)
        want = answer(record["key"], asked.dispatch(read(record["key"])[0]), asked.gfx)
        assert {k: v for k, v in said.items() if k not in untold} == {k: v for k, v in want.items() if k not in untold}
