"""Which routing kernel runs at which batch size, and what goes wrong: the rules R1-R9 by AITER release."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_preflight.aiter.facts import routing as facts
from moe_preflight.aiter.router import RouterVerdict, judge
from moe_preflight.aiter.version import Version
from moe_preflight.engine.plan import RouterCall

GROUPED = RouterCall(
    "FusedTopKBiasRouter", "biased_grouped_topk", 192, 8, 6, 8, 8, scoring="sigmoid", bias=True, bias_dtype="bf16", on_aiter=True
)
K2 = GROUPED
K2_OLD = replace(K2, num_expert_group=6, topk_group=6)
DEEPSEEK = replace(GROUPED, experts=256, num_expert_group=8, topk_group=4, scaling_inside=2.5)
SOFTMAX = RouterCall("FusedTopKRouter", "topk_softmax", 128, 8, on_aiter=True)
MI300X, MI355X, MI308X = ("gfx942", 304), ("gfx950", 256), ("gfx942", 80)


def ask(call: RouterCall, version: str, gpu: tuple[str, int] = MI300X, **more: int) -> RouterVerdict:
    return judge(call, Version.of(version), *gpu, **more)  # type: ignore[arg-type]


def codes(verdict: RouterVerdict, *severities: str) -> dict[str, str]:
    return {d.code: d.severity for d in verdict.defects if not severities or d.severity in severities}


def kernels(verdict: RouterVerdict) -> list[tuple[int, int | None, str, bool | None]]:
    return [(r.from_, r.to, r.kernel, r.compiled) for r in verdict.by_tokens]


@pytest.mark.parametrize(("gpu", "switch"), [(MI300X, 64_448), (MI355X, 54_272), (MI308X, 16_960), (("gfx942", 38), 8_056)])
def test_k2_horizon_has_a_kernel_at_every_batch_size(gpu: tuple[str, int], switch: int) -> None:
    verdict = ask(K2, "0.1.20.post1", gpu)
    assert kernels(verdict) == [(1, switch, "biased_grouped_topk", True), (switch + 1, None, "moe_fused_gate", True)]
    assert codes(verdict, "error", "warning") == {}
    assert (verdict.kernel, verdict.compiled) == ("biased_grouped_topk", True)


def test_group_count_six_fails_below_the_switch_and_is_wrong_above_it() -> None:
    verdict = ask(K2_OLD, "0.1.20.post1")
    below, above = verdict.by_tokens
    assert (below.compiled, above.compiled) == (False, True)
    (launch,) = below.defects
    assert (launch.code, launch.severity, launch.symptom) == ("router-group-count", "error", "Unsupported num_expert_group: 6")
    assert "up to 64448 tokens" in launch.condition
    assert "SIGABRT" in launch.effect
    (silent,) = (d for d in above.defects if d.code == "router-gate-groups")
    assert silent.severity == "warning", "starts above the largest bucket, so a risk with its threshold"
    assert "above 64448 tokens" in silent.condition
    assert codes(ask(K2_OLD, "0.1.20.post1", max_tokens=65_000))["router-gate-groups"] == "error"
    assert "router-gate-groups" not in codes(ask(K2_OLD, "0.1.20.post1", max_tokens=8_192))


def test_a_failed_check_raises_before_0_1_19_and_aborts_from_then_on() -> None:
    effects = {v: ask(K2_OLD, v).by_tokens[0].defects[0].effect for v in ("0.1.18", "0.1.19")}
    assert "RuntimeError" in effects["0.1.18"]
    assert "SIGABRT" in effects["0.1.19"]


def test_the_wheel_raises_on_192_experts_above_the_switch_as_a_warning() -> None:
    """The PyPI wheel's largest bucket is 1024, so the limit is a risk with a threshold, not an error."""
    verdict = ask(K2, "0.1.7.post2.dev18", largest_bucket=1024)
    assert verdict.by_tokens[0].compiled is True
    assert codes(verdict, "error") == {}
    (risk,) = (d for d in verdict.defects if d.severity == "warning")
    assert risk.code == "router-power-of-two"
    assert risk.symptom == "num_experts must be a power of 2, but got 192"
    assert "above 64448 tokens" in risk.condition
    assert codes(ask(K2, "0.1.7.post2", max_tokens=70_000))["router-power-of-two"] == "error"
    assert "router-power-of-two" not in codes(ask(K2, "0.1.7.post2", max_tokens=64_448))
    assert "router-power-of-two" not in codes(ask(K2, "0.1.12", max_tokens=70_000))


