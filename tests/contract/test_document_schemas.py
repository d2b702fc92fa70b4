"""Every document a machine reads keeps to the schema that ships for it: real ones, empty ones, and those about what went wrong."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.gate import baseline
from moe_preflight.report import schema
from moe_preflight.report.types import SEVERITIES, VERDICTS
from tests.corpus import corpus, needs_corpus
from tests.hostile.fuzz import KEY, LINE, Done, invoke
from tests.unit.coverage.tables import row, table, tree

jsonschema = pytest.importorskip("jsonschema")
CONFIGS = Path(__file__).resolve().parents[1] / "hostile" / "corpus" / "configs"
CARDS = Path(__file__).resolve().parents[2] / "configs" / "models"
SHAPE = "experts=128,topk=8,hidden=4096,inter=192"
REFUSED = ("--engine-version", "0.29.0", str(CARDS / "IFM__K2-Horizon-375B-A23B.json"))
"""vLLM has no model file for it before 0.30.0."""
SCHEMAS = {kind: json.loads(schema.text(kind=kind)) for kind in schema.KINDS}


def wrong(kind: str, doc: Any) -> list[str]:
    return [f"{e.json_path}: {e.message[:300]}" for e in jsonschema.Draft202012Validator(SCHEMAS[kind]).iter_errors(doc)]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tree with rows, one with none, one with a table nobody can read as one, and an engine's log."""
    here = tmp_path_factory.mktemp("trees")
    (here / "engine.log").write_bytes(LINE)
    (here / "empty.log").write_bytes(b"")
    return {
        "rows": str(tree(here / "rows", x_tuned_fmoe=table(row(), row(token="128", block_m="64")))),
        "none": str(tree(here / "none")),
        "bad": str(tree(here / "bad", x_tuned_fmoe='a,b\n"')),
        "log": str(here / "engine.log"),
        "empty log": str(here / "empty.log"),
    }


def test_each_is_a_schema_of_its_own_name() -> None:
    for kind, one in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(one)
        assert one["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert one["$id"] == f"urn:moe-preflight:schema:{kind}:1"
        assert one["title"]
        assert one["description"]
    with pytest.raises(FileNotFoundError):
        schema.text(2, "audit")


SHAPED = ("--shape", SHAPE, "--gpu", "mi300x")
CASES: dict[str, tuple[tuple[str, ...], set[int]]] = {
    # case -> (what is asked, the exit codes it may end with)
    "some": (SHAPED, {0}),
    "split": ((*SHAPED, "--tp", "4,1"), {0, 1}),
    "refused": ((*REFUSED, "--gpu", "mi300x"), {0, 1}),
    "not a divisor": ((*SHAPED, "--tp", "7"), {0, 1}),
    "dense": ((str(CONFIGS / "3-dense.json"),), {3}),
    "says no size": ((str(CONFIGS / "3-no-hidden-size.json"),), {3}),
    "no config": ((str(CONFIGS / "2-array.json"),), {2}),
    "not reached": (("no/such-model", "--offline"), {3}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("which", ["rows", "none", "bad"])
@pytest.mark.parametrize("command", ["audit", "tune"])
def test_audit_and_tune(command: str, which: str, case: str, trees: dict[str, str]) -> None:
    args, codes = CASES[case]
    done = invoke(command, *args, "--aiter", trees[which], "--aiter-version", "v0.1.20.post1", "--format", "json")
    assert done.code in codes, (done.code, done.err)
    doc = json.loads(done.out)
    assert wrong(command, doc) == []
    assert doc["kind"] == command
    if codes & {2, 3}:
        assert doc["rows"] == []
        assert doc["not_evaluated"]


@pytest.mark.parametrize("command", ["audit", "tune"])
def test_without_a_tree(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.endswith("-packages")])  # no amd-aiter is installed
    done = invoke(command, *SHAPED, "--format", "json")
    assert done.code == 3, done.err
    doc = json.loads(done.out)
    assert wrong(command, doc) == []
    assert [n["what"] for n in doc["not_evaluated"]] == ["tuned coverage"]
    assert doc["aiter"]["root"] is None


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 0), (("--tp", "1,2", "--gpu", "mi355x"), 0), (("--no-tuned",), 0),
        (("--tp", "2", "--engine-env", "VLLM_ROCM_USE_AITER=0"), 0), (("--max-num-batched-tokens", "64"), 0),
    ],
)  # fmt: skip
def test_advise(args: tuple[str, ...], code: int, trees: dict[str, str]) -> None:
    done = invoke("advise", *SHAPED, "--aiter", trees["rows"], "--aiter-version", "v0.1.20.post1", *args, "--format", "json")
    assert done.code == code, done.err
    doc = json.loads(done.out)
    assert wrong("advise", doc) == []
    for gpu in doc["gpus"]:
        assert gpu["recommended"] in (None, *(r["split"] for r in gpu["rows"]))
        assert (gpu["recommended"] is None) is (code == 1)


