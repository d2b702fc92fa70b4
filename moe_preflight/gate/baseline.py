"""The baseline: what a gate already knew. A finding in it is shown and no longer fails; only what is new does.

A file of fingerprints, sorted, one finding a block, so that a review shows what was added and what was mended. A fingerprint
(report/fingerprint.py) is made per deployment and of the words written in the gate file, so it is the same from any folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from moe_preflight.errors import InputError
from moe_preflight.report.fingerprint import fingerprints
from moe_preflight.report.formats import dumps

Document = dict[str, Any]
VERSION = 1
MAX_BYTES = 32 << 20
MAX_ENTRIES = 100_000
_TEXTS = ("code", "deployment", "fingerprint", "message", "severity")


@dataclass(frozen=True, slots=True)
class Entry:
    """One known finding. The fingerprint says which, ``figure`` how bad it may be (gate/figures.py); the rest is for the reader."""

    deployment: str
    code: str
    severity: str
    message: str
    fingerprint: str
    figure: float | None = None


def marks(doc: Document, deployment: str, model: str) -> list[str]:
    """The gate's fingerprint of every finding of one deployment's document, in order. ``model`` is the model as written in the gate."""
    named = doc | {
        "models": [m | {"id": model} for m in doc["models"]],
        "targets": [t | {"model": model} for t in doc["targets"]],
    }
    return [sha256(f"{deployment}\0{mark}".encode()).hexdigest()[:32] for mark in fingerprints(named)]


def render(entries: Iterable[Entry]) -> str:
    """The baseline file of ``entries``: same entries, same bytes."""
    found = sorted(set(entries), key=lambda e: (e.deployment, e.code, e.message, e.fingerprint))
    return dumps({"moe_preflight_baseline": VERSION, "findings": [_written(e) for e in found]})


def _written(e: Entry) -> Document:
    return {key: getattr(e, key) for key in (*_TEXTS, "figure")}


def parse(data: bytes, name: str) -> dict[str, Entry]:
    """The entries of a baseline file by fingerprint. Raises InputError for anything render() would not write."""
    if len(data) > MAX_BYTES:
        raise _bad(name, f"{len(data):,} bytes; at most {MAX_BYTES:,} are read")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except RecursionError:
        raise _bad(name, "nested too deeply") from None
    except ValueError as e:
        raise _bad(name, f"not JSON ({str(e)[:120]})") from None
    if not isinstance(value, dict) or set(value) != {"moe_preflight_baseline", "findings"}:
        raise _bad(name, "not a baseline: expected moe_preflight_baseline and findings")
    version = value["moe_preflight_baseline"]
    if type(version) is not int or version != VERSION:
        raise _bad(name, f"not version {VERSION} of the baseline format")
    found = value["findings"]
    if not isinstance(found, list) or len(found) > MAX_ENTRIES:
        raise _bad(
            name, "findings is not an array of entries" if not isinstance(found, list) else f"more than {MAX_ENTRIES:,} entries"
        )
    out = {}
    for i, f in enumerate(found):
        if not isinstance(f, dict) or set(f) != {*_TEXTS, "figure"} or not all(isinstance(f[key], str) for key in _TEXTS):
            raise _bad(name, f"findings[{i}] does not hold {', '.join(_TEXTS)} as strings, and a figure")
        if f["figure"] is not None and (type(f["figure"]) not in (int, float) or not 0 <= f["figure"] < 1e9):
            raise _bad(name, f"findings[{i}].figure is no number")
        if len(f["fingerprint"]) != 32 or not set(f["fingerprint"]) <= set("0123456789abcdef"):
            raise _bad(name, f"findings[{i}].fingerprint is not 32 hexadecimal digits")
        if f["fingerprint"] in out:
            raise _bad(name, f"findings[{i}].fingerprint is given twice, as by a merge of two branches")
        out[f["fingerprint"]] = Entry(**f)
    return out


def gone(known: Mapping[str, Entry], seen: Iterable[str], unseen_deployments: Iterable[str]) -> list[Entry]:
    """Entries that no longer occur. A deployment that could not be looked at says nothing about its own."""
    there, silent = set(seen), set(unseen_deployments)
    left = (e for mark, e in known.items() if mark not in there and e.deployment not in silent)
    return sorted(left, key=lambda e: (e.deployment, e.code, e.message, e.fingerprint))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key is given twice")
    return out


def _bad(name: str, why: str) -> InputError:
    return InputError(f"{name}: {why}.", hint="Write it anew: moe-preflight gate GATE.toml --write-baseline FILE.")
