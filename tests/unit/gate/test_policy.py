"""Severity, select and ignore: what counts, what is forgiven, and until when."""

from __future__ import annotations

import pytest

from moe_preflight.gate import policy
from moe_preflight.gate.spec import Gate
from moe_preflight.report.types import Finding
from tests.unit.gate.gates import DEPLOYMENT, gate
from tests.unit.report.documents import finding, run

TODAY = "2026-11-30"
RUN = run()  # targets 0: TP8 MI300X, 1: TP4 EP4 MI355X, 2: TP8 MI355X; each with a layer called main
MISS = finding("MP301", "warning", target=0, layer=0)
WIDE = finding("MP602", "warning", target=None, layer=None)


def sort(text: str, *found: Finding, today: str = TODAY) -> policy.Sorted:
    g = gate(f"{text}\n{DEPLOYMENT}name='d'" if "[[" not in text else f"{DEPLOYMENT}name='d'\n{text}")
    return policy.sort(g, g.held[0], RUN, found, today)


def test_without_policy_all_count() -> None:
    assert sort("", MISS, WIDE).kept == (MISS, WIDE)


def test_another_severity() -> None:
    found = sort("[severity]\nMP301='error'\nMP602='off'", MISS, WIDE)
    assert [(f.code, f.severity) for f in found.kept] == [("MP301", "error")]
    assert (found.off, found.unselected) == (1, 0)


def test_select_leaves_the_gates_own() -> None:
    own = finding("MP813", "error")
    found = sort("select=['MP6']", MISS, WIDE, own)
    assert found.kept == (WIDE, own)
    assert found.unselected == 1


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ("", True), ("tp=8", True), ("tp=[4,8]", True), ("tp=4", False), ("gpu='mi300x'", True), ("gpu='mi355x'", False), ("ep=false", True),
        ("ep=true", False), ("dp=1\npp=1", True), ("dp=2", False), ("layer='main'", True), ("layer='mtp'", False), ("deployment='d'", True),
        ("model='experts=8,topk=2,hidden=4096,inter=14336'", True), ("advisory='MPA-0001'", False),
    ],
)  # fmt: skip
def test_filters(filters: str, fits: bool) -> None:
    found = sort(f"[[ignore]]\ncode='MP3'\nreason='r'\nuntil=2027-01-31\n{filters}", MISS)
    assert (len(found.ignored), len(found.kept)) == ((1, 0) if fits else (0, 1))


def test_a_filter_on_the_target_fits_no_finding_about_the_whole_run() -> None:
    entry = "[[ignore]]\ncode='MP602'\nreason='r'\nuntil=2027-01-31\n"
    assert sort(entry, WIDE).ignored
    assert not sort(f"{entry}tp=8", WIDE).ignored


def test_an_advisory_can_be_named() -> None:
    found = sort(
        "[[ignore]]\ncode='MP651'\nreason='r'\nuntil=2027-01-31\nadvisory='MPA-0001'", finding("MP651", advisory="MPA-0001")
    )
    assert found.ignored


@pytest.mark.parametrize(
    ("today", "holds"), [("2027-01-30", True), ("2027-01-31", True), ("2027-02-01", False), ("2100-01-01", False)]
)
def test_an_ignore_holds_through_its_last_day(today: str, holds: bool) -> None:
    text = "[[ignore]]\ncode='MP301'\nreason='r'\nuntil=2027-01-31"
    found = sort(text, MISS, today=today)
    assert bool(found.ignored) is holds
    g: Gate = gate(f"{DEPLOYMENT}\n{text}")
    said = list(policy.about_ignores(g, [e for _, e in found.ignored], today))
    assert [(f.code, f.severity) for f in said] == ([] if holds else [("MP801", "error")])


def test_an_ignore_that_hides_nothing_is_a_warning() -> None:
    g = gate(f"{DEPLOYMENT}\n[[ignore]]\ncode='MP301'\nreason='why'\nuntil=2027-01-31")
    (said,) = policy.about_ignores(g, [], TODAY)
    assert (said.code, said.severity) == ("MP802", "warning")
    assert said.message == "g.toml: ignore[0]: the ignore of MP301 (why) hides nothing."


@pytest.mark.parametrize(
    ("filters", "unseen", "said"),
    [("", (), True), ("", ("a",), False), ("deployment='a'", ("a",), False), ("deployment='b'", ("a",), True), ("deployment='b'", ("a", "b"), False)],
)  # fmt: skip
def test_of_what_nobody_saw_an_ignore_is_not_called_useless(filters: str, unseen: tuple[str, ...], said: bool) -> None:
    two = f"{DEPLOYMENT}name='a'\n{DEPLOYMENT}name='b'\n"
    g = gate(f"{two}[[ignore]]\ncode='MP301'\nreason='why'\nuntil=2027-01-31\n{filters}")
    assert bool(list(policy.about_ignores(g, [], TODAY, unseen))) is said


@pytest.mark.parametrize(
    ("text", "left"),
    [("", True), ("select=[]", False), ("select=['MP813']", False), ("select=['MP1']", True), ("select=['MP1']\n[severity]\nMP1='off'", False),
     ("select=['MP1']\n[severity]\nMP1='off'\nMP101='error'", True)],
)  # fmt: skip
def test_a_gate_without_a_rule_is_noticed(text: str, left: bool) -> None:
    assert policy.rules_left(gate(f"{text}\n{DEPLOYMENT}")) is left
