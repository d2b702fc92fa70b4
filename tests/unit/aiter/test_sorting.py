"""moe_sorting: backend by release and switch, limits, and expert-parallel conventions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moe_preflight.aiter.sorting import SortCall, backend, judge_sorting
from moe_preflight.aiter.version import Version

PLAIN = SortCall(256, 8)


def codes(call: SortCall, version: str, gfx: str = "gfx950", max_tokens: int | None = None) -> dict[str, str]:
    verdict = judge_sorting(call, Version.of(version), gfx, max_tokens=max_tokens)
    return {d.code: d.severity for d in verdict.defects}


@pytest.mark.parametrize(
    ("version", "env", "name"),
    [
        ("0.1.7.post2", {}, "ck"),
        ("0.1.7.post2", {"AITER_USE_OPUS_MOE_SORTING": "1"}, "ck"),
        ("0.1.11", {"AITER_USE_OPUS_MOE_SORTING": "1"}, "opus"),
        ("0.1.13", {}, "ck"),
        ("0.1.14", {}, "opus"),
        ("0.1.14", {"AITER_USE_CK_MOE_SORTING": "1"}, "ck"),
        ("0.1.17", {"AITER_USE_FLYDSL_MOE_SORTING": "1"}, "opus"),
        ("0.1.18", {"AITER_USE_FLYDSL_MOE_SORTING": "1"}, "flydsl"),
        ("0.1.18", {"AITER_USE_FLYDSL_MOE_SORTING": "1", "AITER_USE_CK_MOE_SORTING": "1"}, "ck"),
    ],
)
def test_backend(version: str, env: dict[str, str], name: str) -> None:
    assert backend(Version.of(version), env)[0] == name


def test_local_ids_force_opus_and_flydsl_needs_policy_zero() -> None:
    assert backend(Version.of("0.1.15"), {"AITER_USE_CK_MOE_SORTING": "1"}, local_ids=True)[0] == "opus"
    assert backend(Version.of("0.1.20"), {"AITER_USE_FLYDSL_MOE_SORTING": "1"}, policy=2)[0] == "opus"


def test_an_ordinary_call_has_no_errors() -> None:
    assert "error" not in codes(PLAIN, "0.1.20.post1").values()
    assert codes(PLAIN, "0.1.20.post1") == {}


@pytest.mark.parametrize(
    ("inside", "outside", "code"),
    [
        (SortCall(16371, 8), SortCall(16372, 8), "sort-experts"),
        (SortCall(8185, 8, local_ids=True), SortCall(8186, 8, local_ids=True), "sort-experts"),
        (SortCall(818, 8, dispatch_policy=1), SortCall(819, 8, dispatch_policy=1), "sort-single-kernel"),
        (SortCall(512, 254), SortCall(512, 255), "sort-topk"),
        (PLAIN, replace(PLAIN, ids_dtype="int64"), "sort-ids-dtype"),
    ],
)
def test_limits(inside: SortCall, outside: SortCall, code: str) -> None:
    assert code not in codes(inside, "0.1.20.post1")
    assert codes(outside, "0.1.20.post1")[code] == "error"


def test_large_topk_only_hurts_from_512_tokens() -> None:
    assert "sort-topk" not in codes(SortCall(512, 255), "0.1.20", max_tokens=511)
    assert "sort-topk" in codes(SortCall(512, 255), "0.1.20", max_tokens=512)


@pytest.mark.parametrize(("gfx", "limit"), [("gfx942", 818), ("gfx950", 2047)])
def test_flydsl_sorting_needs_room(gfx: str, limit: int) -> None:
    env = {"AITER_USE_FLYDSL_MOE_SORTING": "1"}
    assert "sort-flydsl-experts" not in codes(SortCall(limit, 8, env=env), "0.1.20", gfx)
    assert "sort-flydsl-experts" in codes(SortCall(limit + 1, 8, env=env), "0.1.20", gfx)


def test_expert_parallel_looks_up_one_choice_less_from_0_1_16() -> None:
    ep = replace(PLAIN, experts=257, is_ep=True)
    assert codes(ep, "0.1.16")["ep-topk"] == "warning"
    assert "ep-topk" not in codes(ep, "0.1.15.post3")
    assert "ep-topk" not in codes(replace(ep, fake_column=True), "0.1.16")
    assert "ep-topk" not in codes(PLAIN, "0.1.16")


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("0.1.16.post3", False),
        ("0.1.16.post4", True),
        ("0.1.16.post6", True),
        ("0.1.17", False),
        ("0.1.18", True),
        ("0.1.20", True),
    ],
)
def test_the_mxfp4_port_refuses_a_mask(version: str, refused: bool) -> None:
    ep = replace(PLAIN, is_ep=True, port=True)
    assert (codes(ep, version).get("ep-mxfp4-port") == "error") is refused
    assert "ep-mxfp4-port" not in codes(replace(PLAIN, port=True), version)


def test_situv2_refuses_a_mask_from_0_1_20() -> None:
    ep = replace(PLAIN, is_ep=True, situv2_a16w4=True)
    assert "ep-situv2" not in codes(ep, "0.1.19.post2")
    assert codes(ep, "0.1.20")["ep-situv2"] == "error"


def test_negative_ids() -> None:
    assert codes(replace(PLAIN, negative_ids=True), "0.1.20.post1")["sort-negative-ids"] == "warning"
    assert codes(replace(PLAIN, is_ep=True), "0.1.20.post1")["sort-negative-ids"] == "info"
    assert "sort-negative-ids" not in codes(replace(PLAIN, negative_ids=True), "0.1.22.post1")
