"""What makes a finding the same finding in the next run: for SARIF viewers, and for a gate's baseline.

A fingerprint is made of what was judged (rule, severity, model, split, GPU, layer; the row's file and text for a finding about a table) and
of the message's words. It does not see the order, line numbers, figures, versions or paths in the message, nor the version of this tool, AITER
or the engine: a later version that finds the same is not news. The words are in it because one rule may say several things
about one layer: a baseline must not pass a new one for an old one.
"""

from __future__ import annotations

import json
import re
from typing import Any

from moe_preflight.report import view

Document = dict[str, Any]

_FIGURE = re.compile(r"\S*[\d/\\]\S*")
_SPLIT = ("engine", "gpu", "gfx", "cu_num", "tp", "dp", "pcp", "pp", "ep", "ep_size")


def fingerprints(doc: Document) -> list[str]:
    """One 32-digit hexadecimal fingerprint per finding, in the order of ``doc["findings"]``; no two are equal.

    Findings that differ in figures only are told apart by their rank among each other in sorted order, not by their place.
    """
    from hashlib import sha256

    keys = [json.dumps(_identity(doc, f), sort_keys=True) for f in doc["findings"]]
    wording = [(f["message"], json.dumps(f["evidence"], sort_keys=True), i) for i, f in enumerate(doc["findings"])]
    seen: dict[str, int] = {}
    out = [""] * len(keys)
    for _, _, i in sorted(wording):
        rank = seen[keys[i]] = seen.get(keys[i], -1) + 1
        out[i] = sha256(f"{keys[i]}#{rank}".encode()).hexdigest()[:32]
    return out


def _identity(doc: Document, f: Document) -> Document:
    who: Document = {k: f[k] for k in ("code", "severity", "advisory")} | {"words": _words(view.body(doc, f))}
    if f["target"] is not None:
        t = view.targets(doc)[f["target"]]
        d = t["deployment"]
        return who | {"model": t["model"], "split": {k: d[k] for k in _SPLIT}, "layer": view.layer_name(doc, f)}
    row = next(iter(view.rows(f)), None)
    if row is not None:
        return who | {"file": row["file"], "text": row["text"]}
    return who | {"models": sorted({m["id"] for m in doc.get("models", ()) if m["id"] in f["message"]})}


def _words(message: str) -> list[str]:
    """The message's words; anything with a digit or a slash in it is a figure, a version, a name or a path."""
    return _FIGURE.sub(" ", message).split()
