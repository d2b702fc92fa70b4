"""The tuned tables as one file, merged as that AITER would merge them, so that it is given a single path and merges, rewrites
and shares nothing. Pure: text in, text out.

Two files that hold one key in a release that keeps the first: AITER takes the one its directory listing gives first, this
merge the one that sorts first. The prediction says so where it matters (MP307).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from moe_preflight.aiter.csvtable import BOOLS, EMPTY
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.tuned import ANY_GFX, KEY_COLUMNS, TunedTable

_EMPTY_COLUMNS = (
    *("gfx", *KEY_COLUMNS, "act_type"),
    *("block_m", "ksplit", "us1", "kernelName1", "err1", "us2", "kernelName2", "err2", "us", "run_1stage", "tflops", "bw"),
)
"""A header that every release can index, for a table without rows."""


def merged(table: TunedTable | None, rules: Rules, gfx: str) -> str:
    """The text of the one CSV. ``table`` None: a table without rows, so that AITER's heuristics answer. ``gfx`` is the running
    GPU's, which a row with an unknown cu_num takes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if table is None:
        writer.writerow(_EMPTY_COLUMNS)
        return out.getvalue()
    writer.writerow(table.columns)
    writer.writerows(_rows(table, rules, gfx))
    return out.getvalue()


def _rows(table: TunedTable, rules: Rules, gfx: str) -> Iterator[list[str]]:
    """The rows the merge keeps, in AITER's order, each as wide as the merged columns."""
    start = 0
    numbers = _joined_bools(table)
    fill = "0" if rules.merge == "fill" else ""
    for f in table.files:
        at = {c: i for i, c in enumerate(f.csv.header)}
        for i, cells in enumerate(f.csv.rows):
            row = start + i
            if row in table.dropped:
                continue
            line = [cells[at[c]] if c in at else fill for c in table.columns]
            if "gfx" not in at and rules.fill_gfx and "gfx" in table.columns:
                known = table.gfx[row]
                line[table.columns.index("gfx")] = gfx if known == ANY_GFX else str(known)
            for column in numbers:
                n = table.columns.index(column)
                line[n] = {"true": "1", "false": "0"}.get(line[n].lower(), line[n])
            yield line
        start += len(f.csv.rows)


def _joined_bools(table: TunedTable) -> list[str]:
    """Columns that are boolean in some files and numbers in others, which pandas joins to numbers."""
    out = []
    for column in table.columns:
        kinds = set()
        for f in table.files:
            if column in f.csv.header:
                n = f.csv.header.index(column)
                cells = {row[n] for row in f.csv.rows} - EMPTY
                if cells:
                    kinds.add(cells <= BOOLS)
        if len(kinds) > 1:
            out.append(column)
    return out
