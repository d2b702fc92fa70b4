"""The JSON report keeps to the schema that ships, and the schema is strict."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from moe_preflight.report import schema
from moe_preflight.report.formats import FORMATS
from moe_preflight.report.sanitise import clean_document
from tests.corpus import corpus, needs_corpus
from tests.unit.report.documents import clean_full, empty, full, quiet

jsonschema = pytest.importorskip("jsonschema")

SCHEMA: dict[str, Any] = json.loads(schema.text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def wrong(doc: Any) -> list[str]:
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in VALIDATOR.iter_errors(doc)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    with pytest.raises(FileNotFoundError):
        schema.text(0)


@pytest.mark.parametrize("build", [full, quiet, empty])
def test_reports_keep_to_it(build: Any) -> None:
    doc = json.loads(FORMATS["json"](clean_document(build())))
    assert wrong(doc) == []


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, its leaves and its objects."""
    yield at
    if isinstance(value, dict):
        for k, v in value.items():
            yield from paths(v, (*at, k))
    elif isinstance(value, list):
        for i, v in enumerate(value[:1]):
            yield from paths(v, (*at, i))


FREE = ("observations", "environment")
OBJECTS = [p for p in paths(clean_full()) if not (p and p[0] in FREE)]


def at(doc: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        doc = doc[step]
    return doc


@pytest.mark.parametrize(
    "path", [p for p in OBJECTS if isinstance(at(clean_full(), p), dict)], ids=lambda p: "/".join(map(str, p)) or "root"
)
def test_no_object_takes_a_key_more_or_less(path: tuple[Any, ...]) -> None:
    doc = clean_full()
    at(doc, path)["surprise"] = 1
    assert wrong(doc)
    for key in at(clean_full(), path):
        if (*path, key) != ("environment",):
            doc = clean_full()
            del at(doc, path)[key]
            assert wrong(doc), f"{key} may be left out"


MAY_BE_NEGATIVE = ("tp", "dp", "pcp", "pp", "ep_size", "block_m", "ksplit")
"""A degree no engine starts with is shown as given, and so are a tuned row's figures; -1 is AITER's own ksplit for no split."""


@pytest.mark.parametrize("path", [p for p in OBJECTS if p], ids=lambda p: "/".join(map(str, p)))
def test_no_value_takes_another_type(path: tuple[Any, ...]) -> None:
    """true is no number, 8.5 no integer, a number no text, and nothing is a list of numbers that was not one."""
    doc = clean_full()
    holder, last = at(doc, path[:-1]), path[-1]
    value = holder[last]
    others = [["x"], {"x": 1}]
    if isinstance(value, bool):
        others += [1, "true"]
    elif isinstance(value, int):
        others += [True, 8.5, "8"] if last in MAY_BE_NEGATIVE else [True, 8.5, "8", -1]
    elif isinstance(value, str):
        others += [True, 8]
    elif isinstance(value, float):
        others += [True, "1.5"]
    for other in others:
        if isinstance(value, list) and isinstance(other, list):
            other = [["x"]]
        holder[last] = other
        assert wrong(doc), f"{path} may be {other!r}"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "green"), (("schema_version",), 2), (("findings", 0, "severity"), "fatal"), (("findings", 0, "confidence"), "sure"),
        (("targets", 0, "layers", 0, "buckets", 0, "tuned"), "maybe"), (("targets", 0, "layers", 0, "router", "kernel"), "triton"),
        (("targets", 0, "deployment", "gfx"), "sm_90"), (("models", 1, "hidden_size"), 4096), (("models", 0, "dtype"), None),
        (("targets", 0, "layers", 0, "problem", "inter_dim_padded"), None), (("findings", 2, "evidence", 0, "line"), 0),
    ],
)  # fmt: skip
def test_words_and_nulls_the_schema_does_not_know(path: tuple[Any, ...], value: Any) -> None:
    doc = copy.deepcopy(clean_full())
    at(doc, path[:-1])[path[-1]] = value
    assert wrong(doc)


def test_observations_and_environment_may_hold_more() -> None:
    doc = clean_full()
    doc["observations"][0]["new_field"] = [1, {"a": None}]
    doc["environment"]["anything"] = {"a": 1}
    assert wrong(doc) == []


@needs_corpus
@pytest.mark.corpus
@pytest.mark.parametrize(
    "config", ["deepseek-ai__DeepSeek-V3.json", "openai__gpt-oss-120b.json", "mistralai__Mixtral-8x7B-v0.1.json"]
)
@pytest.mark.parametrize(
    "more", [[], ["--tp", "8,4", "--ep"], ["--engine", "sglang"], ["--no-tuned", "--gpu", "mi308x", "--env"]]
)
def test_a_real_check_keeps_to_it(config: str, more: list[str]) -> None:
    path = corpus("hf-configs", config)
    if not path.exists():
        pytest.skip(f"the corpus has no {config}")
    tree = ["--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "v0.1.20.post1"]
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", str(path), "--format", "json", *tree, *more],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    assert wrong(json.loads(done.stdout)) == []
