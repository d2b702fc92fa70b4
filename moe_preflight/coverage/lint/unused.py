"""Rows AITER finds and does not run: each row's own key is put to the dispatch model."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.dtypes import ACTS, QUANTS, SHORT
from moe_preflight.aiter.key import Key
from moe_preflight.aiter.tuned import ANY_GFX, TunedTable
from moe_preflight.coverage.lint import rules as r
from moe_preflight.coverage.lint.say import found
from moe_preflight.coverage.lint.table import Row, Tables
from moe_preflight.report.types import Finding
from moe_preflight.rules.tuned import UNUSED_ROW

_ACT_OF = {full: short for short, full in ACTS.items()}
_QUANT_OF = {full: short for short, full in QUANTS.items()}

SETTINGS = ("block_m", "ksplit", "run_1stage", "xbf16", "flat")
"""Cells AITER gives to int()."""

DISCARDED = {
    "row-kernels-not-used": "no branch of AITER takes the kernels it names, so the heuristic replaces them though the log prints them",
    "opus-row-discarded": "AITER discards its Opus kernel and runs the heuristic",
    "one-stage-row-discarded": "AITER runs one-stage rows for Silu and Gelu only",
    "blockscale-bypass": "this release bypasses its rows for small fp8 block-scale problems",
}
"""Notes of the dispatch model (aiter/dispatch.py) that mean the row does not run."""


def unused_rows(t: Tables, table: TunedTable) -> Iterator[Finding]:
    """tuned-row-unused: the row is found for its own key, and another kernel runs; unknown-kernel: AITER raises for want of a name."""
    dispatchers: dict[tuple[str, int], Dispatcher] = {}
    # Rows of one key share one answer and its tuple of rows, which may be long: looked through once. It is kept, so its id stays its.
    places: dict[int, tuple[object, frozenset[tuple[str, int]]]] = {}
    for row in t.rows():
        key = question(row)
        if key is None or row.cu_num is None or row.gfx == ANY_GFX or not t.usable(row):
            continue
        gpu = (row.gfx, row.cu_num)
        if gpu not in dispatchers:
            dispatchers[gpu] = Dispatcher(t.version, *gpu, table=table, rules=t.rules)
        d = dispatchers[gpu].dispatch(key, padded=False)
        mine = d.row is not None and (d.row.file, d.row.line) == (row.file.name, row.line)
        if id(d.rows) not in places:
            places[id(d.rows)] = d.rows, frozenset((x.file, x.line) for x in d.rows)
        here = (row.file.name, row.line) in places[id(d.rows)][1]
        if d.error and mine:
            yield _raised(t, row, d.error, d.confidence)
            continue
        for note, words in DISCARDED.items():
            if note in d.notes and (mine or (d.row is None and here)):
                yield found(t, UNUSED_ROW, row, f"for the row's own key {words}.", confidence=d.confidence)


def _raised(t: Tables, row: Row, error: str, confidence: str) -> Finding:
    """A row on which every call that finds it ends: a cell that is no number, or a name."""
    if "NaN to integer" in error or "int() with base 10" in error:
        empty = [c for c in SETTINGS if c in row.cells and row.number(c) is None]
        cells = ", ".join(f"{c} {row.text(c) or '(empty)'}" for c in empty) or "a setting"
        return found(
            t, UNUSED_ROW, row, f'AITER finds the row for its own key and raises "{error}" over {cells}.',
            severity="error", confidence=confidence, remedy="Give the cell its number (0 where the tuner left it out).",
        )  # fmt: skip
    what = "names a kernel AITER cannot take apart" if all(row.kernels) else "names no kernel"
    return found(t, r.KERNEL, row, f'a stage {what}, and for the row\'s own key AITER raises "{error}".', confidence=confidence)


def question(row: Row) -> Key | None:
    """The key a row answers, asked as it stands; None when a column cannot be read."""
    sizes = [row.integer(c) for c in ("token", "model_dim", "inter_dim", "expert", "topk")]
    dtypes = [SHORT.get(row.text(c)) for c in ("dtype", "q_dtype_a", "q_dtype_w")]
    act, quant = _ACT_OF.get(row.act), _QUANT_OF.get(row.text("q_type"))
    flags = [row.number(c) for c in ("use_g1u1", "doweight_stage1")]
    if None in sizes or None in dtypes or act is None or quant is None or None in flags or min(n or 0 for n in sizes) < 1:
        return None
    token, model_dim, inter_dim, expert, topk = (int(n or 0) for n in sizes)
    return Key(
        token=token, model_dim=model_dim, inter_dim=inter_dim, expert=expert, topk=topk, act=act, dtype=str(dtypes[0]),
        q_dtype_a=str(dtypes[1]), q_dtype_w=str(dtypes[2]), q_type=quant, use_g1u1=bool(flags[0]), doweight_stage1=bool(flags[1]),
    )  # fmt: skip
