"""AITER's tuned fMoE tables, merged as the AITER of a given release would merge them, every row with its file and line.

Nothing is written. What AITER itself would raise is data: ``TunedTable.error`` for what stops every call, ``conflict``
for the RuntimeError AITER raises once, after rewriting the files of the tree; the rows stay readable either way.

Rules by release: facts/dispatch_rules.py. Source: ``update_config_files`` and ``get_config_file`` of aiter/jit/core.py,
``get_cfg_2stages`` of aiter/fused_moe.py.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moe_preflight.aiter.csvtable import BOOLS, EMPTY, Csv, CsvProblem, Value, parse, typed
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.key import TunedRow
from moe_preflight.errors import FileUnreadable

CONFIGS = "aiter/configs"
DEFAULT = f"{CONFIGS}/tuned_fmoe.csv"
UNTUNED = f"{CONFIGS}/untuned_fmoe.csv"
MODEL_CONFIGS = f"{CONFIGS}/model_configs"

KEY_COLUMNS = (
    *("cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "dtype", "q_dtype_a", "q_dtype_w", "q_type"),
    *("use_g1u1", "doweight_stage1"),
)
"""What the index is keyed by. AITER's key holds act_type (and gfx) too; those are settled per release in lookup.py."""

TYPED = ("block_m", "ksplit", "run_1stage", "xbf16", "flat")
ANY_GFX = "*"
"""A row whose cu_num AITER does not know: it takes the running GPU's architecture (chip_info.py gfx_from_cu_num)."""
GFX_BY_CU: dict[Value, str] = {256: "gfx950", 80: "gfx942", 304: "gfx942"}

_NO_GFX = frozenset(("0", "", "nan", "None"))
_FILL = "0"


