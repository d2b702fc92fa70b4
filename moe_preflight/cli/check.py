"""``moe-preflight check``: the main job."""

from __future__ import annotations

import sys

import typer

from moe_preflight.cli import options as o


def check(
    models: o.Models = None,
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
    no_tuned: o.NoTuned = False,
    flydsl: o.Flydsl = True,
    multi_arch: o.MultiArch = False,
    shape: o.Shapes = None,
    quant: o.Quant = None,
    tokens: o.TokensOption = "all",
    max_num_batched_tokens: o.MaxTokens = None,
    revision: o.Revision = None,
    offline: o.Offline = False,
    checkpoint: o.Checkpoint = False,
    ask_aiter: o.AskAiter = False,
    smoke: o.Smoke = False,
    smoke_backend: o.SmokeBackend = "auto",
    smoke_tokens: o.SmokeTokens = "1,64,4096",
    format: o.FormatOption = None,
    output: o.Output = None,
    fail_on: o.FailOn = "error",
    select: o.Select = None,
    ignore: o.Ignore = None,
    env: o.Env = False,
    config: o.Config = None,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Judge models on GPUs: will AITER accept the shapes, is there a tuned row, a router kernel, what does padding cost?

    Example: moe-preflight check IFM/K2-Horizon-375B-A23B --tp 8 --gpu mi300x

    AITER and its MoE are taken as switched on; --engine-env overrides what the engine would see. Without
    --max-num-batched-tokens every token bucket is judged.

    Exit codes: 0 nothing at or above --fail-on; 1 a finding at or above it; 2 usage, settings or malformed input;
    3 something asked for could not be looked at.
    """
    from moe_preflight.cli.progress import Progress
    from moe_preflight.cli.request import build
    from moe_preflight.errors import UsageError
    from moe_preflight.model import hub
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.sanitise import clean_document
    from moe_preflight.report.text import summary
    from moe_preflight.settings import Tokens

    o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    destinations = sinks(format, output)
    colour = use_colour(color, sys.stdout)
    request = build(
        models=models, shapes=shape, quant=quant, tp=tp, dp=dp, pcp=pcp, pp=pp, ep=ep, ep_size=ep_size,
        redundant_experts=redundant_experts, gpu=gpu, gfx=gfx, cu=cu, engine=engine, engine_version=engine_version,
        engine_env=engine_env, moe_backend=moe_backend, all2all=all2all, lora=lora, aiter=aiter, aiter_version=aiter_version,
        tuned=not no_tuned, flydsl=flydsl, multi_arch=multi_arch, tokens=tokens, max_num_batched_tokens=max_num_batched_tokens,
        revision=revision, offline=offline, checkpoint=checkpoint, select=select, ignore=ignore,
    )  # fmt: skip
    with hub.line():
        hub.call_ahead(request.models, request.revision, request.offline)
        from moe_preflight.preflight import check as run_check  # loaded while the hub's library loads in its own process

        with Progress("reading safetensors headers") as bar:
            report = run_check(request, bar.at if checkpoint else None)
    if ask_aiter:
        from moe_preflight.ask.attach import ask_aiter as ask

        with Progress("asking AITER") as bar:
            report = ask(report, progress=lambda _: bar.add())
    if smoke:
        from moe_preflight.smoke.adapt import Wanted
        from moe_preflight.smoke.attach import smoke_or_gap
        from moe_preflight.smoke.parent import BACKENDS, SmokeOptions

        o.choice(smoke_backend, "--smoke-backend", BACKENDS)
        wanted = Tokens.parse(smoke_tokens)
        counts = wanted.counts
        if not counts or wanted.ranges:
            raise UsageError(
                f"--smoke-tokens {smoke_tokens}: launches take counts.", hint="For example --smoke-tokens 1,64,4096."
            )
        with Progress("launching") as bar:
            report = smoke_or_gap(report, Wanted(tokens=counts), SmokeOptions(backend=smoke_backend), lambda _: bar.add())
    if env:
        from moe_preflight.environment import describe, with_environment

        report = with_environment(report, describe(report))
    doc = clean_document(report.to_dict())
    emit(doc, destinations, colour=colour, quiet=quiet, verbose=verbose, reads=request.reads())
    say(summary(doc))
    raise typer.Exit(report.exit_code(fail_on))
