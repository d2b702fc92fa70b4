"""A gate, end to end: every deployment checked, required of, sorted by policy and baseline, and all of it one report document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moe_preflight.aiter.basis import Basis
from moe_preflight.engine import engine_pin
from moe_preflight.errors import PreflightError, SettingsError, UsageError
from moe_preflight.gate import baseline, policy
from moe_preflight.gate.baseline import Entry
from moe_preflight.gate.figures import figure, worse
from moe_preflight.gate.merge import Part, merge
from moe_preflight.gate.requirements import CODES, Outcome, judge
from moe_preflight.gate.spec import Gate, Held
from moe_preflight.preflight import Report, basis_of, check, read_models
from moe_preflight.report.document import _finding, document
from moe_preflight.report.types import Evidence, Finding, NotEvaluated, exit_code
from moe_preflight.rules import gate as rules
from moe_preflight.rules.catalogue import in_order
from moe_preflight.rules.run import ModelEntry
from moe_preflight.settings import Request

Document = dict[str, Any]
Progress = Callable[[int, int], None]
FAILING = ("error", "warning")
"""What a baseline holds: a note fails no gate."""
SHOWN_GONE = 20


@dataclass(frozen=True, slots=True)
class GateReport:
    """A finished gate. ``document`` is the report (not cleaned), ``entries`` what a baseline of this run would hold, ``unseen`` the
    deployments that could not be looked at, or not at all that was asked: a baseline without what they would show is none."""

    document: Document
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    entries: tuple[Entry, ...]
    malformed: bool
    unseen: tuple[str, ...] = ()
    fail_on: str = "error"

    @property
    def verdict(self) -> str:
        """pass, warn, fail or inconclusive."""
        return str(self.document["verdict"])

    def exit_code(self, fail_on: str | None = None) -> int:
        """The process exit code, by the same table as a check's; ``fail_on`` is the gate's own, unless given."""
        return exit_code(self.findings, self.not_evaluated, fail_on=fail_on or self.fail_on, malformed=self.malformed)

    def to_dict(self) -> Document:
        """The JSON document (schema_version 1)."""
        return self.document


def run_gate(
    gate: Gate,
    today: str,
    *,
    known: Mapping[str, Entry] | None = None,
    accept_all: bool = False,
    progress: Progress | None = None,
) -> GateReport:
    """Judge ``gate`` as of ``today`` (YYYY-MM-DD). ``known`` is its baseline; ``accept_all`` makes everything a baseline may hold known,
    which is what writing one means. A model or tree that cannot be read becomes part of the report; nonsense raises."""
    shop = _Shop()
    parts = [_part(gate, held, shop, today, known or {}, accept_all, progress) for held in gate.held]
    unseen = tuple(p.name for p in parts if p.unseen)
    own = list(policy.about_ignores(gate, [e for p in parts for _, e in p.ignored], today, unseen))
    lost = [] if accept_all else _lost(gate, known or {}, parts)
    own += _gone(gate, lost)
    missing = tuple(_empty(gate))
    findings = in_order([*own, *(f for p in parts for f in p.kept)])
    doc = merge(gate, parts, own, missing, baseline_used=known is not None or accept_all, lost=len(lost))
    return GateReport(
        doc,
        findings,
        (*missing, *(n for p in parts for n in p.missing)),
        tuple(e for p in parts for e in p.entries),
        any(p.malformed for p in parts),
        unseen,
        gate.fail_on,
    )


def _part(
    gate: Gate, held: Held, shop: _Shop, today: str, known: Mapping[str, Entry], accept_all: bool, progress: Progress | None
) -> Part:
    report = _check(held, shop, progress)
    if isinstance(report, NotEvaluated):
        return Part(held.name, missing=(report,), unseen=True)
    if isinstance(report, PreflightError):
        why = NotEvaluated(f"deployment {held.name}", report.message, report.hint or "Mend it.")
        return Part(held.name, missing=(why,), unseen=True, malformed=True)
    judged = judge(report.run, report.findings, held.require)
    missing = (*report.not_evaluated, *judged.not_evaluated)
    everything = in_order([*report.findings, *judged.findings])
    sorted_ = policy.sort(gate, held, report.run, everything, today)
    doc = document(report.run, sorted_.kept, missing)
    marks = baseline.marks(doc, held.name, held.model)
    # What policy sets aside still occurs: its entry in the baseline is not gone.
    aside = tuple(everything) != sorted_.kept and any(
        e.deployment == held.name and mark not in marks for mark, e in known.items()
    )
    there = baseline.marks(doc | {"findings": [_finding(f) for f in everything]}, held.name, held.model) if aside else []
    entries = [
        Entry(held.name, f.code, f.severity, f.message, mark, figure(f, report.run))
        for f, mark in zip(sorted_.kept, marks, strict=True)
    ]
    old = [e.severity in FAILING and (accept_all or _is_known(e, known)) for e in entries]
    fresh = tuple(_said(f, e, known) for f, e, is_old in zip(sorted_.kept, entries, old, strict=True) if not is_old)
    if fresh != sorted_.kept:
        doc = document(report.run, fresh, missing)
    return Part(
        held.name,
        doc=doc,
        run=report.run,
        kept=fresh,
        known=tuple((f, m) for f, m, is_old in zip(sorted_.kept, marks, old, strict=True) if is_old),
        ignored=sorted_.ignored,
        off=sorted_.off,
        unselected=sorted_.unselected,
        outcomes=tuple(_forgiven(o, fresh) for o in judged.outcomes),
        missing=missing,
        marks=(*marks, *there),
        entries=tuple(e for e in entries if e.severity in FAILING),
        unseen=bool(report.not_evaluated) or not report.run.targets,
        malformed=report.exit_code("never") == 2,
    )


def _is_known(e: Entry, known: Mapping[str, Entry]) -> bool:
    """In the baseline, and no worse than it was."""
    was = known.get(e.fingerprint)
    return was is not None and not worse(e.code, was.figure, e.figure)


def _said(f: Finding, e: Entry, known: Mapping[str, Entry]) -> Finding:
    """A finding that was known and got worse says so."""
    was = known.get(e.fingerprint)
    words = worse(e.code, was.figure, e.figure) if was is not None else ""
    return replace(f, message=f"{f.message} {words}") if words else f


def _forgiven(o: Outcome, fresh: Sequence[Finding]) -> Outcome:
    """A requirement that is not met, and of which all findings are known or ignored."""
    codes = CODES[o.key]
    return replace(o, forgiven=o.met is False and not any(f.code in codes for f in fresh))


def _check(held: Held, shop: _Shop, progress: Progress | None) -> Report | NotEvaluated | PreflightError:
    """The check of one deployment; an error that is the file's fault names the place in it."""
    try:
        return check(held.request, progress, basis=shop.basis(held.request), entries=shop.models(held.request))
    except (UsageError, SettingsError) as e:
        raise SettingsError(f"{held.where}: {e.message}", hint=e.hint) from None
    except PreflightError as e:
        if e.exit_code == 3:
            return NotEvaluated(f"deployment {held.name}", e.message, e.hint or "Make it reachable.")
        return e


