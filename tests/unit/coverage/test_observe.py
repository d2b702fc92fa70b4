"""Answers of a log beside the dispatch model's."""

from __future__ import annotations

from pathlib import Path

import pytest

from moe_preflight.aiter.basis import Basis, open_basis
from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.coverage.observe import CONFIRMED, CONTRADICTED, MAX_KEYS, NOT_COMPARED, Match, gfx_of, match, read
from moe_preflight.coverage.observed import findings, not_evaluated, observations
from moe_preflight.hardware import Gpu
from tests.unit.coverage.tables import GEMM1, GEMM2, row, table, tree

QUESTION = "4096, 192, 128, 8, <ActivationType.Silu: 0>, 'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)"
TUNED = f"2stage (kernelName1='{GEMM1}', kernelName2='{GEMM2}')"


def line(choice: str, token: int = 64, gfx: str = "'gfx942', ", cu: int = 304) -> bytes:
    return f"(W pid=1) [aiter] [fused_moe] using {choice} for ({gfx}{cu}, {token}, {QUESTION} \n".encode()


def heuristic(block_m: int, ksplit: int = 0) -> bytes:
    settings = f"xbf16 = False, ksplit = {ksplit} q_type = QuantType.No block_m = {block_m} use_nt = True"
    return f"(W pid=1) [aiter] run_1stage = False, {settings}\n".encode()


@pytest.fixture
def basis(tmp_path: Path) -> Basis:
    return open_basis(str(tree(tmp_path, default=table(row()))), asked_version="0.1.20.post1", pin=None, tuned=True)


def of(basis: Basis):  # type: ignore[no-untyped-def]
    def dispatcher(gfx: str, cu: int) -> Dispatcher:
        return basis.dispatcher(Gpu("x", gfx, cu))

    return dispatcher


def only(basis: Basis, *lines: bytes) -> Match:
    (found,) = match(read(lines), of(basis))
    return found


def test_a_tuned_row_is_confirmed(basis: Basis) -> None:
    m = only(basis, line(TUNED), line(TUNED))
    assert (m.status, m.seen.count, m.seen.line) == (CONFIRMED, 2, 1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([line("2stage default")], "predicted the row aiter/configs/tuned_fmoe.csv:2; the log shows the heuristic"),
        ([line("2stage (kernelName1='', kernelName2='')")], "AITER_BYPASS_TUNE_CONFIG=1"),
        ([line("2stage (kernelName1='other', kernelName2='b')")], "the log shows other + b"),
        ([line("1stage default", token=128)], "predicted 2 stages, the log shows 1"),
        ([line(TUNED, token=128)], "predicted no tuned row"),
        ([heuristic(16), line("2stage default", token=128)], "the log shows block_m 16"),
    ],
)
def test_contradictions_say_what_differs(basis: Basis, lines: list[bytes], words: str) -> None:
    m = only(basis, *lines)
    assert m.status == CONTRADICTED
    assert words in "; ".join(m.differences)


def test_the_heuristics_settings_belong_to_the_same_process(basis: Basis) -> None:
    other = heuristic(16).replace(b"pid=1", b"pid=2")
    assert only(basis, other, line("2stage default", token=128)).status == CONFIRMED
    d = of(basis)("gfx942", 304).dispatch
    predicted = match(read([line("2stage default", token=128)]), of(basis))[0].predicted
    assert predicted is not None
    assert only(basis, heuristic(predicted.block_m), line("2stage default", token=128)).status == CONFIRMED
    assert callable(d)


def test_without_tables_a_tuned_answer_is_not_compared(tmp_path: Path) -> None:
    bare = open_basis(str(tree(tmp_path)), asked_version="0.1.20.post1", pin=None, tuned=False)
    assert only(bare, line(TUNED)).status == NOT_COMPARED
    assert only(bare, line("2stage default")).status == CONFIRMED
    reading = read([line(TUNED)])
    assert list(not_evaluated("x.log", reading, match(reading, of(bare))))


def test_the_architecture_of_older_keys(basis: Basis) -> None:
    for cu, gfx in ((304, "gfx942"), (80, "gfx942"), (256, "gfx950")):
        assert gfx_of(read([line("2stage default", gfx="", cu=cu)]).seen[0].key) == gfx
    unknown = read([line("2stage default", gfx="", cu=33)])
    assert [m.status for m in match(unknown, of(basis))] == [NOT_COMPARED]
    assert [m.status for m in match(unknown, of(basis), default=("gfx942", 33))] == [CONFIRMED]


def test_findings_of_contradicted_untuned_and_failed(basis: Basis) -> None:
    reading = read(
        [
            line("2stage default", token=64),
            line("2stage default", token=128),
            b"RuntimeError: wrong! device_gemm with the specified compilation parameters does not support this GEMM problem\n",
            b"[aiter] ck kernel not found: moe_x\n",
            b"[aiter] path 2: /x.csv (not exist)\n",
        ]
    )
    matches = match(reading, of(basis), {})
    found = [(f.name, f.severity, f.evidence[0].line) for f in findings("x.log", reading, matches, planned=True)]
    assert found == [
        ("observed-contradicts", "error", 1),
        ("observed-never-predicted", "warning", 1),
        ("observed-never-predicted", "warning", 2),
        ("observed-untuned", "warning", 1),
        ("observed-failure", "error", 3),
        ("observed-message", "warning", 4),
    ]
    assert "no tuned row at 64, 128 tokens" in next(
        f.message for f in findings("x.log", reading, matches, planned=True) if f.name == "observed-untuned"
    )


def test_observations_say_which_buckets_production_asks_for(basis: Basis) -> None:
    reading = read(
        [line(TUNED), line("2stage default", token=128), line("2stage default", token=128), b"[fused_moe] using what\n"]
    )
    seen = observations("x.log", reading, match(reading, of(basis)), None, None)
    log, shape = seen[0], next(o for o in seen if o["kind"] == "shape")
    assert (log["lines"], log["answers"], log["distinct"], log["odd"], log["first_odd_line"]) == (4, 3, 2, 1, 4)
    assert shape["buckets"] == [{"token": 64, "count": 1, "tuned": True}, {"token": 128, "count": 2, "tuned": False}]


def test_an_empty_log_is_not_green(basis: Basis) -> None:
    reading = read([b"INFO nothing here\n"])
    assert [n.what for n in not_evaluated("x.log", reading, match(reading, of(basis)))] == ["log x.log"]


def test_distinct_keys_are_bounded(basis: Basis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moe_preflight.coverage.observe.MAX_KEYS", 3)
    reading = read([line("2stage default", token=t) for t in range(1, 11)])
    assert (len(reading.seen), reading.dropped, reading.answers) == (3, 7, 10)
    assert any("more distinct keys" in n.why for n in not_evaluated("x", reading, []))
    assert MAX_KEYS >= 1000
