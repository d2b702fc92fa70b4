"""What several formats say the same way: where a finding points, which findings are alike, a bucket's cells. Pure, plain strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
LEVELS = ("error", "warning", "info")


ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "aiter": "none (shape straight to AITER)"}


def target_name(t: Document) -> str:
    """``TP8 EP8 MI300X``."""
    d = t["deployment"]
    parts = [f"TP{d['tp']}"] + [f"{k.upper()}{d[k]}" for k in ("dp", "pcp", "pp") if d[k] != 1]
    parts += [f"EP{d['ep_size']}"] if d["ep"] else []
    return f"{' '.join(parts)} {d['gpu'].upper() if d['gpu'].startswith('mi') else d['gpu']}"


def targets(doc: Document) -> list[Document]:
    """The document's targets; none in a document that has only findings."""
    found: list[Document] = doc.get("targets", [])
    return found


def target_title(doc: Document, index: int) -> str:
    """``deepseek-ai/DeepSeek-V3 TP8 MI300X``; in a gate the deployment's name stands for the model's."""
    t = targets(doc)[index]
    return f"{_owner(doc, index) or t['model']} {target_name(t)}"


def short_title(doc: Document, index: int) -> str:
    """The target as briefly as it stays clear: the model (or the gate's deployment) is named when there are several."""
    several = max(len(doc.get("models", ())), len(doc.get("gate", {}).get("deployments", ()))) > 1
    return target_title(doc, index) if several else target_name(targets(doc)[index])


def _owner(doc: Document, index: int) -> str | None:
    """The deployment of a gate that a target belongs to."""
    return next((d["name"] for d in doc.get("gate", {}).get("deployments", ()) if index in d["targets"]), None)


def aiters(doc: Document) -> list[Document]:
    """Every AITER the report rests on: one, or those of a gate's deployments."""
    found = [d["aiter"] for d in doc.get("gate", {}).get("deployments", ())] or [doc.get("aiter")]
    return [a for i, a in enumerate(found) if a and a not in found[:i]]


FORGIVEN = {"baseline": "Known", "ignore": "Ignored"}
"""How a gate forgives a finding, and the word for what it forgives so."""


def instead(aiter: Document) -> str:
    """The tables that were looked up where these are not the counted ones, to follow their count; empty where they are."""
    said = aiter.get("looked_up")
    return f"; looked up instead: {said}" if said else ""


def sentence(text: str) -> str:
    """``text`` with a full stop, so that another sentence can follow."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def forgiven(doc: Document, by: str) -> Iterator[tuple[Document, list[Document]]]:
    """What a gate forgives by its ``baseline`` or an ``ignore``: (the first entry, the findings alike and forgiven alike)."""
    groups: dict[tuple[Any, ...], tuple[Document, list[Document]]] = {}
    for s in doc.get("gate", {}).get("suppressed", ()):
        if s["by"] == by:
            f = s["finding"]
            key = (f["code"], f["severity"], f["target"] is None, body(doc, f), s["reason"], s["until"])
            groups.setdefault(key, (s, []))[1].append(f)
    yield from groups.values()


def layer_name(doc: Document, finding: Document) -> str | None:
    """The name of the layer a finding is about; None when it is about no single one."""
    if finding["target"] is None or finding["layer"] is None:
        return None
    name: str = targets(doc)[finding["target"]]["layers"][finding["layer"]]["name"]
    return name


def body(doc: Document, finding: Document) -> str:
    """The message without the target's name in front of it, for where the target is named anyway."""
    message: str = finding["message"]
    if finding["target"] is None:
        return message
    lead = target_name(targets(doc)[finding["target"]]) + ": "
    return message[len(lead) :] if message[: len(lead)].casefold() == lead.casefold() else message


def alike(doc: Document) -> list[list[Document]]:
    """Findings that differ in their target and layer only, together, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Document]] = {}
    for f in doc["findings"]:
        key = (f["code"], f["severity"], f["target"] is None, body(doc, f), f["why"], f["remedy"], f["advisory"])
        groups.setdefault(key, []).append(f)
    return list(groups.values())


def where(doc: Document, group: list[Document]) -> str:
    """The targets a group of alike findings is about, in words, with the layers where it is not about all; empty for the whole run."""
    layers: dict[int, list[str | None]] = {}
    for f in group:
        if f["target"] is not None:
            layers.setdefault(f["target"], []).append(layer_name(doc, f))
    words: dict[str, None] = {}
    for i, names in layers.items():
        some = [n for n in dict.fromkeys(names) if n is not None]
        part = None not in names and len(some) < len(targets(doc)[i]["layers"])
        words[short_title(doc, i) + (f" ({', '.join(some)})" if part else "")] = None
    return ", ".join(words)


def rows(finding: Document) -> list[Document]:
    """Those pieces of a finding's evidence that are rows of a table: a CSV file and a line."""
    return [e for e in finding["evidence"] if e["line"] is not None and e["file"].lower().endswith(".csv")]


