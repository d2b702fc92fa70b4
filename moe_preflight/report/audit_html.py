"""The coverage matrix as one self-contained HTML page: a sortable heatmap, and the rows behind a line when it is opened.

Without its script the page still shows the whole matrix. Everything from the document goes through ``esc`` into text or a
quoted attribute, or into a JSON block in which nothing can end the block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.audit_html_assets import CSS, JS, policy
from moe_preflight.report.heatmap import common_folder, mark, summary
from moe_preflight.report.html import esc
from moe_preflight.report.view import instead

Document = dict[str, Any]

_CLASS = {"#": "h", "+": "t", ".": "m", "x": "x", "?": "u"}
_WORD = {"#": "hit", "+": "tier fallback", ".": "miss", "x": "no kernel runs", "?": "not looked up"}


def render(doc: Document) -> str:
    """The whole page; ``doc`` as from audit_document.document()."""
    tool = doc["tool"]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy()}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">',
            f"<title>moe-preflight audit: {esc(doc['verdict'])}</title>",
            f"<style>{CSS}</style></head><body><main>",
            *_head(doc),
            *_matrix(doc),
            *_tables(doc),
            *_missing(doc),
            f"<footer>{esc(tool['name'])} {esc(tool['version'])}, audit schema {esc(doc['schema_version'])}</footer>",
            '<section id="detail" hidden aria-live="polite"></section>',
            f'</main><script type="application/json" id="data">{_data(doc)}</script><script>{JS}</script></body></html>',
            "",
        ]
    )


def _head(doc: Document) -> Iterator[str]:
    a = doc["aiter"]
    verdict = esc(doc["verdict"])
    yield f'<header><h1><span class="badge {verdict}">{verdict}</span> Tuned coverage</h1>'
    yield f'<p class="lead">{esc(summary(doc).partition(": ")[2].partition(": ")[2])}</p><ul class="facts">'
    read = (
        f"{a['moe_csv_rows']:,} rows in {a['moe_csv_files']:,} MoE tables of <code>{esc(a['root'])}</code>{esc(instead(a))}"
        if a["root"]
        else "no tree read"
    )
    yield f"<li>AITER {esc(a['version'] or 'version unknown')}, dispatch {esc(a['dispatch_confidence'])}, {read}</li></ul>"
    legend = "".join(f'<li><span class="c {_CLASS[m]}">{esc(m)}</span> {esc(_WORD[m])}</li>' for m in _CLASS)
    yield f'<ul class="legend">{legend}</ul></header>'


def _matrix(doc: Document) -> Iterator[str]:
    heads = [("Model", ""), ("Target", ""), ("Decode", "num"), ("Prefill", "num")]
    for before, b in zip((0, *doc["buckets"]), doc["buckets"], strict=False):
        heads.append((f"{b:,}", "b first" if b > doc["decode_max"] >= before else "b"))
    heads.append(("Asked of AITER", ""))
    yield '<label class="find">Show rows with <input id="find" type="search" placeholder="model, target or key"></label>'
    yield '<div class="scroll"><table id="matrix" class="sortable"><thead><tr>'
    yield "".join(f'<th scope="col" class="{k}"><button type="button">{esc(name)}</button></th>' for name, k in heads)
    yield "</tr></thead><tbody>"
    folder = common_folder([r["model"] for r in doc["rows"]])
    for i, r in enumerate(doc["rows"]):
        yield _line(doc, i, r, folder)
    yield "</tbody></table></div>"


def _line(doc: Document, i: int, r: Document, folder: int) -> str:
    layer = "" if r["layer"] == "main" else f" [{r['layer']}]"
    name = f'<button type="button" class="open" title="{esc(r["model"])}">{esc(r["model"][folder:] + layer)}</button>'
    shares = "".join(_share(r[share]) for share in ("decode_hit_pct", "prefill_hit_pct"))
    head = f'<tr data-i="{i}"><th scope="row">{name}</th><td>{esc(r["target"])}</td>{shares}'
    key = f"<td><code>{esc(key_words(r))}</code></td></tr>"
    if not r["buckets"]:
        reason = f"{r['backend']['name'] or 'refused'}: {r['backend']['reason']}"
        return f'{head}<td class="off" colspan="{len(doc["buckets"])}"><span>{esc(reason)}</span></td>{key}'
    marks = [mark(b) for b in r["buckets"]]
    return head + "".join(f'<td class="c {_CLASS[m]}">{esc(m)}</td>' for m in marks) + key


def _share(p: float | None) -> str:
    return f'<td class="num" data-n="{-1 if p is None else p}">{"-" if p is None else f"{p:.0f} %"}</td>'


def key_words(r: Document) -> str:
    """``E192 k8 6144x256 bf16 silu``."""
    k = r["key"]
    if k is None:
        return "-"
    quant = k["dtype"] if k["q_type"] == "No" else f"{k['q_dtype_w']} {k['q_type']}"
    return f"E{k['expert']} k{k['topk']} {k['model_dim']}x{k['inter_dim']} {quant} {k['act_type']}"


def _tables(doc: Document) -> Iterator[str]:
    if not doc["files"]:
        return
    yield '<h2>Tables that serve a row</h2><div class="scroll"><table class="sortable"><thead><tr>'
    yield "".join(
        f'<th scope="col"{k}><button type="button">{name}</button></th>'
        for name, k in (("Table", ""), ("Rows", ' class="num"'), ("Buckets", ' class="num"'))
    )
    yield "</tr></thead><tbody>"
    for i, f in enumerate(doc["files"]):
        numbers = "".join(f'<td class="num" data-n="{n}">{n:,}</td>' for n in (f["rows"], f["buckets"]))
        yield f'<tr data-i="{i}"><td><code>{esc(f["file"])}</code></td>{numbers}</tr>'
    yield "</tbody></table></div>"


def _missing(doc: Document) -> Iterator[str]:
    if doc["not_evaluated"]:
        yield "<h2>Not evaluated</h2>"
    for n in doc["not_evaluated"]:
        yield f'<div class="card"><h3>{esc(n["what"])}</h3><p>{esc(n["why"])}</p><p class="soft">{esc(n["how_to_get_it"])}</p></div>'


def _data(doc: Document) -> str:
    """What the drill-down shows: texts once, bucket lists once, and for every row the number of its list."""
    texts: dict[str, int] = {}
    lists: dict[int, int] = {}
    buckets: list[list[list[Any]]] = []

    def text(value: str | None) -> int:
        return -1 if not value else texts.setdefault(value, len(texts))

    rows = []
    for r in doc["rows"]:
        slot = lists.get(id(r["buckets"]))
        if slot is None:
            slot = lists[id(r["buckets"])] = len(buckets)
            buckets.append([_bucket(b, text) for b in r["buckets"]])
        rows.append(slot)
    body = json.dumps({"texts": list(texts), "lists": buckets, "rows": rows}, separators=(",", ":"), ensure_ascii=True)
    return body.replace("<", "\\u003c").replace("##", "\\u0023\\u0023")


def _bucket(b: Document, text: Any) -> list[Any]:
    row = b["row"] or {"file": None, "line": 0, "kernelName1": None, "kernelName2": None, "us": None}
    names = (row["kernelName1"], row["kernelName2"])
    return [
        b["token"],
        _WORD[mark(b)],
        text(b["path"]),
        text(b["problem"]),
        text(row["file"]),
        row["line"],
        row["us"],
        *map(text, names),
    ]
