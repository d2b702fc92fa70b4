from __future__ import annotations

import pytest

from moe_preflight.cli.app import normalise
from moe_preflight.cli.request import build
from moe_preflight.errors import UsageError
from moe_preflight.settings import Tokens, assignments, integer, integers


def test_lists_and_repeats_are_the_same_and_keep_their_order() -> None:
    assert integers(["8", "4"], "--tp", 0, 99) == integers(["8,4"], "--tp", 0, 99) == (8, 4)
    assert integers(["8,4,8"], "--tp", 0, 99) == (8, 4)


@pytest.mark.parametrize("text", ["", "8.0", "eight", "0x8", "٨", "1e3", "--", "99999999999999999999"])
def test_only_whole_decimal_numbers(text: str) -> None:
    with pytest.raises(UsageError, match="--tp"):
        integer(text, "--tp", 0, 99)


def test_a_bound_for_the_engine_to_refuse_is_no_advice() -> None:
    with pytest.raises(UsageError, match=r"Expected 1 to 65536, in plain digits\."):
        integers(["1e3"], "--tp", -65536, 65536)
    with pytest.raises(UsageError, match=r"Expected 0 to 99, in plain digits\."):
        integer("1e3", "--tp", 0, 99)


@pytest.mark.parametrize("text", ["sometimes", "1,,4", "0", "1;4", ""])
def test_bad_tokens(text: str) -> None:
    with pytest.raises(UsageError, match="--tokens"):
        Tokens.parse(text)


def test_good_tokens() -> None:
    assert Tokens.parse("Decode") == Tokens("decode")
    assert Tokens.parse("1,64,4096") == Tokens("counts", (1, 64, 4096))


@pytest.mark.parametrize("value", ["NAME", "=1", "A B=1", "1A=2"])
def test_bad_assignments(value: str) -> None:
    with pytest.raises(UsageError, match="NAME=VALUE"):
        assignments([value], "--engine-env")


def test_ep_takes_a_number_for_sglang_only() -> None:
    assert normalise(["check", "m", "--ep", "8"]) == ["check", "m", "--ep-size", "8"] == normalise(["check", "m", "--ep=8"])
    assert normalise(["check", "--ep", "m"]) == ["check", "--ep", "m"]
    with pytest.raises(UsageError, match="takes no number"):
        build(models=["m"], ep_size=8)
    assert build(models=["m"], engine="sglang", ep_size=8).splits[0].ep_size == 8


def test_engine_env_and_aiter_env_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITER_KSPLIT", "2")
    request = build(models=["m"], engine_env=["VLLM_ROCM_USE_AITER=0", "AITER_CONFIG_FMOE=a.csv"])
    assert request.engine_env == {"VLLM_ROCM_USE_AITER": "0"}
    assert request.aiter_env["AITER_CONFIG_FMOE"] == "a.csv"
    assert request.aiter_env["AITER_KSPLIT"] == "2"


def test_targets_are_asked_for_or_refused() -> None:
    for bad in (
        {},
        {"models": ["m"], "quant": "fp8_block"},
        {"models": ["m"], "gfx": "gfx942"},
        {"models": ["m"], "engine": "tgi"},
    ):
        with pytest.raises(UsageError):
            build(**bad)  # type: ignore[arg-type]
