"""Lints about whole files: columns, ragged rows, names AITER does not load, and files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.aiter.lookup import FALLBACK_TAG
from moe_preflight.aiter.tuned import KEY_COLUMNS
from moe_preflight.coverage.lint import rules as r
from moe_preflight.coverage.lint.say import at_file, found
from moe_preflight.coverage.lint.table import ACT, NEEDED, File, Tables
from moe_preflight.report.types import Finding

HARMLESS = ("gfx", "xbf16", "flat", "run_1stage", "_tag", "tflops", "bw", "us1", "us2", "err1", "err2")
"""Columns whose filling leaves the row what it was, unless _meaning() says otherwise."""


def column_layout(t: Tables) -> Iterator[Finding]:
    """What the merge of this release does to a file whose columns are not those of the others."""
    columns = t.columns
    for f in t.files:
        header = set(f.csv.header)
        missing = [c for c in columns if c not in header]
        needed = [c for c in (*KEY_COLUMNS, ACT, *NEEDED) if c not in header]
        if needed:
            yield at_file(
                t,
                r.LAYOUT,
                f,
                f"no column {', '.join(needed)}: AITER {t.version} cannot find or run any of its {len(f.rows):,} rows.",
            )
        if t.merged and t.rules.merge != "fill":
            yield from _refused(t, f)
        elif t.rules.merge == "fill" and (t.merged or not t.in_tree):
            yield from _filled(t, f, [c for c in missing if c not in needed])
    yield from _tagged(t)


def _refused(t: Tables, f: File) -> Iterator[Finding]:
    """Releases up to v0.1.12 compare the headers, order included, with the first file's."""
    drop = ("_tag",) if t.rules.ignore_tag_column else ()
    mine, first = ([c for c in x.csv.header if c not in drop] for x in (f, t.files[0]))
    if mine != first:
        how = "in another order" if set(mine) == set(first) else f"other than those of {t.files[0].name}"
        yield at_file(
            t, r.LAYOUT, f, f'columns {how}: AITER {t.version} raises "{t.rules.mismatch_error}: Column mismatch" when it merges.'
        )


def _filled(t: Tables, f: File, missing: list[str]) -> Iterator[Finding]:
    # A file on its own is put beside the shipped tables, which have a _tag column since v0.1.11.
    lacks_tag = "_tag" in missing or (not t.merged and "_tag" not in f.csv.header and t.rules.dedup_tag)
    if lacks_tag and t.rules.tag == "untagged":
        beside = "" if t.merged else ", merged with the shipped tables,"
        yield at_file(
            t, r.LAYOUT, f,
            f"no column _tag: AITER {t.version}{beside} fills it with 0, which is not empty, and drops all {len(f.rows):,} rows.",
        )  # fmt: skip
    harmful = [x for c in missing if (x := _meaning(t, f, c))]
    for what in harmful:
        yield at_file(t, r.LAYOUT, f, what, severity="warning")
    quiet = [
        c
        for c in missing
        if c in HARMLESS and not (c == "_tag" and lacks_tag and t.rules.tag == "untagged") and not _meaning(t, f, c)
    ]
    other = [c for c in missing if c not in HARMLESS and not _meaning(t, f, c)]
    if quiet or other:
        how = ", ".join(f"{c} (from cu_num)" if c == "gfx" and t.rules.fill_gfx else f"{c} (0)" for c in (*quiet, *other))
        yield at_file(
            t,
            r.LAYOUT,
            f,
            f"columns of other tables are missing and filled: {how}; its rows keep their meaning.",
            severity="info",
        )


def _meaning(t: Tables, f: File, column: str) -> str:
    """What filling ``column`` with 0 changes for this file's rows; empty when nothing."""
    kind, rows = "", []
    if column == "run_1stage":
        rows = [x for x in f.rows if x.kernels[0].startswith("_ZN5aiter") and "_stage1_" not in x.kernels[0] and not x.kernels[1]]
        kind, effect = "one-stage", "run as two stages"
    elif column == "xbf16" and t.rules.xbf16:
        rows = [x for x in f.rows if "blockscaleBf16" in x.kernels[0]]
        kind, effect = "blockscaleBf16", "are launched with an fp8 activation, which such a kernel does not take"
    if rows:
        return f"no column {column}: it is filled with 0, so {len(rows):,} rows with {kind} kernels (first: line {rows[0].line}) {effect}."
    if column == "us":
        return "no column us: it is filled with 0, so these rows win over every measured row of the same key."
    return ""


def _tagged(t: Tables) -> Iterator[Finding]:
    """Rows that the release's tag filter drops and no fallback takes up again."""
    for row in t.rows():
        if t.usable(row) or (row.tag == FALLBACK_TAG and t.rules.flydsl_fallback):
            continue
        why = "keeps untagged rows only" if t.rules.tag == "untagged" else "drops these rows and has no fallback that reads them"
        yield found(
            t, r.LAYOUT, row, f"_tag is {row.tag!r}: AITER {t.version} {why}, so the row is never found.",
            severity="warning", remedy="Empty the _tag cell if the row shall count; else remove the row.",
        )  # fmt: skip


def ragged_row(t: Tables) -> Iterator[Finding]:
    """Rows that are shorter than the header; a longer one makes the file unreadable (run.py says so)."""
    for f in (*t.files, *t.others):
        for i in f.csv.ragged:
            row = f.rows[i]
            short = not f.csv.rows[i][-1]
            what = "fewer cells than the header's {}: pandas fills the rest with empties." if short else (
                "more cells than the header's {}: pandas takes the first for an index and shifts the rest."
            )  # fmt: skip
            yield found(t, r.RAGGED, row, what.format(len(f.csv.header)), severity="warning" if short else "error")


def not_loaded_by_name(t: Tables) -> Iterator[Finding]:
    for f in t.others:
        if f.rows:
            yield at_file(
                t,
                r.NAME,
                f,
                f"AITER {t.version} does not load this file by its name or place; its {len(f.rows):,} tuned rows are never found.",
            )


CHECKS = (column_layout, ragged_row, not_loaded_by_name)
