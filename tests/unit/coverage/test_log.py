"""AITER's log lines, as its own code printed them on a CPU, release by release; and whatever else a log may hold."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_preflight.coverage.log import MAX_LINE, MESSAGES, Event, Fallback, Heuristic, Lines, LogKey, Message, Odd, Using, events

FNUZ = "'torch.float8_e4m3fnuz'"
OLD = f"(80, 16, 7168, 256, 256, 8, 'ActivationType.Silu', 'torch.bfloat16', {FNUZ}, {FNUZ}, 'QuantType.per_1x128', True, False)"
ENUM = OLD.replace("'ActivationType.Silu'", "<ActivationType.Silu: 0>")
NEW = "('gfx942', " + ENUM[1:]
FHMOE = NEW[:-1] + ", 255, 0, 64, 'GateMode.SEPARATED')"
KEY = LogKey(None, 80, 16, 7168, 256, 256, 8, "silu", "bf16", "fp8", "fp8", "per_1x128", True, False, "torch.float8_e4m3fnuz")


def read(*lines: str) -> list[Event]:
    return [e for _, _, e in events(Lines().of(["\n".join(lines).encode()]))]


@pytest.mark.parametrize(
    ("key", "gfx"),
    [(OLD, None), (ENUM, None), (NEW, "gfx942"), (FHMOE, "gfx942"), (NEW.replace("True, False", "1, 0"), "gfx942")],
    ids=["quoted", "enum", "gfx", "fhmoe", "numbers"],
)
def test_the_key_of_every_release(key: str, gfx: str | None) -> None:
    from dataclasses import replace

    assert read(f"[fused_moe] using 2stage default for {key} ") == [Using(replace(KEY, gfx=gfx), 2, False, None)]


@pytest.mark.parametrize(
    "prefix",
    ["", "[aiter] ", "(Worker_TP0 pid=12) [aiter] ", "[2026-02-17 23:52:11 TP4] ", "\x1b[36m(EngineCore)\x1b[0;0m [aiter] "],
)
def test_any_prefix(prefix: str) -> None:
    assert isinstance(read(f"{prefix}[fused_moe] using 2stage default for {NEW} ")[0], Using)


@pytest.mark.parametrize(
    ("choice", "stages", "xbf16", "kernels"),
    [
        ("2stage default", 2, False, None),
        ("1stage xbf16 default", 1, True, None),
        ("1stage (kernelName1='_ZN5aiter1aE', kernelName2='Null')", 1, False, ("_ZN5aiter1aE", "")),
        ("1stage (kernelName1='_ZN5aiter1aE', kernelName2=nan)", 1, False, ("_ZN5aiter1aE", "")),
        ("2stage (kernelName1='a', kernelName2='b')", 2, False, ("a", "b")),
        ("2stage (kernelName1='', kernelName2='')", 2, False, ("", "")),
    ],
)
def test_the_choice(choice: str, stages: int, xbf16: bool, kernels: tuple[str, str] | None) -> None:
    (found,) = read(f"[aiter] [fused_moe] using {choice} for {NEW} ")
    assert isinstance(found, Using)
    assert (found.stages, found.xbf16, found.kernels) == (stages, xbf16, kernels)


def test_settings_and_fallback() -> None:
    line = "run_1stage = False, xbf16 = False, ksplit = 14 q_type = QuantType.per_1x128 block_m = 16 use_nt = True, estimated_m_per_expert = 0"
    old = "run_1stage = True, ksplit = -1 q_type = QuantType.No block_m = 128 use_nt = False, estimated_m_per_expert = 573"
    assert read(line, old) == [Heuristic(False, 14, "per_1x128", 16), Heuristic(True, -1, "No", 128)]
    fallback = f"[fused_moe] no tuned FlyDSL config for {NEW}, using heuristic FlyDSL fallback (kn1='f1', kn2='f2')"
    (found,) = read(fallback)
    assert isinstance(found, Fallback)
    assert found.kernels == ("f1", "f2")


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_message_is_told_apart(kind: str) -> None:
    (found,) = read(f"[aiter] before {MESSAGES[kind]} after")
    assert isinstance(found, Message)
    assert found.kind == kind


@pytest.mark.parametrize(
    "line",
    [
        "[fused_moe] using 2stage default for ",
        "[fused_moe] using 3stage default for " + NEW,
        "[fused_moe] using 2stage default for (1, 2)",
        f"[fused_moe] using 2stage default for {NEW.replace('16,', 'many,')}",
        f"[fused_moe] using 2stage default for {NEW.replace('ActivationType.Silu', 'ActivationType.New')}",
        f"[fused_moe] using 2stage default for {NEW.replace('torch.bfloat16', 'torch.float64')}",
        f"[fused_moe] using 2stage default for {NEW.replace('per_1x128', 'per_7x7')}",
        f"[fused_moe] using 2stage default for {NEW[:-10]}",
        "[fused_moe] using 2stage (kernelName1='a', kernelName2='b'",
    ],
)
def test_odd_lines_are_odd_and_not_a_crash(line: str) -> None:
    assert [type(e) for e in read(line)] == [Odd]


def test_other_lines_are_nothing() -> None:
    assert read("INFO 11-30 [loggers.py:127] Engine 000", "", "fused_moe", "using 2stage") == []


TEXT = f"first\n[aiter] [fused_moe] using 2stage default for {NEW} \nsecond\r\n\n[aiter] [fused_moe] using 1stage default for {OLD} \nlast"


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_chunks_make_no_difference(cuts: list[int]) -> None:
    points = [0, *sorted(cuts), len(TEXT)]
    data = TEXT.encode()
    lines = Lines()
    found = [(n, e) for n, _, e in events(lines.of(data[a:b] for a, b in itertools.pairwise(points)))]
    assert found == [(n, e) for n, _, e in events(Lines().of([data]))]
    assert [n for n, _ in found] == [2, 5]
    assert lines.total == 6


@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_a_line_without_end_costs_one_line(size: int) -> None:
    lines = Lines()
    endless = b"[fused_moe] using " + b"x" * (3 * MAX_LINE)
    chunks = [endless[i : i + size] for i in range(0, len(endless), size)] + [
        b"\n[fused_moe] using 2stage default for " + NEW.encode() + b"\n"
    ]
    found = [(n, type(e)) for n, _, e in events(lines.of(chunks))]
    assert found == [(1, Odd), (2, Using)]
    assert lines.total == 2


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    lines = Lines()
    list(events(lines.of([b"[fused_moe] using " + data, data, b"run_1stage = " + data])))
    assert lines.total >= 1
