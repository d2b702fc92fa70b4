"""``moe-preflight smoke``: launch the padded fused_moe for real."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from moe_preflight.cli import options as o

if TYPE_CHECKING:
    from moe_preflight.smoke.adapt import Wanted
    from moe_preflight.smoke.attach import Smoked

Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpu", help="GPU the prediction is for. [default: this machine's, else mi300x]", show_default=False),
]
Backend = Annotated[str, typer.Option("--backend", help="auto (AITER on ROCm), aiter, or torch (arithmetic only, any device).")]
Launches = Annotated[str, typer.Option("--tokens", help="Token counts to launch: 1,64,4096.")]
Weights = Annotated[
    str, typer.Option("--weights", help="random (seeded), or real: this rank's slice from the model's safetensors.")
]
Layer = Annotated[int | None, typer.Option("--layer", help="Decoder layer of --weights real.", show_default=False, min=0)]
Device = Annotated[str, typer.Option("--device", help="GPU index, cpu, or auto.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds per launch, AITER's own compiling included.")]
Memory = Annotated[float | None, typer.Option("--memory-limit", help="GiB one launch may take.", show_default=False, min=0.001)]
Poison = Annotated[
    bool, typer.Option("--poison-padding", help="Launch once more with NaN in the padding: does the kernel read it?")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of weights and activations.", min=0, max=1_000_000)]
Repro = Annotated[
    str | None, typer.Option("--emit-repro", help="Write a stand-alone script of the failing launch.", show_default=False)
]
Bundle = Annotated[
    str | None, typer.Option("--bundle", help="Write the evidence as JSON, without names or paths.", show_default=False)
]
Format = Annotated[str, typer.Option("--format", help="text or json.")]


def smoke(
    models: o.Models = None,
    shape: o.Shapes = None,
    quant: o.Quant = None,
    tp: o.Tp = None,
    ep: o.Ep = False,
    ep_size: o.EpSize = None,
    gpu: Gpus = None,
    gfx: o.Gfx = None,
    cu: o.Cu = None,
    engine: o.Engine = "vllm",
    engine_version: o.EngineVersion = None,
    engine_env: o.EngineEnv = None,
    moe_backend: o.MoeBackend = "auto",
    aiter: o.Aiter = "auto",
    aiter_version: o.AiterVersion = None,
    revision: o.Revision = None,
    offline: o.Offline = False,
    backend: Backend = "auto",
    tokens: Launches = "1,64,4096",
    weights: Weights = "random",
    layer: Layer = None,
    device: Device = "auto",
    timeout: Timeout = 300.0,
    memory_limit: Memory = None,
    poison_padding: Poison = False,
    seed: Seed = 0,
    format: Format = "text",
    output: o.Output = None,
    emit_repro: Repro = None,
    bundle: Bundle = None,
) -> None:
    """Launch the padded fused_moe for real, judge it against float32, and compare it with the prediction.

    Example: moe-preflight smoke IFM/K2-Horizon-375B-A23B --tp 8 --poison-padding

    Every launch runs in a process of its own. Without ROCm, --backend torch checks the padding arithmetic and says nothing
    about AITER.

    Exit codes: 0 every launch held; 1 one failed, was wrong, or contradicted the prediction; 2 usage or malformed input;
    3 something could not be launched or looked at.
    """
    from moe_preflight.cli.request import build
    from moe_preflight.preflight import check
    from moe_preflight.report.apart import keep_apart
    from moe_preflight.smoke.attach import smoke as run
    from moe_preflight.smoke.parent import BACKENDS, SmokeOptions

    o.choice(backend, "--backend", BACKENDS)
    o.choice(format, "--format", ("text", "json"))
    o.choice(weights, "--weights", ("random", "real"))
    launch = SmokeOptions(
        backend=backend, device=device, timeout=timeout, memory_limit=int(memory_limit * (1 << 30)) if memory_limit else None
    )
    wanted = _wanted(tokens, weights, layer, models, revision, seed, poison_padding)
    request = build(
        models=models, shapes=shape, quant=quant, tp=tp, ep=ep, ep_size=ep_size, gpu=gpu or _this_gpu(gfx), gfx=gfx, cu=cu,
        engine=engine, engine_version=engine_version, engine_env=engine_env, moe_backend=moe_backend, aiter=aiter,
        aiter_version=aiter_version, tokens=tokens, revision=revision, offline=offline,
    )  # fmt: skip
    report = check(request)
    keep_apart((output, emit_repro, bundle), (*request.reads(), report.run.aiter.root))
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    try:
        smoked = run(report, wanted, launch, progress if on_terminal else None)
    finally:
        if on_terminal:
            progress("")
    _say(smoked, format, output)
    _write_files(smoked, emit_repro, bundle)
    malformed = smoked.report.exit_code("never") == 2
    raise typer.Exit(2 if malformed else smoked.outcome.exit_code)


def _wanted(
    tokens: str, weights: str, layer: int | None, models: list[str] | None, revision: str | None, seed: int, poison: bool
) -> Wanted:
    from moe_preflight.errors import UsageError
    from moe_preflight.settings import Tokens
    from moe_preflight.smoke.adapt import Wanted

    named = Tokens.parse(tokens)
    counts = named.counts
    if not counts or named.ranges:
        raise UsageError(f"--tokens {tokens}: smoke launches token counts.", hint="For example --tokens 1,64,4096.")
    if (weights == "real") != (layer is not None):
        raise UsageError("--weights real and --layer go together.", hint="For example --weights real --layer 3.")
    folder = None
    if weights == "real":
        if not models or len(models) != 1:
            raise UsageError("--weights real needs exactly one model.", hint="Name a folder with its safetensors files.")
        folder = _folder(models[0], revision)
    return Wanted(tokens=tuple(dict.fromkeys(counts)), seed=seed, poison=poison, folder=folder, layer_index=layer)


def _folder(model: str, revision: str | None) -> str:
    """Where the model's safetensors lie: the folder itself, or the hub cache. Nothing is downloaded."""
    from moe_preflight.errors import ModelUnavailable

    if os.path.isdir(model):
        return os.path.abspath(model)
    if model.count("/") == 1 and not os.path.exists(model):
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json", revision=revision)
        if isinstance(found, str):
            return os.path.dirname(found)
    raise ModelUnavailable(
        f"--weights real: {model} is neither a folder nor in the hub cache.", hint="Download it first, or use --weights random."
    )


