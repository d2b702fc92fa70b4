"""The baseline file: the same bytes for the same findings, refused when it is anything else, and no licence to get worse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moe_preflight.errors import InputError
from moe_preflight.gate import baseline
from moe_preflight.gate.baseline import Entry
from moe_preflight.gate.figures import figure, worse
from tests.unit.report.documents import finding, full, run

A = Entry("a", "MP301", "warning", "no row", "0" * 32, 9)
B = Entry("b", "MP101", "error", "rejected", "1" * 32)


def test_round_trip_sorted_and_once() -> None:
    text = baseline.render([B, A, B])
    assert text == baseline.render([A, B])
    assert list(baseline.parse(text.encode(), "b.json").values()) == [A, B]
    assert baseline.parse(baseline.render([]).encode(), "b.json") == {}


def changed(**more: Any) -> bytes:
    value = json.loads(baseline.render([A]))
    value["findings"][0].update(more)
    return json.dumps(value).encode()


BAD = {
    "empty": b"",
    "a list": b"[]",
    "not JSON": b"{",
    "not UTF-8": b'{"a": "\xff"}',
    "deep": b"[" * 100_000,
    "many digits": b'{"moe_preflight_baseline": ' + b"9" * 10_000 + b', "findings": []}',
    "a key more": b'{"moe_preflight_baseline": 1, "findings": [], "more": 1}',
    "a key twice": b'{"moe_preflight_baseline": 1, "findings": [], "findings": []}',
    "another version": b'{"moe_preflight_baseline": 2, "findings": []}',
    "true is not 1": b'{"moe_preflight_baseline": true, "findings": []}',
    "no list": b'{"moe_preflight_baseline": 1, "findings": {}}',
    "no entry": b'{"moe_preflight_baseline": 1, "findings": [1]}',
    "a report": json.dumps({"schema_version": 1, "findings": []}).encode(),
    "a short fingerprint": changed(fingerprint="00"),
    "a long fingerprint": changed(fingerprint="0" * 33),
    "no hexadecimal": changed(fingerprint="G" * 32),
    "a number for a text": changed(code=301),
    "a text for a figure": changed(figure="9"),
    "true for a figure": changed(figure=True),
    "a figure without end": changed(figure=float("inf")),
    "no figure at all": changed(figure=float("nan")),
    "another key": changed(surprise=1),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_baseline_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        baseline.parse(data, "b.json")
    assert str(caught.value).startswith("b.json: ")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_marks_see_the_deployment_and_the_words_of_the_gate_not_the_path() -> None:
    doc = full()
    one = baseline.marks(doc, "a", "models/big.json")
    assert len(set(one)) == len(one) == len(doc["findings"])
    assert baseline.marks(doc, "b", "models/big.json") != one
    elsewhere = doc | {"targets": [t | {"model": f"somewhere/{t['model']}"} for t in doc["targets"]]}
    assert baseline.marks(elsewhere, "a", "models/big.json")[0] == one[0]


def test_gone_is_what_was_looked_at_and_not_seen() -> None:
    known = {e.fingerprint: e for e in (A, B)}
    assert baseline.gone(known, [A.fingerprint], []) == [B]
    assert baseline.gone(known, [], ["a"]) == [B]
    assert baseline.gone(known, [A.fingerprint, B.fingerprint], []) == []


def test_figures() -> None:
    r = run()  # target 0 has 12 buckets: 2 at 1, 4, 7, 10 rejected, 11 raises; target 1: 3 misses, none in decode
    assert figure(finding("MP101", target=0, layer=0), r) == 5
    assert figure(finding("MP301", target=1, layer=0), r) == 3
    assert figure(finding("MP813", target=1, layer=0), r) == 0
    assert figure(finding("MP111", target=0, layer=0), r) == 33.33
    assert figure(finding("MP602", target=None, layer=None), r) is None


@pytest.mark.parametrize(
    ("was", "now", "is_worse"), [(3, 3, False), (3, 2, False), (3, 4, True), (None, 4, False), (3, None, False)]
)
def test_worse_is_more(was: float | None, now: float | None, is_worse: bool) -> None:
    assert bool(worse("MP301", was, now)) is is_worse
