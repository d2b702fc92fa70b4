"""GitHub-flavoured Markdown: what a job summary (``$GITHUB_STEP_SUMMARY``) or a merge request shows.

Nothing from the document starts a line, and every character that Markdown, a table or HTML could read as structure is an entity,
which CommonMark (section 2.5) never takes for structure. Names stand in code spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moe_preflight.report import view

Document = dict[str, Any]

MAX_BYTES = 1 << 20
"""GitHub shows no summary larger than 1 MiB (docs.github.com, workflow commands, job summaries)."""

_ENTITIES = str.maketrans({c: f"&#{ord(c)};" for c in "\\`*_[]<&|~#$@!{}"})
_CODE_BREAKERS = frozenset("`|\\#<&")


def prose(text: str) -> str:
    """``text`` as literal Markdown text. An underscore inside a word needs no escape and reads better without."""
    if text.isalnum():
        return text
    out = text.translate(_ENTITIES)
    return out if "&#95;" not in out else _inner_underscores(out)


def _inner_underscores(text: str) -> str:
    import re

    return re.sub(r"(?<=[0-9A-Za-z])&#95;(?=[0-9A-Za-z])", "_", text)


def code(text: str) -> str:
    """``text`` as a code span that also holds inside a table; one with backticks or pipes becomes HTML with entities."""
    if not text:
        return ""
    if _CODE_BREAKERS.isdisjoint(text) and text.strip() == text:
        return f"`{text}`"
    return f"<code>{text.translate(_ENTITIES)}</code>"


def render(doc: Document) -> str:
    """The whole report; less of it (no buckets, then the first findings only) when it would pass MAX_BYTES."""
    head, findings, missing = [*_head(doc), *_gate(doc)], [*_findings(doc), *_forgiven(doc)], list(_missing(doc))
    whole = _join([*head, *findings, *missing, *_details(doc)])
    if len(whole.encode()) <= MAX_BYTES:
        return whole
    note = ["", "This report is longer than a job summary may be. The JSON report has all of it."]
    kept = [*head, *note, *missing]
    room = MAX_BYTES - len(_join(kept).encode())
    if room < 0:
        return _join([*head[:3], *note])
    for i, line in enumerate(findings):
        room -= len(line.encode()) + 1
        if room < 0:
            findings = findings[:i]
            break
    return _join([*head, *findings, *missing, *note])


def _join(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _head(doc: Document) -> Iterator[str]:
    yield f"## moe-preflight: {doc['verdict'].upper()}"
    yield ""
    found = [view.count(n, what) for what, n in view.counts(doc) if n]
    yield f"{view.count(len(view.targets(doc)), 'target')}: {', '.join(found) or 'nothing found'}."
    basis = list(_basis(doc))
    yield from (["", *basis] if basis else [])
    rows = [(t, x) for t in view.targets(doc) for x in t["layers"]]
    if rows:
        yield ""
        several = len(doc.get("models", ())) > 1
        heads = [*(["Model"] if several else []), "Target", "Layer", "Verdict", "Backend", "inter_dim", "Router", "Tuned buckets"]
        yield f"| {' | '.join(heads)} |"
        yield "|" + " --- |" * len(heads)
        for t, x in rows:
            p = x["problem"]
            cells = [
                *([code(t["model"])] if several else []),
                prose(view.target_name(t)),
                prose(x["name"]),
                f"**{t['verdict'].upper()}**",
                code(x["backend"]["name"] or "refused"),
                prose(view.size(p["inter_dim"], p["inter_dim_padded"])),
                prose(view.router(x["router"])),
                prose(view.coverage(x["coverage"])) if x["buckets"] else "-",
            ]
            yield f"| {' | '.join(cells)} |"


def _basis(doc: Document) -> Iterator[str]:
    for a in view.aiters(doc):
        tree = (
            f", {a['moe_csv_rows']:,} rows in {a['moe_csv_files']:,} MoE tables{prose(view.instead(a))}"
            if a["root"]
            else ", no tree read"
        )
        yield f"- AITER {code(a['version'] or 'version unknown')}{tree}; dispatch {a['dispatch_confidence']}"
    engines = sorted({(t["deployment"]["engine"], t["deployment"]["engine_version"]) for t in view.targets(doc)})
    for engine, version in engines:
        yield f"- Engine {prose(view.ENGINE_NAMES.get(engine, engine))} {code(version)}".rstrip()
    for m in doc.get("models", ()):
        if m["error"]:
            yield f"- Model {code(m['id'])}: {prose(m['error'])}"


def _gate(doc: Document) -> Iterator[str]:
    """What each deployment of a gate must reach, and whether it does."""
    deployments = doc.get("gate", {}).get("deployments", ())
    if not deployments:
        return
    from moe_preflight.report.gate_text import met, requirement

    yield ""
    yield "| Deployment | Verdict | Required | Known | Ignored |"
    yield "|" + " --- |" * 5
    for d in deployments:
        required = "<br>".join(f"{prose(requirement(r))}: **{met(r)}**" for r in d["requirements"]) or "-"
        yield f"| {prose(d['name'])} | **{d['verdict'].upper()}** | {required} | {d['known']:,} | {d['ignored']:,} |"


def _forgiven(doc: Document) -> Iterator[str]:
    for by, title in (("baseline", "Known"), ("ignore", "Ignored")):
        groups = list(view.forgiven(doc, by))
        if groups:
            yield from ("", f"### {title}", "")
        for s, group in groups:
            f, where = group[0], view.where(doc, group)
            until = f", until {prose(s['until'])}" if s["until"] else ""
            yield (
                f"- {f['severity']} {code(f['code'])} {prose(f['name'])}"
                + (f", {prose(where)}" if where else "")
                + f": {prose(view.body(doc, f))}"
            )
            yield f"  <br>{prose(s['reason'])}{until}"


def _findings(doc: Document) -> Iterator[str]:
    groups = view.alike(doc)
    if groups:
        yield ""
        yield "### Findings"
        yield ""
    for group in groups:
        f = group[0]
        where = view.where(doc, group)
        lead = f"- **{f['severity']}** {code(f['code'])} {prose(f['name'])}"
        extra = "".join(
            [f" ({prose(f['advisory'])})" if f["advisory"] else "", " (unverified)" if f["confidence"] == "unverified" else ""]
        )
        yield f"{lead}{extra}" + (f", {prose(where)}" if where else "") + f": {prose(view.body(doc, f))}"
        if f["severity"] != "info":
            yield f"  <br>Why: {prose(f['why'])}"
        if f["remedy"]:
            yield f"  <br>Do: {prose(f['remedy'])}"
        rows = list(dict.fromkeys(view.cited(e) for g in group for e in view.rows(g)))
        if rows:
            yield f"  <br>Rows: {', '.join(code(r) for r in rows[:5])}" + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")


def _missing(doc: Document) -> Iterator[str]:
    missing = doc.get("not_evaluated", ())
    if missing:
        yield ""
        yield "### Not evaluated"
        yield ""
    for n in missing:
        yield f"- **{prose(n['what'])}**: {prose(n['why'])}"
        yield f"  <br>To get it: {prose(n['how_to_get_it'])}"


def _details(doc: Document) -> Iterator[str]:
    for i, t in enumerate(view.targets(doc)):
        for x in t["layers"]:
            if not x["buckets"]:
                continue
            yield ""
            yield f"<details><summary>Token buckets: {prose(view.target_title(doc, i))}, {prose(x['name'])}</summary>"
            yield ""
            yield f"| tokens | {' | '.join(view.BUCKET_COLUMNS)} |"
            yield "|" + " --- |" * (len(view.BUCKET_COLUMNS) + 1)
            for run, cells in view.folded(x["buckets"]):
                shown = [prose(c) for c in cells]
                if any(view.is_bad(b) for b in run):
                    shown = [f"**{c}**" if c else "" for c in shown]
                yield f"| {view.span(run)} | {' | '.join(shown)} |"
            yield ""
            yield "</details>"
