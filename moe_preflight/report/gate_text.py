"""The text of ``moe-preflight gate``: what each deployment must reach and whether it does, what is new, what is known or ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moe_preflight.report import view
from moe_preflight.report.style import OF_SEVERITY, OF_VERDICT, PLAIN, Style
from moe_preflight.report.text import WIDTH, _headline, _target, _wrap

Document = dict[str, Any]

REQUIREMENTS = {
    "on_aiter": "experts on AITER",
    "accepted": "every token bucket accepted",
    "min_tuned_decode_pct": "tuned decode buckets >= {:g} %",
    "max_padding_pct": "padding <= {:g} %",
    "router_kernel": "AITER routing kernel",
    "no_advisories_from": "no advisory at {} or above",
    "aiter_is_pin": "AITER is the engine's pin",
    "dispatch_verified": "dispatch verified",
    "engine_verified": "engine release read",
}
"""What each requirement asks, in words."""


def requirement(r: Document) -> str:
    """``tuned decode buckets >= 80 %``."""
    words = REQUIREMENTS[r["key"]].format(r["value"])
    return f"{words}, where it is known" if r["value"] == "unless-unknown" else words


def met(r: Document) -> str:
    """``yes``, ``NO``, ``no, forgiven`` or ``not known``."""
    return "no, forgiven" if r["forgiven"] else {True: "yes", False: "NO", None: "not known"}[r["met"]]


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The clean document as text. ``quiet`` leaves out info findings and what is forgiven, ``verbose`` adds every target's block."""
    return "\n".join(line.rstrip() for line in _lines(doc, style, quiet, verbose)) + "\n"


def _lines(doc: Document, style: Style, quiet: bool, verbose: bool) -> Iterator[str]:
    gate, word = doc["gate"], doc["verdict"].upper()
    first, *rest = _wrap(f"{word}  {_why(doc)}", "", " " * (len(word) + 2))
    yield style.paint(word, OF_VERDICT[doc["verdict"]], "bold") + first[len(word) :]
    yield from rest
    yield from _wrap(f"Gate {gate['file']}: {_of(doc)}", "  ")
    for m in doc["models"]:
        if m["error"]:
            yield from _wrap(m["error"] if m["error"].startswith(m["id"]) else f"{m['id']}: {m['error']}", "  ")
    for d in gate["deployments"]:
        yield ""
        yield from _deployment(doc, d, style)
        if verbose:
            for i in d["targets"]:
                yield from _target(doc, i, doc["targets"][i], style, verbose)
    groups = [g for g in view.alike(doc) if not (quiet and g[0]["severity"] == "info")]
    if groups:
        yield ""
        yield style.paint("Findings", "bold")
    for group in groups:
        yield from _finding(doc, group, style, verbose)
    if not quiet:
        yield from _forgiven(doc, style)
    if doc["not_evaluated"]:
        yield ""
        yield style.paint("Not evaluated", "bold")
    for n in doc["not_evaluated"]:
        yield from _wrap(f"{n['what']}: {n['why']}", "  ")
        yield from _wrap(f"To get it: {n['how_to_get_it']}", "    ")


def _why(doc: Document) -> str:
    if doc["verdict"] == "pass":
        return "nothing new against any deployment" if doc["gate"]["suppressed"] else "every deployment holds"
    return _headline(doc)


def _of(doc: Document) -> str:
    gate = doc["gate"]
    said = [view.count(len(gate["deployments"]), "deployment"), view.count(len(doc["targets"]), "target")]
    if gate["baseline"]:
        b = gate["baseline"]
        gone = f", {b['gone']:,} gone" if b["gone"] else ""
        said.append(f"baseline {b['file'] or 'being written'}: {b['known']:,} known{gone}")
    ignored = sum(d["ignored"] for d in gate["deployments"])
    off = sum(d["switched_off"] + d["not_selected"] for d in gate["deployments"])
    said += [f"{ignored:,} ignored"] if ignored else []
    said += [f"{off:,} switched off or not selected"] if off else []
    return ", ".join(said)


def _deployment(doc: Document, d: Document, style: Style) -> Iterator[str]:
    word = d["verdict"].upper()
    title = d["name"] if len(d["name"]) < WIDTH - 20 else d["name"][: WIDTH - 23] + "..."
    yield (
        style.paint(title, "bold")
        + " " * max(2, WIDTH - len(title) - len(word))
        + style.paint(word, OF_VERDICT[d["verdict"]], "bold")
    )
    a = d["aiter"]
    tree = f" ({a['root']})" if a["root"] else ", no tree read"
    targets = [doc["targets"][i] for i in d["targets"]]
    for engine, version in dict.fromkeys((t["deployment"]["engine"], t["deployment"]["engine_version"]) for t in targets):
        yield from _wrap(f"{view.ENGINE_NAMES.get(engine, engine)} {version}".rstrip(), "  ")
    if targets:
        yield from _wrap(f"AITER {a['version'] or 'version unknown'}{tree}; dispatch {a['dispatch_confidence']}", "  ")
    for t in targets:
        name = view.target_name(t)
        mark = t["verdict"].upper()
        yield f"    {name}{' ' * max(2, 34 - len(name))}{style.paint(mark, OF_VERDICT[t['verdict']])}"
    for r in d["requirements"]:
        mark = met(r)
        colour = {"yes": "green", "NO": "red"}.get(mark, "yellow")
        words = requirement(r)
        yield f"    {words}{' ' * max(2, 44 - len(words))}{style.paint(mark, colour)}"


def _finding(doc: Document, group: list[Document], style: Style, verbose: bool) -> Iterator[str]:
    f = group[0]
    advisory = f" {f['advisory']}" if f["advisory"] else ""
    unverified = " (unverified)" if f["confidence"] == "unverified" else ""
    yield f"  {style.paint(f['severity'], OF_SEVERITY[f['severity']], 'bold')} {f['code']} {f['name']}{advisory}{unverified}"
    where = view.where(doc, group)
    yield from _wrap(f"{where}: {view.body(doc, f)}" if where else f["message"], "    ")
    if f["severity"] != "info":
        yield from _wrap(f"Why: {f['why']}", "    ", "         ")
    if f["remedy"]:
        yield from _wrap(f"Do:  {f['remedy']}", "    ", "         ")
    if verbose:
        for e in f["evidence"]:
            yield from _wrap(f"Read: {view.cited(e)} {e['text']}", "    ", "          ")


def _forgiven(doc: Document, style: Style) -> Iterator[str]:
    for by, title in (("baseline", "Known"), ("ignore", "Ignored")):
        mine = [s for s in doc["gate"]["suppressed"] if s["by"] == by]
        if mine:
            yield ""
            yield style.paint(title, "bold")
        for s, group in view.forgiven(doc, by):
            f = group[0]
            until = f", until {s['until']}" if s["until"] else ""
            where = view.where(doc, group)
            lead = f"{f['severity']} {f['code']} {f['name']} ({s['reason']}{until})"
            yield from _wrap(f"{lead}: {where + ': ' if where else ''}{view.body(doc, f)}", "  ", "    ")
