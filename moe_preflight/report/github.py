"""GitHub Actions workflow commands: every finding becomes an annotation, a row of a table one at its file and line.

A line is ``::level key=value,key=value::message`` (github.com/actions/toolkit, docs/commands.md). ``%``, CR and LF are escaped in both
halves, ``:`` and ``,`` in the properties too; the runner reads the first ``::`` after the command as the start of the message.
"""

from __future__ import annotations

from typing import Any

from moe_preflight.report.text import summary
from moe_preflight.report.view import cited, layer_name, path_of, rows, short_title

Document = dict[str, Any]

_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}
_MAX_TITLE = 200


def render(doc: Document) -> str:
    """One command a line, then one plain line with the verdict and the counts. ``doc`` must be clean."""
    lines = [_annotation(doc, f) for f in doc["findings"]]
    lines += [
        _command("warning", {"title": "not evaluated"}, [f"{n['what']}: {n['why']}", f"To get it: {n['how_to_get_it']}"])
        for n in doc.get("not_evaluated", ())
    ]
    return "\n".join([*lines, summary(doc)]) + "\n"


def _annotation(doc: Document, f: Document) -> str:
    properties: dict[str, str] = {}
    found = rows(f)
    if found:
        properties = {"file": path_of(doc, found[0]["file"]), "line": str(found[0]["line"])}
    of = "" if f["target"] is None else f" ({short_title(doc, f['target'])})"
    properties["title"] = f"{f['code']} {f['name']}{of}"[:_MAX_TITLE]
    message = [f["message"]]
    layer = layer_name(doc, f)
    if layer is not None and layer != "main":
        message.append(f"Layer: {layer}")
    message += [f"Why: {f['why']}", f"Do: {f['remedy']}"]
    message += [f"Read: {cited(e)} {e['text']}" for e in found[1:]]
    return _command(_LEVEL[f["severity"]], properties, message)


def _command(name: str, properties: dict[str, str], lines: list[str]) -> str:
    given = ",".join(f"{k}={_property(v)}" for k, v in properties.items())
    return f"::{name} {given}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
