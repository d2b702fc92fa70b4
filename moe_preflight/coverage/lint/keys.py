"""Lints that compare rows: one key held twice, and rows another activation's row stands before."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.aiter.csvtable import Value
from moe_preflight.aiter.tuned import ANY_GFX, DEFAULT, KEY_COLUMNS
from moe_preflight.coverage.lint import rules as r
from moe_preflight.coverage.lint.say import found
from moe_preflight.coverage.lint.table import ACT, Row, Tables
from moe_preflight.report.types import Finding

SETTINGS = ("block_m", "ksplit", "kernelName1", "kernelName2", "run_1stage", "xbf16", "flat")


def same_key(t: Tables) -> Iterator[Finding]:
    """duplicate-key and conflicting-key: one finding per row that repeats an earlier row's key."""
    groups: dict[tuple[Value, ...], list[Row]] = {}
    columns = _merge_columns(t)
    rest = [c for c in columns if c not in KEY_COLUMNS]
    chosen = [i for i, c in enumerate(KEY_COLUMNS) if c in columns]
    whole = len(chosen) == len(KEY_COLUMNS)
    for row in t.rows():
        key = row.key if whole else tuple(row.key[i] for i in chosen)
        groups.setdefault((*key, *(_cell(row, c) for c in rest)), []).append(row)
    for rows in groups.values():
        if len(rows) < 2:
            continue
        severity, effect = _effect(t, rows, "cu_num" in columns)
        firsts = {_settings(rows[0]): rows[0]}
        for row in rows[1:]:
            mine = _settings(row)
            same = mine in firsts
            first = firsts[mine] if same else rows[0]
            firsts.setdefault(mine, row)
            what = "the same key and kernels" if same else "the same key, other kernels or settings"
            yield found(
                t, r.DUPLICATE if same else r.CONFLICTING, row, f"{what} as {first.where} ({row.shape()}, {row.act}): {effect}", first,
                severity=severity,
            )  # fmt: skip


def _merge_columns(t: Tables) -> tuple[str, ...]:
    """What makes two rows the same: the columns the merge compares, or, for a file used alone, those of the lookup."""
    if not t.merged and t.in_tree:
        tags = ("_tag",) if t.rules.tag == "untagged" or t.rules.flydsl_fallback else ()
        gfx = ("gfx",) if t.rules.gfx_in_key else ()
        return (*KEY_COLUMNS, ACT, *gfx, *tags)
    present = set(t.columns)
    columns = [*t.untuned]
    if (t.rules.dedup_cu_num or not t.in_tree) and "cu_num" not in columns:
        columns.append("cu_num")
    if t.rules.dedup_gfx and "gfx" in present and "gfx" not in columns:
        columns.append("gfx")
    if t.rules.dedup_tag and "_tag" in present and "_tag" not in columns:
        columns.append("_tag")
    return tuple(columns)


def _cell(row: Row, column: str) -> Value:
    if column == "gfx":
        return row.gfx
    if column == "_tag":
        return row.tag
    return row.text(column)


def _settings(row: Row) -> tuple[object, ...]:
    cells = (row.number(c) if c not in ("kernelName1", "kernelName2") else row.text(c) for c in SETTINGS)
    return tuple(c or 0 if not isinstance(c, str) else c for c in cells)


def _effect(t: Tables, rows: list[Row], with_cu: bool) -> tuple[str, str]:
    """How bad it is in this release, and what AITER does."""
    version = f"AITER {t.version}"
    if t.merged or not t.in_tree:
        if t.rules.merge == "lowest-us":
            note = "" if with_cu else "; its merge does not look at cu_num"
            return "warning", f"{version} silently keeps the row with the lowest us{note}."
        if any("us" not in x.cells for x in rows):
            return "error", f'{version} raises "Found {len(rows)} duplicate shape entries", having no us to choose by.'
        return (
            "error",
            f"merging, {version} rewrites the CSV files in place (lowest us stays) and raises "
            f'"Found {len(rows)} duplicate shape entries"; the first fused_moe call fails.',
        )
    if t.rules.unique_index:
        return "error", f'{version} raises "DataFrame index must be unique" at the first fused_moe call.'
    return "warning", f"{version} keeps the first row and ignores this one."


def activation_shadowed(t: Tables) -> Iterator[Finding]:
    """Rows that a release without activation in its key never takes, because another activation's row stands first."""
    if t.rules.act != "ignored":
        return
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in t.rows():
        if t.usable(row):
            groups.setdefault((row.gfx, *row.key), []).append(row)
    for rows in groups.values():
        if len({x.act for x in rows}) < 2:
            continue
        first = rows[0]
        # Files of model_configs are merged in directory order; only the default file's place is sure.
        sure = first.file.name == DEFAULT or all(x.file is first.file for x in rows)
        second = None if sure else next(x for x in rows if x.act != first.act)
        for row in rows if not sure else rows[1:]:
            other = first if row.act != first.act else second
            if (
                other is None
                or (sure and row.act == first.act)
                or (not sure and other.file is row.file and other.order > row.order)
            ):
                continue
            if _settings(other) == _settings(row):
                continue  # the same kernels run either way
            may = "" if sure or other.file is row.file else " when the directory lists that file first"
            gfx = "" if row.gfx == ANY_GFX else f" on {row.gfx} with {row.cu_num} CUs"
            yield found(
                t, r.SHADOWED, row,
                f"{row.act}'s row for {row.shape()}{gfx} is never taken{may}: AITER {t.version} ignores the activation, "
                f"and {other.act}'s row {other.where} comes first.",
                other,
            )  # fmt: skip


CHECKS = (same_key, activation_shadowed)
