from __future__ import annotations

from typing import Any

import pytest

from moe_preflight.smoke.case import Prediction
from moe_preflight.smoke.findings import findings_of
from moe_preflight.smoke.judge import STATUSES, observe, refused
from moe_preflight.smoke.parent import outcome
from moe_preflight.smoke.process import Ended
from tests.unit.smoke.cases import small

KEY = "('gfx942', 304)"
DEFAULT = f"[fused_moe] using 2stage default for {KEY} "
TUNED = f"[fused_moe] using 2stage (kernelName1='a', kernelName2='b') for {KEY} "
CK = "RuntimeError: wrong! device_gemm with the specified compilation parameters does not support this GEMM problem"
MACHINE = {
    "event": "machine",
    "gpu": "MI300X",
    "gfx": "gfx942",
    "cu_num": 304,
    "torch": "2.9",
    "hip": "7",
    "aiter": "0.1.20.post1",
}
MISS = Prediction(path="ck2stages", stages=2, tuned="miss", accepted=True, gfx="gfx942", cu_num=304, aiter_version="0.1.20.post1")


def result(**changes: Any) -> dict[str, Any]:
    base = {
        "event": "result", "rel_err": 0.004, "nonfinite": 0, "worst_token": 3, "within": True, "median_us": 114.0,
        "bit_identical": True, "kernels": [], "log": [DEFAULT], "notes": [], "router_kernel": "biased_grouped_topk",
        "experts_match": True, "wrong_tokens": 0, "router_weight_err": 1e-6, "router_right": True, "router_error": None,
    }  # fmt: skip
    return base | changes


def ended(*events: dict[str, Any], returncode: int | None = 0, timed_out: bool = False, tail: list[str] | None = None) -> Ended:
    phase = {"event": "phase", "name": "launch"}
    return Ended(returncode, timed_out, 1.0, [MACHINE, phase, *events], tail or [])


def done(**changes: Any) -> Ended:
    return ended(result(**changes), {"event": "end", "status": "done", "text": ""})


def failed(text: str, status: str = "launch-failed") -> Ended:
    return ended({"event": "end", "status": status, "text": text})


def seen(e: Ended, prediction: Prediction = MISS, backend: str = "aiter", **changes: Any) -> dict[str, Any]:
    o = observe(small(prediction=prediction, **changes), backend, e, 300)
    assert o["status"] in STATUSES
    return o


def predict(**changes: Any) -> Prediction:
    from dataclasses import replace

    return replace(MISS, **changes)


UNLISTED = predict(tuned="hit", kernels=("a", "b"), notes=("kernel-not-in-instance-list",))
HIT = predict(tuned="hit", kernels=("a", "b"), row="t.csv:3")


@pytest.mark.parametrize(
    ("e", "prediction", "status", "words"),
    [
        (done(), MISS, "confirmed", "heuristic"),
        (done(log=[TUNED]), HIT, "confirmed", "a + b"),
        (done(), HIT, "contradicted", "predicted the tuned a + b, AITER took 2-stage heuristic"),
        (done(log=[TUNED]), MISS, "contradicted", "no tuned row"),
        (done(), predict(stages=1, path="1stage"), "contradicted", "predicted 1 stages"),
        (done(log=[TUNED, "ck kernel not found: a"]), HIT, "contradicted", "lacks a"),
        (done(log=[TUNED, "ck kernel not found: a"]), UNLISTED, "confirmed", "a + b"),
        (done(log=[]), MISS, "not-observable", "no line"),
        (done(), predict(tuned="unknown"), "not-observable", "no tuned table"),
        (done(), Prediction(), "not-observable", "nothing was predicted"),
        (done(), predict(gfx="gfx950", cu_num=256), "not-observable", "predicted for gfx950"),
        (done(), predict(aiter_version="0.1.26"), "not-observable", "predicted for AITER 0.1.26"),
        (done(), predict(accepted=False, reason="inter_dim 224"), "contradicted", "predicted to fail"),
        (failed(CK), predict(accepted=False, reason="N tile 64"), "confirmed", "N tile 64"),
        (failed(CK), MISS, "contradicted", "predicted to be accepted"),
        (failed(CK), Prediction(), "failed", "nothing was predicted"),
        (failed("RuntimeError: HIP error"), MISS, "failed", "did not get that far"),
        (done(router_error="x: Unsupported num_expert_group: 6"), predict(router_compiled=False), "confirmed", "predicted"),
        (done(router_error="x: Unsupported num_expert_group: 6"), MISS, "contradicted", "accepted"),
        (ended(returncode=-6, tail=["[AITER] Unsupported num_expert_group: 6"]), predict(router_compiled=False), "confirmed", "predicted"),
        (ended(returncode=-6, tail=["[AITER] Unsupported num_expert_group: 6"]), MISS, "contradicted", "SIGABRT"),
    ],
)  # fmt: skip
def test_against_the_prediction(e: Ended, prediction: Prediction, status: str, words: str) -> None:
    o = seen(e, prediction)
    assert o["status"] == status
    assert words in o["prediction"]["why"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nonfinite": 2, "rel_err": None, "within": False}, "2 tokens have NaN"),
        ({"rel_err": 0.7, "within": False}, "relative error 0.7 at token 3"),
        ({"experts_match": False, "wrong_tokens": 5}, "5 tokens"),
        ({"router_right": False, "router_weight_err": 0.6}, "off by up to 0.6"),
        ({"router_right": False, "router_weight_err": None}, "without bound"),
    ],
)
def test_wrong_numbers_fail_even_when_the_kernels_are_the_predicted_ones(change: dict[str, Any], words: str) -> None:
    o = seen(done(**change))
    assert o["status"] == "failed"
    assert words in o["detail"]
    assert o["prediction"]["verdict"] == "confirmed"
    assert outcome([o]).exit_code == 1


