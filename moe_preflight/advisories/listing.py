"""The advisories as text (80 columns) and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from textwrap import wrap

from moe_preflight.advisories.advisory import Advisory, Condition

WIDTH = 80


def applies(a: Advisory) -> str:
    """Engines, releases, batch sizes in one line of words."""
    parts = [f"{engine} {span}" for engine, span in a.engines] or ["any engine"]
    parts += [f"AITER {span}" for span in a.aiter] or ["any AITER"]
    first, last = a.tokens
    if (first, last) != (1, None):
        parts.append(f"batches of {first} tokens or more" if last is None else f"batches of {first} to {last} tokens")
    return "; ".join(parts)


def as_text(advisories: Iterable[Advisory], *, details: bool = False) -> str:
    """One block per advisory: id, severity, title, where it applies, URL; with ``details`` predicate, symptom, cause, remedy."""
    blocks = []
    for a in advisories:
        lines = wrap(f"{a.id}  {a.severity}: {a.title}", WIDTH, subsequent_indent=" " * 10)
        rows = [("applies", applies(a))]
        if details:
            rows += [("when", " and ".join(map(str, a.where))), ("symptom", a.symptom), ("cause", a.cause)]
            rows.append(("confidence", a.confidence))
        rows += [("do", a.remedy), ("see", a.url)]
        if details:
            rows += [("", url) for url in a.see_also]
        for label, text in rows:
            lines += wrap(f"{label:<11}{text}", WIDTH, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def as_json(advisories: Iterable[Advisory]) -> str:
    """A JSON object with one list, keys sorted."""
    return json.dumps({"schema_version": 1, "advisories": [document(a) for a in advisories]}, indent=2, sort_keys=True) + "\n"


def document(a: Advisory) -> dict[str, object]:
    """One advisory as plain JSON values."""
    return {
        "id": a.id,
        "title": a.title,
        "severity": a.severity,
        "confidence": a.confidence,
        "url": a.url,
        "see_also": list(a.see_also),
        "engines": [{"engine": e, "since": _text(s.since), "until": _text(s.until)} for e, s in a.engines],
        "aiter": [{"since": _text(s.since), "until": _text(s.until)} for s in a.aiter],
        "tokens": {"from": a.tokens[0], "to": a.tokens[1]},
        "where": [_condition(c) for c in a.where],
        "when_unknown": sorted(a.when_unknown),
        "explains": list(a.explains),
        "annotates": a.annotates,
        "symptom": a.symptom,
        "cause": a.cause,
        "remedy": a.remedy,
    }


def _text(version: object) -> str | None:
    return None if version is None else str(version)


def _condition(c: Condition) -> dict[str, object]:
    return {"fact": c.fact, "op": c.op, "value": list(c.value) if isinstance(c.value, tuple) else c.value}
