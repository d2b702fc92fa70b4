"""``moe-preflight compare``: what an upgrade of AITER, of the engine, or of both changes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from moe_preflight.cli import options as o

Many = Annotated[
    list[str] | None,
    typer.Argument(help="Hub ids, folders (of configs, too), config files, - or @file lists.", show_default=False),
]
Aiters = Annotated[
    list[str] | None,
    typer.Option(
        "--aiter", help="OLD, then NEW: a folder, a .whl, auto, or a release number for the built-in facts.", show_default=False
    ),
]
Versions = Annotated[
    list[str] | None, typer.Option("--aiter-version", help="OLD, then NEW, for trees that do not say.", show_default=False)
]
Engines = Annotated[list[str] | None, typer.Option("--engine-version", help="OLD, then NEW engine release.", show_default=False)]


def compare(
    models: Many = None,
    aiter: Aiters = None,
    aiter_version: Versions = None,
    engine_version: Engines = None,
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
    engine_env: o.EngineEnv = None,
    moe_backend: o.MoeBackend = "auto",
    all2all: o.All2All = None,
    lora: o.Lora = False,
    no_tuned: o.NoTuned = False,
    flydsl: o.Flydsl = True,
    multi_arch: o.MultiArch = False,
    shape: o.Shapes = None,
    quant: o.Quant = None,
    max_num_batched_tokens: o.MaxTokens = None,
    revision: o.Revision = None,
    offline: o.Offline = False,
    format: o.FormatOption = None,
    output: o.Output = None,
    fail_on: o.FailOn = "warning",
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """What an upgrade changes for these models: tuned rows gained and lost, kernels, acceptance, router, padding, the engine's choice.

    Example: moe-preflight compare --aiter old.whl --aiter ./aiter deepseek-ai/DeepSeek-V3 --tp 8

    One value of --aiter, --aiter-version or --engine-version serves both sides. --fail-on error lets lost tuned rows and
    costlier padding pass, warning (the default) lets nothing that got worse pass.

    Exit codes: 0 nothing got worse; 1 something did; 2 usage, settings or malformed input; 3 something asked for could not
    be looked at.
    """
    from moe_preflight.cli.expand import expand
    from moe_preflight.cli.progress import Progress
    from moe_preflight.cli.request import build
    from moe_preflight.cli.rules import every_rule
    from moe_preflight.errors import UsageError
    from moe_preflight.report.compare_text import render, summary
    from moe_preflight.report.formats import FORMATS
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.sanitise import clean_document
    from moe_preflight.upgrade import compare as run_compare

    def sarif(doc: dict[str, object]) -> str:
        from moe_preflight.report.sarif import render as as_sarif

        return as_sarif(doc, {r.code: r for r in every_rule()})

    o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    formats = {**FORMATS, "text": render, "sarif": sarif}
    destinations = sinks(format, output, known=formats)
    colour = use_colour(color, sys.stdout)
    trees, versions, engines = (
        _two(v, flag)
        for v, flag in ((aiter, "--aiter"), (aiter_version, "--aiter-version"), (engine_version, "--engine-version"))
    )
    if all(a == b for a, b in (trees, versions, engines)):
        raise UsageError(
            "compare: both sides are the same.",
            hint="Give --aiter, --aiter-version or --engine-version twice: the old one, then the new one.",
        )
    listed = expand(models)
    requests = [
        build(
            models=listed,
            shapes=shape,
            quant=quant,
            tp=tp,
            dp=dp,
            pcp=pcp,
            pp=pp,
            ep=ep,
            ep_size=ep_size,
            redundant_experts=redundant_experts,
            gpu=gpu,
            gfx=gfx,
            cu=cu,
            engine=engine,
            engine_version=engines[i],
            engine_env=engine_env,
            moe_backend=moe_backend,
            all2all=all2all,
            lora=lora,
            aiter=trees[i] or "auto",
            aiter_version=versions[i],
            tuned=not no_tuned,
            flydsl=flydsl,
            multi_arch=multi_arch,
            max_num_batched_tokens=max_num_batched_tokens,
            revision=revision,
            offline=offline,
        )
        for i in (0, 1)
    ]
    reads = [name for r in requests for name in r.reads()]
    found = run_compare(requests[0], requests[1], progress=lambda n: Progress("comparing", n))
    clean = clean_document(found.to_dict())
    emit(clean, destinations, colour=colour, quiet=quiet, verbose=verbose, formats=formats, text=render, reads=reads)
    say(summary(clean))
    raise typer.Exit(found.exit_code(fail_on))


def _two(values: list[str] | None, flag: str) -> tuple[str | None, str | None]:
    from moe_preflight.errors import UsageError

    given: list[str | None] = [*values] if values else [None]
    if len(given) > 2:
        raise UsageError(f"{flag}: given {len(given)} times.", hint="At most twice: the old one, then the new one.")
    return given[0], given[-1]
