"""The documents of a gate's deployments as one: targets renumbered, what is said twice said once, and a block about the gate itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moe_preflight.aiter.basis import AiterBasis
from moe_preflight.aiter.facts.dispatch_rules import HISTORY
from moe_preflight.aiter.version import Version
from moe_preflight.gate.requirements import Outcome
from moe_preflight.gate.spec import Gate, Ignore
from moe_preflight.report.document import _aiter, _finding, document
from moe_preflight.report.types import Finding, NotEvaluated, verdict
from moe_preflight.rules.catalogue import in_order
from moe_preflight.rules.run import Run
from moe_preflight.settings import Request

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One deployment, judged. ``doc`` and ``run`` are None when nothing of it could be read; indexes in findings are its own."""

    name: str
    doc: Document | None = None
    run: Run | None = None
    kept: tuple[Finding, ...] = ()
    known: tuple[tuple[Finding, str], ...] = ()
    ignored: tuple[tuple[Finding, Ignore], ...] = ()
    off: int = 0
    unselected: int = 0
    outcomes: tuple[Outcome, ...] = ()
    missing: tuple[NotEvaluated, ...] = ()
    marks: tuple[str, ...] = ()
    entries: tuple[Any, ...] = ()
    unseen: bool = False
    malformed: bool = False

    @property
    def verdict(self) -> str:
        """pass, warn, fail or inconclusive, of this deployment alone."""
        return "fail" if self.malformed else verdict(self.kept, self.missing)


def merge(
    gate: Gate, parts: Sequence[Part], own: Sequence[Finding], missing: Sequence[NotEvaluated], *, baseline_used: bool, lost: int
) -> Document:
    """One report document of schema_version 1 with a ``gate`` block. ``own`` and ``missing`` are about the gate, not a deployment."""
    newest = Version.of(HISTORY[-1][0])
    empty = Run(Request(), (), AiterBasis(None, "", newest, "unverified"), ())
    out = document(empty, (), ())
    aiters = [p.doc["aiter"] for p in parts if p.doc is not None]
    several = any(a != aiters[0] for a in aiters)
    findings = [(f, _finding(f)) for f in own]
    deployments: list[Document] = []
    suppressed: list[Document] = []
    for p in parts:
        first = len(out["targets"])
        root = p.doc["aiter"]["root"] if p.doc is not None and several else None
        if p.doc is not None:
            targets = p.doc["targets"]
            out["models"] += [m for m in p.doc["models"] if m not in out["models"]]
            out["targets"] += [_below(t, root) for t in targets] if root else targets
        findings += [(g, _finding(g)) for f in p.kept for g in [_moved(f, first, root)]]
        suppressed += [
            _forgiven(_moved(f, first, root), "ignore", e.reason, until=e.until, entry=e.where.partition(": ")[2])
            for f, e in p.ignored
        ]
        suppressed += [
            _forgiven(_moved(f, first, root), "baseline", f"known since {gate.baseline or 'the baseline'}", mark=m)
            for f, m in p.known
        ]
        deployments.append(
            {
                "name": p.name,
                "verdict": p.verdict,
                "targets": list(range(first, len(out["targets"]))),
                "aiter": p.doc["aiter"] if p.doc is not None else _aiter(empty.aiter),
                "requirements": [{"key": o.key, "value": o.value, "met": o.met, "forgiven": o.forgiven} for o in p.outcomes],
                "known": len(p.known),
                "ignored": len(p.ignored),
                "switched_off": p.off,
                "not_selected": p.unselected,
            }
        )
    order = {id(f): i for i, f in enumerate(in_order([f for f, _ in findings]))}
    out["findings"] = _once([d for _, d in sorted(findings, key=lambda pair: order[id(pair[0])])])
    said = [*missing, *(_of(p, n) if len(parts) > 1 else n for p in parts for n in p.missing)]
    out["not_evaluated"] = _once([{"what": n.what, "why": n.why, "how_to_get_it": n.how_to_get_it} for n in said])
    out["aiter"] = _one_aiter(aiters) if aiters else out["aiter"]
    out["verdict"] = verdict([f for f, _ in findings], said)
    if any(p.malformed for p in parts):
        out["verdict"] = "fail"
    out["gate"] = {
        "file": gate.file,
        "fail_on": gate.fail_on,
        "baseline": {"file": gate.baseline, "known": sum(len(p.known) for p in parts), "gone": lost} if baseline_used else None,
        "deployments": deployments,
        "suppressed": suppressed,
    }
    return out


def _one_aiter(aiters: list[Document]) -> Document:
    """The AITER of the report: the one all deployments share. Where they differ, null; gate.deployments has each."""
    if all(a == aiters[0] for a in aiters):
        return aiters[0]
    verified = all(a["dispatch_confidence"] == "verified" for a in aiters)
    counts = dict.fromkeys(("csv_files", "csv_rows", "moe_csv_files", "moe_csv_rows"), 0)
    return {
        "version": None,
        "root": None,
        "found_by": None,
        "dispatch_confidence": "verified" if verified else "unverified",
    } | counts


def _moved(f: Finding, by: int, root: str | None) -> Finding:
    """A finding of one deployment among those of all."""
    evidence = f.evidence
    if root:
        evidence = tuple(
            replace(e, file=_joined(root, e.file)) if e.line is not None and e.file.endswith(".csv") else e for e in evidence
        )
    return replace(f, target=None if f.target is None else f.target + by, evidence=evidence)


def _of(part: Part, n: NotEvaluated) -> NotEvaluated:
    """What could not be looked at, with the deployment's name where it is about a target of it."""
    return n if n.target is None else replace(n, what=f"{part.name}: {n.what}")


def _below(target: Document, root: str) -> Document:
    """The target with its rows' files below the tree they were read from: the report has several trees."""
    layers = [
        x
        | {
            "buckets": [
                b | {"row": b["row"] | {"file": _joined(root, b["row"]["file"])}} if b["row"] else b for b in x["buckets"]
            ]
        }
        for x in target["layers"]
    ]
    return target | {"layers": layers}


def _joined(root: str, file: str) -> str:
    return file if file.startswith("/") else f"{root.rstrip('/')}/{file}"


def _forgiven(
    f: Finding, by: str, reason: str, *, until: str | None = None, entry: str | None = None, mark: str | None = None
) -> Document:
    return {"finding": _finding(f), "by": by, "reason": reason, "until": until, "entry": entry, "fingerprint": mark}


def _once(said: list[Document]) -> list[Document]:
    """What is not about a target is said once, however many deployments share it."""
    out: list[Document] = []
    seen: set[str] = set()
    for d in said:
        key = repr(d)
        if d.get("target") is not None or key not in seen:
            out.append(d)
            seen.add(key)
    return out
