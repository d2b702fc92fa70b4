"""What a tree's CSV files amount to: how many files and rows, how many of them MoE tables, and what a rounding rule would do to them.

A MoE table is a CSV with an ``inter_dim`` column; its rows are keys that were tuned or are waiting to be. Blank lines are not rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from moe_preflight.aiter.csvtable import Csv, CsvProblem, column, count_rows
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.tuned import CONFIGS, Problem
from moe_preflight.errors import FileUnreadable


@dataclass(frozen=True, slots=True)
class Census:
    """Counts over every CSV below ``aiter/configs``. ``moved_by_rule`` counts MoE rows whose inter_dim the engine's rounding rule
    (64 up to 192, else 128) would change, ``moved_by_flat_128`` those a flat multiple of 128 would; ``*_tuned`` in tuned files only.
    ``problems`` are the files that could not be read."""

    files: int
    rows: int
    moe_files: int
    moe_rows: int
    moved_by_rule: int
    moved_by_flat_128: int
    moved_by_flat_128_tuned: int
    problems: tuple[Problem, ...] = ()


def take(tree: Tree, parsed: Mapping[str, Csv] | None = None) -> Census:
    """Read every CSV of the tree once. The wide tables of other kernels are counted, not parsed. ``parsed`` are the files that were
    read for the look-up already."""
    names = tree.names(CONFIGS, ".csv")
    rows = moe_files = moe_rows = rule = flat = flat_tuned = 0
    problems = []
    for name in names:
        try:
            count, cells = _counted(parsed[name]) if parsed and name in parsed else _count(tree.read_bytes(name))
        except FileUnreadable as e:
            problems.append(Problem(name, 0, e.reason, ""))
            continue
        except CsvProblem as e:
            problems.append(Problem(name, e.line, e.reason, e.text))
            continue
        if cells is None:
            rows += count
            continue
        moe_files += 1
        moe_rows += count
        # A table holds a few distinct widths over hundreds of rows.
        widths = {int(text): n for text, n in Counter(map(str.strip, cells)).items() if text.isdecimal()}
        rule += sum(n for w, n in widths.items() if w % (64 if w <= 192 else 128))
        moved = sum(n for w, n in widths.items() if w % 128)
        flat += moved
        flat_tuned += 0 if "untuned" in name.rsplit("/", 1)[-1] else moved
    return Census(len(names), rows + moe_rows, moe_files, moe_rows, rule, flat, flat_tuned, tuple(problems))


def _count(data: bytes) -> tuple[int, list[str] | None]:
    """Rows of a file, and the cells of inter_dim where it is a MoE table. Raises CsvProblem."""
    if b"inter_dim" not in data[:4096].partition(b"\n")[0]:
        return count_rows(data), None
    cells, there = column(data, "inter_dim")
    return (len(cells), cells) if there else (count_rows(data), None)


def _counted(csv: Csv) -> tuple[int, list[str] | None]:
    """The same of a file that was parsed already."""
    if "inter_dim" not in csv.header:
        return len(csv.rows), None
    at = csv.header.index("inter_dim")
    return len(csv.rows), [row[at] for row in csv.rows]
