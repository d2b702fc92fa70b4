"""The text of ``moe-preflight lint``: kinds of finding together, each with what to do, then file and line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.style import OF_SEVERITY, OF_VERDICT, PLAIN, Style
from moe_preflight.report.view import sentence

Document = dict[str, Any]
WIDTH = 80
SHOWN = 10
"""Findings of one kind shown without --verbose."""


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The clean document as text. ``quiet`` leaves out info findings, ``verbose`` shows every one."""
    return "\n".join(line.rstrip() for line in _lines(doc, style, quiet, verbose)) + "\n"


def summary(doc: Document) -> str:
    """One line: the verdict, what was read, the counts."""
    n = {s: sum(f["severity"] == s for f in doc["findings"]) for s in OF_SEVERITY}
    o = doc["observations"][0]
    counts = ", ".join(f"{n[s]} {s}{'s' * (n[s] != 1 and s != 'info')}" for s in OF_SEVERITY)
    missing = f", {len(doc['not_evaluated'])} not evaluated" if doc["not_evaluated"] else ""
    return f"moe-preflight: {doc['verdict'].upper()}: {o['tables']} tables, {o['rows']:,} rows, {counts}{missing}"


def _lines(doc: Document, style: Style, quiet: bool, verbose: bool) -> Iterator[str]:
    o, a = doc["observations"][0], doc["aiter"]
    word = doc["verdict"].upper()
    others = f" and {o['other_csv_files']} other CSV files" if o["other_csv_files"] else ""
    yield (
        style.paint(word, OF_VERDICT[doc["verdict"]], "bold")
        + f"  {o['tables']} tuned fMoE tables with {o['rows']:,} rows{others} read"
    )
    yield from _wrap(f"Rules of AITER {o['rules']} ({o['rules_from']}){'; tree ' + a['root'] if a['root'] else ''}", "  ")
    kinds: dict[tuple[str, str], list[Document]] = {}
    for f in doc["findings"]:
        if not (quiet and f["severity"] == "info"):
            kinds.setdefault((f["severity"], f["code"]), []).append(f)
    for (severity, code), found in sorted(kinds.items(), key=lambda k: (tuple(OF_SEVERITY).index(k[0][0]), k[0][1])):
        yield ""
        yield f"{style.paint(severity, OF_SEVERITY[severity], 'bold')} {code} {found[0]['name']}: {len(found):,}"
        yield from _wrap(f"Why: {found[0]['why']}", "  ", "       ")
        yield from _wrap(f"Do:  {found[0]['remedy']}", "  ", "       ")
        for f in found if verbose else found[:SHOWN]:
            yield from _wrap(f["message"], "    ", "      ")
        if len(found) > SHOWN and not verbose:
            yield f"    ... and {len(found) - SHOWN:,} more: --verbose, or --format json"
    for n in doc["not_evaluated"]:
        yield ""
        yield from _wrap(f"Not evaluated: {n['what']}: {sentence(n['why'])} {n['how_to_get_it']}", "", "  ")


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
