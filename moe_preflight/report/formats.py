"""The formats a report can take, as a table: name -> how to render a clean document (report/sanitise.py).

A format's module is imported when that format is asked for: text and JSON, the everyday ones, pay for nothing else.
"""

from __future__ import annotations

import json as _json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

Document = dict[str, Any]
Renderer = Callable[[Document], str]


def dumps(value: Any) -> str:
    """JSON with keys sorted, two-space indent, ASCII only, one newline at the end: same input, same bytes.

    ``##`` is written ``\\u0023\\u0023``, which means the same: printed in a build log, ``##[...]`` or ``##vso[...]`` would be a command to the
    machine that runs the build (GitHub Actions and Azure Pipelines look for it anywhere in a line).
    """
    return _pretty(value, "\n").replace("##", "\\u0023\\u0023") + "\n"


def _pretty(value: Any, line: str) -> str:
    """json.dumps with an indent runs in Python, token by token; this takes a sixth of its time for the same text."""
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if kind is dict and value:
        inner = line + "  "
        return "{" + ",".join([f"{inner}{_quoted(k)}: {_pretty(value[k], inner)}" for k in sorted(value)]) + line + "}"
    if kind is list and value:
        inner = line + "  "
        return "[" + ",".join([inner + _pretty(v, inner) for v in value]) + line + "]"
    return _json.dumps(value, allow_nan=False)


def inert(text: str) -> str:
    """``text`` with nothing in it that a build machine would take for a command: ``::`` at the start of a line, ``##word[`` anywhere."""
    if "::" not in text and "##" not in text:
        return text
    import re

    return re.sub(r"##(?=\w*\[)", r"\\x23#", re.sub(r"(?m)^( *)::", r"\1\\x3a:", text))


def text(doc: Document) -> str:
    """The plain text report, no colour."""
    from moe_preflight.report.text import render

    return inert(render(doc))


def json(doc: Document) -> str:
    """The document itself."""
    return dumps(doc)


def markdown(doc: Document) -> str:
    """GitHub-flavoured Markdown, as a job summary shows it."""
    from moe_preflight.report.markdown import render

    return render(doc)


def html(doc: Document) -> str:
    """One self-contained page."""
    from moe_preflight.report.html import render

    return render(doc)


def github(doc: Document) -> str:
    """GitHub Actions annotations, one command a line."""
    from moe_preflight.report.github import render

    return render(doc)


def junit(doc: Document) -> str:
    """JUnit XML."""
    from moe_preflight.report.junit import render

    return render(doc)


def sarif(doc: Document) -> str:
    """SARIF 2.1.0."""
    from moe_preflight.report.sarif import render

    return render(doc)


FORMATS: dict[str, Renderer] = {
    "text": text,
    "json": json,
    "markdown": markdown,
    "html": html,
    "github": github,
    "junit": junit,
    "sarif": sarif,
}