def path_of(doc: Document, file: str) -> str:
    """An evidence file as a path: below the AITER tree it was read from, unless it is a path of its own."""
    root = (doc.get("aiter") or {}).get("root")
    return file if not root or file.startswith("/") else f"{root.rstrip('/')}/{file}"


def cited(evidence: Document) -> str:
    """``file:line``."""
    return f"{evidence['file']}:{evidence['line']}" if evidence["line"] is not None else str(evidence["file"])


def count(n: int, word: str) -> str:
    """``1 error``, ``2 errors``, ``3 info``."""
    return f"{n:,} {word}{'s' * (n != 1 and word not in ('info', 'not evaluated'))}"


def counts(doc: Document) -> list[tuple[str, int]]:
    """(severity or ``not evaluated``, how many), in report order."""
    pairs = [(level, sum(f["severity"] == level for f in doc["findings"])) for level in LEVELS]
    return [*pairs, ("not evaluated", len(doc.get("not_evaluated", ())))]


BUCKET_COLUMNS = ("path", "block_m", "ksplit", "stage 1", "stage 2", "tuned")


def bucket_cells(b: Document) -> tuple[str, ...]:
    """One bucket in the words of BUCKET_COLUMNS."""
    if b["error"]:
        return (b["path"], _number(b["block_m"]), _number(b["ksplit"]), f"raises: {b['error']}", "", b["tuned"])
    second = stage(b["stage2"]) if b["stage2"] else "-"
    return (b["path"], _number(b["block_m"]), _number(b["ksplit"]), stage(b["stage1"]), second, b["tuned"])


def _number(n: int | None) -> str:
    return "" if n is None else str(n)


def stage(s: Document) -> str:
    """``128x128 ok``, ``asm``, ``128x256 REJECTED``."""
    word = {True: "ok", False: "REJECTED", None: ""}[s["accepted"]]
    size = s["kind"] if s["tile_n"] is None else f"{s['kind']} {s['tile_n']}x{s['tile_k']}"
    return f"{size} {word}".strip()


def is_bad(b: Document) -> bool:
    """Does a kernel reject this bucket, or does AITER raise?"""
    return bool(b["error"]) or any(s is not None and s["accepted"] is False for s in (b["stage1"], b["stage2"]))


def folded(buckets: list[Document]) -> Iterator[tuple[list[Document], tuple[str, ...]]]:
    """Neighbouring buckets whose cells are alike, together: (buckets, cells). Never over a bucket that differs."""
    run: list[Document] = []
    cells: tuple[str, ...] = ()
    for b in buckets:
        now = bucket_cells(b)
        if run and now != cells:
            yield run, cells
            run = []
        run, cells = [*run, b], now
    if run:
        yield run, cells


def span(run: list[Document]) -> str:
    """``1-256``, or ``512`` for one bucket."""
    first, last = run[0]["token"], run[-1]["token"]
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


def size(native: int, padded: int) -> str:
    """``384`` or ``192 -> 256``."""
    return f"{native}" if native == padded else f"{native} -> {padded}"


def router(r: Document) -> str:
    """The router in one line: what runs, in how many groups, and whether that kernel exists."""
    groups = ""
    if r["num_expert_group"] is not None:
        naive = r["num_expert_group_naive"]
        was = f", rounded from {naive}" if naive not in (None, r["num_expert_group"]) else ""
        groups = f", {count(r['num_expert_group'], 'expert group')}{was}"
    if r["falls_back_to"]:
        return f"falls back to {r['falls_back_to']}{groups}"
    first, *_ = r["by_tokens"] or [r]
    return ", ".join(filter(None, [f"{r['kernel']}{groups}", router_kernel(first)]))


def router_kernel(part: Document) -> str:
    """Does a launch of this range reach a compiled kernel? "" for a router that is not AITER's."""
    if part["compiled"] is None:
        return "not established for this AITER" if part.get("defects") else ""
    return "kernel exists" if part["compiled"] else "NO SUCH KERNEL"


def coverage(c: dict[str, int]) -> str:
    """``10 hit, 2 tier, 6 miss of 18``."""
    unknown = f", {c['unknown']} not looked up" if c["unknown"] else ""
    return f"{c['hit']} hit, {c['tier']} tier, {c['miss']} miss of {sum(c.values())}{unknown}"
