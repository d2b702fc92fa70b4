"""The coverage matrix as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from typing import Any

from moe_preflight.report.heatmap import common_folder, mark, summary
from moe_preflight.report.markdown import prose
from moe_preflight.report.view import instead, sentence

Document = dict[str, Any]

_DEPLOYMENT = ("engine", "engine_version", "gpu", "gfx", "cu_num", "tp", "dp", "pcp", "pp", "ep", "ep_size")
_KEY = ("model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_w", "q_type")


def as_csv(doc: Document) -> str:
    """One line a row of the matrix; one column a token bucket, with hit, tier, miss or unknown, and ``!`` where no kernel runs."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(
        ["model", "layer", "count", *_DEPLOYMENT, "backend", *_KEY, "decode_hit_pct", "prefill_hit_pct"]
        + [f"tokens_{b}" for b in doc["buckets"]]
        + ["files"]
    )
    shorten = common_folder([r["model"] for r in doc["rows"]])
    for r in doc["rows"]:
        key = r["key"] or {}
        cells = [b["tuned"] + ("!" if b["problem"] else "") for b in r["buckets"]] or [""] * len(doc["buckets"])
        files = " ".join(f["file"] for f in r["files"])
        row = [
            r["model"][shorten:],
            r["layer"],
            r["count"],
            *(r["deployment"][c] for c in _DEPLOYMENT),
            r["backend"]["name"] or "refused",
        ]
        row += [key.get(c, "") for c in _KEY]
        write([_inert(x) for x in [*row, r["decode_hit_pct"], r["prefill_hit_pct"], *cells, files]])
    return out.getvalue()


def _inert(value: object) -> object:
    """A text that a spreadsheet would take for a formula, made plain text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def as_markdown(doc: Document) -> str:
    """A table for a job summary: one line a row, the buckets as a row of marks."""
    a = doc["aiter"]
    tree = f"{a['moe_csv_rows']:,} rows in {a['moe_csv_files']:,} MoE tables{instead(a)}" if a["root"] else "no tree read"
    low = sum(b <= doc["decode_max"] for b in doc["buckets"])
    lines = [
        f"## {doc['verdict'].upper()}: tuned coverage",
        "",
        prose(summary(doc).partition(": ")[2]),
        "",
        f"AITER {prose(a['version'] or 'version unknown')}, {prose(tree)}. Buckets {', '.join(f'{b:,}' for b in doc['buckets'])}: "
        "`#` hit, `+` tier fallback, `.` miss, `x` rejected or raises, `?` not looked up.",
        "",
        "| model | target | decode | prefill | buckets | tables |",
        "|---|---|---:|---:|---|---|",
    ]
    shorten = common_folder([r["model"] for r in doc["rows"]])
    for r in doc["rows"]:
        marks = "".join(mark(b) for b in r["buckets"])
        cells = (
            f"`{marks[:low]} {marks[low:]}`" if marks else prose(f"{r['backend']['name'] or 'refused'}: {r['backend']['reason']}")
        )
        files = ", ".join(prose(f["file"].rpartition("/")[2]) for f in r["files"])
        layer = "" if r["layer"] == "main" else f" ({r['layer']})"
        shares = f"{_pct(r['decode_hit_pct'])} | {_pct(r['prefill_hit_pct'])}"
        lines.append(f"| {prose(r['model'][shorten:] + layer)} | {prose(r['target'])} | {shares} | {cells} | {files} |")
    lines += [
        f"\nNot evaluated: {prose(n['what'])}: {prose(sentence(n['why']))} {prose(n['how_to_get_it'])}"
        for n in doc["not_evaluated"]
    ]
    return "\n".join(lines) + "\n"


def _pct(p: float | None) -> str:
    return "-" if p is None else f"{p:.0f} %"
