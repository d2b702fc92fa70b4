"""Options that several commands share, each declared once, and how they become a Request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moe_preflight.hardware import Gpu

Models = Annotated[list[str] | None, typer.Argument(help="Hub id, folder, config.json, or - for stdin.", show_default=False)]
Tp = Annotated[
    list[str] | None, typer.Option("--tp", help="Tensor parallel degree; repeat or list: 8,4. [default: 1]", show_default=False)
]
Dp = Annotated[int, typer.Option("--dp", help="Data parallel degree.", min=-65536, max=65536)]
Pcp = Annotated[int, typer.Option("--pcp", help="Prefill context parallel degree.", min=-65536, max=65536)]
Pp = Annotated[int, typer.Option("--pp", help="Pipeline parallel degree.", min=-65536, max=65536)]
Ep = Annotated[
    bool, typer.Option("--ep/--no-ep", help="Expert parallelism: experts split, their width stays whole. SGLang: --ep N.")
]
EpSize = Annotated[int | None, typer.Option("--ep-size", help="What --ep N stands for.", hidden=True)]
Redundant = Annotated[int, typer.Option("--redundant-experts", help="EPLB redundant experts.", min=0, max=65536)]
GpuNames = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        help="mi300x mi325x mi308x mi300a mi350x mi355x auto; repeat or list. [default: mi300x,mi355x]",
        show_default=False,
    ),
]
Gfx = Annotated[str | None, typer.Option("--gfx", help="Architecture by hand, with --cu.", show_default=False)]
Cu = Annotated[int | None, typer.Option("--cu", help="Compute units by hand, with --gfx.", show_default=False)]
Engine = Annotated[str, typer.Option("--engine", help="vllm, sglang, or aiter (no engine).", envvar="MOE_PREFLIGHT_ENGINE")]
EngineVersion = Annotated[
    str | None,
    typer.Option(
        "--engine-version",
        help="Engine release. [default: vLLM 0.33.0, SGLang 0.5.23]",
        envvar="MOE_PREFLIGHT_ENGINE_VERSION",
        show_default=False,
    ),
]
EngineEnv = Annotated[
    list[str] | None, typer.Option("--engine-env", help="NAME=VALUE the engine would see; repeat.", show_default=False)
]
MoeBackend = Annotated[str, typer.Option("--moe-backend", help="The engine's --moe-backend.")]
All2All = Annotated[str | None, typer.Option("--all2all-backend", help="The engine's all2all backend.", show_default=False)]
Lora = Annotated[bool, typer.Option("--enable-lora", help="LoRA is enabled.")]
Aiter = Annotated[
    str, typer.Option("--aiter", help="auto (installed amd-aiter), a folder, or a .whl.", envvar="MOE_PREFLIGHT_AITER")
]
AiterVersion = Annotated[
    str | None,
    typer.Option(
        "--aiter-version",
        help="AITER release, when the tree does not say.",
        envvar="MOE_PREFLIGHT_AITER_VERSION",
        show_default=False,
    ),
]
NoTuned = Annotated[bool, typer.Option("--no-tuned", help="Do not look at tuned tables.")]
Flydsl = Annotated[bool, typer.Option("--flydsl/--no-flydsl", help="Is the FlyDSL package installed beside AITER?")]
MultiArch = Annotated[bool, typer.Option("--multi-arch", help="AITER was prebuilt for several architectures at once.")]
TokensOption = Annotated[str, typer.Option("--tokens", help="all, decode (<= 256), prefill, or counts: 1,64,4096.")]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-num-batched-tokens", help="Bounds which token buckets are reachable.", show_default=False, min=1),
]
Revision = Annotated[str | None, typer.Option("--revision", help="Hub revision: branch, tag or commit.", show_default=False)]
Offline = Annotated[
    bool, typer.Option("--offline", help="Hub cache only, else the bundled card.", envvar="MOE_PREFLIGHT_OFFLINE")
]
Smoke = Annotated[bool, typer.Option("--smoke", help="Launch the padded fused_moe too, and append what was seen.")]
SmokeBackend = Annotated[str, typer.Option("--smoke-backend", help="auto, aiter or torch (torch says nothing about AITER).")]
SmokeTokens = Annotated[str, typer.Option("--smoke-tokens", help="Token counts to launch.")]
AskAiter = Annotated[bool, typer.Option("--ask-aiter", help="Ask AITER's own dispatch too (in a child process), and compare.")]
Checkpoint = Annotated[bool, typer.Option("--checkpoint", help="Compare the safetensors headers with the config (headers only).")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="experts=..,topk=..,hidden=..,inter=..[,n_group=..,act=silu ...]; repeat.", show_default=False),
]
Quant = Annotated[
    str | None, typer.Option("--quant", help="Quantization of --shape: none fp8_tensor fp8_block mxfp4 ...", show_default=False)
]
FormatOption = Annotated[
    list[str] | None, typer.Option("--format", help="text, json ...; FORMAT=FILE may repeat. [default: text]", show_default=False)
]
Output = Annotated[str | None, typer.Option("--output", help="Write the report here instead of stdout.", show_default=False)]
FailOn = Annotated[str, typer.Option("--fail-on", help="Exit 1 from this severity on: error, warning, never.")]
Select = Annotated[list[str] | None, typer.Option("--select", help="Only these codes (prefixes too).", show_default=False)]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", help="Not these codes (prefixes too).", show_default=False)]
Env = Annotated[bool, typer.Option("--env", help="Add the environment of this run to the report.")]
Color = Annotated[str, typer.Option("--color", help="auto, always or never.")]


def _defaults(ctx: typer.Context, value: str | None) -> str | None:
    """Before any other option is looked at: what a TOML file says of them. Nothing is imported when there is none."""
    if not ctx.resilient_parsing and (value is not None or os.path.lexists("pyproject.toml")):
        from moe_preflight.cli.defaults import apply

        apply(ctx, value)
    return value


Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="Defaults from the [tool.moe-preflight] table of this file. [default: ./pyproject.toml]",
        show_default=False,
        is_eager=True,
        callback=_defaults,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Verdict, errors and warnings only.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Every bucket, all evidence.")]


def gpus(names: list[str] | None, gfx: str | None, cu: int | None) -> tuple[Gpu, ...]:
    """The GPUs asked for, in order; both defaults when none was."""
    from moe_preflight.errors import UsageError
    from moe_preflight.hardware import DEFAULT_GPUS, by_hand, named

    if (gfx is None) != (cu is None):
        raise UsageError("--gfx and --cu go together.", hint="For example --gfx gfx942 --cu 304; or --gpu mi300x.")
    found = [named(n) for v in names or [] for n in v.split(",")]
    if gfx is not None and cu is not None:
        found.append(by_hand(gfx, cu))
    return tuple(dict.fromkeys(found)) or tuple(named(n) for n in DEFAULT_GPUS)


def codes(values: list[str] | None, flag: str) -> tuple[str, ...]:
    """Rule codes or prefixes of them; a word that matches no rule is a usage error."""
    from moe_preflight.rules import catalogue

    return catalogue.codes(values or (), flag)


def choice(value: str, flag: str, allowed: tuple[str, ...]) -> str:
    """One of ``allowed``; anything else is a usage error that lists them."""
    from moe_preflight.errors import UsageError

    if value not in allowed:
        raise UsageError(f"{flag} {value}: unknown.", hint=f"Expected {', '.join(allowed)}.")
    return value
