"""``moe-preflight tune``: the hand-off to AITER's tuner."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moe_preflight.cli import options as o

if TYPE_CHECKING:
    from moe_preflight.aiter.basis import Basis
    from moe_preflight.coverage.tune import Wanted
    from moe_preflight.report.types import NotEvaluated
    from moe_preflight.settings import Request

Many = Annotated[
    list[str] | None,
    typer.Argument(help="Hub ids, folders (of configs, too), config files, - or @file lists.", show_default=False),
]
Format = Annotated[
    list[str] | None,
    typer.Option("--format", help="csv, text or json; FORMAT=FILE may repeat. [default: csv]", show_default=False),
]
UNTUNED, TUNED = "untuned_fmoe.csv", "mine_tuned_fmoe.csv"


def tune(
    models: Many = None,
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
    """Write untuned_fmoe.csv for exactly the keys that have no tuned row; what to run with it goes to stderr.

    Example: moe-preflight tune IFM/K2-Horizon-375B-A23B --tp 8 --gpu mi300x --output untuned_fmoe.csv

    The keys are those AITER will be asked, after the engine's padding. Buckets that no kernel can serve are left out and
    named: tuning cannot help them.

    Exit codes: 0 nothing at or above --fail-on; 1 buckets no tuning can help, or a split the engine refuses; 2 usage, settings or malformed input;
    3 something asked for could not be looked at.
    """
    from moe_preflight.cli.expand import expand
    from moe_preflight.cli.request import build
    from moe_preflight.report.formats import Renderer, dumps, inert
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.sanitise import clean_document
    from moe_preflight.report.tune_text import render, summary

    o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    formats: dict[str, Renderer] = {"csv": _csv, "text": lambda doc: inert(render(doc)), "json": dumps}
    destinations = sinks(format or ["csv"], output, known=formats)
    colour = use_colour(color, sys.stdout)
    request = build(
        models=expand(models), shapes=shape, quant=quant, tp=tp, dp=dp, pcp=pcp, pp=pp, ep=ep, ep_size=ep_size,
        redundant_experts=redundant_experts, gpu=gpu, gfx=gfx, cu=cu, engine=engine, engine_version=engine_version,
        engine_env=engine_env, moe_backend=moe_backend, all2all=all2all, lora=lora, aiter=aiter, aiter_version=aiter_version,
        flydsl=flydsl, multi_arch=multi_arch, tokens=tokens, max_num_batched_tokens=max_num_batched_tokens, revision=revision,
        offline=offline,
    )  # fmt: skip
    wanted, basis, missing, malformed = _tune(request)
    doc = clean_document(
        _document(request, wanted, basis, missing, next((s.path for s in destinations if s.format == "csv" and s.path), UNTUNED))
    )
    emit(doc, destinations, colour=colour, quiet=quiet, verbose=verbose, formats=formats, text=render, reads=request.reads())
    if not any(s.format == "text" and s.path is None for s in destinations):
        say(render(doc, quiet=quiet).rstrip("\n"))
    say(summary(doc))
    failed = bool(wanted.hopeless or wanted.refused) and fail_on != "never"
    raise typer.Exit(2 if malformed else 1 if failed else 3 if missing else 0)


def _csv(doc: dict[str, Any]) -> str:
    from moe_preflight.coverage.tune import as_csv

    return as_csv(tuple(row) for row in doc["rows"])


def _tune(request: Request) -> tuple[Wanted, Basis, list[NotEvaluated], bool]:
    from moe_preflight.coverage.tune import Wanted
    from moe_preflight.engine import plan
    from moe_preflight.errors import Unavailable
    from moe_preflight.evaluate import TargetEvaluation, judged_buckets
    from moe_preflight.preflight import basis_of, deployment, gap_of, read_models
    from moe_preflight.report.types import NotEvaluated
    from moe_preflight.settings import Tokens

    basis = basis_of(request)
    buckets = judged_buckets(basis.dispatcher(request.gpus[0]), Tokens.parse(request.tokens), request.max_num_batched_tokens)
    wanted, missing, malformed = Wanted(), [], False
    for entry in read_models(request):
        if entry.error is not None:
            malformed = malformed or not isinstance(entry.error, Unavailable)
            missing.append(
                NotEvaluated(f"model {entry.asked}", entry.error.message, entry.error.hint or "Pass a local config.json.")
            )
        elif entry.model is not None and (gap := gap_of(entry.model)) is not None:
            missing.append(gap)
        elif entry.model is not None:
            for split in request.splits:
                for gpu in request.gpus:
                    engine_plan = plan(entry.model, deployment(request, split, gpu))
                    wanted.add(
                        entry.model.id, engine_plan, basis.dispatcher(gpu), buckets, TargetEvaluation(0, 0, engine_plan, ()).name
                    )
    if basis.table is None:
        hint = "pip install 'moe-preflight[aiter]', or --aiter DIR or WHEEL."
        missing.append(NotEvaluated("tuned coverage", basis.facts.missing or "no AITER tree was found", hint))
    return wanted, basis, missing, malformed


def _document(request: Request, wanted: Wanted, basis: Basis, missing: list[NotEvaluated], untuned: str) -> dict[str, Any]:
    from dataclasses import asdict

    from moe_preflight import __version__
    from moe_preflight.coverage.tune import COLUMNS, command

    tree = basis.tree
    places = {"csrc": tree.csrc_prefix, "hsa": tree.hsa_prefix} if tree is not None else {}
    root = tree.root if tree is not None and tree.kind != "wheel" else None
    home = f"{root}/aiter/configs/model_configs" if root else "aiter/configs/model_configs"
    return {
        "schema_version": 1,
        "kind": "tune",
        "tool": {"name": "moe-preflight", "version": __version__},
        "verdict": "fail"
        if wanted.hopeless or wanted.refused
        else "inconclusive"
        if missing
        else "warn"
        if wanted.lines or wanted.off
        else "pass",
        "aiter": {"version": str(basis.facts.version) if basis.facts.version else None, "root": basis.facts.root},
        "columns": list(COLUMNS),
        "rows": [list(line) for line in wanted.lines],
        "served": wanted.served,
        "hopeless": [asdict(h) for h in wanted.hopeless],
        "off": [{"model": m, "target": t, "reason": r} for m, t, r in wanted.off],
        "commands": [
            {"gpu": f"{g.gfx} with {g.cu_num} CUs", "command": command(basis.version, g.gfx, root, untuned, TUNED, **places)}
            for g in {(g.gfx, g.cu_num): g for g in request.gpus}.values()
        ],
        "afterwards": f"Then put {TUNED} into {home}: AITER merges every *tuned_fmoe*.csv there. AITER_CONFIG_FMOE instead "
        "would replace all shipped tables, unless it lists them too. Check the result with moe-preflight lint.",
        "not_evaluated": [{"what": n.what, "why": n.why, "how_to_get_it": n.how_to_get_it} for n in missing],
    }
