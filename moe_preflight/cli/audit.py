"""``moe-preflight audit``: tuned coverage of many models at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moe_preflight.cli import options as o

if TYPE_CHECKING:
    from moe_preflight.aiter.basis import Basis
    from moe_preflight.coverage.audit import Audit
    from moe_preflight.report.types import NotEvaluated
    from moe_preflight.settings import Request

Many = Annotated[
    list[str] | None,
    typer.Argument(help="Hub ids, folders (of configs, too), config files, - or @file lists.", show_default=False),
]
Cards = Annotated[bool, typer.Option("--cards", help="All bundled cards, too.")]
Format = Annotated[
    list[str] | None,
    typer.Option("--format", help="text, json, markdown, html or csv; FORMAT=FILE may repeat.", show_default=False),
]


def audit(
    models: Many = None,
    cards: Cards = False,
    tp: o.Tp = None,
    dp: o.Dp = 1,
    pcp: o.Pcp = 1,
    pp: o.Pp = 1,
    ep: o.Ep = False,
    ep_size: o.EpSize = None,
    redundant_experts: o.Redundant = 0,
    gpu: o.GpuNames = None,
    gfx: o.Gfx = None,
    cu: o.Cu = None,
    engine: o.Engine = "vllm",
    engine_version: o.EngineVersion = None,
    engine_env: o.EngineEnv = None,
    moe_backend: o.MoeBackend = "auto",
    all2all: o.All2All = None,
    lora: o.Lora = False,
    aiter: o.Aiter = "auto",
    aiter_version: o.AiterVersion = None,
    flydsl: o.Flydsl = True,
    multi_arch: o.MultiArch = False,
    shape: o.Shapes = None,
    quant: o.Quant = None,
    tokens: o.TokensOption = "all",
    max_num_batched_tokens: o.MaxTokens = None,
    revision: o.Revision = None,
    offline: o.Offline = False,
    format: Format = None,
    output: o.Output = None,
    fail_on: o.FailOn = "error",
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Which token buckets of many models have tuned rows: a matrix of models x splits x GPUs, worst first.

    Example: moe-preflight audit --cards --tp 1,2,4,8 --format html=coverage.html

    A row is an error where the engine refuses or a kernel rejects the shape, a warning where a bucket has no tuned row or the
    experts are not on AITER.

    Exit codes: 0 nothing at or above --fail-on; 1 a row at or above it; 2 usage, settings or malformed input;
    3 something asked for could not be looked at.
    """
    from moe_preflight.cli.expand import expand
    from moe_preflight.cli.request import build
    from moe_preflight.report.audit_document import document
    from moe_preflight.report.audit_formats import FORMATS
    from moe_preflight.report.heatmap import render, summary
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.types import exit_code

    o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    destinations = sinks(format, output, known=FORMATS)
    colour = use_colour(color, sys.stdout)
    request = build(
        models=expand(models, cards=cards), shapes=shape, quant=quant, tp=tp, dp=dp, pcp=pcp, pp=pp, ep=ep, ep_size=ep_size,
        redundant_experts=redundant_experts, gpu=gpu, gfx=gfx, cu=cu, engine=engine, engine_version=engine_version,
        engine_env=engine_env, moe_backend=moe_backend, all2all=all2all, lora=lora, aiter=aiter, aiter_version=aiter_version,
        flydsl=flydsl, multi_arch=multi_arch, tokens=tokens, max_num_batched_tokens=max_num_batched_tokens, revision=revision,
        offline=offline,
    )  # fmt: skip
    found, basis, missing, malformed = _audit(request)
    doc = document(found, basis.facts, missing)
    emit(doc, destinations, colour=colour, quiet=quiet, verbose=verbose, formats=FORMATS, text=render, reads=request.reads())
    say(summary(doc))
    # A row of the matrix counts as a finding of its severity.
    raise typer.Exit(exit_code(found.rows, missing, fail_on=fail_on, malformed=malformed))  # type: ignore[arg-type]


def _audit(request: Request) -> tuple[Audit, Basis, list[NotEvaluated], bool]:
    """The matrix, model by model: one model is read, judged and let go before the next."""
    from dataclasses import replace

    from moe_preflight.cli.progress import Progress
    from moe_preflight.coverage.audit import Audit
    from moe_preflight.engine import plan
    from moe_preflight.errors import Unavailable
    from moe_preflight.evaluate import TargetEvaluation, judged_buckets
    from moe_preflight.model.cards import id_of
    from moe_preflight.preflight import basis_of, deployment, gap_of, read_models
    from moe_preflight.report.types import NotEvaluated
    from moe_preflight.settings import Tokens

    basis = basis_of(request)
    tokens = Tokens.parse(request.tokens)
    audit = Audit(judged_buckets(basis.dispatcher(request.gpus[0]), tokens, request.max_num_batched_tokens))
    missing: list[NotEvaluated] = []
    malformed = False
    singles = [replace(request, models=(m,), shapes=()) for m in request.models]
    singles += [replace(request, models=(), shapes=(s,)) for s in request.shapes]
    with Progress("auditing", len(singles)) as progress:
        for single in singles:
            (entry,) = read_models(single)
            progress.add()
            if entry.error is not None:
                malformed = malformed or not isinstance(entry.error, Unavailable)
                hint = entry.error.hint or "Pass a local config.json."
                missing.append(NotEvaluated(f"model {entry.asked}", entry.error.message, hint))
            elif entry.model is not None and (gap := gap_of(entry.model)) is not None:
                missing.append(gap)
            elif entry.model is not None:
                name = id_of(entry.model.id) or entry.model.id  # a bundled card is called what it stands for
                for split in request.splits:
                    for gpu in request.gpus:
                        engine_plan = plan(entry.model, deployment(request, split, gpu))
                        audit.add(name, engine_plan, basis.dispatcher(gpu), TargetEvaluation(0, 0, engine_plan, ()).name)
    if basis.table is None:
        hint = "pip install 'moe-preflight[aiter]', or --aiter DIR or WHEEL."
        missing.append(NotEvaluated("tuned coverage", basis.facts.missing or "no AITER tree was found", hint))
    elif basis.table.error:
        missing.append(
            NotEvaluated("tuned coverage", f'AITER raises "{basis.table.error}"', "moe-preflight lint names the rows.")
        )
    return audit, basis, missing, malformed
