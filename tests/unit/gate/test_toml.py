"""TOML from a stranger: one line for whatever is wrong, soon."""

from __future__ import annotations

import time

import pytest

from moe_preflight.errors import SettingsError
from moe_preflight.gate.toml import MAX_BYTES, parse

HOSTILE = {
    "deep arrays": b"a=" + b"[" * 100_000,
    "deep tables": b"a=" + b"{a=" * 100_000,
    "a key of dots": b"a." * 100_000 + b"a=1",
    "many digits": b"a=" + b"9" * 100_000,
    "not UTF-8": b"a='\xff'",
    "UTF-16": "a=1".encode("utf-16"),
    "a zero byte": b"a='\0'",
    "a control character": b"a='\x01'",
    "an escape": b"a='\x1b[31m'",
    "a lone carriage return": b"a=1\rb=2",
    "a key twice": b"a=1\na=2",
    "a table twice": b"[a]\n[a]",
    "a table that is a value": b"a=1\n[a.b]",
    "no such day": b"a=2027-13-41",
    "no such escape": b'a="\\q"',
    "a surrogate": b'a="\\ud800"',
    "an open string": b'a="x',
    "a bare word": b"a=yes",
    "nothing but a sign": b"=",
    "too large": b"#" * (MAX_BYTES + 1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_toml_is_one_line(data: bytes) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(data, "gate.toml")
    assert str(caught.value).startswith("gate.toml: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


SLOW = {
    "long dotted keys": b"".join(b".".join([b"a"] * 200) + b".b%d=1\n" % i for i in range(1200)),
    "long headers": b"".join(b"[" + b".".join([b"a%d" % i] * 150) + b"]\n" for i in range(700)),
    "many tables": b"[[a]]\n" * 80_000,
    "a long array": b"a=[" + b"''," * 150_000 + b"]",
}


@pytest.mark.parametrize("data", SLOW.values(), ids=SLOW)
def test_a_large_file_ends_soon(data: bytes) -> None:
    assert len(data) <= MAX_BYTES
    began = time.process_time()
    parse(data, "gate.toml")
    assert time.process_time() - began < 20


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse(b"\xef\xbb\xbfa = 1\r\n", "gate.toml") == {"a": 1}
    assert parse(b"", "gate.toml") == {}


def test_the_line_is_named() -> None:
    with pytest.raises(SettingsError, match="line 3"):
        parse(b"a = 1\nb = 2\nc = '\xff'", "gate.toml")
    with pytest.raises(SettingsError, match="line 2"):
        parse(b"a = 1\nb = yes\n", "gate.toml")
