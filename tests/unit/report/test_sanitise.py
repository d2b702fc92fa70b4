"""Nothing without a glyph of its own passes, and plain text passes as it is."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_preflight.report.sanitise import MAX_CHARS, clean, clean_document


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with space", "plain, with space"),
        ("Größe 模型 é", "Größe 模型 é"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("one\ntwo\r\tx", "one\\ntwo\\x0d\\x09x"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\ud800x", "\\ud800x"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\U000e0041", "\\U000e0041"),
        ("\u3164\u2800\ufe0f\u115f", "\\u3164\\u2800\\ufe0f\\u115f"),
        ("no\xa0break", "no\\xa0break"),
    ],
)
def test_what_has_no_glyph_is_shown_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(st.characters(codec=None), max_size=200))
def test_nothing_invisible_is_left_and_cleaning_twice_changes_nothing(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in once)
    once.encode("utf-8")


@pytest.mark.parametrize("n", [MAX_CHARS - 1, MAX_CHARS, MAX_CHARS + 1, 10 * MAX_CHARS])
@pytest.mark.parametrize("c", ["a", "\x00", "é"])
def test_a_long_string_is_cut_and_says_so(n: int, c: str) -> None:
    once = clean(c * n)
    assert len(once) <= MAX_CHARS
    assert clean(once) == once
    if n > MAX_CHARS:
        assert once.endswith(f"[cut: {n:,} characters]")


def test_a_document_becomes_json_that_anyone_reads() -> None:
    doc = {"a\x00": ("x\n", 1, True, None, 1.5), 7: {"inf": float("inf"), "nan": float("nan")}, "odd": {1j: b"\x1b"}}
    found = clean_document(doc)
    assert found == {"a\\x00": ["x\\n", 1, True, None, 1.5], "7": {"inf": None, "nan": None}, "odd": {"1j": "b'\\x1b'"}}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_clean_document_is_a_copy() -> None:
    doc = {"a": ["b"]}
    found = clean_document(doc)
    found["a"].append("c")
    assert doc == {"a": ["b"]}


@pytest.mark.parametrize("head", ["", "GET ", "x", "("])
@pytest.mark.parametrize("user", ["u:s3cret@", "s3cret@", "u:s3@s3cret@", ":s3cret@", "u%40:s3cret@"])
@pytest.mark.parametrize("tail", ["host", "host/a@b", "host:80/x?y=1", "[::1]/", ""])
def test_the_user_and_password_of_a_url_are_masked(head: str, user: str, tail: str) -> None:
    shown = clean(f"{head}https://{user}{tail}")
    assert shown == f"{head}https://***@{tail}"
    assert clean(shown) == shown


@pytest.mark.parametrize("text", ["https://host/a@b", "a@b.c", "owner/name@main", "https://host/?q=a@b", "git+https://x y@z"])
def test_an_at_sign_elsewhere_stays(text: str) -> None:
    assert clean(text) == text
