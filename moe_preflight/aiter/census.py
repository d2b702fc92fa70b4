"""What a tree's CSV files amount to: how many files and rows, how many of them MoE tables, and what a rounding rule would do to them.

A MoE table is a CSV with an ``inter_dim`` column; its rows are keys that were tuned or are waiting to be. Blank lines are not rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from moe_preflight.aiter.csvtable import CsvProblem, column, count_rows
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


def take(tree: Tree) -> Census:
    """Read every CSV of the tree once. The wide tables of other kernels are counted, not parsed."""
    names = tree.names(CONFIGS, ".csv")
    rows = moe_files = moe_rows = rule = flat = flat_tuned = 0
    problems = []
    for name in names:
        try:
            data = tree.read_bytes(name)
            if b"inter_dim" not in data[:4096].partition(b"\n")[0]:
                rows += count_rows(data)
                continue
            cells, _ = column(data, "inter_dim")
        except FileUnreadable as e:
            problems.append(Problem(name, 0, e.reason, ""))
            continue
        except CsvProblem as e:
            problems.append(Problem(name, e.line, e.reason, e.text))
            continue
        moe_files += 1
        moe_rows += len(cells)
        # A table holds a few distinct widths over hundreds of rows.
        widths = {int(text): n for text, n in Counter(map(str.strip, cells)).items() if text.isdecimal()}
        rule += sum(n for w, n in widths.items() if w % (64 if w <= 192 else 128))
        moved = sum(n for w, n in widths.items() if w % 128)
        flat += moved
        flat_tuned += 0 if "untuned" in name.rsplit("/", 1)[-1] else moved
    return Census(len(names), rows + moe_rows, moe_files, moe_rows, rule, flat, flat_tuned, tuple(problems))
