"""The text of ``moe-preflight compare``: per target what got worse, better or merely different."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.style import OF_VERDICT, PLAIN, Style
from moe_preflight.report.view import sentence, target_name

Document = dict[str, Any]
WIDTH = 80

_MARK = {"worse": ("-", "red"), "better": ("+", "green"), "other": ("~", "cyan")}


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The clean document as text. ``quiet`` shows what got worse only; ``verbose`` adds targets that do not change."""
    return "\n".join(_lines(doc, style, quiet, verbose)) + "\n"


def summary(doc: Document) -> str:
    """One line: the verdict and the counts."""
    found = [o for o in doc["observations"] if o["kind"] == "change"]
    n = {d: sum(o["status"] == d for o in found) for d in _MARK}
    still = len(doc["targets"]) - len({o["target"] for o in found})
    missing = f", {len(doc['not_evaluated'])} not evaluated" if doc["not_evaluated"] else ""
    return (
        f"moe-preflight: {doc['verdict'].upper()}: {n['worse']} worse, {n['better']} better, {n['other']} other changes; "
        f"{still} of {len(doc['targets'])} targets unchanged{missing}"
    )


def _lines(doc: Document, style: Style, quiet: bool, verbose: bool) -> Iterator[str]:
    word = doc["verdict"].upper()
    yield style.paint(word, OF_VERDICT[doc["verdict"]], "bold") + "  " + summary(doc).partition(": ")[2].partition(": ")[2]
    for o in doc["observations"]:
        if o["kind"] == "side":
            yield from _wrap(f"{o['status']}: {o['detail']}", "  ", "    ")
    for i, t in enumerate(doc["targets"]):
        mine = [
            o for o in doc["observations"] if o["kind"] == "change" and o["target"] == i and (not quiet or o["status"] == "worse")
        ]
        if not mine and not verbose:
            continue
        yield ""
        yield style.paint(f"{t['model']} {target_name(t)}", "bold") + ("" if mine else "  no change")
        for o in mine:
            mark, colour = _MARK[o["status"]]
            layer = "" if o["layer_name"] in ("main", "all") else f" [{o['layer_name']}]"
            where = f", {o['at_tokens']} tokens" if o["at_tokens"] else ""
            yield f"  {style.paint(mark, colour)} {o['what']}{layer}{where}"
            yield from _wrap(f"was {o['old']}", "      ", "          ")
            yield from _wrap(f"now {o['new']}", "      ", "          ")
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
