"""Known-bad combinations, joined to what the rules found: a public thread is evidence for a finding, or a finding of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moe_preflight.advisories.advisory import Match, match
from moe_preflight.advisories.data import ALL
from moe_preflight.advisories.vocabulary import facts_of
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run

KNOWN = Rule(
    code="MP651",
    name="known-bad",
    severity="error",
    depends="the combination matches a public report whose cause is known",
    what="People have met trouble with exactly this combination, in public.",
    why="The symptom in the finding is what they saw.",
    example="GLM-5 with a fused shared expert on MI300X: tuned rows of some AITER releases return garbage.",
    remedy="See the finding's own text, and the thread.",
    source="the thread's address is in the evidence; moe-preflight advisories lists all",
)


def join(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """``findings`` with the matching advisories: attached to the finding they explain, else as findings of their own (MP651)."""
    out = list(findings)
    for target, i, layer in run.layers():
        facts = facts_of(
            target.plan,
            layer.plan,
            run.aiter.version or run.aiter.facts_version,
            dispatches=layer.dispatches,
            router=layer.router,
        )
        mine = [n for n, f in enumerate(out) if (f.target, f.layer) == (target.index, i)]
        for m in match(ALL, facts):
            explained = next((n for n in mine if out[n].advisory is None and _explains(m, out[n])), None)
            if explained is not None:
                out[explained] = _attached(out[explained], m)
            elif not (m.advisory.annotates or target.plan.refusals or layer.plan.refusals):
                out.append(_own(target.name, m, target.index, i))
    return out


def _explains(m: Match, f: Finding) -> bool:
    return f.code in m.advisory.explains or any(e.text in m.advisory.explains for e in f.evidence)


def _thread(m: Match) -> Evidence:
    return Evidence(m.advisory.url, None, m.advisory.title)


def _attached(f: Finding, m: Match) -> Finding:
    return replace(f, advisory=m.advisory.id, evidence=(*f.evidence, _thread(m)))


def _own(where: str, m: Match, target: int, layer: int) -> Finding:
    a = m.advisory
    return KNOWN.finding(
        f"{where}: {a.title}. Symptom: {a.symptom.rstrip('.')}. Because: {', '.join(m.because)}.",
        severity=a.severity,
        why=a.cause,
        remedy=a.remedy,
        confidence=m.confidence,
        target=target,
        layer=layer,
        evidence=[_thread(m), *(Evidence(u, None, a.title) for u in a.see_also)],
        advisory=a.id,
    )


RULES = (KNOWN,)
CHECKS = ()