def test_advise_refused(trees: dict[str, str]) -> None:
    done = invoke("advise", *REFUSED, "--aiter", trees["rows"], "--aiter-version", "v0.1.20.post1", "--format", "json")
    assert done.code == 1
    assert wrong("advise", json.loads(done.out)) == []


REPORTS: dict[str, tuple[tuple[str, ...], int]] = {
    "lint, findings": (("lint", "rows"), 1),
    "lint, unreadable": (("lint", "bad"), 1),
    "lint, nothing": (("lint", "none"), 0),
    "observe": (("observe", "log", *SHAPED, "--aiter", "rows"), 0),
    "observe, nothing": (("observe", "empty log", *SHAPED, "--aiter", "rows"), 3),
    "compare, rows lost": (("compare", *SHAPED, "--aiter", "rows", "--aiter", "none"), 1),
    "compare, nothing worse": (("compare", *SHAPED, "--aiter", "none", "--aiter", "rows"), 0),
    "compare, dense": (("compare", str(CONFIGS / "3-dense.json"), "--aiter", "rows", "--aiter", "none"), 3),
    "compare, no size": (("compare", str(CONFIGS / "3-no-hidden-size.json"), "--aiter", "rows", "--aiter", "none"), 3),
    "compare, no config": (("compare", str(CONFIGS / "2-array.json"), "--aiter", "rows", "--aiter", "none"), 2),
    "check, no config": (("check", str(CONFIGS / "2-array.json"), "--aiter", "rows"), 2),
    "check, dense": (("check", str(CONFIGS / "3-dense.json"), "--aiter", "rows", "--env"), 3),
}


@pytest.mark.parametrize("case", REPORTS)
def test_reports(case: str, trees: dict[str, str]) -> None:
    args, code = REPORTS[case]
    done = invoke(*(trees.get(a, a) for a in args), "--aiter-version", "v0.1.20.post1", "--format", "json")
    assert done.code == code, done.err
    doc = json.loads(done.out)
    assert wrong("report", doc) == []
    if code == 3 and args[0] == "compare":
        assert doc["targets"] == []


HELD = f'[[deployment]]\nshape = "{SHAPE}"\ngpus = "mi300x"\ntuned = false\naiter = {{ version = "0.1.20.post1" }}\n'
GATES = {
    "no deployment": ("", 3),
    "not reached": ('[[deployment]]\nmodel = "no/such"\ngpus = "mi300x"\noffline = true\n', 3),
    "malformed": ('[[deployment]]\nmodel = "./config.json"\ngpus = "mi300x"\n', 2),
    "met": (f"{HELD}require = {{ on_aiter = true }}\n", 0),
    "not met": (f"{HELD}require = {{ aiter_is_pin = true }}\n", 1),
}


@pytest.mark.parametrize("case", GATES)
def test_gates_and_their_baselines(case: str, tmp_path: Path) -> None:
    text, code = GATES[case]
    (tmp_path / "gate.toml").write_text(text)
    (tmp_path / "config.json").write_text("[]")
    done = invoke("gate", str(tmp_path / "gate.toml"), "--format", "json")
    assert done.code == code, done.err
    assert wrong("report", json.loads(done.out)) == []
    done = invoke("gate", str(tmp_path / "gate.toml"), "--format", "json", "--write-baseline", str(tmp_path / "known.json"))
    assert wrong("report", json.loads(done.out)) == []
    if (tmp_path / "known.json").exists():
        held = json.loads((tmp_path / "known.json").read_text())
        assert wrong("baseline", held) == []
        for broken in broken_ones(held):
            refused = False
            try:
                baseline.parse(json.dumps(broken).encode(), "x")
            except Exception:
                refused = True
            assert refused is bool(wrong("baseline", broken)), broken


