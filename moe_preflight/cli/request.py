"""From the words of a command line to a Request, with every refusal naming its flag."""

from __future__ import annotations

import os

from moe_preflight.cli.options import codes, gpus
from moe_preflight.errors import UsageError
from moe_preflight.settings import AITER_ENV, DEFAULT_ENGINE_VERSIONS, Request, Split, assignments, integers


def build(
    *,
    models: list[str] | None = None,
    shapes: list[str] | None = None,
    quant: str | None = None,
    tp: list[str] | None = None,
    dp: int = 1,
    pcp: int = 1,
    pp: int = 1,
    ep: bool = False,
    ep_size: int | None = None,
    redundant_experts: int = 0,
    gpu: list[str] | None = None,
    gfx: str | None = None,
    cu: int | None = None,
    engine: str = "vllm",
    engine_version: str | None = None,
    engine_env: list[str] | None = None,
    moe_backend: str = "auto",
    all2all: str | None = None,
    lora: bool = False,
    aiter: str = "auto",
    aiter_version: str | None = None,
    tuned: bool = True,
    flydsl: bool = True,
    multi_arch: bool = False,
    tokens: str = "all",
    max_num_batched_tokens: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    checkpoint: bool = False,
    select: list[str] | None = None,
    ignore: list[str] | None = None,
) -> Request:
    """A Request, or a UsageError that names the flag. The AITER_* variables of this process count as the engine's, as they
    would on the node; --engine-env overrides them."""
    if not models and not shapes:
        raise UsageError("No model given.", hint="Name a hub id, a folder, a config.json, - for stdin, or use --shape.")
    if quant is not None and not shapes:
        raise UsageError("--quant goes with --shape.", hint="A model's config says itself how it is quantized.")
    if engine not in DEFAULT_ENGINE_VERSIONS:
        raise UsageError(f"--engine {engine}: unknown engine.", hint=f"Expected {', '.join(DEFAULT_ENGINE_VERSIONS)}.")
    if ep_size is not None and engine != "sglang":
        raise UsageError(f"--ep {ep_size}: {engine} takes no number.", hint="vLLM's EP size is tp x dp x pcp: say --ep.")
    env = assignments(engine_env, "--engine-env")
    degrees = integers(tp, "--tp", -65536, 65536) or (1,)
    return Request(
        models=tuple(models or ()),
        shapes=tuple(shapes or ()),
        quant=quant,
        splits=tuple(Split(n, dp, pcp, pp, ep or (ep_size or 1) > 1, ep_size, redundant_experts) for n in degrees),
        gpus=gpus(gpu, gfx, cu),
        engine=engine,
        engine_version=engine_version or DEFAULT_ENGINE_VERSIONS[engine],
        engine_env={k: v for k, v in env.items() if not k.startswith(AITER_ENV)},
        moe_backend=moe_backend,
        all2all=all2all,
        lora=lora,
        aiter=aiter,
        aiter_version=aiter_version,
        aiter_env={k: v for k, v in {**os.environ, **env}.items() if k.startswith(AITER_ENV)},
        flydsl=flydsl,
        multi_arch=multi_arch,
        tuned=tuned,
        tokens=tokens,
        max_num_batched_tokens=max_num_batched_tokens,
        revision=revision,
        offline=offline,
        checkpoint=checkpoint,
        select=codes(select, "--select"),
        ignore=codes(ignore, "--ignore"),
    )