def _this_gpu(gfx: str | None) -> list[str] | None:
    """The AMD GPU of this machine when there is one; else the first default, whose padding is the same."""
    from moe_preflight.errors import DeviceUnavailable
    from moe_preflight.hardware import DEFAULT_GPUS, detect

    if gfx is not None:
        return None
    try:
        detect()
    except DeviceUnavailable:
        return [DEFAULT_GPUS[0]]
    return ["auto"]


def progress(text: str) -> None:
    """One line on the terminal, over the last one."""
    with suppress(OSError, ValueError):
        print(f"\r\x1b[K{text[:120]}", end="", file=sys.stderr, flush=True)


def _say(smoked: Smoked, format: str, output: str | None) -> None:
    from moe_preflight.report.output import write_stdout
    from moe_preflight.report.sanitise import clean
    from moe_preflight.smoke.bundle import dump, write
    from moe_preflight.smoke.text import lines

    if format == "json":
        from moe_preflight.report.sanitise import clean_document

        text = dump(clean_document(smoked.report.to_dict()))
    else:
        said = [clean(line) for line in lines(smoked.observations)]
        said += [f"not evaluated: {what}: {why}" for what, why, _ in smoked.outcome.not_evaluated]
        for error in (m.error for m in smoked.report.run.models if m.error is not None):
            said.append(f"error: {clean(str(error))}")
        text = "\n".join(said) + "\n"
    if output is None:
        write_stdout(text)
    else:
        write(output, text)


def _write_files(smoked: Smoked, emit_repro: str | None, bundle: str | None) -> None:
    from moe_preflight.report.output import say
    from moe_preflight.smoke import repro
    from moe_preflight.smoke.bundle import bundle as evidence
    from moe_preflight.smoke.bundle import dump, write

    if bundle is not None:
        write(bundle, dump(evidence(smoked.cases, smoked.observations)))
    if emit_repro is None:
        return
    found = repro.worst(smoked.observations, smoked.cases)
    if found is None:
        say("moe-preflight: --emit-repro: no launch failed, no script written")
        return
    case, seen = found
    if why := repro.unfit(case):
        say(f"moe-preflight: --emit-repro: {why}")
        return
    write(emit_repro, repro.script(case, seen))