class _Shop:
    """What deployments of one gate share: AITER trees read once, models fetched once."""

    def __init__(self) -> None:
        self._bases: dict[object, Basis] = {}
        self._models: dict[object, Sequence[ModelEntry]] = {}

    def basis(self, r: Request) -> Basis:
        pin = engine_pin(r.engine, r.engine_version)
        key = (r.aiter, r.aiter_version, pin, r.tuned, r.flydsl, r.multi_arch, tuple(sorted(r.aiter_env.items())))
        if key not in self._bases:
            self._bases[key] = basis_of(r)
        return self._bases[key]

    def models(self, r: Request) -> Sequence[ModelEntry]:
        key = (r.models, r.shapes, r.quant, r.revision, r.offline)
        if key not in self._models:
            self._models[key] = read_models(r)
        return self._models[key]


def _lost(gate: Gate, known: Mapping[str, Entry], parts: Sequence[Part]) -> list[Entry]:
    names = {h.name for h in gate.held}
    mine = {mark: e for mark, e in known.items() if not gate.only or e.deployment in names}
    return baseline.gone(mine, (m for p in parts for m in p.marks), (p.name for p in parts if p.unseen))


def _gone(gate: Gate, lost: list[Entry]) -> list[Finding]:
    """MP803, one a deployment."""
    by_deployment: dict[str, list[Entry]] = {}
    for e in lost:
        by_deployment.setdefault(e.deployment, []).append(e)
    return [
        rules.GONE.finding(
            f"{name}: {len(entries)} {'entry' if len(entries) == 1 else 'entries'} of {gate.baseline} no longer "
            f"{'occurs' if len(entries) == 1 else 'occur'}: {', '.join(dict.fromkeys(e.code for e in entries))}.",
            confidence="read",
            evidence=[Evidence(gate.baseline or "", None, f"{e.code} {e.message}") for e in entries[:SHOWN_GONE]],
        )
        for name, entries in sorted(by_deployment.items())
    ]


def _empty(gate: Gate) -> list[NotEvaluated]:
    """A gate that matches nothing is not green."""
    out = []
    if not gate.held:
        out.append(NotEvaluated("the gate", f"{gate.file} holds no deployment", "Add a [[deployment]]; the README has examples."))
    if not policy.rules_left(gate):
        out.append(
            NotEvaluated(
                "the gate", "select and severity leave no rule of the check", "Select a code that exists, or remove select."
            )
        )
    return out
