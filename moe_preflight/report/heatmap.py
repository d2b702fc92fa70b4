"""The coverage matrix as text: one line a row, one character a token bucket."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.style import OF_VERDICT, PLAIN, Style
from moe_preflight.report.view import count, instead, sentence

Document = dict[str, Any]
WIDTH = 80

MARKS = {"hit": "#", "tier": "+", "miss": ".", "unknown": "?"}
BROKEN = "x"
_COLOUR = {"#": "green", "+": "cyan", ".": "yellow", "x": "red", "?": "dim"}


def mark(bucket: Document) -> str:
    """The character of one bucket: a kernel that does not run is worse than a missing row."""
    return BROKEN if bucket["problem"] else MARKS[bucket["tuned"]]


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The clean audit document as text. ``quiet`` keeps rows with something wrong, ``verbose`` adds the tables behind each row."""
    return "\n".join(line.rstrip() for line in _lines(doc, style, quiet, verbose)) + "\n"


def summary(doc: Document) -> str:
    """One line: the verdict and the counts."""
    on = [r for r in doc["rows"] if r["buckets"]]
    full = sum(r["coverage"]["miss"] == r["coverage"]["unknown"] == 0 for r in on)
    none = sum(r["coverage"]["hit"] + r["coverage"]["tier"] == 0 for r in on)
    missing = f", {len(doc['not_evaluated'])} not evaluated" if doc["not_evaluated"] else ""
    return (
        f"moe-preflight: {doc['verdict'].upper()}: {count(len(doc['rows']), 'row')}, {len(on):,} on AITER: {full:,} fully tuned, "
        f"{len(on) - full - none:,} in part, {none:,} untuned{missing}"
    )


def _lines(doc: Document, style: Style, quiet: bool, verbose: bool) -> Iterator[str]:
    word = doc["verdict"].upper()
    yield style.paint(word, OF_VERDICT[doc["verdict"]], "bold") + "  " + summary(doc).partition(": ")[2].partition(": ")[2]
    a = doc["aiter"]
    where = (
        f"{a['moe_csv_rows']:,} rows in {a['moe_csv_files']} MoE tables of {a['root']}{instead(a)}"
        if a["root"]
        else "no tree read"
    )
    yield from _wrap(f"AITER {a['version'] or 'version unknown'}, dispatch {a['dispatch_confidence']}, {where}", "  ")
    low = [b for b in doc["buckets"] if b <= doc["decode_max"]]
    high = [b for b in doc["buckets"] if b > doc["decode_max"]]
    legend = "# hit  + tier fallback  . miss  x rejected or raises  ? not looked up"
    yield f"  {legend}"
    spans = [f"{name} {b[0]:,} ... {b[-1]:,}" for name, b in (("decode", low), ("prefill", high)) if b]
    yield from _wrap(f"buckets: {' | '.join(spans)} tokens; % of them that are hits; worst first", "  ")
    yield ""
    decode, prefill = max(6, len(low)), max(7, len(high))
    yield style.paint(f"{'decode':<{decode}} {'prefill':<{prefill}} {'%':>4} {'%':>4}  target, model", "dim")
    off: list[Document] = []
    shorten = common_folder([r["model"] for r in doc["rows"]])
    for r in doc["rows"]:
        r = r if not shorten else {**r, "model": r["model"][shorten:]}
        if not r["buckets"]:
            off.append(r)
            continue
        if quiet and r["severity"] is None:
            continue
        yield _row(doc, r, style, decode, prefill)
        if verbose:
            yield from _detail(r)
    yield from _off(off)
    if doc["files"]:
        yield ""
        yield style.paint("Tables that serve a row", "bold")
        for f in doc["files"] if verbose else doc["files"][:12]:
            yield from _wrap(f"{f['file']}: {f['buckets']:,} buckets of {f['rows']:,} rows", "  ")
        if len(doc["files"]) > 12 and not verbose:
            yield f"  ... and {len(doc['files']) - 12} more: --verbose"
    for n in doc["not_evaluated"]:
        yield ""
        yield from _wrap(f"Not evaluated: {n['what']}: {sentence(n['why'])} {n['how_to_get_it']}", "", "  ")


def common_folder(ids: list[str]) -> int:
    """How many leading characters all ids share as one folder; 0 unless all are paths below it."""
    if len(set(ids)) < 2 or not all(i.startswith("/") for i in ids):
        return 0
    low, high = min(ids), max(ids)
    same = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low.rfind("/", 0, same) + 1


def _row(doc: Document, r: Document, style: Style, decode: int, prefill: int) -> str:
    parts = {True: "", False: ""}
    for b in r["buckets"]:
        parts[b["token"] <= doc["decode_max"]] += mark(b)
    cells = " ".join(
        _painted(parts[low], style) + " " * (width - len(parts[low])) for low, width in ((True, decode), (False, prefill))
    )
    shares = " ".join(f"{'-' if p is None else f'{p:.0f}':>4}" for p in (r["decode_hit_pct"], r["prefill_hit_pct"]))
    layer = "" if r["layer"] == "main" else f" [{r['layer']}]"
    return f"{cells} {shares}  {r['target']}, {r['model']}{layer}"


def _painted(marks: str, style: Style) -> str:
    """Runs of one mark in one colour."""
    out, start = "", 0
    for i in range(1, len(marks) + 1):
        if i == len(marks) or marks[i] != marks[start]:
            out += style.paint(marks[start:i], _COLOUR[marks[start]])
            start = i
    return out


def _detail(r: Document) -> Iterator[str]:
    for f in r["files"]:
        yield from _wrap(f"{f['file']}: {', '.join(f'{t:,}' for t in f['tokens'])}", "    ", "      ")
    problems: dict[str, list[int]] = {}
    for b in r["buckets"]:
        if b["problem"]:
            problems.setdefault(b["problem"], []).append(b["token"])
    for text, tokens in problems.items():
        yield from _wrap(f"x at {', '.join(f'{t:,}' for t in tokens)}: {text}", "    ", "      ")


def _off(rows: list[Document]) -> Iterator[str]:
    """Rows that never reach AITER: refused, or on another backend, reasons together."""
    groups: dict[tuple[str, str], list[Document]] = {}
    for r in rows:
        groups.setdefault((r["backend"]["name"] or "refused", r["backend"]["reason"]), []).append(r)
    if groups:
        yield ""
        yield "Experts not on AITER"
    for (name, reason), found in groups.items():
        yield from _wrap(f"{name}: {reason}", "  ", "    ")
        by_model: dict[str, list[str]] = {}
        for r in found:
            by_model.setdefault(r["model"], []).append(r["target"])
        for model, targets in by_model.items():
            yield from _wrap(f"{model}: {', '.join(dict.fromkeys(targets))}", "    ", "      ")


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
