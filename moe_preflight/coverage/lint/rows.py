"""Lints that look at one row at a time: token, architecture, time, measured error."""

from __future__ import annotations

import math
from collections.abc import Iterator

from moe_preflight.aiter.csvtable import BOOLS, EMPTY
from moe_preflight.aiter.dtypes import ACTS, QUANTS, SHORT
from moe_preflight.aiter.lookup import buckets
from moe_preflight.aiter.tuned import ANY_GFX, GFX_BY_CU, KEY_COLUMNS
from moe_preflight.aiter.version import Version
from moe_preflight.coverage.lint import rules as r
from moe_preflight.coverage.lint.say import found
from moe_preflight.coverage.lint.table import NO_GFX, Tables, number
from moe_preflight.hardware import GPUS
from moe_preflight.report.types import Finding
from moe_preflight.rules.tuned import UNUSED_ROW

CUS: dict[str, frozenset[int]] = {
    gfx: frozenset(
        {g.cu_num for g in GPUS.values() if g.gfx == gfx}
        | {int(cu) for cu, of in GFX_BY_CU.items() if of == gfx and cu is not None}
    )
    for gfx in {g.gfx for g in GPUS.values()}
} | {"gfx1250": frozenset({256})}
"""Compute units by architecture: our GPU table, AITER's map, and gfx1250, which AITER's code names as the other one with 256
(aiter/fused_moe.py get_2stage_cfgs, v0.1.20.post1)."""

FP8 = {"torch.float8_e4m3fnuz": "gfx942", "torch.float8_e4m3fn": "gfx950"}
"""Of the two architectures with tuned rows, which one asks for the type (aiter/utility/dtypes.py defaultDtypes)."""


def unreachable_token(t: Tables) -> Iterator[Finding]:
    reachable = buckets(t.rules.padding)
    for row in t.every_row():
        if row.token in reachable:
            continue
        shown = row.text("token") or "(empty)"
        where = "nothing" if row.token is None or row.token < 1 else f"{_bucket(row.token, reachable):,}"
        yield found(
            t,
            r.TOKEN,
            row,
            f"token {shown} is no token bucket of AITER {t.version}: such a batch is looked up as {where}, so the row is never found.",
        )


def _bucket(token: int, reachable: tuple[int, ...]) -> int:
    from bisect import bisect_left

    larger = bisect_left(reachable, token)
    # Above 32768 AITER rounds down to the tier; below, up to the power of two.
    down = larger == len(reachable) or token > 32768
    return reachable[larger - 1] if down else reachable[larger]


def gfx_mismatch(t: Tables) -> Iterator[Finding]:
    for row in t.every_row():
        given, cu = row.text("gfx"), row.cu_num
        owners = sorted(g for g, cus in CUS.items() if cu in cus)
        if given not in NO_GFX and given and owners and given not in owners:
            yield found(
                t, r.GFX, row, f"gfx is {given}, but {cu} compute units are those of {' or '.join(owners)}: no GPU asks this key."
            )
            continue
        gfx = row.gfx if row.gfx != ANY_GFX else given
        if gfx not in FP8.values():
            continue
        for column in ("q_dtype_a", "q_dtype_w"):
            owner = FP8.get(row.text(column))
            if owner is not None and owner != gfx:
                right = next(name for name, of in FP8.items() if of == gfx)
                yield found(
                    t, r.GFX, row, f"{column} is {row.text(column)}, but {gfx} asks for {right}: no GPU asks this key.",
                )  # fmt: skip
                break


def unknown_cu(t: Tables) -> Iterator[Finding]:
    for row in t.every_row():
        given, cu = row.text("gfx"), row.cu_num
        if cu is None:
            yield found(
                t, r.CU, row, f"cu_num is {row.text('cu_num') or '(empty)'}, not a number of compute units.", severity="error"
            )
        elif not any(cu in cus for cus in CUS.values()) and (given in CUS or given in NO_GFX or not given):
            known = sorted(set().union(*CUS.values()))
            yield found(t, r.CU, row, f"no known GPU has {cu} compute units (known: {', '.join(map(str, known))}).")


