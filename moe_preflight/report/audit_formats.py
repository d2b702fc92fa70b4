"""The formats of an audit, as a table: name -> how to render its document."""

from __future__ import annotations

from moe_preflight.report.formats import Document, Renderer, dumps, inert


def text(doc: Document) -> str:
    """The heatmap, no colour."""
    from moe_preflight.report.heatmap import render

    return inert(render(doc))


def json(doc: Document) -> str:
    """The document itself."""
    return dumps(doc)


def markdown(doc: Document) -> str:
    """GitHub-flavoured Markdown."""
    from moe_preflight.report.audit_tables import as_markdown

    return as_markdown(doc)


def html(doc: Document) -> str:
    """One self-contained page."""
    from moe_preflight.report.audit_html import render

    return render(doc)


def csv(doc: Document) -> str:
    """One line a row, one column a token bucket."""
    from moe_preflight.report.audit_tables import as_csv

    return as_csv(doc)


FORMATS: dict[str, Renderer] = {"text": text, "json": json, "markdown": markdown, "html": html, "csv": csv}
