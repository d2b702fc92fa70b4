"""``moe-preflight observe``: what an engine's log says, beside what we would have said."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from moe_preflight.cli import options as o

if TYPE_CHECKING:
    from moe_preflight.evaluate import TargetEvaluation
    from moe_preflight.settings import Request

Log = Annotated[str, typer.Argument(help="An engine's log, or - for stdin.")]
CHUNK = 1 << 20


def observe(
    log: Log,
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
    revision: o.Revision = None,
    offline: o.Offline = False,
    format: o.FormatOption = None,
    output: o.Output = None,
    fail_on: o.FailOn = "error",
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Read an engine's log: which keys AITER was asked, which kernels it took, and whether that is what was predicted.

    Example: moe-preflight observe vllm.log IFM/K2-Horizon-375B-A23B --tp 8 --gpu mi300x

    Every key is put to the dispatch model of the same AITER and tables: confirmed or contradicted. With models named, keys
    they would not ask are told as never predicted. AITER_* switches of the machine that wrote the log: --engine-env.

    Exit codes: 0 nothing at or above --fail-on; 1 a finding at or above it; 2 usage, settings or malformed input;
    3 something asked for could not be looked at.
    """
    from moe_preflight.cli.request import build
    from moe_preflight.cli.rules import every_rule
    from moe_preflight.report.formats import FORMATS
    from moe_preflight.report.observe_text import render, summary
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.sanitise import clean_document

    def sarif(doc: dict[str, object]) -> str:
        from moe_preflight.report.sarif import render as as_sarif

        return as_sarif(doc, {r.code: r for r in every_rule()})

    o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    formats = {**FORMATS, "text": render, "sarif": sarif}
    destinations = sinks(format, output, known=formats)
    colour = use_colour(color, sys.stdout)
    named = bool(models or shape)
    request = build(
        models=models if named else ["-"], shapes=shape, quant=quant, tp=tp, dp=dp, pcp=pcp, pp=pp, ep=ep, ep_size=ep_size,
        redundant_experts=redundant_experts, gpu=gpu, gfx=gfx, cu=cu, engine=engine, engine_version=engine_version,
        engine_env=engine_env, moe_backend=moe_backend, all2all=all2all, lora=lora, aiter=aiter, aiter_version=aiter_version,
        tuned=not no_tuned, flydsl=flydsl, multi_arch=multi_arch, revision=revision, offline=offline,
    )  # fmt: skip
    if not named:
        request = replace(request, models=())
    given = (gfx, cu) if gfx is not None and cu is not None else None
    doc, code = _observe(log, request, given, fail_on)
    clean = clean_document(doc)
    emit(
        clean,
        destinations,
        colour=colour,
        quiet=quiet,
        verbose=verbose,
        formats=formats,
        text=render,
        reads=(log, *request.reads()),
    )
    say(summary(clean))
    raise typer.Exit(code)


def _observe(log: str, request: Request, given: tuple[str, int] | None, fail_on: str) -> tuple[dict[str, object], int]:
    from moe_preflight.coverage.observe import match, planned_keys, read
    from moe_preflight.coverage.observed import findings, not_evaluated, observations
    from moe_preflight.errors import Unavailable
    from moe_preflight.hardware import Gpu
    from moe_preflight.preflight import basis_of, evaluate_target, read_models
    from moe_preflight.report.document import document
    from moe_preflight.report.types import NotEvaluated, exit_code
    from moe_preflight.rules.run import Run
    from moe_preflight.settings import Tokens

    name = "stdin" if log == "-" else log
    reading = read(_chunks(log))
    entries = tuple(read_models(request))
    basis = basis_of(request)
    targets: list[TargetEvaluation] = []
    for m, entry in enumerate(entries):
        if entry.model is not None:
            for split in request.splits:
                for gpu in request.gpus:
                    targets.append(evaluate_target(request, basis, Tokens("all"), len(targets), m, entry.model, split, gpu))

    def dispatcher(gfx: str, cu_num: int):  # type: ignore[no-untyped-def]
        return basis.dispatcher(Gpu(f"{gfx}:{cu_num}", gfx, cu_num))

    planned = planned_keys(targets, dispatcher) if entries else None
    matches = match(reading, dispatcher, planned, default=given)
    found = tuple(findings(name, reading, matches, planned=planned is not None))
    missing = [*not_evaluated(name, reading, matches)]
    missing += [
        NotEvaluated(f"model {e.asked}", e.error.message, e.error.hint or "Pass a local config.json.")
        for e in entries
        if isinstance(e.error, Unavailable)
    ]
    files = [f.name for f in basis.table.files] if basis.table is not None else None
    seen = observations(name, reading, matches, planned, files)
    doc = document(Run(request, entries, basis.facts, tuple(targets)), found, tuple(missing), tuple(seen))
    malformed = any(e.error is not None and not isinstance(e.error, Unavailable) for e in entries)
    return doc, exit_code(found, missing, fail_on=fail_on, malformed=malformed)


def _chunks(log: str) -> Iterator[bytes]:
    """The log in pieces of CHUNK bytes, whatever it is: file, pipe or stdin. Progress goes to a terminal only."""
    from moe_preflight.errors import FileUnreadable

    try:
        with _opened(log) as f:
            size = os.fstat(f.fileno()).st_size if log != "-" else 0
            yield from _told(f, size)
    except OSError as e:
        raise FileUnreadable(log, (e.strerror or "cannot be read").lower()) from None


def _opened(log: str) -> BinaryIO:
    if log == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb", 0)
    if stat.S_ISCHR(os.stat(log).st_mode):
        raise OSError(errno.EINVAL, "a device, which never ends")
    return open(log, "rb", 0)


def _told(f: BinaryIO, size: int) -> Iterator[bytes]:
    from moe_preflight.cli.progress import Progress

    with Progress("reading the log", size) as progress:
        while chunk := f.read(CHUNK):
            progress.add(len(chunk))
            yield chunk