def bad_time(t: Tables) -> Iterator[Finding]:
    for row in t.every_row():
        if "us" not in row.cells:
            continue
        text, us = row.text("us"), row.number("us")
        if us is None:
            why = "is missing" if not text else f"is {text!r}, not a number"
        elif not math.isfinite(us):
            why = f"is {text}, not finite"
        elif us <= 0:
            why = "is zero" if us == 0 else f"is {text}, below zero"
        else:
            continue
        yield found(t, r.TIME, row, f"us {why}: this row was not measured.")


_TOLERANCE = (("0.1.19", 0.1), ("0", 0.5))


def tolerance(version: Version) -> float:
    """errRatio's default in that release's fMoE tuner (gemm_moe_tune.py ARG_DEFAULTS, every tag from v0.1.10 read)."""
    return next(limit for since, limit in _TOLERANCE if version >= Version.of(since))


def error_above_tolerance(t: Tables) -> Iterator[Finding]:
    limit = tolerance(t.version)
    for row in t.every_row():
        bad = [(c, text) for c in ("err1", "err2") if (ratio := _ratio(text := row.text(c))) is not None and ratio > limit]
        if bad:
            said = " and ".join(f"{c} {text}" for c, text in bad)
            yield found(t, r.ERROR, row, f"{said}: the tuner of AITER {t.version} accepts {limit:.0%} by default.")


def _ratio(text: str) -> float | None:
    """``15.7%`` is 0.157; a bare number is a ratio already. None for an empty cell or other text."""
    percent = text.endswith("%")
    n = number(text.rstrip("% "))
    if n is None or n != n:
        return None
    return n / 100 if percent else float(n)


WORDS = {
    "dtype": frozenset({"torch.bfloat16", "torch.float16"}),
    **dict.fromkeys(("q_dtype_a", "q_dtype_w"), frozenset({*SHORT, "torch.uint8"})),
    "q_type": frozenset(QUANTS.values()),
}
"""What AITER ever asks a column for: fused_moe refuses other output dtypes (aiter/fused_moe.py, v0.1.20.post1:700), and the others are
str() of its own enum and of aiter/utility/dtypes.py, which has uint8 for fp4 where torch is old."""
NUMBERS = tuple(c for c in KEY_COLUMNS if c not in (*WORDS, "token", "cu_num"))
"""Token and cu_num have lints of their own."""


def never_asked(t: Tables) -> Iterator[Finding]:
    """tuned-row-unused: a cell of the key that no call of AITER ever asks for."""
    acts = {"act_type": frozenset(ACTS.values())} if t.rules.act == "exact" else {}
    for row in t.every_row():
        for column, words in (*WORDS.items(), *acts.items()):
            if column in row.cells and row.text(column) not in words:
                shown = row.text(column) or "(empty)"
                yield found(
                    t, UNUSED_ROW, row, f"{column} is {shown}, which AITER {t.version} never asks for: the row is never found."
                )
        for column in NUMBERS:
            cell = row.cells.get(column)
            if cell is None or row.number(column) is not None or cell in BOOLS:
                continue
            if cell in EMPTY:
                yield found(t, UNUSED_ROW, row, f"{column} is empty, which AITER never asks for: the row is never found.")
            else:
                said = f"{column} is {row.text(column)!r}, not a number: pandas reads the whole column as text"
                yield found(
                    t, UNUSED_ROW, row, f"{said}, and AITER finds no row of this table nor of those it merges it with.",
                    severity="error", remedy="Correct the cell.",
                )  # fmt: skip


CHECKS = (never_asked, unreachable_token, gfx_mismatch, unknown_cu, bad_time, error_above_tolerance)