def test_deepseek_loses_its_scaling_factor_in_huge_batches() -> None:
    verdict = ask(DEEPSEEK, "0.1.20.post1", MI355X)
    assert codes(verdict, "error", "warning") == {"router-gate-scaling": "warning"}
    assert codes(ask(DEEPSEEK, "0.1.20.post1", MI355X, max_tokens=60_000), "error") == {"router-gate-scaling": "error"}
    outside = replace(DEEPSEEK, scaling_inside=1.0)
    assert codes(ask(outside, "0.1.20.post1", MI355X, max_tokens=60_000), "error") == {}


def test_one_group_of_256_stays_on_the_hip_kernel_from_0_1_12() -> None:
    glm = replace(GROUPED, experts=256, num_expert_group=1, topk_group=1)
    assert kernels(ask(glm, "0.1.12")) == [(1, None, "biased_grouped_topk", True)]
    old = ask(glm, "0.1.11", max_tokens=64_449)
    assert [r.compiled for r in old.by_tokens] == [True, False]
    (found,) = (d for d in old.defects if d.severity == "error")
    assert found.symptom == "Per group experts: num_experts / num_expert_group = (256) exceeds the maximum supported (32)"


@pytest.mark.parametrize(
    ("version", "tokens"),
    [("0.1.5", 16), ("0.1.5.post2", 16), ("0.1.5.post3", 48), ("0.1.5.post4", 212), ("0.1.6", 212), ("0.1.20.post1", 212)],
)
def test_the_switch_to_moe_fused_gate_by_release(version: str, tokens: int) -> None:
    assert ask(DEEPSEEK, version).by_tokens[0].to == tokens * 304


def test_0_1_4_has_no_moe_fused_gate() -> None:
    assert kernels(ask(DEEPSEEK, "0.1.4")) == [(1, None, "biased_grouped_topk", True)]


def test_the_gate_asserts_renormalisation() -> None:
    plain = replace(DEEPSEEK, renormalize=False, scaling_inside=1.0)
    verdict = ask(plain, "0.1.20", max_tokens=131_072)
    assert codes(verdict, "error") == {"router-renormalize": "error"}
    assert verdict.by_tokens[1].defects[0].symptom == "Renormalization is required for moe_fused_gate."


@pytest.mark.parametrize(
    ("groups", "topk_group", "gpu", "wrong"),
    [
        (4, 2, MI300X, True),
        (2, 1, MI300X, True),
        (8, 4, MI300X, False),
        (4, 4, MI300X, False),
        (1, 1, MI300X, False),
        (4, 2, ("gfx1250", 128), False),
        (2, 1, ("gfx1250", 128), True),
    ],
)
def test_group_scores_of_lane_zero(groups: int, topk_group: int, gpu: tuple[str, int], wrong: bool) -> None:
    """Only a real choice between groups is hurt, and only where the lanes per group are not reduced."""
    call = replace(GROUPED, experts=256, num_expert_group=groups, topk_group=topk_group)
    assert ("router-group-score" in codes(ask(call, "0.1.20.post1", gpu), "error")) is wrong
    assert "router-group-score" not in codes(ask(call, "0.1.5.post1", gpu))


def test_one_vector_per_group_needs_no_reduction() -> None:
    call = replace(GROUPED, experts=16, num_expert_group=4, topk_group=2, topk=2)
    assert codes(ask(call, "0.1.20.post1"), "error") == {}


