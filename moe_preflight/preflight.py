"""The main job, end to end: read models, find AITER, plan, dispatch, judge. All I/O of a check happens here, before the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from moe_preflight.aiter.basis import Basis, open_basis
from moe_preflight.aiter.key import NOT_READ
from moe_preflight.engine import engine_pin, plan
from moe_preflight.engine.plan import Deployment
from moe_preflight.errors import PreflightError, Unavailable
from moe_preflight.evaluate import TargetEvaluation, evaluate_layer, judged_buckets
from moe_preflight.hardware import Gpu
from moe_preflight.model.moe import MoEModel
from moe_preflight.report.document import document
from moe_preflight.report.types import SEVERITIES, Finding, NotEvaluated, exit_code, verdict
from moe_preflight.rules.catalogue import run_rules
from moe_preflight.rules.run import CheckpointEntry, ModelEntry, Run
from moe_preflight.settings import Request, Split, Tokens


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """A finished check. ``run`` holds every noun, ``findings`` and ``not_evaluated`` what a reader acts on."""

    run: Run
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    observations: tuple[dict[str, Any], ...] = ()
    environment: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """pass, warn, fail or inconclusive."""
        return verdict(self.findings, self.not_evaluated)

    def exit_code(self, fail_on: str = "error") -> int:
        """What the process ends with: 2 malformed input, 1 a finding at or above ``fail_on``, 3 inconclusive, 0 otherwise."""
        errors = [*(m.error for m in self.run.models), *(c.error for c in self.run.checkpoints)]
        malformed = any(e is not None and not isinstance(e, Unavailable) for e in errors)
        return exit_code(self.findings, self.not_evaluated, fail_on=fail_on, malformed=malformed)

    def __repr__(self) -> str:
        counts = {s: sum(f.severity == s for f in self.findings) for s in SEVERITIES}
        return f"Report({self.verdict}, {len(self.run.targets)} targets, {', '.join(f'{n} {s}' for s, n in counts.items())})"

    def to_text(self) -> str:
        """The report a person reads, 80 columns, no colour."""
        from moe_preflight.report.sanitise import clean_document
        from moe_preflight.report.text import render

        return render(clean_document(self.to_dict()))

    def to_dict(self) -> dict[str, Any]:
        """The JSON document (schema_version 1)."""
        return document(self.run, self.findings, self.not_evaluated, self.observations, self.environment)


def check(
    request: Request,
    progress: Callable[[int, int], None] | None = None,
    *,
    basis: Basis | None = None,
    entries: Sequence[ModelEntry] | None = None,
) -> Report:
    """Judge every model x split x GPU of the request.

    A model that cannot be read becomes part of the report, never an exception; a usage or settings error (an unknown
    version word, a tree that is not AITER's) is raised as a PreflightError. ``progress(done, all)`` is called for each
    checkpoint file that is read. ``basis`` and ``entries`` are what basis_of() and read_models() would give, when a caller with
    several requests has them already.
    """
    tokens = Tokens.parse(request.tokens)
    basis = basis_of(request) if basis is None else basis  # before the models: a refused tree needs no hub
    entries = tuple(read_models(request) if entries is None else entries)
    targets = tuple(_targets(request, entries, basis, tokens))
    checkpoints = tuple(_checkpoints(request, entries, progress)) if request.checkpoint else ()
    run = Run(request, entries, basis.facts, targets, checkpoints)
    findings = run_rules(run, select=request.select, ignore=request.ignore)
    return Report(run, findings, tuple(_not_evaluated(run)))


def basis_of(request: Request) -> Basis:
    """The AITER of this request: its tree, tables and version."""
    return open_basis(
        request.aiter,
        asked_version=request.aiter_version,
        pin=engine_pin(request.engine, request.engine_version),
        tuned=request.tuned,
        flydsl=request.flydsl,
        multi_arch=request.multi_arch,
        env=request.aiter_env,
    )


def read_models(request: Request) -> list[ModelEntry]:
    """Each model asked for, read or with the error that says why not; shapes count as models."""
    from moe_preflight.model import hub
    from moe_preflight.model.shape import parse_shape

    with hub.line():
        entries = [_entry(asked, partial(_read_model, asked, request)) for asked in request.models]
    entries += [_entry(text, partial(parse_shape, text, quant=request.quant or "none")) for text in request.shapes]
    return entries


def _entry(asked: str, read: Callable[[], MoEModel]) -> ModelEntry:
    try:
        return ModelEntry(asked, read())
    except PreflightError as e:
        return ModelEntry(asked, None, e)


def _read_model(asked: str, request: Request) -> MoEModel:
    from moe_preflight.model.source import load

    return load(asked, revision=request.revision, offline=request.offline)


def deployment(request: Request, split: Split, gpu: Gpu) -> Deployment:
    """The engine room's word for one split on one GPU of this request."""
    return Deployment(
        gpu=gpu,
        engine=request.engine,
        engine_version=request.engine_version,
        tp=split.tp,
        dp=split.dp,
        pcp=split.pcp,
        pp=split.pp,
        ep=split.ep,
        ep_size=split.ep_size,
        redundant_experts=split.redundant_experts,
        moe_backend=request.moe_backend,
        all2all=request.all2all,
        lora=request.lora,
        max_num_batched_tokens=request.max_num_batched_tokens,
        env=request.engine_env,
    )


def _targets(request: Request, entries: tuple[ModelEntry, ...], basis: Basis, tokens: Tokens) -> list[TargetEvaluation]:
    out: list[TargetEvaluation] = []
    for m, entry in enumerate(entries):
        if entry.model is None or not entry.model.layers or not entry.model.sizes_known:
            continue
        for split in request.splits:
            for gpu in request.gpus:
                out.append(evaluate_target(request, basis, tokens, len(out), m, entry.model, split, gpu))
    return out


def evaluate_target(
    request: Request, basis: Basis, tokens: Tokens, index: int, model_index: int, model: MoEModel, split: Split, gpu: Gpu
) -> TargetEvaluation:
    """One model under one split on one GPU."""
    engine_plan = plan(model, deployment(request, split, gpu))
    dispatcher = basis.dispatcher(gpu)
    limit = request.max_num_batched_tokens
    judged = judged_buckets(dispatcher, tokens, limit)
    layers = tuple(
        evaluate_layer(
            layer if not engine_plan.refusals else replace(layer, backend=replace(layer.backend, on_aiter=False)),
            dispatcher,
            judged,
            max_tokens=limit,
            group_counts=basis.group_counts,
            aiter_env=request.aiter_env,
        )
        for layer in engine_plan.layers
    )
    return TargetEvaluation(index, model_index, engine_plan, layers)


def _checkpoints(
    request: Request, entries: tuple[ModelEntry, ...], progress: Callable[[int, int], None] | None
) -> Iterator[CheckpointEntry]:
    from moe_preflight.model.checkpoint import check_checkpoint

    for i, entry in enumerate(entries):
        if entry.model is not None and entry.model.layers:
            try:
                yield CheckpointEntry(i, check_checkpoint(entry.asked, entry.model, progress=progress))
            except PreflightError as e:
                yield CheckpointEntry(i, None, e)


def gap_of(model: MoEModel) -> NotEvaluated | None:
    """Why nothing can be judged of a model that was read: it is dense, or its config leaves out a size. None: it can."""
    if model.is_dense:
        return NotEvaluated(f"model {model.id}", "it is dense: it has no MoE layer", "Name a mixture-of-experts model.")
    if not model.layers or not model.sizes_known:
        why = f"its config does not say: {', '.join(model.unknown)}"
        return NotEvaluated(f"model {model.id}", why, "Use the full config.json of the repository.")
    return None


def _not_evaluated(run: Run) -> list[NotEvaluated]:
    out = []
    for i, m in enumerate(run.models):
        if isinstance(m.error, Unavailable):
            out.append(NotEvaluated(f"model {m.asked}", m.error.message, m.error.hint or "Pass a local config.json.", model=i))
        elif m.model is not None and (gap := gap_of(m.model)) is not None:
            out.append(replace(gap, model=i))
    for c in run.checkpoints:
        if isinstance(c.error, Unavailable):
            out.append(
                NotEvaluated(f"checkpoint of {run.models[c.model].asked}", c.error.message, c.error.hint or "Name a folder.")
            )
    reasons: dict[str, list[str]] = {}
    for u in run.aiter.unread:
        reasons.setdefault(u.reason, []).append(u.file)
    for reason, files in reasons.items():
        what = f"tuned table {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        why = f"{'they' if len(files) > 1 else 'it'} could not be read: {reason}; a miss may be a row in there"
        out.append(NotEvaluated(what, why, "Make it a regular file this user may read, of a sane size."))
    for reason in dict.fromkeys(
        s.reason
        for _, _, layer in run.started()
        for d in layer.dispatches
        for s in (d.stage1, d.stage2)
        if s is not None and s.reason.startswith(NOT_READ)
    ):
        out.append(
            NotEvaluated(
                f"assembly kernels: {reason.removeprefix(NOT_READ)}",
                "whether AITER ships a kernel for this shape is not known",
                "Make it a file this user may read, as AITER ships it.",
            )
        )
    if run.request.tuned and run.aiter.root is None and run.targets:
        hint = "pip install --pre amd-aiter, or --aiter DIR or WHEEL; --no-tuned if you do not want it."
        out.append(NotEvaluated("tuned coverage", run.aiter.missing or "no AITER tree was found", hint))
    return out
