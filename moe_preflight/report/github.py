"""GitHub Actions workflow commands: findings become annotations, one about a row of a table at its file and line.

A line is ``::level key=value,key=value::message`` (github.com/actions/toolkit, docs/commands.md). ``%``, CR and LF are escaped in both
halves, ``:`` and ``,`` in the properties too; the runner reads the first ``::`` after the command as the start of the message. GitHub shows ten
annotations of a level in a step, so findings that differ in their target only, and point at the same place, share one.
"""

from __future__ import annotations

from typing import Any

from moe_preflight.report import view
from moe_preflight.report.text import summary

Document = dict[str, Any]

_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}
_MAX_TITLE = 200


def render(doc: Document) -> str:
    """One command a line, then one plain line with the verdict and the counts. ``doc`` must be clean."""
    lines = [_annotation(doc, group) for group in groups(doc)]
    lines += [
        _command("warning", {"title": "not evaluated"}, [f"{n['what']}: {n['why']}", f"To get it: {n['how_to_get_it']}"])
        for n in doc.get("not_evaluated", ())
    ]
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