@pytest.mark.parametrize(
    ("e", "status", "words"),
    [
        (ended(timed_out=True, returncode=-9), "timeout", "within 300 s, while: launch"),
        (ended(timed_out=True, returncode=-9, tail=["[aiter] start build [module_x]"]), "timeout", "still compiling"),
        (ended(returncode=-9), "out-of-memory", "SIGKILL (9)"),
        (ended(returncode=-11, tail=["Memory access fault by GPU node-1", "later"]), "crashed", "SIGSEGV (11) while: launch: Memory access"),
        (ended(returncode=None), "crashed", "could not be ended"),
        (ended(returncode=3), "error", "exit code 3"),
        (failed("out of memory", "out-of-memory"), "out-of-memory", "out of memory"),
        (failed("needs 9 GiB", "refused"), "refused", "9 GiB"),
        (failed("import aiter: boom", "error"), "error", "boom"),
        (failed("?", "nonsense"), "error", "?"),
    ],
)  # fmt: skip
def test_ways_to_end(e: Ended, status: str, words: str) -> None:
    o = seen(e)
    assert o["status"] == status
    assert words in o["detail"]
    assert (o["ran"], o["rel_err"]) == (False, None)
    assert o["prediction"]["verdict"] == "not-observable"


def test_a_foreseen_crash_is_confirmed_and_still_a_failure() -> None:
    o = seen(ended(returncode=-6, tail=["abort"]), predict(error="raises"))
    assert o["status"] == "crashed"
    assert o["prediction"]["verdict"] == "confirmed"
    rejected = seen(failed(CK), predict(accepted=False))
    assert rejected["status"] == "confirmed"
    assert outcome([rejected]).exit_code == 1


def test_what_came_after_the_result_does_not_undo_it() -> None:
    e = ended(result(), {"event": "phase", "name": "native"}, returncode=-6)
    o = seen(e)
    assert o["status"] == "confirmed"
    assert "died of SIGABRT (6), while: native" in o["notes"][0]


def test_poison_and_padding_cost() -> None:
    e = ended(
        result(),
        {"event": "poison", "nonfinite": 33},
        {"event": "native", "median_us": 100.0, "within": True},
        {"event": "end", "status": "done"},
    )
    o = seen(e, poison=True)
    assert (o["tail_read"], o["native_us"], o["padding_cost_pct"]) == (True, 100.0, 14.0)
    assert seen(done(), poison=True)["tail_read"] is None
    assert "no tail" in seen(done(), poison=True, inter_dim=128)["notes"][0]


def test_the_torch_backend_says_nothing_about_aiter() -> None:
    o = seen(done(log=[]), backend="torch")
    assert (o["status"], o["prediction"]["verdict"]) == ("ok", "not-observable")
    end = outcome([o])
    assert end.exit_code == 0
    assert [what for what, _, _ in end.not_evaluated] == ["AITER's kernels"]
    assert findings_of([o]) == []
    bad = seen(done(rel_err=0.5, within=False), backend="torch")
    assert (outcome([bad]).exit_code, findings_of([bad])) == (1, [])


def test_outcome() -> None:
    good, gap = seen(done()), refused(small(), "aiter", "too large")
    assert outcome([good]).exit_code == 0
    assert outcome([good, gap]).exit_code == 3
    assert outcome([gap, seen(failed(CK))]).exit_code == 1
    assert outcome([]).exit_code == 3
    assert gap["status"] == "refused"


def test_findings() -> None:
    found = findings_of([seen(done()), seen(failed(CK)), seen(done(), HIT), seen(done(nonfinite=1, within=False))])
    assert [(f.code, f.confidence) for f in found] == [
        ("MP731", "measured"), ("MP732", "measured"), ("MP732", "measured"), ("MP731", "measured"),
    ]  # fmt: skip
    assert found[0].target == 0
