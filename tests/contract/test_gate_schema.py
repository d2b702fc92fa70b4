"""The schema of gate.toml that ships for editors is made of the reader's own table, and takes and refuses what the reader does."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.errors import SettingsError
from moe_preflight.gate import keys as k
from moe_preflight.gate import schema as made
from moe_preflight.gate import spec
from moe_preflight.report import schema
from moe_preflight.rules.catalogue import BY_CODE
from tests.unit.gate.gates import DEPLOYMENT, gate
from tests.unit.gate.test_spec import BAD

jsonschema = pytest.importorskip("jsonschema")
SCHEMA: dict[str, Any] = json.loads(schema.text(kind="gate-toml"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GATES = sorted((Path(__file__).resolve().parents[2] / "configs" / "gates").glob("*.toml"))


def as_json(value: Any) -> Any:
    """A TOML value as an editor hands it to a schema: dates are strings."""
    if isinstance(value, dict):
        return {key: as_json(v) for key, v in value.items()}
    if isinstance(value, list):
        return [as_json(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value


def takes(value: Any, validator: Any = VALIDATOR) -> bool:
    return bool(validator.is_valid(as_json(value)))


def test_the_file_is_what_the_table_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    again = "python -c 'from moe_preflight.gate.schema import text; print(text(), end=\"\")'"
    assert schema.text(kind="gate-toml") == made.text(), f"stale; made anew by {again}"


def test_both_know_the_same_keys() -> None:
    """The reader's table and the schema, walked beside each other; and every key has words for the reader of an editor's hint."""

    def walk(kinds: Any, node: dict[str, Any], at: str) -> int:
        inside = node.get("items", node)
        assert set(inside["properties"]) == set(kinds), at
        assert inside["additionalProperties"] is False, at
        assert all(value["description"] for value in inside["properties"].values()), at
        return len(kinds)

    props = SCHEMA["properties"]
    count = walk(spec.ROOT, SCHEMA, "root") + walk(spec.REQUIRE, props["require"], "require")
    count += walk(spec.DEPLOYMENT, props["deployment"], "deployment") + walk(spec.IGNORE, props["ignore"], "ignore")
    walk(spec._SHARED, props["defaults"], "defaults")
    assert count == len(made.WORDS), "words for a key that is none"


def test_every_rule_may_be_named_in_severity() -> None:
    words = SCHEMA["properties"]["severity"]["properties"]
    assert set(words) == {*BY_CODE, *(r.name for r in BY_CODE.values())}
    for word in words:
        for level in ("error", "warning", "info", "off", "never"):
            text = f"{DEPLOYMENT}\n[severity]\n{word} = '{level}'"
            try:
                gate(text)
                read = True
            except SettingsError:
                read = False
            assert takes(tomllib.loads(text)) is read, text


@pytest.mark.parametrize("file", GATES, ids=lambda p: p.name)
def test_the_examples_keep_to_it(file: Path) -> None:
    assert [e.message for e in VALIDATOR.iter_errors(as_json(tomllib.loads(file.read_text())))] == []


BEYOND = re.compile(
    r"tp=8\.0|nan|until='|sometimes|'64-4'|revision='x'|pct=1}|model='-'|gpus='mi300'|\A\[\[deployment]]\nmodel='a/b'\Z|moe-backend|select=|MP3O1"
    r"|tuned-miss|code='MP801'|deployment='b'|MP8='"
)
"""What a schema does not see: 8.0 is an integer there, NaN has no size, a date in quotes looks like one; and what depends on another key,
on a rule's name or on the engine's own words."""


@pytest.mark.parametrize("text", BAD, ids=[t.replace("\n", " ")[-60:] for t in BAD])
def test_what_the_reader_refuses_the_schema_refuses(text: str) -> None:
    assert takes(tomllib.loads(text)) is bool(BEYOND.search(text))


# --- any value at all -------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.booleans() | st.integers(-2, 70000) | st.sampled_from([1 << 31, 1 << 40, 0.5, 100.5, -1.5, 101.25, 20000.5, date(2027, 1, 31)])
    | st.sampled_from(["", " ", "a", "all", "1-64", "mi300x", "vllm", "error", "unless-unknown", "auto"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "tree", "version", "gfx", "cu", "a b"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
TABLES: dict[str, dict[str, k.Shaped]] = {"deployment": spec.DEPLOYMENT, "ignore": spec.IGNORE, "require": spec.REQUIRE}
KINDS = [(where, key) for where, kinds in TABLES.items() for key in kinds] + [("", "fail_on"), ("", "select"), ("", "baseline")]


@pytest.mark.parametrize(("where", "key"), KINDS)
def test_reader_and_schema_agree_about_any_value(where: str, key: str) -> None:
    kind = (TABLES[where] if where else spec.ROOT)[key]
    validator = jsonschema.Draft202012Validator(kind.schema)

    @settings(max_examples=30, deadline=None, database=None, derandomize=True)
    @given(VALUES)
    def agree(value: Any) -> None:
        if "date" in repr(value) and key != "until":
            return  # a string, to a schema
        if key == "gpus" and "{" in repr(value):
            return  # half a pair is refused later, with the reason
        try:
            kind(value, "x")
            read = True
        except SettingsError:
            read = False
        assert takes(value, validator) is read, value

    agree()


@pytest.mark.parametrize("spelled", ["max-padding-pct", "max_padding-pct", "max_padding_pct"])
def test_both_spellings(spelled: str) -> None:
    for value, good in ((5, True), ("5", False)):
        assert takes(tomllib.loads(f"{DEPLOYMENT}require = {{ {spelled} = {value!r} }}")) is good
