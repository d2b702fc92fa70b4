"""One self-contained HTML page: no network, no fonts, readable light and dark, and without its script too (which only sorts tables).

Everything from the document goes through ``esc`` into text or a quoted attribute; the page's own policy forbids any script or style but its
own (html_assets.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moe_preflight.report import view
from moe_preflight.report.html_assets import CSS, JS, policy
from moe_preflight.units import bytes_text

Document = dict[str, Any]

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;", "#": "&#35;"})


MAX_OPEN = 8
"""With more targets than this, only bucket tables that hold something rejected start open."""


def esc(value: object) -> str:
    """``value`` as text for an element or a quoted attribute."""
    return str(value).translate(_ENTITIES)


def render(doc: Document) -> str:
    """The whole page. ``doc`` must be clean (report/sanitise.py)."""
    body = [
        *_head(doc),
        *_gate(doc),
        *_overview(doc),
        *_findings(doc),
        *_forgiven(doc),
        *_missing(doc),
        *_targets(doc),
        *_observations(doc),
        *_environment(doc),
    ]
    tool = doc["tool"]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy()}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">',
            f"<title>moe-preflight: {esc(doc['verdict'])}</title>",
            f"<style>{CSS}</style></head><body><main>",
            *body,
            f"<footer>{esc(tool['name'])} {esc(tool['version'])}, report schema {esc(doc['schema_version'])}</footer>",
            f"</main><script>{JS}</script></body></html>",
            "",
        ]
    )


def _badge(word: str) -> str:
    return f'<span class="badge {esc(word)}">{esc(word)}</span>'


def _head(doc: Document) -> Iterator[str]:
    yield f"<header><h1>{_badge(doc['verdict'])} moe-preflight</h1>"
    found = ", ".join(view.count(n, what) for what, n in view.counts(doc) if n)
    yield f'<p class="lead">{view.count(len(view.targets(doc)), "target")}: {found or "nothing found"}</p><ul class="facts">'
    for m in doc.get("models", ()):
        yield f"<li>Model {_model(m)}</li>"
    for a in view.aiters(doc):
        read = (
            f"{esc(a['found_by'] or '')} <code>{esc(a['root'])}</code>: {a['csv_rows']:,} rows in {a['csv_files']:,} tables, "
            f"{a['moe_csv_rows']:,} in {a['moe_csv_files']:,} MoE tables{esc(view.instead(a))}"
            if a["root"]
            else "no tree read"
        )
        yield f"<li>AITER {esc(a['version'] or 'version unknown')}, {read}; dispatch {esc(a['dispatch_confidence'])}</li>"
    for engine, version in sorted({(t["deployment"]["engine"], t["deployment"]["engine_version"]) for t in view.targets(doc)}):
        yield f"<li>Engine {esc(view.ENGINE_NAMES.get(engine, engine))} {esc(version)}</li>"
    yield "</ul></header>"


def _model(m: Document) -> str:
    if m["error"]:
        return f"<code>{esc(m['id'])}</code>: {esc(m['error'])}"
    q = m["quantization"]
    quant = "unquantized" if q["scheme"] == "none" else f"{q['method'] or 'given'} {q['scheme']}"
    words = [
        m["architecture"] or m["model_type"] or "shape",
        f"{m['num_layers'] or '?'} layers",
        f"hidden {m['hidden_size'] or '?'}",
        m["dtype"],
        f"experts {quant}",
    ]
    revision = f" @ {esc(m['revision'][:12])}" if m["revision"] else ""
    return f"<code>{esc(m['id'])}</code>{revision} ({esc(m['source'])}): {esc(', '.join(words))}"


def _overview(doc: Document) -> Iterator[str]:
    """One line per target and layer, when there is more than one to compare."""
    rows = [(i, t, x) for i, t in enumerate(view.targets(doc)) for x in t["layers"]]
    if len(rows) < 2:
        return
    several = len(doc.get("models", ())) > 1
    heads = (*(["model"] if several else []), "target", "layer", "verdict", "backend", "inter_dim", "router", "tuned")
    yield '<section id="overview"><h2>Overview</h2><div class="card scroll"><table class="sortable"><thead><tr>'
    yield "".join(f'<th scope="col"><button type="button">{h}</button></th>' for h in heads) + "</tr></thead><tbody>"
    for n, (i, t, x) in enumerate(rows):
        p = x["problem"]
        cells = [
            *([f"<code>{esc(t['model'])}</code>"] if several else []),
            f'<a href="#target-{i}">{esc(view.target_name(t))}</a>',
            esc(x["name"]),
            _badge(t["verdict"]),
            f"<code>{esc(x['backend']['name'] or 'refused')}</code>",
            esc(view.size(p["inter_dim"], p["inter_dim_padded"])),
            esc(view.router(x["router"])),
            esc(view.coverage(x["coverage"])) if x["buckets"] else "-",
        ]
        yield f'<tr data-i="{n}">{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
    yield "</tbody></table></div></section>"


def _gate(doc: Document) -> Iterator[str]:
    """What each deployment of a gate must reach, and whether it does."""
    deployments = doc.get("gate", {}).get("deployments", ())
    if not deployments:
        return
    from moe_preflight.report.gate_text import met, requirement

    yield '<section id="gate"><h2>Deployments</h2><div class="card scroll"><table class="sortable"><thead><tr>'
    heads = ("deployment", "verdict", "required", "known", "ignored")
    yield "".join(f'<th scope="col"><button type="button">{h}</button></th>' for h in heads) + "</tr></thead><tbody>"
    for n, d in enumerate(deployments):
        required = "<br>".join(f"{esc(requirement(r))}: <b>{met(r)}</b>" for r in d["requirements"]) or "-"
        cells = [esc(d["name"]), _badge(d["verdict"]), required, str(d["known"]), str(d["ignored"])]
        yield f'<tr data-i="{n}">{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
    yield "</tbody></table></div></section>"


def _forgiven(doc: Document) -> Iterator[str]:
    for by, title in (("baseline", "Known"), ("ignore", "Ignored")):
        groups = list(view.forgiven(doc, by))
        if not groups:
            continue
        yield f'<section id="{by}"><h2>{title}</h2>'
        for s, group in groups:
            f = group[0]
            until = f", until {s['until']}" if s["until"] else ""
            yield f'<article class="card finding"><div class="top"><h3><code>{esc(f["code"])}</code> {esc(f["name"])}</h3>'
            yield f'<span class="soft">{esc(view.where(doc, group))}</span></div><p>{esc(view.body(doc, f))}</p>'
            yield f'<p class="soft">{esc(s["reason"] + until)}</p></article>'
        yield "</section>"


def _findings(doc: Document) -> Iterator[str]:
    groups = view.alike(doc)
    if not groups:
        return
    yield '<section id="findings"><h2>Findings</h2>'
    for group in groups:
        f = group[0]
        where = view.where(doc, group)
        notes = [f["advisory"] or "", "unverified" if f["confidence"] == "unverified" else ""]
        soft = ", ".join(x for x in [where, *notes] if x)
        yield f'<article class="card finding is-{esc(f["severity"])}"><div class="top">{_badge(f["severity"])}'
        yield f'<h3><code>{esc(f["code"])}</code> {esc(f["name"])}</h3><span class="soft">{esc(soft)}</span></div>'
        yield f'<p>{esc(view.body(doc, f))}</p><p class="soft">{esc(f["why"])}</p>'
        if f["remedy"]:
            yield f"<p><b>Do:</b> {esc(f['remedy'])}</p>"
        evidence = list(dict.fromkeys((view.cited(e), e["text"]) for g in group for e in g["evidence"]))
        if evidence:
            yield f"<details><summary>Evidence ({len(evidence)})</summary><dl>"
            yield from (f"<dt><code>{esc(cited)}</code></dt><dd>{esc(text)}</dd>" for cited, text in evidence)
            yield "</dl></details>"
        yield "</article>"
    yield "</section>"


def _missing(doc: Document) -> Iterator[str]:
    missing = doc.get("not_evaluated", ())
    if missing:
        yield '<section id="not-evaluated"><h2>Not evaluated</h2>'
        for n in missing:
            yield f'<article class="card finding is-warning"><h3>{esc(n["what"])}</h3><p>{esc(n["why"])}</p>'
            yield f"<p><b>To get it:</b> {esc(n['how_to_get_it'])}</p></article>"
        yield "</section>"


def _targets(doc: Document) -> Iterator[str]:
    if not view.targets(doc):
        return
    yield '<section id="targets"><h2>Targets</h2>'
    few = len(view.targets(doc)) <= MAX_OPEN
    for i, t in enumerate(view.targets(doc)):
        d = t["deployment"]
        facts = f"{t['model']}, {d['gfx']}, {d['cu_num']} CU"
        yield f'<article class="card" id="target-{i}"><div class="top"><h3>{esc(view.target_name(t))}</h3>'
        yield f'<span class="soft grow">{esc(facts)}</span>{_badge(t["verdict"])}</div>'
        for x in t["layers"]:
            yield from _layer(x, unfolded=few or any(map(view.is_bad, x["buckets"])))
        if not t["layers"]:
            yield '<p class="soft">No MoE layer was reached.</p>'
        yield "</article>"
    yield "</section>"


def _layer(x: Document, *, unfolded: bool) -> Iterator[str]:
    p, pad, b = x["problem"], x["padding"], x["backend"]
    shared = f" (+{p['num_shared_fused']} shared, fused)" if p["num_shared_fused"] else ""
    sizes = (
        f"{x['count']} layers from {x['first_layer']}, {p['expert']} experts on a rank{shared}, top-{p['topk']}, {p['act_type']}"
    )
    yield f'<div class="layer"><b>{esc(x["name"])}</b> <span class="soft">{esc(sizes)}</span><dl>'
    yield from _fact("backend", f"<code>{esc(b['name'] or 'refused')}</code> {esc(b['reason'])}")
    if b["rejected"]:
        yield from _fact("not", "<br>".join(f"<code>{esc(r['name'])}</code> {esc(r['reason'])}" for r in b["rejected"]))
    rule = f"rounded up to a multiple of {p['alignment']}" if p["alignment"] else "no rounding rule applies"
    yield from _fact("inter_dim", esc(f"{view.size(p['inter_dim'], p['inter_dim_padded'])} ({rule})"))
    yield from _fact("model_dim", esc(view.size(p["model_dim"], p["model_dim_padded"])))
    if (p["inter_dim"], p["model_dim"]) != (p["inter_dim_padded"], p["model_dim_padded"]):
        cost = f"+{pad['extra_compute_pct']:.1f} % expert arithmetic, +{bytes_text(pad['extra_weight_bytes_per_rank'])} of weights per rank"
        yield from _fact("padding", esc(f"{cost}; zero-filled by {pad['zero_filled_by'] or 'nothing we could find'}"))
    yield from _fact("router", esc(view.router(x["router"])))
    for part in x["router"]["by_tokens"][1:]:
        said = view.router_kernel(part) if part["compiled"] is not True else ""
        yield from _fact("", esc(", ".join(filter(None, [f"from {part['from']:,} tokens: {part['kernel']}", said]))))
    if x["buckets"]:
        yield from _fact("tuned", f"{esc(view.coverage(x['coverage']))}{_bar(x['coverage'])}")
    yield "</dl>"
    if x["buckets"]:
        yield from _buckets(x["buckets"], unfolded=unfolded)
    yield "</div>"


def _fact(name: str, html: str) -> Iterator[str]:
    yield f"<dt>{name}</dt><dd>{html}</dd>"


def _bar(coverage: dict[str, int]) -> str:
    total = sum(coverage.values()) or 1
    parts, x = [], 0.0
    for kind in ("hit", "tier", "miss", "unknown"):
        width = 100 * coverage[kind] / total
        if width:
            parts.append(f'<rect class="b-{kind}" x="{x:.2f}" width="{width:.2f}" height="10"/>')
        x += width
    return f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="tuned coverage">{"".join(parts)}</svg>'


_HEADS = ("tokens", *view.BUCKET_COLUMNS, "row", "us")
_NUMBERS = ("tokens", "block_m", "ksplit", "us")


def _buckets(buckets: list[Document], *, unfolded: bool) -> Iterator[str]:
    bad = sum(view.is_bad(b) for b in buckets)
    rejected = f", {bad} rejected" if bad else ""
    yield f'<details class="buckets"{" open" * unfolded}><summary>{view.count(len(buckets), "token bucket")}{rejected}</summary>'
    yield '<label><input type="checkbox" class="fold" checked> fold neighbours that are alike</label>'
    heads = "".join(f'<th scope="col"{_num(h)}><button type="button">{h}</button></th>' for h in _HEADS)
    yield f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead><tbody>'
    index = 0
    for run, cells in _runs(buckets):
        for i, b in enumerate(run):
            token = f'<span class="one">{b["token"]:,}</span>'
            if i == 0 and len(run) > 1:
                token = f'<span class="range">{view.span(run)}</span>{token}'
            classes = ["bad"] * view.is_bad(b) + ["same"] * (i > 0)
            yield f'<tr class="{" ".join(classes)}" data-i="{index}">{_bucket(b, token, cells)}</tr>'
            index += 1
    yield "</tbody></table></div></details>"


def _runs(buckets: list[Document]) -> Iterator[tuple[list[Document], tuple[str, ...]]]:
    """Neighbours alike in every column, the row's too."""
    for run, cells in view.folded(buckets):
        part: list[Document] = []
        for b in run:
            if part and part[-1]["row"] != b["row"]:
                yield part, cells
                part = []
            part.append(b)
        yield part, cells


