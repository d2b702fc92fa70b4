"""GitHub Actions workflow commands: findings become annotations, one about a row of a table at its file and line.

A line is ``::level key=value,key=value::message`` (github.com/actions/toolkit, docs/commands.md). ``%``, CR and LF are escaped in both
halves, ``:`` and ``,`` in the properties too; the runner reads the first ``::`` after the command as the start of the message. GitHub shows ten
annotations of a level in a step, so findings that differ in their target only, and point at the same place, share one, and so does
all that a gate's baseline forgives, and all that it ignores.
"""

from __future__ import annotations

from typing import Any

from moe_preflight.report import view
from moe_preflight.report.text import summary

Document = dict[str, Any]

_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}
_MAX_TITLE = 200
_MAX_FORGIVEN = 20


def render(doc: Document) -> str:
    """One command a line, then one plain line with the verdict and the counts. ``doc`` must be clean."""
    lines = [_annotation(doc, group) for group in groups(doc)]
    lines += [
        _command("warning", {"title": "not evaluated"}, [f"{n['what']}: {n['why']}", f"To get it: {n['how_to_get_it']}"])
        for n in doc.get("not_evaluated", ())
    ]
    lines += [_forgiven(doc, by, word) for by, word in view.FORGIVEN.items() if any(view.forgiven(doc, by))]
    return "\n".join([*lines, summary(doc)]) + "\n"


def groups(doc: Document) -> list[list[Document]]:
    """Alike findings that point at the same place, together."""
    out: list[list[Document]] = []
    for group in view.alike(doc):
        places: dict[str, list[Document]] = {}
        for f in group:
            places.setdefault(" ".join(view.cited(e) for e in view.rows(f)[:1]), []).append(f)
        out += places.values()
    return out


def _forgiven(doc: Document, by: str, word: str) -> str:
    """One notice for what is forgiven in one way: a line for each rule's findings, with the reason; the first few of many."""
    found = list(view.forgiven(doc, by))
    lines = []
    for s, group in found[:_MAX_FORGIVEN]:
        f, where = group[0], view.where(doc, group)
        until = f", until {s['until']}" if s["until"] else ""
        lines.append(f"{f['severity']} {f['code']} {f['name']}{f', {where}' if where else ''} ({s['reason']}{until})")
    if len(found) > _MAX_FORGIVEN:
        lines.append(f"and {len(found) - _MAX_FORGIVEN:,} more; the JSON report has all of them")
    title = f"{word}: {view.count(sum(len(group) for _, group in found), 'finding')} forgiven"
    return _command("notice", {"title": title}, lines)


def _annotation(doc: Document, group: list[Document]) -> str:
    f, where = group[0], view.where(doc, group)
    rows = view.rows(f)
    properties: dict[str, str] = {}
    if rows:
        properties = {"file": view.path_of(doc, rows[0]["file"]), "line": str(rows[0]["line"])}
    properties["title"] = f"{f['code']} {f['name']}"[:_MAX_TITLE]
    message = [f"{where}: {view.body(doc, f)}" if where else f["message"]]
    message += [f"{label}: {f[key]}" for label, key in (("Why", "why"), ("Do", "remedy")) if f[key]]
    message += [f"Read: {view.cited(e)} {e['text']}" for e in rows[1:]]
    return _command(_LEVEL[f["severity"]], properties, message)


def _command(name: str, properties: dict[str, str], lines: list[str]) -> str:
    given = ",".join(f"{k}={_property(v)}" for k, v in properties.items())
    return f"::{name} {given}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