def broken_ones(held: Any) -> Iterator[Any]:
    """The baseline with each of its values made something else, or gone, or one more."""
    for key in [None, "moe_preflight_baseline", "findings"]:
        yield {k: v for k, v in held.items() if k != key}
    for value in (2, True, "1"):
        yield held | {"moe_preflight_baseline": value}
    for f in held["findings"][:1]:
        for key in (*f, "more"):
            for value in (None, 1, True, "x", -1, 1e9, 0.5):
                yield held | {"findings": [f | {key: value}]}


# --- dispatch ---------------------------------------------------------------------------------------------------------


def test_dispatch(trees: dict[str, str]) -> None:
    keys = [
        KEY,
        KEY | {"token": 4096},
        KEY | {"inter_dim": 7},
        KEY | {"topk": True},
        [],
        7,
        "x",
        {},
        KEY | {"q_type": "per_1x32", "q_dtype_w": "fp4x2"},
    ]
    lines = "\n".join([*map(json.dumps, keys), "{", "NaN"])
    for gfx, cu in (("gfx942", "304"), ("gfx950", "256")):
        argv = ("dispatch", "-", "--gfx", gfx, "--cu", cu, "--aiter", trees["rows"], "--aiter-version", "v0.1.20.post1")
        done: Done = invoke(*argv, stdin=lines.encode())
        assert done.code == 2
        answers = [json.loads(x) for x in done.out.splitlines()]
        assert len(answers) == len(keys) + 2
        assert {"error" in a for a in answers} == {True, False}
        for a in answers:
            assert wrong("dispatch", a) == [], a


@needs_corpus
@pytest.mark.corpus
def test_dispatch_of_golden_keys() -> None:
    """One key in fifty of every golden file: one-stage, FlyDSL, CK-Tile and keys AITER itself raises on are among them."""
    seen: set[str] = set()
    for file in sorted(corpus("golden").glob("dispatch-*.jsonl")):
        head, *rest = file.read_text().splitlines()
        about = json.loads(head)["meta"]
        argv = ("dispatch", "-", "--gfx", about["gfx"], "--cu", str(about["cu_num"]), "--aiter",
                str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "v0.1.20.post1")  # fmt: skip
        keys = [json.dumps(json.loads(x)["key"]) for x in rest[::50]]
        for line in invoke(*argv, stdin="\n".join(keys).encode()).out.splitlines():
            a = json.loads(line)
            assert wrong("dispatch", a) == [], a
            seen.add(a.get("path", "raised"))
    assert len(seen) >= 3, seen


# --- strict, and no drift ---------------------------------------------------------------------------------------------


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        yield at
        for key, v in value.items():
            yield from places(v, (*at, key))
    elif isinstance(value, list):
        for i, v in enumerate(value[:1]):
            yield from places(v, (*at, i))


@pytest.mark.parametrize("kind", ["audit", "tune", "advise"])
def test_no_object_takes_a_key_more_or_less(kind: str, trees: dict[str, str]) -> None:
    done = invoke(kind, *SHAPED, "--aiter", trees["rows"], "--aiter-version", "v0.1.20.post1", "--format", "json")
    doc = json.loads(done.out)
    found = list(places(doc))
    assert len(found) > 3
    for path in found:
        for change in ("more", "less"):
            broken = copy.deepcopy(doc)
            inside = broken
            for step in path:
                inside = inside[step]
            if change == "more":
                inside["surprise"] = 1
                assert wrong(kind, broken), path
            for key in list(inside) if change == "less" else ():
                value = inside.pop(key)
                assert wrong(kind, broken), (path, key)
                inside[key] = value


def enums(node: Any, at: str = "") -> Iterator[tuple[str, list[Any]]]:
    if isinstance(node, dict):
        if isinstance(node.get("enum"), list):
            yield at, node["enum"]
        for key, value in node.items():
            yield from enums(value, f"{at}/{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from enums(value, f"{at}/{i}")


CODE = {
    "verdict": list(VERDICTS),
    "severity": list(SEVERITIES),
    "confidence": ["verified", "read", "modelled", "unverified", "measured"],
}


@pytest.mark.parametrize("kind", ["report", "audit", "tune", "advise", "dispatch"])
def test_words_are_those_of_the_code(kind: str) -> None:
    for at, words in enums(SCHEMAS[kind]):
        name = at.rsplit("/", 1)[-1]
        if at.startswith("/$defs/") and name in CODE:
            assert sorted(words) == sorted(CODE[name]), at
    for name, one in SCHEMAS[kind].get("$defs", {}).items():
        assert one == SCHEMAS["report"]["$defs"][name], f"{kind} has its own {name}"
