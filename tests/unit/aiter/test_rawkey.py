"""Raw keys: what is taken, what is refused and how it is said, what comes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.rawkey import answer, reader
from moe_preflight.aiter.version import Version
from moe_preflight.errors import KeyFieldError

RAW: dict[str, Any] = {
    "token": 16,
    "model_dim": 4096,
    "inter_dim": 256,
    "expert": 64,
    "topk": 8,
    "act": "silu",
    "dtype": "bf16",
    "q_dtype_w": "bf16",
    "q_type": "No",
}


def test_the_shortest_key_has_aiters_defaults() -> None:
    key, padded = reader("gfx942")(RAW)
    assert (key.use_g1u1, key.doweight_stage1, key.q_dtype_a, key.is_shuffled, key.is_ep, padded) == (
        True,
        False,
        None,
        True,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"act": "ActivationType.Swiglu"}, "act", "swiglu"),
        ({"q_type": "QuantType.per_1x128"}, "q_type", "per_1x128"),
        ({"q_type": "per_token"}, "q_type", "per_Token"),
        ({"q_dtype_w": "torch.float8_e4m3fnuz"}, "q_dtype_w", "fp8"),
        ({"q_dtype_a": "torch.float8_e4m3fn"}, "q_dtype_a", "torch.float8_e4m3fn"),
        ({"use_g1u1": 0}, "use_g1u1", False),
        ({"doweight_stage1": True}, "doweight_stage1", True),
        ({"gate_mode": "INTERLEAVE"}, "gate_mode", "interleave"),
        ({"is_ep": 1}, "topk", 9),
        ({"token": 0}, "token", 0),
        ({"bias2": 1}, "bias2", True),
    ],
)
def test_both_spellings_are_taken(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(reader("gfx942")({**RAW, **changes})[0], field) == value


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"token": True}, "token: true is no integer; allowed: 0 to 2147483647."),
        ({"token": 8.0}, "token: 8.0 is no integer; allowed: 0 to 2147483647."),
        ({"token": "8"}, 'token: "8" is no integer; allowed: 0 to 2147483647.'),
        ({"expert": -1}, "expert: -1 is out of range; allowed: 0 to 2147483647."),
        ({"model_dim": 1 << 31}, "model_dim: 2147483648 is out of range; allowed: 0 to 2147483647."),
        ({"act": "sillu"}, 'act: "sillu" is not known; allowed: no, silu, gelu, swiglu, situv2, gelutanh.'),
        ({"act": 0}, "act: 0 is not known; allowed: no, silu, gelu, swiglu, situv2, gelutanh."),
        ({"q_type": None}, "q_type: null is not known; allowed: No, per_Tensor, "),
        ({"q_dtype_w": "fp7"}, 'q_dtype_w: "fp7" is not known; allowed: bf16, fp16, i8, u32, i4x2, fp4x2, fp8.'),
        ({"use_g1u1": 2}, "use_g1u1: 2 is not known; allowed: 0, 1, true, false."),
        ({"is_ep": "yes"}, 'is_ep: "yes" is not known; allowed: 0, 1, true, false.'),
        ({"gate_mode": "open"}, 'gate_mode: "open" is not known; allowed: separated, mock_gate_only, gate_only, interleave.'),
        ({"tokens": 1}, '"tokens": no such field; allowed: token, '),
        ({"act": "x" * 500}, f'act: "{"x" * 56}... is not known'),
        ({"act": ["silu"]}, 'act: ["silu"] is not known'),
    ],
)
def test_what_is_refused_is_named_with_what_is_allowed(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(KeyFieldError) as e:
        reader("gfx942")({**RAW, **changes})
    assert str(e.value).startswith(text)
    assert e.value.field in changes


@pytest.mark.parametrize("field", list(RAW))
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(KeyFieldError, match=f"^{field}: missing; needed: token, model_dim, "):
        reader("gfx942")({k: v for k, v in RAW.items() if k != field})


@pytest.mark.parametrize("raw", [None, 1, "token", [RAW], []])
def test_only_objects_are_keys(raw: object) -> None:
    with pytest.raises(KeyFieldError, match=r"^a key is a JSON object, not "):
        reader("gfx942")(raw)


def said(version: str = "0.1.20", **changes: object) -> dict[str, Any]:
    raw = {**RAW, **changes}
    d = Dispatcher(Version.of(version), "gfx950", 256)
    key, padded = reader("gfx950")(raw)
    return answer(raw, d.dispatch(key, padded=padded), "gfx950")


def test_an_answer_has_aiters_words() -> None:
    got = said()
    assert (got["stage1"], got["kernelName1"], got["stage2"], got["kernelName2"]) == (
        "ck_moe_stage1",
        "",
        "ck_moe_stage2_fwd",
        "",
    )
    assert (got["q_dtype_a"], got["tuned"], got["run_1stage"], got["rows"]) == ("torch.bfloat16", False, False, [])
    assert got["key"] == RAW


def test_a_one_stage_answer_has_no_second_stage() -> None:
    got = said(q_dtype_w="fp8", q_type="per_1x128", token=4096)
    assert (got["stage1"], got["stage2"], got["kernelName2"], got["tile2"]) == ("fused_moe_1stage", None, None, None)


@pytest.mark.parametrize("stage", [1, 2])
def test_a_verdict_comes_with_its_reason(stage: int) -> None:
    key, _ = reader("gfx950")(RAW)
    d = Dispatcher(Version.of("0.1.20"), "gfx950", 256).dispatch(key)
    judged = d.stage1 if stage == 1 else d.stage2
    assert judged is not None
    told = replace(d, **{f"stage{stage}": replace(judged, accepted=False, reason="K 100 % 64 is not 0")})
    got = answer(RAW, told, "gfx950")
    assert (got[f"accepted{stage}"], got[f"reason{stage}"]) == (False, "K 100 % 64 is not 0")
    assert said(q_dtype_w="fp8", q_type="per_1x128", token=4096)["reason2"] is None


def test_a_function_without_a_name_argument_gets_null() -> None:
    got = said(q_dtype_w="fp4x2", q_type="per_1x32", act="swiglu")
    assert (got["stage1"], got["kernelName1"]) == ("cktile_moe_stage1", None)


def test_only_a_direct_question_may_leave_the_token_unpadded() -> None:
    assert said(token=100, pad_token=0)["asked_token"] == 128
    assert said(token=100, pad_token=0, q_dtype_a="bf16")["asked_token"] == 100
    assert said(token=100, q_dtype_a="bf16")["asked_token"] == 128


def test_what_aiter_raises_is_told_apart_from_a_bad_key() -> None:
    assert said(expert=0) == {
        "key": {**RAW, "expert": 0},
        "error": "ZeroDivisionError: integer division or modulo by zero",
        "raised_by": "aiter",
    }