class Source(Protocol):
    """The part of aiter.tree.Tree this module needs."""

    @property
    def root(self) -> str: ...
    def names(self, under: str, suffix: str = "") -> list[str]: ...
    def read_bytes(self, name: str) -> bytes: ...
    def exists(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read (whole): ``line`` 0 means the file itself, ``text`` what AITER would
    show; empty when only this tool could not look."""

    file: str
    line: int
    reason: str
    text: str


@dataclass(slots=True)
class TableFile:
    """One file of the table. ``name`` is relative to the tree, or as given in AITER_CONFIG_FMOE."""

    name: str
    csv: Csv


@dataclass(slots=True)
class TunedTable:
    """All rows in the order AITER holds them, indexed by the integer and text columns of the key."""

    files: list[TableFile]
    index: dict[tuple[Value, ...], list[int]]
    act: list[Value]
    tag: list[Value]
    gfx: list[Value]
    settings: dict[str, list[Value] | None]
    """block_m, ksplit, run_1stage, xbf16, flat: typed cells; None when no file has the column."""
    columns: list[str]
    problems: list[Problem] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Paths of AITER_CONFIG_FMOE that do not exist and are skipped."""
    dropped: frozenset[int] = frozenset()
    """Rows that a faster row of the same key replaces; they stay in the index, for the reader."""
    error: str | None = None
    conflict: str | None = None
    _starts: list[int] = field(default_factory=list)
    _shown: dict[int, TunedRow] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rows that were read. No ``len``: a table without rows would be false, and it is not no table."""
        return len(self.act)

    def place(self, row: int) -> tuple[TableFile, int]:
        """The file of row ``row`` and its number within that file."""
        i = bisect_right(self._starts, row) - 1
        return self.files[i], row - self._starts[i]

    def cells(self, row: int) -> dict[str, str]:
        """Row ``row`` as its file holds it: column name to text."""
        f, i = self.place(row)
        return dict(zip(f.csv.header, f.csv.rows[i], strict=True))

    def name(self, row: int, column: str) -> str | None:
        """A kernel name of a row; None for an empty cell, which pandas reads as NaN."""
        f, i = self.place(row)
        try:
            text = f.csv.rows[i][f.csv.header.index(column)]
        except ValueError:
            return _FILL if column in self.columns else None
        return None if text in EMPTY else text

    def where(self, row: int) -> tuple[str, int]:
        """File and 1-based line of a row."""
        f, i = self.place(row)
        return f.name, f.csv.lines[i]

    def tuned_row(self, row: int) -> TunedRow:
        """Row ``row`` as the report shows it."""
        shown = self._shown.get(row)
        if shown is None:
            cells = self.cells(row)
            us = typed([cells.get("us", "")]).popitem()[1]
            names = cells.get("kernelName1", ""), cells.get("kernelName2", "")
            shown = TunedRow(*self.where(row), *names, float(us) if isinstance(us, (int, float)) else None)
            self._shown[row] = shown
        return shown

    def __iter__(self) -> Iterator[tuple[str, int, dict[str, str]]]:
        """Every row that was read, in table order: file, line, column name to text."""
        for f in self.files:
            for line, row in zip(f.csv.lines, f.csv.rows, strict=True):
                yield f.name, line, dict(zip(f.csv.header, row, strict=True))


def load(tree: Source, rules: Rules, env: Mapping[str, str] | None = None) -> TunedTable:
    """The table AITER would use: the shipped files, or those of ``AITER_CONFIG_FMOE`` in ``env``."""
    given = (env or {}).get("AITER_CONFIG_FMOE", "")
    paths = given.split(os.pathsep) if given else shipped_files(tree, rules)
    merged = len(paths) > 1
    files, problems, missing, error = _read(tree, rules, paths, in_tree=not given)
    columns, bad = _column_order(rules, files)
    table = _assemble(rules, files, columns, fill=merged)
    table.problems, table.missing = problems, missing
    table.error = error or (bad if merged else None) or next((p.text for p in problems if p.text), None) or table.error
    if merged:
        _merge(table, rules, _untuned_columns(tree))
    if rules.unique_index and table.error is None and (twice := _held_twice(table, rules)):
        table.error = f"ValueError: DataFrame index must be unique for orient='index'. ({twice})"
    return table


def shipped_files(tree: Source, rules: Rules) -> list[str]:
    """The default file first, then the model files: AITER's own order of those is the directory's, here it is sorted."""
    found = tree.names(MODEL_CONFIGS, "" if rules.any_suffix else ".csv")
    mine = []
    for name in found:
        base = name[len(MODEL_CONFIGS) + 1 :]
        if "/" in base or "tuned_fmoe" not in base or "untuned" in (f"{tree.root}/{name}" if rules.any_suffix else base):
            continue
        mine.append(name)
    return [DEFAULT, *mine]


def _read(
    tree: Source, rules: Rules, paths: list[str], *, in_tree: bool
) -> tuple[list[TableFile], list[Problem], list[str], str | None]:
    from moe_preflight.aiter.tree import read_regular

    files: list[TableFile] = []
    problems: list[Problem] = []
    missing: list[str] = []
    error = None
    for i, path in enumerate(paths):
        if not (tree.exists(path) if in_tree else os.path.exists(path)):
            missing.append(path)
            if len(paths) == 1 or (i == 0 and rules.first_path_must_exist):
                error = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
            continue
        try:
            files.append(TableFile(path, parse(tree.read_bytes(path) if in_tree else read_regular(path))))
        except CsvProblem as e:
            problems.append(Problem(path, e.line, e.reason, e.text))
        except FileUnreadable as e:
            problems.append(Problem(path, 0, e.reason, ""))  # we could not look; what AITER would find is not known
    if len(paths) > 1 and len(missing) == len(paths) and error is None:
        error = f"FileNotFoundError: No existing config files found in '{os.pathsep.join(paths)}' when merging 'tuned_fmoe'."
    return files, problems, missing, error


def _column_order(rules: Rules, files: list[TableFile]) -> tuple[list[str], str | None]:
    """The merged columns, and AITER's words when it refuses files whose columns differ."""
    if not files:
        return [], None
    first = files[0]
    order = list(first.csv.header)
    bad = None
    for f in files[1:]:
        if rules.merge != "fill" and bad is None:
            a, b = first.csv.header, f.csv.header
            if rules.ignore_tag_column:
                a, b = [c for c in a if c != "_tag"], [c for c in b if c != "_tag"]
            if a != b:
                bad = f"{rules.mismatch_error}: Column mismatch between {first.name} and {f.name}, {a}, {b}"
        for c in f.csv.header:
            if c not in order:
                order.insert(order.index("tflops") if "tflops" in order else max(0, len(order) - 1), c)
    return order, bad


def _assemble(rules: Rules, files: list[TableFile], columns: list[str], *, fill: bool) -> TunedTable:
    """Columns of all files on end, typed over all of them, and the index."""
    wanted = [*KEY_COLUMNS, "act_type", "_tag", "gfx", *TYPED]
    present = set(columns)
    text: dict[str, list[str]] = {c: [] for c in wanted if c in present}
    memo: dict[str, str] = {}
    starts: list[int] = []
    total = 0
    for f in files:
        starts.append(total)
        n = len(f.csv.rows)
        total += n
        across = dict(zip(f.csv.header, zip(*f.csv.rows, strict=True), strict=True)) if n else {}
        for c, col in text.items():
            if c in across:
                col.extend(map(memo.setdefault, across[c], across[c]))
            elif fill and rules.merge == "fill" and not (c == "gfx" and rules.fill_gfx):
                col.extend([_FILL] * n)
            else:
                col.extend([""] * n)
    values: dict[str, list[Value]] = {}
    for c, col in text.items():
        worth = typed(set(col))
        if fill and any(isinstance(v, str) for v in worth.values()) and not BOOLS.isdisjoint(worth):
            col = _bools_as_numbers(col, starts)
            worth = typed(set(col))
        values[c] = [worth[x] for x in col]
    nothing: list[Value] = [None] * total
    cu = values.get("cu_num", nothing)
    gfx = values.get("gfx", nothing)
    table = TunedTable(
        files=files,
        index={},
        act=values.get("act_type", nothing),
        tag=values.get("_tag", nothing),
        gfx=[GFX_BY_CU.get(n, ANY_GFX) if g is None or str(g) in _NO_GFX else g for g, n in zip(gfx, cu, strict=True)],
        settings={c: values.get(c) for c in TYPED},
        columns=columns,
    )
    table._starts = starts
    absent = [c for c in (*KEY_COLUMNS, "act_type") if c not in present]
    if absent:
        if files:
            # get_2stage_cfgs looks for twins first where it keeps the first of them, which names the columns otherwise.
            named = f"Index({absent}, dtype='str')" if not rules.unique_index else f'"None of {absent} are in the columns"'
            table.error = f"KeyError: {named}"
        return table
    index = table.index
    for i, key in enumerate(zip(*(values[c] for c in KEY_COLUMNS), strict=True)):
        held = index.get(key)
        if held is None:
            index[key] = [i]
        else:
            held.append(i)
    return table


def _bools_as_numbers(cells: list[str], starts: list[int]) -> list[str]:
    """A column that is boolean in some files and numeric in others: pandas 3 joins them to numbers (pandas 2 to text)."""
    out: list[str] = []
    for a, b in zip(starts, [*starts[1:], len(cells)], strict=True):
        one = cells[a:b]
        if one and BOOLS.issuperset(one):
            one = ["1" if typed([c])[c] else "0" for c in one]
        out += one
    return out


def _untuned_columns(tree: Source) -> list[str] | None:
    """Header of untuned_fmoe.csv, which says what makes two rows the same; None when the tree has no such file."""
    try:
        return parse(tree.read_bytes(UNTUNED)).header
    except (FileUnreadable, CsvProblem):
        return None


def _merge(table: TunedTable, rules: Rules, untuned: list[str] | None) -> None:
    """Drop what the merge drops: of rows with one key all but the one with the lowest us; note when AITER refuses."""
    if untuned is None:
        return
    keys = [*untuned]
    if rules.dedup_cu_num and "cu_num" not in keys:
        keys.append("cu_num")
    if rules.dedup_gfx and "gfx" in table.columns and "gfx" not in keys:
        keys.append("gfx")
    if rules.dedup_tag and "_tag" in table.columns:
        keys.append("_tag")
    groups = _groups(table, keys)
    if not groups:
        return
    doomed: set[int] = set()
    for rows in groups:
        best = min(rows, key=lambda r: (table.tuned_row(r).us is None, table.tuned_row(r).us or 0.0, r))
        doomed.update(r for r in rows if r != best)
    if rules.merge != "lowest-us":
        count = sum(map(len, groups))
        first = ", ".join("{}:{}".format(*table.where(r)) for r in groups[0])
        table.conflict = (
            f"RuntimeError: Found {count} duplicate shape entries during merge of 'tuned_fmoe'. Auto-resolved by keeping best "
            f"performing (lowest 'us') for each shape and saved back to source config files. Please re-run. (first: {first})"
        )
    table.dropped = frozenset(doomed)


def _groups(table: TunedTable, keys: list[str]) -> list[list[int]]:
    """Rows that share all of ``keys``, in groups of two and more."""
    rest = [k for k in keys if k not in KEY_COLUMNS]
    if set(KEY_COLUMNS) <= set(keys):
        # The index has grouped by most of the key already: only rows that share an entry can be the same.
        suspects = [held for held in table.index.values() if len(held) > 1]
    elif set(KEY_COLUMNS) - {"cu_num"} <= set(keys):
        by_rest: dict[tuple[Value, ...], list[int]] = {}
        for key, held in table.index.items():
            by_rest.setdefault(key[1:], []).extend(held)
        suspects = [held for held in by_rest.values() if len(held) > 1]
    else:
        suspects = [list(range(table.count))]
        rest = keys
    cells = [_column(table, k) for k in rest]
    out: list[list[int]] = []
    for held in suspects:
        same: dict[tuple[Value, ...], list[int]] = {}
        for r in held:
            same.setdefault(tuple([c[r] for c in cells]), []).append(r)
        if len(same) < len(held):
            out += [sorted(g) for g in same.values() if len(g) > 1]
    return out


def _column(table: TunedTable, name: str) -> list[Value]:
    match name:
        case "act_type":
            return table.act
        case "gfx":
            return table.gfx
        case "_tag":
            return [t or "" for t in table.tag]
        case _:
            return [table.cells(r).get(name, "") for r in range(table.count)]


def _held_twice(table: TunedTable, rules: Rules) -> str:
    """Where a key of the table in use is held twice, or empty."""
    for held in table.index.values():
        if len(held) > 1:
            seen: dict[Value, int] = {}
            for r in held:
                if r in table.dropped or (rules.tag == "untagged" and table.tag[r] not in (None, "")):
                    continue
                if table.act[r] in seen:
                    return "{}:{} and {}:{}".format(*table.where(seen[table.act[r]]), *table.where(r))
                seen[table.act[r]] = r
    return ""
