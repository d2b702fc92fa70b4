"""An upgrade, end to end: read models once, evaluate both sides, tell the changes. All I/O of a compare happens here."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from moe_preflight.aiter.basis import NOBODY, PIN, AiterBasis, Basis
from moe_preflight.aiter.facts.dispatch_rules import is_verified
from moe_preflight.aiter.version import Version
from moe_preflight.coverage.compare import Side, changes, finding, observation
from moe_preflight.errors import Unavailable
from moe_preflight.evaluate import TargetEvaluation, token_buckets
from moe_preflight.preflight import basis_of, evaluate_target, gap_of, read_models
from moe_preflight.report.document import document
from moe_preflight.report.types import Finding, NotEvaluated, exit_code
from moe_preflight.rules.run import ModelEntry, Run
from moe_preflight.settings import Request, Tokens


class Counter(Protocol):
    """What a progress display offers."""

    def add(self, n: int = 1) -> None: ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """A finished compare. ``run`` is the new side; ``observations`` hold both sides' names and every change."""

    run: Run
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    observations: tuple[dict[str, Any], ...]

    def exit_code(self, fail_on: str = "warning") -> int:
        """1 when something got worse at or above ``fail_on``: what got better or is merely different is information."""
        malformed = any(m.error is not None and not isinstance(m.error, Unavailable) for m in self.run.models)
        return exit_code(self.findings, self.not_evaluated, fail_on=fail_on, malformed=malformed)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document (schema_version 1), its targets those of the new side."""
        return document(self.run, self.findings, self.not_evaluated, self.observations)


def compare(old: Request, new: Request, progress: Callable[[int], AbstractContextManager[Counter]] | None = None) -> Comparison:
    """Every change from ``old`` to ``new`` for the models, splits and GPUs of ``new``.

    The requests differ in AITER, its version, the engine's version, or several of them. An ``aiter`` that is a version number and no
    file stands for the built-in facts of that release, which hold no tables.
    """
    sides = [(request, _basis(request)) for request in (old, new)]
    out = _Collector(_comparable(sides))
    singles = [replace(new, models=(m,), shapes=()) for m in new.models]
    singles += [replace(new, models=(), shapes=(s,)) for s in new.shapes]
    if progress is None:
        for single in singles:
            out.add(single)
    else:
        with progress(len(singles)) as counter:
            for single in singles:
                out.add(single)
                counter.add()
    run = Run(new, tuple(out.entries), sides[1][1].facts, tuple(out.targets))
    return Comparison(run, tuple(out.findings), tuple(_missing(sides, out.entries)), tuple(out.observations))


class _Collector:
    """Findings, observations and targets as the models go by."""

    def __init__(self, sides: list[tuple[Request, Basis]]) -> None:
        self.sides = sides
        self.confidence = "unverified" if any(b.facts.confidence == "unverified" for _, b in sides) else "modelled"
        self.entries: list[ModelEntry] = []
        self.targets: list[TargetEvaluation] = []
        self.findings: list[Finding] = []
        self.observations: list[dict[str, Any]] = [
            {"kind": "side", "target": None, "layer": None, "status": status, "detail": _words(request, basis)}
            for status, (request, basis) in zip(("old", "new"), sides, strict=True)
        ]

    def add(self, single: Request) -> None:
        """One model under every split on every GPU."""
        (entry,) = read_models(single)
        self.entries.append(entry)
        if entry.model is None or gap_of(entry.model) is not None:
            return
        for split in single.splits:
            for gpu in single.gpus:
                pair, tokens = [], set()
                for request, basis in self.sides:
                    index, model = len(self.targets), len(self.entries) - 1
                    t = evaluate_target(request, basis, Tokens("all"), index, model, entry.model, split, gpu)
                    dispatcher = basis.dispatcher(gpu)
                    tokens |= set(token_buckets(dispatcher))
                    pair.append(Side(t, dispatcher, basis.table is not None and not basis.table.error))
                limit = single.max_num_batched_tokens
                self._tell(pair[0], pair[1], sorted(t for t in tokens if limit is None or t <= limit))

    def _tell(self, old: Side, new: Side, tokens: list[int]) -> None:
        target = new.target
        index = {x.plan.layer.name: i for i, x in enumerate(target.layers)}
        for change in changes(old, new, tokens):
            layer = index.get(change.layer)
            self.findings.append(finding(change, target.name, target.index, layer, self.confidence))
            self.observations.append(observation(change, target.index, layer))
        self.targets.append(target)


def _basis(request: Request) -> Basis:
    version = None if os.path.exists(request.aiter) else Version.parse(request.aiter)
    if version is None:
        return basis_of(request)
    confidence = "verified" if is_verified(version) else "unverified"
    facts = AiterBasis(version, "--aiter", version, confidence, missing=f"the built-in facts of AITER {version} hold no tables")
    return Basis(facts, version, None, request.flydsl, request.aiter_env, request.multi_arch)


def _comparable(sides: list[tuple[Request, Basis]]) -> list[tuple[Request, Basis]]:
    """The sides without any table where one has none: a kernel a row names against one a heuristic picks is no change of AITER's."""
    if all(basis.table is not None for _, basis in sides):
        return sides
    return [(request, replace(basis, table=None, _dispatchers={})) for request, basis in sides]


def _words(request: Request, basis: Basis) -> str:
    facts = basis.facts
    place = facts.root or "built-in facts"
    said = f"{request.engine} {request.engine_version}, AITER {facts.version or 'version unknown'} ({place})"
    if facts.root and facts.version_from in (PIN, NOBODY):
        said += f"; it does not say its version, which is taken from {PIN}" if facts.version else "; it does not say its version"
        said += ": name it with --aiter-version"
    return said


def _missing(sides: list[tuple[Request, Basis]], entries: list[ModelEntry]) -> list[NotEvaluated]:
    out = []
    for e in entries:
        if isinstance(e.error, Unavailable):
            out.append(NotEvaluated(f"model {e.asked}", e.error.message, e.error.hint or "Pass a local config.json."))
        elif e.model is not None and (gap := gap_of(e.model)) is not None:
            out.append(gap)
    for which, (request, basis) in zip(("old", "new"), sides, strict=True):
        why = basis.facts.missing if basis.table is None else basis.table.error
        if request.tuned and why:
            if basis.table is None:
                why += "; without rows on both sides, what AITER chooses by itself is compared"
            hint = "Name a folder or a wheel with --aiter; --no-tuned if tuned rows are not to be compared."
            out.append(NotEvaluated(f"tuned rows of the {which} side", why, hint))
    return out
