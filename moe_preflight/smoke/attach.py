"""A smoke run joined to a finished check: what ``smoke`` and ``check --smoke`` do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from moe_preflight.aiter.facts.dispatch_rules import rules_for
from moe_preflight.aiter.lookup import bucket
from moe_preflight.errors import DeviceUnavailable
from moe_preflight.report.types import SEVERITIES, NotEvaluated
from moe_preflight.smoke.adapt import Foreseen, Wanted, cases_of
from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.findings import findings_of
from moe_preflight.smoke.judge import Observation
from moe_preflight.smoke.parent import AITER_UNTOUCHED, Outcome, SmokeOptions, outcome, run_smoke

if TYPE_CHECKING:
    from moe_preflight.evaluate import LayerEvaluation
    from moe_preflight.preflight import Report
    from moe_preflight.rules.run import Run


@dataclass(frozen=True, slots=True)
class Smoked:
    """A check with its launches: ``report`` holds observations, findings and gaps; ``outcome`` judges the launches alone."""

    report: Report
    cases: tuple[SmokeCase, ...]
    observations: tuple[Observation, ...]
    outcome: Outcome


def cases_for(run: Run, wanted: Wanted) -> list[SmokeCase]:
    """Every target's cases, in report order."""
    rules = rules_for(run.aiter.facts_version)
    buckets = {t: bucket(t, rules.padding) for t in wanted.tokens}
    version = str(run.aiter.version) if run.aiter.version is not None else None
    out: list[SmokeCase] = []
    for target in run.targets:
        seen = [_foreseen(layer, buckets, version) for layer in target.layers]
        out += cases_of(target.plan, seen, wanted, target.index)
    return out


def _foreseen(layer: LayerEvaluation, buckets: dict[int, int], version: str | None) -> Foreseen:
    ranges = layer.router.by_tokens if layer.router is not None else ()
    return Foreseen(
        dispatches=layer.dispatches,
        native=layer.native,
        router_compiled=[(r.from_, r.compiled) for r in ranges],
        bucket=buckets,
        aiter_version=version,
    )


def smoke(report: Report, wanted: Wanted, options: SmokeOptions, progress: Callable[[str], None] | None = None) -> Smoked:
    """Launch what ``report`` judged and join the observations to it. Raises DeviceUnavailable when nothing can be launched."""
    cases = cases_for(report.run, wanted)
    observations = run_smoke(cases, options, progress) if cases else []
    return _join(report, cases, observations)


def smoke_or_gap(report: Report, wanted: Wanted, options: SmokeOptions, progress: Callable[[str], None] | None = None) -> Report:
    """As smoke(), for ``check --smoke``: a machine that cannot launch is a gap of the report, not its end."""
    try:
        return smoke(report, wanted, options, progress).report
    except DeviceUnavailable as e:
        gap = NotEvaluated("smoke launches", e.message, e.hint)
        return replace(report, not_evaluated=(*report.not_evaluated, gap))


def _join(report: Report, cases: Sequence[SmokeCase], observations: Sequence[Observation]) -> Smoked:
    end = outcome(observations)
    gaps = tuple(NotEvaluated(*gap, asked=gap[0] != AITER_UNTOUCHED) for gap in end.not_evaluated)
    joined = replace(
        report,
        findings=tuple(sorted((*report.findings, *findings_of(observations)), key=lambda f: SEVERITIES.index(f.severity))),
        observations=(*report.observations, *observations),
        not_evaluated=(*report.not_evaluated, *gaps),
    )
    return Smoked(joined, tuple(cases), tuple(observations), end)
