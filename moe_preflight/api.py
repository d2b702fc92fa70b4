"""The Python API: ``moe_preflight.check(...)``, what the command line does without the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from moe_preflight.hardware import DEFAULT_GPUS, named
from moe_preflight.preflight import Report
from moe_preflight.preflight import check as check_request
from moe_preflight.settings import DEFAULT_ENGINE_VERSIONS, Request, Split, integers

Word = str | PathLike[str]


def check(
    models: Word | Sequence[Word],
    *,
    tp: int | str | Sequence[int] = 1,
    ep: bool = False,
    gpu: str | Sequence[str] = DEFAULT_GPUS,
    engine: str = "vllm",
    engine_version: str | None = None,
    engine_env: Mapping[str, str] | None = None,
    aiter: Word = "auto",
    aiter_version: str | None = None,
    tuned: bool = True,
    tokens: str = "all",
    max_num_batched_tokens: int | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Report:
    """Judge ``models`` (hub ids, folders or config.json files) under every ``tp`` on every ``gpu``.

    The arguments are those of ``moe-preflight check``. A model that cannot be read is part of the report; nonsense
    (an unknown GPU, a version that is none, a named tree that is not there) raises a moe_preflight.errors.PreflightError.
    For anything further (data or pipeline parallelism, shapes, LoRA) build a settings.Request and call preflight.check.

    >>> report = check("config.json", tp=8, gpu="mi300x")  # doctest: +SKIP
    >>> report.verdict, [f.code for f in report.findings]  # doctest: +SKIP
    ('warn', ['MP111', 'MP301'])
    """
    words = [models] if isinstance(models, (str, PathLike)) else list(models)
    degrees = [tp] if isinstance(tp, int) else integers([tp], "tp", -65536, 65536) if isinstance(tp, str) else list(tp)
    names = gpu.split(",") if isinstance(gpu, str) else list(gpu)
    return check_request(
        Request(
            models=tuple(fspath(w) for w in words),
            splits=tuple(Split(tp=n, ep=ep) for n in degrees),
            gpus=tuple(named(n) for n in names),
            engine=engine,
            engine_version=engine_version or DEFAULT_ENGINE_VERSIONS.get(engine, ""),
            engine_env=dict(engine_env or {}),
            aiter=fspath(aiter),
            aiter_version=aiter_version,
            tuned=tuned,
            tokens=tokens,
            max_num_batched_tokens=max_num_batched_tokens,
            revision=revision,
            offline=offline,
        )
    )
