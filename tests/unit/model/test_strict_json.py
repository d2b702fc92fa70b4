"""JSON from strangers: accepted or refused, and every refusal is one line that says where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.errors import ConfigError
from moe_preflight.model.strict_json import MAX_DEPTH, load_object, loads


def refusal(data: bytes, **limits: int) -> str:
    with pytest.raises(ConfigError) as e:
        load_object(data, "f.json", **limits)
    assert "\n" not in str(e.value)
    assert "f.json" in e.value.message
    return str(e.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"a": 1, "a": 2}', '"a" is given twice'),
        (b'{"a": {"b": 1, "b": 1}}', '"b" is given twice'),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1', "line 1 column"),
        (b"[1]", "an array"),
        (b'"x"', "a string"),
        (b"null", "null"),
        (b"\xff\xfe{\x00}\x00", "UTF-16"),
        (b"\x00\x00\xfe\xff", "UTF-32"),
        (b"{\x00}\x00", "zero bytes"),
        (b'{"a":\n "\xe9"}', "byte 0xe9 at offset 8 (line 2)"),
        (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "at most 64 levels"),
        (b"[" * 100_000, "at most 64 levels"),
    ],
)
def test_refused(data: bytes, says: str) -> None:
    assert says in refusal(data)


def test_size_is_capped_before_parsing() -> None:
    assert "at most 10" in refusal(b'{"a": "0123456789"}', max_bytes=10)


def test_a_byte_order_mark_of_utf8_is_let_through() -> None:
    assert load_object(b'\xef\xbb\xbf{"a": 1}', "f") == {"a": 1}


def test_infinity_is_let_through_because_real_files_hold_it() -> None:
    """nvidia/NVIDIA-Nemotron-3-Super: "time_step_limit": [0.0, Infinity]."""
    assert load_object(b'{"time_step_limit": [0.0, Infinity]}', "f") == {"time_step_limit": [0.0, float("inf")]}


def test_the_deepest_allowed_is_allowed() -> None:
    assert isinstance(loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "f"), list)


def test_brackets_inside_strings_are_no_depth() -> None:
    assert load_object(b'{"a": "' + b"[" * 200 + b'\\"{"}', "f")["a"] == "[" * 200 + '"{'


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_bytes_of_any_kind_give_an_object_or_one_line(data: bytes) -> None:
    try:
        found: object = load_object(data, "f")
    except ConfigError as e:
        found = str(e)
    assert isinstance(found, dict) or (isinstance(found, str) and len(found.splitlines()) == 1)
