"""Whatever TOML can hold: a gate, or one line. Never another exception, never a gate that asks for less than was written."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.errors import PreflightError
from moe_preflight.gate import baseline
from moe_preflight.gate.spec import DEPLOYMENT, IGNORE, REQUIRE, ROOT, Gate, read
from moe_preflight.gate.toml import parse

WORDS = st.sampled_from(
    ["mi300x", "MP301", "MP1", "tuned-miss", "decode", "1-64", "auto", "error", "off", "a/b", "8", "", "\x1b", "vllm", "sglang"]
)
LEAVES = st.one_of(
    st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), WORDS, st.text(max_size=8), st.dates(), st.times(), st.datetimes(),
    st.sampled_from([1, 8, 0, 50.0, datetime.date(2027, 1, 31)]),
)  # fmt: skip
KEYS = st.sampled_from(sorted({*ROOT, *DEPLOYMENT, *IGNORE, *REQUIRE, "tree", "version", "gfx", "cu", "fail-on", "MP301", "a b"}))
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=4), max_leaves=12)
SHAPED = st.fixed_dictionaries({"gpus": st.just("mi300x"), "shape": st.just("experts=8,topk=2,hidden=64,inter=64")})
ENTRY = st.fixed_dictionaries({"code": WORDS, "reason": WORDS, "until": st.dates()})


def mixed(fixed: st.SearchStrategy[dict[str, Any]], keys: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    more = st.dictionaries(st.sampled_from(sorted(keys)), VALUES, max_size=3)
    return st.builds(lambda a, b: {**b, **a}, fixed, more)


TABLES = st.one_of(
    st.dictionaries(KEYS, VALUES, max_size=5),
    st.fixed_dictionaries(
        {"deployment": st.lists(mixed(SHAPED, DEPLOYMENT), min_size=1, max_size=2)},
        optional={"ignore": st.lists(mixed(ENTRY, IGNORE), max_size=2), "require": mixed(st.just({}), REQUIRE),
                  "severity": st.dictionaries(WORDS, WORDS, max_size=2), "select": VALUES, "defaults": st.dictionaries(KEYS, VALUES, max_size=2)},
    ),
)  # fmt: skip


def answer(ask: Callable[[], Any]) -> Any:
    """What ``ask`` returns, or how it refuses."""
    try:
        return ask()
    except PreflightError as e:
        return e


@settings(max_examples=300, deadline=None)
@given(TABLES)
def test_any_table_is_a_gate_or_one_line(table: dict[str, Any]) -> None:
    found = answer(lambda: read(table, "g.toml", path=lambda p: p, model=lambda m: m))
    if isinstance(found, PreflightError):
        assert found.exit_code in (2, 3)
        assert "\n" not in str(found)
        assert str(found).startswith("g.toml: ")
        return
    assert isinstance(found, Gate)
    assert len(found.held) == len(table.get("deployment", []))
    assert len(found.ignores) == len(table.get("ignore", []))
    asked = {k.replace("-", "_"): v for k, v in table.get("require", {}).items()}
    for h in found.held:
        own = {k for d in table["deployment"] for k in d.get("require", {})}
        for key, v in asked.items():
            if key not in own and "require" not in table.get("defaults", {}):
                got = getattr(h.require, key)
                assert got == v
                assert type(got) is type(v) or isinstance(got, float)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet="[]{}=.,'\"#\\\n\r\t ab1-:_\x00\x7f\ufeff", max_size=200).map(str.encode))
def test_any_bytes_are_tables_or_one_line(data: bytes) -> None:
    tables = answer(lambda: parse(data, "g.toml"))
    assert isinstance(tables, dict) or str(tables).startswith("g.toml: ")
    assert str(answer(lambda: baseline.parse(data, "b.json"))).startswith("b.json: ")
