"""The coverage matrix as a document: clean plain dicts, the only input of the audit's formats.

Rows that ask the same share their bucket lists, so the document grows with distinct questions, not with models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moe_preflight import __version__
from moe_preflight.aiter.basis import AiterBasis
from moe_preflight.coverage.audit import Audit, AuditRow, Cell, files_of
from moe_preflight.report.document import SCHEMA_VERSION, _aiter
from moe_preflight.report.sanitise import clean, clean_document
from moe_preflight.report.types import NotEvaluated
from moe_preflight.settings import DECODE_MAX

Document = dict[str, Any]


def document(audit: Audit, aiter: AiterBasis, not_evaluated: Sequence[NotEvaluated]) -> Document:
    """Worst row first. ``verdict`` as in a report: fail for a kernel that does not run or a refusal, warn for an untuned bucket."""
    shared: dict[int, list[Document]] = {}
    rows = [_row(audit, r, shared) for r in audit.worst_first()]
    severities = {r["severity"] for r in rows}
    verdict = (
        "fail" if "error" in severities else "inconclusive" if not_evaluated else "warn" if "warning" in severities else "pass"
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "audit",
        "tool": {"name": "moe-preflight", "version": __version__},
        "verdict": verdict,
        "aiter": clean_document(_aiter(aiter)),
        "buckets": list(audit.buckets),
        "decode_max": DECODE_MAX,
        "rows": rows,
        "files": _files(rows),
        "not_evaluated": [
            {"what": clean(n.what), "why": clean(n.why), "how_to_get_it": clean(n.how_to_get_it)} for n in not_evaluated
        ],
    }


def _row(audit: Audit, r: AuditRow, shared: dict[int, list[Document]]) -> Document:
    buckets = shared.get(id(r.cells))
    if buckets is None:
        buckets = shared[id(r.cells)] = [_bucket(b, c) for b, c in zip(audit.buckets, r.cells, strict=False)]
    coverage = {"hit": 0, "tier": 0, "miss": 0, "unknown": 0}
    for c in r.cells:
        coverage[c.tuned] += 1
    k = r.key
    return {
        "model": clean(r.model),
        "layer": clean(r.layer),
        "count": r.count,
        "target": clean(r.name),
        "deployment": {name: clean(v) if isinstance(v, str) else v for name, v in r.deployment},
        "backend": {"name": r.backend, "reason": clean(r.reason)},
        "key": None
        if k is None
        else {
            "model_dim": k.model_dim, "inter_dim": k.inter_dim, "expert": k.expert, "topk": r.lookup_topk, "act_type": k.act,
            "dtype": k.dtype, "q_dtype_w": k.q_dtype_w, "q_type": k.q_type, "use_g1u1": k.use_g1u1, "doweight_stage1": k.doweight_stage1,
        },
        "coverage": coverage,
        "decode_hit_pct": _pct(audit.share(r, decode=True)),
        "prefill_hit_pct": _pct(audit.share(r, decode=False)),
        "files": [{"file": clean(f), "tokens": tokens} for f, tokens in sorted(files_of(r, audit.buckets).items())],
        "severity": r.severity,
        "buckets": buckets,
    }  # fmt: skip


def _bucket(token: int, c: Cell) -> Document:
    row = c.row
    return {
        "token": token,
        "tuned": c.tuned,
        "path": c.path,
        "problem": clean(c.problem) or None,
        "row": None
        if row is None
        else {
            "file": clean(row.file), "line": row.line, "kernelName1": clean(row.kernel1), "kernelName2": clean(row.kernel2), "us": row.us,
        },
    }  # fmt: skip


def _pct(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _files(rows: list[Document]) -> list[Document]:
    """Which tables serve anything at all: rows of the matrix and buckets, most first."""
    count: dict[str, list[int]] = {}
    for r in rows:
        for f in r["files"]:
            held = count.setdefault(f["file"], [0, 0])
            held[0] += 1
            held[1] += len(f["tokens"])
    return [{"file": f, "rows": n, "buckets": b} for f, (n, b) in sorted(count.items(), key=lambda x: (-x[1][1], x[0]))]