@pytest.mark.parametrize(("experts", "wrong"), [(72, True), (160, False), (256, False), (88, True)])
def test_groups_that_are_no_multiple_of_the_vector(experts: int, wrong: bool) -> None:
    call = replace(GROUPED, experts=experts, num_expert_group=8, topk_group=4, topk=6)
    assert ("router-group-tail" in codes(ask(call, "0.1.20.post1"), "error")) is wrong
    every = replace(call, topk_group=8)
    assert codes(ask(every, "0.1.20.post1"), "error") == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"experts": 100, "num_expert_group": 8}, "router-group-remainder"),
        ({"experts": 16, "topk": 2}, "router-tiny-groups"),
        ({"experts": 256, "topk": 65}, "router-topk-wave"),
        ({"experts": 64, "topk_group": 1, "topk": 9}, "router-topk-candidates"),
        ({"topk_group": 9}, "router-topk-group"),
        ({"scoring": "softmax"}, "router-scoring"),
        ({"bias_dtype": "fp32"}, "router-bias-dtype"),
        ({"ids_dtype": "int64"}, "router-ids-dtype"),
    ],
)
def test_limits_of_the_group_kernel(change: dict[str, object], code: str) -> None:
    assert code in codes(ask(replace(K2, **change), "0.1.20.post1"), "error")  # type: ignore[arg-type]
    assert code not in codes(ask(K2, "0.1.20.post1"))


def test_checks_that_became_silent() -> None:
    old, new = (ask(replace(K2, ids_dtype="int64"), v).by_tokens[0].defects[0] for v in ("0.1.18", "0.1.19"))
    assert old.symptom == "expected scalar type Int but found Long"
    assert new.symptom == ""
    bias = {
        v: ask(replace(K2, bias_dtype="fp32"), v).by_tokens[0].defects[0].symptom for v in ("0.1.7.post2", "0.1.12", "0.1.19")
    }
    assert list(bias.values()) == [
        "gating_output.dtype() == correction_bias.dtype()",
        "expected scalar type",
        "",
    ]


def test_unbiased_grouping_never_reaches_the_gate_and_scores_every_expert() -> None:
    call = replace(
        DEEPSEEK, kernel="grouped_topk", bias=False, bias_dtype=None, num_expert_group=4, topk_group=2, scoring="softmax"
    )
    verdict = ask(call, "0.1.20.post1")
    assert kernels(verdict) == [(1, None, "grouped_topk", True)]
    assert codes(verdict, "error", "warning") == {}


def test_rdna_needs_0_1_12() -> None:
    assert "router-wave32" in codes(ask(K2, "0.1.11", ("gfx1201", 64)), "error")
    assert "router-wave32" not in codes(ask(K2, "0.1.12", ("gfx1201", 64)))


def test_fallback_is_info_and_one_range() -> None:
    call = replace(
        K2, experts=288, num_expert_group=9, falls_back_to="torch", fallback_reason="group count 9 is not 1, 2, 4 or 8"
    )
    verdict = ask(call, "0.1.20.post1")
    assert kernels(verdict) == [(1, None, "torch", None)]
    assert codes(verdict) == {"router-fallback": "info"}
    assert verdict.defects[0].condition.startswith("group count 9")


def test_counts_read_from_the_tree_win() -> None:
    v = Version.of("0.1.20.post1")
    more = judge(K2_OLD, v, *MI300X, group_counts=frozenset({1, 2, 4, 6, 8}), group_source="csrc/x.cu:7")
    assert more.by_tokens[0].compiled is True
    less = judge(K2, v, *MI300X, group_counts=frozenset({1, 2, 4}), group_source="csrc/x.cu:7")
    assert less.by_tokens[0].defects[0].source == "csrc/x.cu:7"
    assert "1, 2, 4" in less.by_tokens[0].defects[0].condition


def test_releases_that_were_not_read_are_unverified() -> None:
    for version, confidence in (("0.1.20", "read"), ("0.1.26", "unverified"), ("0.1.2", "unverified")):
        assert ask(K2_OLD, version).by_tokens[0].defects[0].confidence == confidence


# topk_softmax, topk_sigmoid, topk_gating ------------------------------------------------------------------------------

SEVEN = (("topk_softmax", "num_shared_experts"), ("topk_softmax", "shared_expert_scoring_func"))
GATING = replace(
    SOFTMAX, kernel="topk_gating", alternatives=((4097, "topk_softmax"),), passes=(*SEVEN, ("topk_gating", "num_shared_experts"))
)


