"""Each requirement: met, not met, or not to be looked at; and never met for want of anything to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moe_preflight.aiter.basis import AiterBasis
from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.router import RouterRange, RouterVerdict
from moe_preflight.aiter.version import Version
from moe_preflight.engine.plan import Refusal
from moe_preflight.gate.requirements import CODES, JUDGES, judge
from moe_preflight.gate.spec import REQUIRE, Require
from moe_preflight.report.gate_text import REQUIREMENTS
from moe_preflight.report.types import Finding
from moe_preflight.rules.run import Run
from tests.unit.report.documents import dispatch, finding, layer, run

BASE = run()
BUCKETS = tuple(dispatch(1 << i) for i in range(8))


def a_run(**changes: Any) -> Run:
    """One target with one layer, everything fine, changed."""
    one = layer(padded=192, buckets=BUCKETS)
    router = RouterVerdict((RouterRange(1, None, "biased_grouped_topk", True),), "aiter/ops/topk.py")
    one = replace(one, router=router)
    one = replace(one, **{k: v for k, v in changes.items() if k in ("dispatches", "router", "plan")})
    target = replace(BASE.targets[0], layers=(one,))
    if "refusals" in changes:
        target = replace(target, plan=replace(target.plan, refusals=changes["refusals"]))
    if "engine" in changes:
        target = replace(target, plan=replace(target.plan, confidence=changes["engine"], facts_version="0.29.0"))
    return replace(BASE, targets=(target,), models=BASE.models[:1], aiter=changes.get("aiter", BASE.aiter))


def asked(r: Run, found: tuple[Finding, ...] = (), **require: Any) -> tuple[bool | None, list[str], int]:
    """(met, codes found, how much could not be looked at) of one requirement."""
    j = judge(r, found, Require(**require))
    assert len(j.outcomes) == 1
    return j.outcomes[0].met, [f.code for f in j.findings], len(j.not_evaluated)


def plan(**changes: Any) -> Any:
    one = layer(padded=192, buckets=BUCKETS).plan
    return replace(one, **changes)


OFF = plan(backend=replace(layer().plan.backend, name="TRITON", on_aiter=False))
PADDED = plan(problem=layer(padded=256).plan.problem)
FALLBACK = plan(router=replace(layer().plan.router, falls_back_to="torch", fallback_reason="9 groups"))
REFUSED = (Refusal("model", "ValueError: no", "", "", ""),)
V = Version.of("0.1.20")


def basis(confidence: str = "verified", pin: str | None = "v0.1.20", version: Version | None = V) -> AiterBasis:
    return AiterBasis(version, "given", V, confidence, pin=pin)


def routed(*parts: RouterRange) -> dict[str, Any]:
    return {"router": RouterVerdict(parts, "x")}


AT = {"bad": replace(BUCKETS[3], stage1=replace(BUCKETS[3].stage1, accepted=False)), "raises": dispatch(8, error="no kernel")}
UNKNOWN = (replace(BUCKETS[0], stage1=replace(BUCKETS[0].stage1, accepted=None, kind="asm")), *BUCKETS[1:])
HALF = tuple(dispatch(1 << i, tuned="hit" if i < 3 else "tier" if i < 4 else "miss") for i in range(8))

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[bool | None, list[str], int]]] = {
    "accepted": ({}, {"accepted": True}, (True, [], 0)),
    "rejected": ({"dispatches": (*BUCKETS[:3], AT["bad"])}, {"accepted": True}, (False, ["MP811"], 0)),
    "raises": ({"dispatches": (AT["raises"],)}, {"accepted": "unless-unknown"}, (False, ["MP811"], 0)),
    "unknown": ({"dispatches": UNKNOWN}, {"accepted": True}, (None, [], 1)),
    "unknown allowed": ({"dispatches": UNKNOWN}, {"accepted": "unless-unknown"}, (True, [], 0)),
    "rejected and unknown": ({"dispatches": (*UNKNOWN, AT["bad"])}, {"accepted": True}, (False, ["MP811"], 0)),
    "no bucket": ({"dispatches": ()}, {"accepted": True}, (None, [], 1)),
    "off aiter": ({"plan": OFF, "dispatches": ()}, {"accepted": True}, (False, ["MP812"], 0)),
    "off aiter, on_aiter": ({"plan": OFF, "dispatches": ()}, {"on_aiter": True}, (False, ["MP812"], 0)),
    "off aiter, tuned": ({"plan": OFF, "dispatches": ()}, {"min_tuned_decode_pct": 0.0}, (False, ["MP812"], 0)),
    "on aiter": ({}, {"on_aiter": True}, (True, [], 0)),
    "refused": ({"refusals": REFUSED}, {"accepted": True}, (False, ["MP810"], 0)),
    "refused, router": ({"refusals": REFUSED}, {"router_kernel": True}, (False, ["MP810"], 0)),
    "refused, padding": ({"refusals": REFUSED}, {"max_padding_pct": 50.0}, (False, ["MP810"], 0)),
    "tuned": ({"dispatches": HALF}, {"min_tuned_decode_pct": 50.0}, (True, [], 0)),
    "tuned too little": ({"dispatches": HALF}, {"min_tuned_decode_pct": 50.1}, (False, ["MP813"], 0)),
    "tuned, zero wanted": ({"dispatches": HALF}, {"min_tuned_decode_pct": 0.0}, (True, [], 0)),
    "tuned, no table": ({"dispatches": (dispatch(1, tuned="unknown"),)}, {"min_tuned_decode_pct": 50.0}, (None, [], 1)),
    "tuned, prefill only": ({"dispatches": (dispatch(1024),)}, {"min_tuned_decode_pct": 50.0}, (None, [], 1)),
    "no padding": ({}, {"max_padding_pct": 0.0}, (True, [], 0)),
    "padding": ({"plan": PADDED}, {"max_padding_pct": 33.0}, (False, ["MP814"], 0)),
    "padding allowed": ({"plan": PADDED}, {"max_padding_pct": 34.0}, (True, [], 0)),
    "router": ({}, {"router_kernel": True}, (True, [], 0)),
    "router falls back": ({"plan": FALLBACK}, {"router_kernel": True}, (False, ["MP815"], 0)),
    "router missing": (routed(RouterRange(1, None, "x", False)), {"router_kernel": True}, (False, ["MP815"], 0)),
    "router of torch": (routed(RouterRange(1, None, "torch", None)), {"router_kernel": True}, (False, ["MP815"], 0)),
    "router missing later": (
        routed(RouterRange(1, 64, "x", True), RouterRange(65, None, "y", False)), {"router_kernel": True}, (False, ["MP815"], 0),
    ),
    "router missing out of reach": (
        routed(RouterRange(1, 40000, "x", True), RouterRange(40001, None, "y", False)), {"router_kernel": True}, (True, [], 0),
    ),
    "no router": ({"router": None}, {"router_kernel": True}, (False, ["MP815"], 0)),
    "pin": ({"aiter": basis()}, {"aiter_is_pin": True}, (True, [], 0)),
    "another pin": ({"aiter": basis(pin="v0.1.26")}, {"aiter_is_pin": True}, (False, ["MP817"], 0)),
    "no pin": ({"aiter": basis(pin=None)}, {"aiter_is_pin": True}, (None, [], 1)),
    "no version": ({"aiter": basis(version=None)}, {"aiter_is_pin": True}, (None, [], 1)),
    "verified": ({"aiter": basis()}, {"dispatch_verified": True}, (True, [], 0)),
    "unverified": ({"aiter": basis("unverified")}, {"dispatch_verified": True}, (False, ["MP818"], 0)),
    "engine read": ({}, {"engine_verified": True}, (True, [], 0)),
    "engine not read": ({"engine": "unverified"}, {"engine_verified": True}, (False, ["MP818"], 0)),
    "no advisory": ({}, {"no_advisories_from": "info"}, (True, [], 0)),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "require", "answer"), CASES.values(), ids=CASES)
def test_requirements(changes: dict[str, Any], require: dict[str, Any], answer: object) -> None:
    assert asked(a_run(**changes), **require) == answer


@pytest.mark.parametrize("key", JUDGES)
def test_a_run_that_judged_nothing_meets_nothing(key: str) -> None:
    value: Any = {"min_tuned_decode_pct": 0.0, "max_padding_pct": 100.0, "no_advisories_from": "info"}.get(key, True)
    nothing = replace(BASE, targets=(), aiter=basis())
    assert asked(nothing, **{key: value})[0] is None


@pytest.mark.parametrize(("level", "codes"), [("error", []), ("warning", ["MP816"]), ("info", ["MP816", "MP816"])])
def test_advisories_from_a_level_up(level: str, codes: list[str]) -> None:
    found = (
        finding("MP651", "warning", advisory="MPA-0001", target=0),
        finding("MP201", "info", advisory="MPA-0002", target=0),
        finding("MP101", "error", target=0),
    )
    assert asked(a_run(), found, no_advisories_from=level) == (not codes, codes, 0)


def test_refused_is_said_once_and_names_what_was_asked() -> None:
    j = judge(a_run(refusals=REFUSED), (), Require(accepted=True, router_kernel=True, max_padding_pct=1.0))
    (said,) = j.findings
    assert "requires accepted, max_padding_pct, router_kernel," in said.message
    assert [o.met for o in j.outcomes] == [False, False, False]


def test_nothing_asked_is_nothing_judged() -> None:
    assert judge(a_run(refusals=REFUSED), (), Require()) == judge(BASE, (), Require())
    assert judge(a_run(), (), Require()).outcomes == ()


def test_every_key_has_a_judge_words_and_codes() -> None:
    assert set(REQUIRE) == set(JUDGES) == set(REQUIREMENTS) == set(CODES) == set(Require.__slots__)


def test_a_router_that_was_not_established_is_not_called_absent() -> None:
    taken = Defect("router-arguments", "info", "the engine passes x to topk_gating", "", "", "Not established.", "", "unverified")
    for part, words in (
        (RouterRange(1, None, "topk_gating", None, (taken,)), "was not established"),
        (RouterRange(1, None, "topk_gating", False), "reaches no kernel"),
        (RouterRange(1, None, "torch", None), "is no AITER kernel"),
    ):
        (said,) = judge(a_run(**routed(part)), (), Require(router_kernel=True)).findings
        assert words in said.message
