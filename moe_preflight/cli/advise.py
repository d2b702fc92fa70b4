"""``moe-preflight advise``: which split to take."""

from __future__ import annotations

from typing import Annotated

import typer

from moe_preflight.cli import options as o

SPLITS = ("1", "2", "4", "8", "16")


def advise(
    model: Annotated[str | None, typer.Argument(help="Hub id, folder, config.json, or - for stdin.", show_default=False)] = None,
    tp: Annotated[
        list[str] | None, typer.Option("--tp", help="Degrees to try. [default: 1,2,4,8,16]", show_default=False)
    ] = None,
    dp: o.Dp = 1,
    pcp: o.Pcp = 1,
    pp: o.Pp = 1,
    gpu: o.GpuNames = None,
    gfx: o.Gfx = None,
    cu: o.Cu = None,
    engine: o.Engine = "vllm",
    engine_version: o.EngineVersion = None,
    engine_env: o.EngineEnv = None,
    moe_backend: o.MoeBackend = "auto",
    aiter: o.Aiter = "auto",
    aiter_version: o.AiterVersion = None,
    no_tuned: o.NoTuned = False,
    shape: o.Shapes = None,
    quant: o.Quant = None,
    max_num_batched_tokens: o.MaxTokens = None,
    revision: o.Revision = None,
    offline: o.Offline = False,
    format: Annotated[
        list[str] | None,
        typer.Option("--format", help="text, json, markdown; FORMAT=FILE may repeat. [default: text]", show_default=False),
    ] = None,
    output: o.Output = None,
    color: o.Color = "auto",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="What to take, without the tables.")] = False,
) -> None:
    """Compare TP 1 to 16, expert parallelism off and on, and recommend one split.

    Example: moe-preflight advise IFM/K2-Horizon-375B-A23B --gpu mi300x

    Exit codes: 0 a split is recommended for every GPU; 1 none starts without an error and fits; 2 usage or malformed input; 3 the model is
    dense or could not be reached, or no AITER tree was found while tuned coverage was wanted.
    """
    import sys
    from dataclasses import replace

    from moe_preflight.advise import recommend, row_of
    from moe_preflight.cli.request import build
    from moe_preflight.errors import ModelUnavailable, TreeUnavailable, UsageError
    from moe_preflight.preflight import basis_of, check, read_models
    from moe_preflight.report.advise_text import as_json, as_markdown, as_text
    from moe_preflight.report.output import emit, sinks, use_colour
    from moe_preflight.report.sanitise import clean
    from moe_preflight.settings import with_ep

    formats = {
        "text": lambda doc: as_text(doc["name"], doc["titled"]),
        "json": lambda doc: as_json(doc["name"], doc["named"]),
        "markdown": lambda doc: as_markdown(doc["name"], doc["titled"]),
    }
    destinations = sinks(format, output, known=formats)
    colour = use_colour(color, sys.stdout)
    request = build(
        models=[model] if model else None, shapes=shape, quant=quant, tp=tp or list(SPLITS), dp=dp, pcp=pcp, pp=pp, gpu=gpu, gfx=gfx,
        cu=cu, engine=engine, engine_version=engine_version, engine_env=engine_env, moe_backend=moe_backend, aiter=aiter,
        aiter_version=aiter_version, tuned=not no_tuned, max_num_batched_tokens=max_num_batched_tokens, revision=revision,
        offline=offline,
    )  # fmt: skip
    entries = read_models(request)
    if len(entries) != 1:
        raise UsageError("advise takes one model or one --shape.", hint="For several, run it once for each.")
    entry = entries[0]
    if entry.model is None:
        assert entry.error is not None
        raise entry.error
    if not entry.model.layers:
        raise ModelUnavailable(f"{entry.model.id} has no MoE layer.", hint="Name a mixture-of-experts model.")
    if not entry.model.sizes_known:
        raise ModelUnavailable(
            f"{entry.model.id}: its config does not say: {', '.join(entry.model.unknown)}.",
            hint="Use the full config.json of the repository.",
        )
    basis = basis_of(request)
    if request.tuned and basis.tree is None:
        raise TreeUnavailable(f"Tuned coverage cannot be looked up: {basis.facts.missing}", hint="Or say --no-tuned.")
    splits = with_ep(request.splits, numbered=request.engine == "sglang")
    report = check(replace(request, splits=splits), basis=basis, entries=entries)
    blocks = []
    for g in request.gpus:
        rows = [row_of(t, report.findings) for t in report.run.targets if t.plan.deployment.gpu == g]
        blocks.append((g, rows, *recommend(rows)))
    name = clean(entry.model.id)
    doc = {
        "name": name,
        "named": [(g.name, g.gfx, rows, best, why) for g, rows, best, why in blocks],
        "titled": [(f"{g.name.upper()} ({g.gfx}, {g.cu_num} CU)", rows, best, why) for g, rows, best, why in blocks],
    }
    emit(
        doc,
        destinations,
        colour=colour,
        quiet=quiet,
        formats=formats,
        reads=(*request.reads(), basis.facts.root),
        text=lambda doc, style, *, quiet, verbose: as_text(doc["name"], doc["titled"], style, quiet=quiet),
    )
    raise typer.Exit(0 if all(best for _, _, best, _ in blocks) else 1)