def test_seven_arguments_need_0_1_12() -> None:
    old = ask(replace(SOFTMAX, passes=SEVEN), "0.1.11")
    assert codes(old) == {"router-arguments": "error"}
    assert old.compiled is False
    assert old.defects[0].symptom == "aiter::topk_softmax() expected at most 5 argument(s) but received 7"
    assert codes(ask(replace(SOFTMAX, passes=SEVEN), "0.1.12")) == {}
    assert codes(ask(SOFTMAX, "0.1.11")) == {}


def test_topk_gating_by_release() -> None:
    wheel = ask(GATING, "0.1.7.post2")
    assert kernels(wheel) == [(1, 4096, "topk_gating", False), (4097, None, "topk_softmax", False)]
    assert [d.code for d in wheel.defects] == ["router-missing", "router-arguments"]
    assert codes(ask(GATING, "0.1.20.post1"), "error") == {"router-arguments": "error"}
    pin = ask(GATING, "0.1.26")
    assert codes(pin) == {"router-arguments": "info"}, "the pin of the engine that passes it"
    assert kernels(pin) == [(1, 4096, "topk_gating", None), (4097, None, "topk_softmax", True)], "not established is not absent"
    plain = replace(GATING, passes=SEVEN)
    assert codes(ask(plain, "0.1.19"), "error") == {"router-renormalize-dropped": "error"}
    assert codes(ask(replace(plain, renormalize=False), "0.1.19"), "error") == {}
    assert codes(ask(plain, "0.1.20"), "error") == {}


def test_topk_gating_limits() -> None:
    many = replace(GATING, passes=(), topk=65)
    assert ask(many, "0.1.20").defects[0].symptom == "topk (65) exceeds WARP_SIZE (64)"
    few = replace(GATING, passes=(), experts=4)
    assert ask(few, "0.1.20").defects[0].symptom == "topk (8) exceeds num_experts (4)"


@pytest.mark.parametrize(("experts", "logits", "wrong"), [(192, "bf16", False), (193, "bf16", True), (64, "fp32", True)])
def test_topk_sigmoid_launches_nothing(experts: int, logits: str, wrong: bool) -> None:
    call = replace(SOFTMAX, kernel="topk_sigmoid", experts=experts, logits_dtype=logits, scoring="sigmoid", renormalize=False)
    assert ("router-nothing-launched" in codes(ask(call, "0.1.7.post2"), "error")) is wrong


def test_topk_sigmoid_drops_renormalisation() -> None:
    call = replace(SOFTMAX, kernel="topk_sigmoid", scoring="sigmoid")
    assert codes(ask(call, "0.1.20"), "error") == {"router-renormalize-dropped": "error"}
    assert codes(ask(replace(call, topk=1), "0.1.20"), "error") == {}


@pytest.mark.parametrize(
    ("version", "shape", "hit"),
    [
        ("0.1.7.post2", (128, 8), True),
        ("0.1.7.post2", (128, 4), False),
        ("0.1.10.post1", (128, 4), True),
        ("0.1.10.post3", (384, 8), False),
        ("0.1.11", (384, 8), True),
        ("0.1.19", (640, 8), False),
        ("0.1.19.post1", (640, 8), True),
        ("0.1.20.post1", (512, 10), False),
    ],
)
def test_assembly_softmax_by_release(version: str, shape: tuple[int, int], hit: bool) -> None:
    call = replace(SOFTMAX, experts=shape[0], topk=shape[1], prefers_asm=True)
    assert ("router-no-asm" not in codes(ask(call, version), "warning")) is hit
    assert "router-no-asm" not in codes(ask(replace(call, prefers_asm=False), version))


@pytest.mark.parametrize(
    ("change", "version", "code"),
    [
        ({"num_shared": 3}, "0.1.20", "router-shared-count"),
        ({"ids_dtype": "int64"}, "0.1.20", "router-ids-dtype"),
        ({"experts": 160, "outputs_strided": True}, "0.1.19", "router-strided"),
        ({"experts": 128, "logits_strided": True}, "0.1.10", "router-strided"),
    ],
)
def test_limits_of_topk_softmax(change: dict[str, object], version: str, code: str) -> None:
    assert code in codes(ask(replace(SOFTMAX, **change), version), "error")  # type: ignore[arg-type]
    assert codes(ask(SOFTMAX, version), "error") == {}


