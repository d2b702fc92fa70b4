"""The text of ``moe-preflight tune``: what to run, how many keys, and what no tuning can help."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.style import OF_VERDICT, PLAIN, Style
from moe_preflight.report.view import sentence

Document = dict[str, Any]
WIDTH = 80


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The clean document as text. ``quiet`` leaves out models that never reach AITER, ``verbose`` adds every key."""
    return "\n".join(_lines(doc, style, quiet, verbose)) + "\n"


def summary(doc: Document) -> str:
    """One line: the verdict and the counts."""
    lost = sum(len(h["tokens"]) for h in doc["hopeless"])
    missing = f", {len(doc['not_evaluated'])} not evaluated" if doc["not_evaluated"] else ""
    return (
        f"moe-preflight: {doc['verdict'].upper()}: {len(doc['rows']):,} keys to tune, {doc['served']:,} buckets have a row, "
        f"{lost:,} no tuning can help{missing}"
    )


def _lines(doc: Document, style: Style, quiet: bool, verbose: bool) -> Iterator[str]:
    word = doc["verdict"].upper()
    yield style.paint(word, OF_VERDICT[doc["verdict"]], "bold") + "  " + summary(doc).partition(": ")[2].partition(": ")[2]
    if doc["rows"]:
        yield ""
        yield "On the GPU, with this AITER:"
        for c in doc["commands"]:
            yield f"  {c['command']}"
            if len(doc["commands"]) > 1:
                yield f"    on {c['gpu']}"
        yield from _wrap(doc["afterwards"], "  ")
        if len(doc["commands"]) > 1:
            yield from _wrap(
                "Rows for several GPUs are in one list; fp8 types of the other architecture fail there. Name one with --gpu.",
                "  ",
            )
    if verbose:
        yield ""
        yield ",".join(doc["columns"])
        yield from (",".join(row) for row in doc["rows"])
    if doc["hopeless"]:
        yield ""
        yield style.paint("No tuning can help", "bold")
    for h in doc["hopeless"]:
        layer = "" if h["layer"] == "main" else f" [{h['layer']}]"
        yield from _wrap(
            f"{h['model']}{layer} {h['target']}, {', '.join(f'{t:,}' for t in h['tokens'])} tokens: {h['reason']}", "  ", "    "
        )
    if doc["off"] and not quiet:
        yield ""
        yield "Experts not on AITER"
        for o in doc["off"]:
            yield from _wrap(f"{o['model']} {o['target']}: {o['reason']}", "  ", "    ")
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