def _num(head: str) -> str:
    return ' class="num"' if head in _NUMBERS else ""


def _bucket(b: Document, token: str, cells: tuple[str, ...]) -> str:
    """The cells of one row of the table; ``data-n`` is what a column of numbers is sorted by."""
    row = b["row"] or {"file": "", "line": 0, "kernelName1": "", "kernelName2": "", "us": None}
    names = [f"{row['file']}:{row['line']}" if b["row"] else "", row["kernelName1"], row["kernelName2"]]
    shown = dict(zip(view.BUCKET_COLUMNS, map(esc, cells), strict=True)) | {
        "tokens": token,
        "row": "<br>".join(f"<code>{esc(name)}</code>" for name in names if name),
        "us": "" if row["us"] is None else f"{row['us']:g}",
    }
    sort_by = {
        "tokens": b["token"],
        "block_m": b["block_m"] or 0,
        "ksplit": b["ksplit"] or 0,
        "us": -1 if row["us"] is None else row["us"],
    }
    return "".join(f"<td{_num(h)}{_sorted_by(sort_by.get(h))}>{shown[h]}</td>" for h in _HEADS)


def _sorted_by(n: float | None) -> str:
    return "" if n is None else f' data-n="{n}"'


def _observations(doc: Document) -> Iterator[str]:
    found = doc.get("observations", ())
    if not found:
        return
    yield '<section id="observations"><h2>Observations</h2>'
    for o in found:
        yield '<article class="card"><dl>'
        yield from (f"<dt>{esc(k)}</dt><dd>{esc(_value(v))}</dd>" for k, v in sorted(o.items()) if v not in (None, "", [], {}))
        yield "</dl></article>"
    yield "</section>"


def _environment(doc: Document) -> Iterator[str]:
    if "environment" in doc:
        yield '<section id="environment"><h2>Environment</h2><article class="card"><dl>'
        yield from (f"<dt>{esc(k)}</dt><dd>{esc(_value(v))}</dd>" for k, v in sorted(doc["environment"].items()))
        yield "</dl></article></section>"


def _value(v: object) -> str:
    if isinstance(v, dict):
        return ", ".join(f"{k}={_value(x)}" for k, x in sorted(v.items()))
    return ", ".join(map(_value, v)) if isinstance(v, list) else str(v)