def test_strides_are_honoured_in_newer_releases() -> None:
    assert codes(ask(replace(SOFTMAX, experts=160, outputs_strided=True), "0.1.19.post1"), "error") == {}
    assert codes(ask(replace(SOFTMAX, logits_strided=True), "0.1.11"), "error") == {}


# what must hold for any call ------------------------------------------------------------------------------------------

VERSIONS = ["0.1.4", "0.1.5", "0.1.7.post2", "0.1.11", "0.1.12", "0.1.16.post4", "0.1.18", "0.1.19", "0.1.20.post1", "0.1.26"]


@given(
    experts=st.integers(1, 2048),
    topk=st.integers(1, 80),
    groups=st.integers(0, 64),
    topk_group=st.integers(0, 64),
    kernel=st.sampled_from(["biased_grouped_topk", "grouped_topk", "topk_softmax", "topk_sigmoid", "topk_gating", "torch"]),
    version=st.sampled_from(VERSIONS),
    cu_num=st.sampled_from([1, 38, 80, 256, 304]),
    alternatives=st.lists(st.tuples(st.integers(0, 200_000), st.sampled_from(["topk_softmax", "torch"])), max_size=2),
    max_tokens=st.none() | st.integers(1, 200_000),
)
def test_ranges_are_contiguous_and_reach_decides(
    experts: int,
    topk: int,
    groups: int,
    topk_group: int,
    kernel: str,
    version: str,
    cu_num: int,
    alternatives: list[tuple[int, str]],
    max_tokens: int | None,
) -> None:
    call = RouterCall("x", kernel, experts, topk, None, groups, topk_group, on_aiter=True, alternatives=tuple(alternatives))
    verdict = judge(call, Version.of(version), "gfx942", cu_num, max_tokens=max_tokens)
    assert verdict.by_tokens[0].from_ == 1
    assert verdict.by_tokens[-1].to is None
    for this, following in pairwise(verdict.by_tokens):
        assert this.to is not None
        assert this.from_ <= this.to
        assert following.from_ == this.to + 1
        assert following.kernel != this.kernel
    for span in verdict.by_tokens:
        if max_tokens is not None and span.from_ > max_tokens:
            assert span.defects == ()
        if max_tokens is None and span.from_ > 32768:
            assert all(d.severity != "error" for d in span.defects)
        for d in span.defects:
            assert d.condition
            assert d.effect
            assert d.remedy
            if d.severity == "error":
                assert d.symptom or any(w in d.effect for w in ("silently", "uninitialised", "NaN")), (
                    "a log text, or said to be silent"
                )


@pytest.mark.aiter
@pytest.mark.skipif(find_spec("aiter_meta") is None, reason="the amd-aiter wheel is not installed")
def test_the_installed_wheel_says_the_same() -> None:
    """The facts of v0.1.7.post2, read again out of the wheel's own text."""
    from importlib.metadata import version as installed

    if not installed("amd-aiter").startswith("0.1.7.post2"):
        pytest.skip("another wheel than 0.1.7.post2")
    spec, package = find_spec("aiter_meta"), find_spec("aiter")
    assert spec is not None
    assert package is not None
    meta = Path(next(iter(spec.submodule_search_locations or ())))
    aiter = Path(next(iter(package.submodule_search_locations or ())))
    v = Version.of("0.1.7.post2")
    gate = (meta / facts.GATE).read_text()
    assert ("TORCH_CHECK((num_experts & (num_experts - 1)) == 0" in gate) is not facts.has("gate_any_experts", v)
    per_cu = facts.at(facts.GATE_TOKENS_PER_CU, v)
    assert per_cu is not None
    assert f"token_num <= cu_num * {per_cu.value}:" in (aiter / "ops/topk.py").read_text()
    grouped = (meta / facts.GROUPED).read_text()
    counts = facts.at(facts.GROUP_COUNTS, v)
    assert counts is not None
    assert all(f"case {n}: LAUNCHER3(VEC_F, {n}) break;" in grouped for n in counts.value)
    assert grouped.count(": LAUNCHER3(VEC_F, ") == len(counts.value)
