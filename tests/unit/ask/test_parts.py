"""The pure parts: the sheet of questions, the one merged table, what a child's output means, and where two answers differ."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.aiter.facts.dispatch_rules import Rules, rules_for
from moe_preflight.aiter.key import Dispatch, Stage
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.tuned import TunedTable, load
from moe_preflight.aiter.version import Version
from moe_preflight.ask.compare import differing
from moe_preflight.ask.parent import hear
from moe_preflight.ask.questions import Sheet
from moe_preflight.ask.table import merged
from moe_preflight.hardware import named
from moe_preflight.smoke.process import Ended

CK = Stage("ck_moe_stage1", "ck", "", None, None, None, "")
PREDICTED = Dispatch(
    64, 64, "bf16", "ck2stages", CK, replace(CK, func="ck_moe_stage2_fwd"), 32, 0, False, "miss", None, (), "verified"
)
SAID: dict[str, Any] = {
    "asked_token": 64,
    "q_dtype_a": "torch.bfloat16",
    "tuned": False,
    "stage1": "ck_moe_stage1",
    "kernelName1": "",
    "stage2": "ck_moe_stage2_fwd",
    "kernelName2": None,
    "block_m": 32,
    "ksplit": 0,
    "run_1stage": False,
}


# --- comparing --------------------------------------------------------------------------------------------------------


def test_the_same_answer_is_no_difference() -> None:
    assert differing(PREDICTED, SAID, "gfx942") == {}


@pytest.mark.parametrize(
    ("field", "value", "mine"),
    [
        ("block_m", 64, 32),
        ("ksplit", 2, 0),
        ("stage2", "cktile_moe_stage2", "ck_moe_stage2_fwd"),
        ("kernelName1", "moe_ck2stages_gemm1_x", ""),
        ("q_dtype_a", "torch.float4_e2m1fn_x2", "torch.bfloat16"),
        ("asked_token", 128, 64),
        ("tuned", True, False),
        ("run_1stage", True, False),
    ],
)
def test_every_field_is_looked_at(field: str, value: Any, mine: Any) -> None:
    assert differing(PREDICTED, SAID | {field: value}, "gfx942") == {field: (mine, value)}


def test_what_was_not_looked_up_or_not_logged_is_not_compared() -> None:
    assert differing(replace(PREDICTED, tuned="unknown"), SAID | {"tuned": True}, "gfx942") == {}
    assert differing(PREDICTED, SAID | {"tuned": None}, "gfx942") == {}


def test_two_refusals_agree_when_they_are_the_same_exception() -> None:
    refused = replace(PREDICTED, error="NotImplementedError: a16w4 is not supported: per-expert bias.")
    assert differing(refused, {"error": "NotImplementedError: in other words"}, "gfx950") == {}
    assert "error" in differing(refused, {"error": "KeyError: 'x'"}, "gfx950")
    assert differing(refused, SAID, "gfx950") == {"error": (refused.error, None)}
    assert differing(PREDICTED, {"error": "KeyError: 'x'"}, "gfx950") == {"error": (None, "KeyError: 'x'")}


def test_an_answer_of_wrong_types_differs_and_does_not_raise() -> None:
    assert set(differing(PREDICTED, {"kernelName1": 7, "block_m": "32"}, "gfx942")) >= {"kernelName1", "block_m", "stage1"}


# --- questions --------------------------------------------------------------------------------------------------------


def test_a_question_two_layers_share_is_asked_once() -> None:
    sheet = Sheet(named("mi300x"))
    for where, token in (((0, 0), 1), ((0, 0), 2), ((1, 0), 2)):
        sheet.ask(where, replace(PREDICTED, token=token), {"token": token})
    assert [json.loads(line) for line in sheet.lines()] == [{"token": 1}, {"token": 2}]
    assert len(sheet) == 2
    assert [a.number for a in sheet.layers[0, 0]] == [0, 1]
    assert [a.number for a in sheet.layers[1, 0]] == [1]


# --- hearing ----------------------------------------------------------------------------------------------------------


def _heard(*events: dict[str, Any], count: int = 2, **ended: Any) -> Any:
    return hear(Ended(0, False, 1.0, events=list(events), **ended), count, 9.0, flydsl=True)


def test_answers_by_number() -> None:
    heard = _heard(
        {"event": "aiter", "standins": True, "flydsl": False},
        {"event": "answers", "first": 0, "answers": [{"a": 1}]},
        {"event": "answers", "first": 1, "answers": [{"a": 2}]},
        {"event": "end", "status": "done", "refused": ["/x"]},
    )
    assert heard.answers == {0: {"a": 1}, 1: {"a": 2}}
    assert heard.ended is None
    assert heard.told["refused"] == ["/x"]
    assert "FlyDSL is not installed here" in heard.told["flydsl_differs"]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "answers", "first": "0", "answers": [{}]},
        {"event": "answers", "first": True, "answers": [{}]},
        {"event": "answers", "first": 0, "answers": {"0": {}}},
        {"event": "answers", "first": 0, "answers": [1, None, "x"]},
        {"event": "answers", "first": -3, "answers": [{}]},
        {"event": "answers", "first": 10**12, "answers": [{}]},
        {"event": "end", "status": "missing", "modules": "torch"},
        {"event": "end", "status": ["done"], "refused": {"a": 1}},
        {"event": "aiter", "standins": "yes", "flydsl": "maybe"},
    ],
)
def test_nothing_a_child_says_is_trusted(event: dict[str, Any]) -> None:
    heard = _heard(event)
    assert heard.answers == {}
    assert heard.ended is not None
    assert heard.missing == ()


def test_an_answer_holds_plain_values_of_bounded_length() -> None:
    heard = _heard(
        {"event": "answers", "first": 0, "answers": [{"stage1": ["x"], "block_m": {}, "ksplit": 2, "error": "e" * 10**5}]}
    )
    assert set(heard.answers[0]) == {"ksplit", "error"}
    assert len(heard.answers[0]["error"]) == 1000


def test_done_without_all_answers_is_not_done() -> None:
    heard = _heard({"event": "answers", "first": 0, "answers": [{}]}, {"event": "end", "status": "done"})
    assert heard.ended is not None
    assert heard.ended[0] == "error"


# --- the one table ----------------------------------------------------------------------------------------------------

HEADER = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,"
    "block_m,ksplit,kernelName1,kernelName2,us,run_1stage"
)
UNTUNED = HEADER.partition(",block_m")[0].partition(",")[2]


def _row(token: int, name: str, us: float = 1.0, cu: int = 80, g1u1: str = "1") -> str:
    bf16 = ",".join(["torch.bfloat16"] * 3)
    return f"{cu},{token},4096,1536,128,8,ActivationType.Silu,{bf16},QuantType.No,{g1u1},0,32,0,{name},n2,{us},0"


def _tables(tmp_path: Path, rules: Rules, **files: list[str]) -> TunedTable:
    configs = tmp_path / "aiter" / "configs"
    (configs / "model_configs").mkdir(parents=True)
    (configs / "untuned_fmoe.csv").write_text(UNTUNED + "\n")
    for name, lines in files.items():
        path = configs / "tuned_fmoe.csv" if name == "default" else configs / "model_configs" / f"{name}_tuned_fmoe.csv"
        path.write_text("\n".join(lines) + "\n")
    return load(open_tree(str(tmp_path)), rules)


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_in_order_and_missing_columns_filled_as_the_release_fills_them(tmp_path: Path) -> None:
    rules = rules_for(Version.of("0.1.20"))
    table = _tables(
        tmp_path,
        rules,
        default=[HEADER, _row(1, "a"), _row(2, "b", cu=96)],
        m=[f"gfx,{HEADER},_tag", f"gfx950,{_row(4, 'c', cu=256)},flydsl_fallback"],
    )
    rows = _read(merged(table, rules, "gfx1250"))
    assert [r["kernelName1"] for r in rows] == ["a", "b", "c"]
    assert [r["gfx"] for r in rows] == ["gfx942", "gfx1250", "gfx950"]  # 80 CUs are known, 96 take the running GPU's
    assert [r["_tag"] for r in rows] == ["0", "0", "flydsl_fallback"]


def test_of_rows_with_one_key_the_fastest_is_left(tmp_path: Path) -> None:
    rules = rules_for(Version.of("0.1.7.post2"))
    table = _tables(tmp_path, rules, default=[HEADER, _row(1, "slow", 9.0), _row(2, "other")], m=[HEADER, _row(1, "fast", 3.0)])
    assert [r["kernelName1"] for r in _read(merged(table, rules, "gfx942"))] == ["other", "fast"]


def test_booleans_of_one_file_become_the_numbers_of_the_other(tmp_path: Path) -> None:
    rules = rules_for(Version.of("0.1.20"))
    table = _tables(tmp_path, rules, default=[HEADER, _row(1, "a")], m=[HEADER, _row(2, "b", g1u1="True")])
    assert [r["use_g1u1"] for r in _read(merged(table, rules, "gfx942"))] == ["1", "1"]


def test_no_table_is_a_header_only() -> None:
    text = merged(None, Rules(), "gfx942")
    assert text.count("\n") == 1
    assert {"gfx", "cu_num", "act_type", "kernelName1", "run_1stage"} <= set(text.strip().split(","))
