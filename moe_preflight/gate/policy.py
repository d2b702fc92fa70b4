"""What a gate does to findings: another severity, not selected, ignored with a reason until a day."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from moe_preflight.gate.spec import OWN, Gate, Held, Ignore
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules import gate as rules
from moe_preflight.rules.catalogue import BY_CODE
from moe_preflight.rules.run import Run


@dataclass(frozen=True, slots=True)
class Sorted:
    """Findings of one deployment after policy: those that count, those an entry of the gate forgives, and how many were switched off
    or not selected."""

    kept: tuple[Finding, ...]
    ignored: tuple[tuple[Finding, Ignore], ...]
    off: int
    unselected: int


def sort(gate: Gate, held: Held, run: Run, findings: Iterable[Finding], today: str) -> Sorted:
    """Apply the gate to the findings of one deployment. ``today`` is YYYY-MM-DD; an ignore holds through its last day."""
    kept: list[Finding] = []
    ignored: list[tuple[Finding, Ignore]] = []
    off = unselected = 0
    for f in findings:
        severity = (gate.severity or {}).get(f.code, f.severity)
        if severity == "off":
            off += 1
        elif gate.select is not None and not f.code.startswith((*gate.select, OWN)):
            unselected += 1
        else:
            f = f if severity == f.severity else replace(f, severity=severity)
            entry = next((e for e in gate.ignores if not expired(e, today) and fits(e, f, held, run)), None)
            if entry is None:
                kept.append(f)
            else:
                ignored.append((f, entry))
    return Sorted(tuple(kept), tuple(ignored), off, unselected)


def rules_left(gate: Gate) -> bool:
    """Does any rule of the check still count under this gate?"""
    levels = gate.severity or {}
    codes = (c for c in BY_CODE if not c.startswith(OWN) and levels.get(c) != "off")
    return any(gate.select is None or c.startswith(gate.select) for c in codes)


def expired(entry: Ignore, today: str) -> bool:
    return entry.until < today


def fits(entry: Ignore, f: Finding, held: Held, run: Run) -> bool:
    """Does every filter of the entry fit? A filter on the target fits no finding that is about no target."""
    if not f.code.startswith(entry.code):
        return False
    if not _concerns(entry, held):
        return False
    if entry.advisory and f.advisory not in entry.advisory:
        return False
    of_target = (entry.gpu, entry.tp, entry.dp, entry.pp, entry.ep, entry.layer)
    if not any(of_target):
        return True
    if f.target is None:
        return False
    target = run.targets[f.target]
    d = target.plan.deployment
    layer = target.layers[f.layer].plan.layer.name if f.layer is not None else None
    values = (d.gpu.name, d.tp, d.dp, d.pp, d.ep, layer)
    return all(not wanted or value in wanted for wanted, value in zip(of_target, values, strict=True))


def _concerns(entry: Ignore, held: Held) -> bool:
    return (not entry.deployment or held.name in entry.deployment) and (not entry.model or held.model in entry.model)


def about_ignores(gate: Gate, used: Iterable[Ignore], today: str, unseen: Collection[str] = ()) -> Iterator[Finding]:
    """MP801 for every entry that lapsed, MP802 for every other that hid nothing. Of ``unseen`` deployments, those not fully looked at,
    nobody knows what an entry would hide."""
    seen = set(used)
    dark = [h for h in gate.held if h.name in unseen]
    for e in gate.ignores:
        where = [Evidence(gate.file, None, e.where.partition(": ")[2])]
        if expired(e, today):
            yield rules.EXPIRED.finding(
                f"{e.where}: the ignore of {e.code} was good until {e.until} ({e.reason}).", confidence="read", evidence=where
            )
        elif e not in seen and not gate.only and not any(_concerns(e, h) for h in dark):
            yield rules.UNMATCHED.finding(
                f"{e.where}: the ignore of {e.code} ({e.reason}) hides nothing.", confidence="read", evidence=where
            )
