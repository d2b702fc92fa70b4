"""AITER's own answers joined to a finished check: what ``check --ask-aiter`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moe_preflight.aiter.facts.dispatch_rules import Rules, rules_for
from moe_preflight.ask.compare import Observation, observe
from moe_preflight.ask.parent import AskOptions, Heard, ask
from moe_preflight.ask.questions import Sheet, sheets
from moe_preflight.report.types import NotEvaluated
from moe_preflight.rules.asked import findings
from moe_preflight.rules.catalogue import in_order

if TYPE_CHECKING:
    from moe_preflight.aiter.basis import Basis
    from moe_preflight.preflight import Report

WHAT = "AITER's own dispatch (--ask-aiter)"


def ask_aiter(report: Report, options: AskOptions | None = None, progress: Callable[[str], None] | None = None) -> Report:
    """``report`` with an observation per layer, a finding per contradiction, and a gap for whatever could not be asked.

    The AITER asked is the one the report was judged by. Never raises for what a child does.
    """
    from moe_preflight.preflight import basis_of

    basis = basis_of(report.run.request)
    rules = basis.witness.rules if basis.witness else rules_for(basis.facts.facts_version)
    todo = sheets(report.run.targets, rules)
    if gap := _cannot(basis, todo):
        return replace(report, not_evaluated=(*report.not_evaluated, gap))
    observations: list[Observation] = []
    gaps: list[NotEvaluated] = []
    for n, sheet in enumerate(todo, 1):
        if progress is not None:
            progress(f"[{n}/{len(todo)}] asking AITER on {_gpu(sheet)}: {len(sheet)} questions")
        heard = _ask(sheet, basis, rules, options or AskOptions())
        if heard.ended is None or not heard.missing:
            observations += _observations(report, basis, sheet, heard)
        if heard.ended is not None:
            gaps.append(_gap(sheet, heard))
    observations.sort(key=lambda o: (o["target"], o["layer"]))
    return _join(report, observations, list(dict.fromkeys(gaps)))


def _ask(sheet: Sheet, basis: Basis, rules: Rules, options: AskOptions) -> Heard:
    assert basis.tree is not None
    return ask(sheet, basis.tree, basis.table, rules, flydsl=basis.flydsl, env={**basis.env, **dict(sheet.env)}, options=options)


def _cannot(basis: Basis, todo: list[Sheet]) -> NotEvaluated | None:
    """Why AITER cannot be asked at all; None when it can."""
    tree = basis.tree
    if tree is None:
        why, how = (
            basis.facts.missing or "no AITER tree was found",
            "pip install 'moe-preflight[aiter]', or --aiter DIR of a checkout.",
        )
    elif not tree.has_python:
        why, how = (
            f"{tree.root} holds no aiter/fused_moe.py to ask",
            "Give --aiter a checkout, a wheel or an installed amd-aiter.",
        )
    elif basis.table is not None and basis.table.error is not None:
        why, how = (
            f"AITER itself raises on these tables: {basis.table.error}",
            "Mend the tables first (moe-preflight lint names them).",
        )
    elif not todo:
        why, how = (
            "no layer's experts reach AITER, so there is nothing to ask",
            "Choose a backend, split or GPU that reaches AITER.",
        )
    else:
        return None
    return NotEvaluated(WHAT, why, how)


def _observations(report: Report, basis: Basis, sheet: Sheet, heard: Heard) -> list[Observation]:
    version = basis.facts.version
    out = []
    for where, asked in sheet.layers.items():
        layer = report.run.targets[where[0]].layers[where[1]]
        out.append(
            observe(
                where,
                layer.plan.layer.name,
                asked,
                heard.answers,
                sheet.gpu.gfx,
                aiter="AITER" if version is None else f"AITER {version}",
                confidence=basis.facts.confidence,
                ended=heard.ended,
                told=heard.told,
            )
        )
    return out


_HOW = {
    "timeout": "Ask again on an idle machine; if AITER was compiling, python -c 'import aiter' lets it finish once and for all.",
    "error": "python -c 'import aiter.fused_moe' shows AITER's own words; without --ask-aiter the prediction stands alone.",
}


def _gap(sheet: Sheet, heard: Heard) -> NotEvaluated:
    assert heard.ended is not None
    status, why = heard.ended
    if heard.missing:
        names = " ".join(heard.missing)
        return NotEvaluated(WHAT, f"this Python lacks {', '.join(heard.missing)}", f"pip install {names} beside moe-preflight.")
    return NotEvaluated(f"{WHAT} on {_gpu(sheet)}", why, _HOW.get(status, _HOW["error"]))


def _gpu(sheet: Sheet) -> str:
    return f"{sheet.gpu.gfx} with {sheet.gpu.cu_num} CUs"


def _join(report: Report, observations: list[dict[str, Any]], gaps: list[NotEvaluated]) -> Report:
    request = report.run.request
    new = [
        f
        for f in findings(observations, [t.name for t in report.run.targets])
        if (not request.select or f.code.startswith(request.select))
        and not (request.ignore and f.code.startswith(request.ignore))
    ]
    return replace(
        report,
        findings=in_order((*report.findings, *new)),
        observations=(*report.observations, *observations),
        not_evaluated=(*report.not_evaluated, *gaps),
    )
