"""The Python API: what the command line does without the command line.

    check(...)       -> Report       ``moe-preflight check``
    compare(...)     -> Comparison   ``moe-preflight compare``
    check_gate(...)  -> GateReport   ``moe-preflight gate`` (``moe_preflight.gate`` is the room)

Arguments are the flags under their long names. The environment of this process is not read (MOE_PREFLIGHT_*, AITER_*): what the
engine and AITER would see is ``engine_env``. Nonsense (an unknown GPU, a version that is none, a named tree that is not there) raises a
moe_preflight.errors.PreflightError; a model that cannot be read is part of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeVar

from moe_preflight import preflight
from moe_preflight.errors import UsageError
from moe_preflight.gate.run import GateReport
from moe_preflight.hardware import DEFAULT_GPUS, Gpu, by_hand, named
from moe_preflight.preflight import Report
from moe_preflight.rules.catalogue import codes
from moe_preflight.settings import AITER_ENV, DEFAULT_ENGINE_VERSIONS, Request, Split, Tokens, integers
from moe_preflight.upgrade import Comparison

Word = str | PathLike[str]
Pair = tuple[str | None, str | None]
T = TypeVar("T")
MAX_DEGREE = 65536

__all__ = ["Comparison", "GateReport", "Report", "check", "check_gate", "compare", "request"]


def check(
    models: Word | Sequence[Word] = (),
    *,
    tp: int | str | Sequence[int] = 1,
    dp: int = 1,
    pcp: int = 1,
    pp: int = 1,
    ep: bool | int = False,
    redundant_experts: int = 0,
    gpu: str | Sequence[str] | None = None,
    gfx: str | None = None,
    cu: int | None = None,
    engine: str = "vllm",
    engine_version: str | None = None,
    engine_env: Mapping[str, str] | None = None,
    moe_backend: str = "auto",
    all2all_backend: str | None = None,
    enable_lora: bool = False,
    aiter: Word = "auto",
    aiter_version: str | None = None,
    tuned: bool = True,
    flydsl: bool = True,
    multi_arch: bool = False,
    shape: str | Sequence[str] = (),
    quant: str | None = None,
    tokens: str = "all",
    max_num_batched_tokens: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    checkpoint: bool = False,
    ask_aiter: bool = False,
    smoke: bool = False,
    smoke_backend: str = "auto",
    smoke_tokens: str = "1,64,4096",
    select: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    env: bool = False,
) -> Report:
    """Judge ``models`` (hub ids, folders, config.json files) and ``shape``s under every ``tp`` on every GPU.

    ``gpu`` are names, both defaults when neither it nor ``gfx`` with ``cu`` is given. ``ep`` is a number for SGLang alone. ``ask_aiter`` and
    ``smoke`` start a child process; what that cannot do is in ``not_evaluated``. ``report.exit_code(fail_on)`` is the process's.

    >>> report = check("config.json", tp=8, gpu="mi300x")  # doctest: +SKIP
    >>> report.verdict, [f.code for f in report.findings]  # doctest: +SKIP
    ('warn', ['MP111', 'MP301'])
    """
    counts = _launches(smoke_backend, smoke_tokens) if smoke else ()
    report = preflight.check(
        request(
            models, tp=tp, dp=dp, pcp=pcp, pp=pp, ep=ep, redundant_experts=redundant_experts, gpu=gpu, gfx=gfx, cu=cu, engine=engine,
            engine_version=engine_version, engine_env=engine_env, moe_backend=moe_backend, all2all_backend=all2all_backend,
            enable_lora=enable_lora, aiter=aiter, aiter_version=aiter_version, tuned=tuned, flydsl=flydsl, multi_arch=multi_arch,
            shape=shape, quant=quant, tokens=tokens, max_num_batched_tokens=max_num_batched_tokens, revision=revision,
            offline=offline, checkpoint=checkpoint, select=select, ignore=ignore,
        )
    )  # fmt: skip
    if ask_aiter:
        from moe_preflight.ask.attach import ask_aiter as ask

        report = ask(report)
    if smoke:
        from moe_preflight.smoke.adapt import Wanted
        from moe_preflight.smoke.attach import smoke_or_gap
        from moe_preflight.smoke.parent import SmokeOptions

        report = smoke_or_gap(report, Wanted(tokens=counts), SmokeOptions(backend=smoke_backend))
    if env:
        from moe_preflight.environment import describe, with_environment

        report = with_environment(report, describe(report))
    return report


def compare(
    models: Word | Sequence[Word] = (),
    *,
    aiter: Word | tuple[Word, Word] = "auto",
    aiter_version: str | Pair | None = None,
    engine_version: str | Pair | None = None,
    **more: Any,
) -> Comparison:
    """What an upgrade changes for ``models``: ``aiter``, ``aiter_version`` and ``engine_version`` take (old, new), or one for both sides.

    ``more`` are further arguments of request(), but for those that choose tokens, findings or the checkpoint. An ``aiter`` that is a release
    number stands for the built-in facts of that release.

    >>> compare("config.json", aiter=("old.whl", "./aiter"), tp=8, gpu="mi300x").exit_code()  # doctest: +SKIP
    1
    """
    from moe_preflight.upgrade import compare as compare_requests

    if unknown := {"tokens", "checkpoint", "select", "ignore"} & set(more):
        raise TypeError(f"compare() takes no {', '.join(sorted(unknown))}")
    trees: tuple[Word, Word] = _both(aiter)
    versions, engines = _both(aiter_version), _both(engine_version)
    if all(old == new for old, new in (trees, versions, engines)):
        raise UsageError("compare: both sides are the same.", hint="Give aiter, aiter_version or engine_version as (old, new).")
    old, new = (request(models, aiter=trees[i], aiter_version=versions[i], engine_version=engines[i], **more) for i in (0, 1))
    return compare_requests(old, new)


def check_gate(
    file: Word,
    *,
    today: str | None = None,
    only: str | Sequence[str] = (),
    aiter: Word = "auto",
    offline: bool = False,
) -> GateReport:
    """Hold deployments to a gate file, as of ``today`` (YYYY-MM-DD; by default the day it is, UTC).

    ``only`` are names of deployments; ``aiter`` and ``offline`` are for those that say nothing themselves. ``report.exit_code()`` goes by the
    file's fail_on.

    >>> check_gate("gate.toml", only="r1-decode").exit_code()  # doctest: +SKIP
    0
    """
    from datetime import UTC, datetime

    from moe_preflight.gate.keys import day_of
    from moe_preflight.gate.load import load_baseline, load_gate
    from moe_preflight.gate.run import run_gate
    from moe_preflight.gate.spec import only_of

    day = datetime.now(UTC).date().isoformat() if today is None else day_of(today)
    if day is None:
        raise UsageError(f"today {today}: not a day.", hint="Expected YYYY-MM-DD, such as 2027-01-31.")
    gate = only_of(load_gate(fspath(file), aiter=fspath(aiter), offline=offline), _words(only))
    return run_gate(gate, day, known=load_baseline(gate))


def request(
    models: Word | Sequence[Word] = (),
    *,
    tp: int | str | Sequence[int] = 1,
    dp: int = 1,
    pcp: int = 1,
    pp: int = 1,
    ep: bool | int = False,
    redundant_experts: int = 0,
    gpu: str | Sequence[str] | None = None,
    gfx: str | None = None,
    cu: int | None = None,
    engine: str = "vllm",
    engine_version: str | None = None,
    engine_env: Mapping[str, str] | None = None,
    moe_backend: str = "auto",
    all2all_backend: str | None = None,
    enable_lora: bool = False,
    aiter: Word = "auto",
    aiter_version: str | None = None,
    tuned: bool = True,
    flydsl: bool = True,
    multi_arch: bool = False,
    shape: str | Sequence[str] = (),
    quant: str | None = None,
    tokens: str = "all",
    max_num_batched_tokens: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    checkpoint: bool = False,
    select: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
) -> Request:
    """The Request of these arguments, which are check()'s, for preflight.check and what else takes one. Raises UsageError."""
    named_models = (fspath(models),) if isinstance(models, (str, PathLike)) else tuple(fspath(m) for m in models)
    shapes = (shape,) if isinstance(shape, str) else tuple(shape)
    if not named_models and not shapes:
        raise UsageError("No model given.", hint="Name a hub id, a folder, a config.json, or a shape.")
    if quant is not None and not shapes:
        raise UsageError("quant goes with shape.", hint="A model's config says itself how it is quantized.")
    if engine not in DEFAULT_ENGINE_VERSIONS:
        raise UsageError(f"engine {engine}: unknown engine.", hint=f"Expected {', '.join(DEFAULT_ENGINE_VERSIONS)}.")
    size = None if isinstance(ep, bool) else _number(ep, "ep", 1, MAX_DEGREE)
    if size is not None and engine != "sglang":
        raise UsageError(f"ep {ep}: {engine} takes no number.", hint="vLLM's EP size is tp x dp x pcp: say ep=True.")
    if max_num_batched_tokens is not None:
        _number(max_num_batched_tokens, "max_num_batched_tokens", 1, 1 << 62)
    if isinstance(tp, str):
        degrees = integers([tp], "tp", -MAX_DEGREE, MAX_DEGREE)
    else:
        several: list[Any] = [*tp] if isinstance(tp, Sequence) else [tp]
        degrees = tuple(dict.fromkeys(_number(n, "tp", -MAX_DEGREE, MAX_DEGREE) for n in several))
    seen = dict(engine_env or {})
    return Request(
        models=named_models,
        shapes=shapes,
        quant=quant,
        splits=tuple(
            Split(
                n,
                _number(dp, "dp", -MAX_DEGREE, MAX_DEGREE),
                _number(pcp, "pcp", -MAX_DEGREE, MAX_DEGREE),
                _number(pp, "pp", -MAX_DEGREE, MAX_DEGREE),
                ep=bool(ep) if size is None else size > 1,
                ep_size=size,
                redundant_experts=_number(redundant_experts, "redundant_experts", 0, MAX_DEGREE),
            )
            for n in degrees
        ),
        gpus=_gpus(gpu, gfx, cu),
        engine=engine,
        engine_version=engine_version or DEFAULT_ENGINE_VERSIONS[engine],
        engine_env={k: v for k, v in seen.items() if not k.startswith(AITER_ENV)},
        moe_backend=moe_backend,
        all2all=all2all_backend,
        lora=enable_lora,
        aiter=fspath(aiter),
        aiter_version=aiter_version,
        aiter_env={k: v for k, v in seen.items() if k.startswith(AITER_ENV)},
        flydsl=flydsl,
        multi_arch=multi_arch,
        tuned=tuned,
        tokens=tokens,
        max_num_batched_tokens=max_num_batched_tokens,
        revision=revision,
        offline=offline,
        checkpoint=checkpoint,
        select=codes(_words(select), "select"),
        ignore=codes(_words(ignore), "ignore"),
    )


def _both(value: T | tuple[T, T]) -> tuple[T, T]:
    """(old, new) of what is given for each side, or once for both."""
    if not isinstance(value, tuple):
        return value, value
    if len(value) != 2:
        raise UsageError("compare: takes (old, new), or one for both sides.")
    return value


def _number(value: int, name: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}: {value!r} is not a whole number.", hint=f"Expected {max(low, 1)} to {high}.")
    if not low <= value <= high:
        raise UsageError(f"{name}: {value} is out of range.", hint=f"Expected {low} to {high}.")
    return value


def _words(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _gpus(names: str | Sequence[str] | None, gfx: str | None, cu: int | None) -> tuple[Gpu, ...]:
    """The GPUs asked for, in order; both defaults when none was."""
    if (gfx is None) != (cu is None):
        raise UsageError("gfx and cu go together.", hint='For example gfx="gfx942", cu=304; or gpu="mi300x".')
    found = [named(n) for words in _words(names or ()) for n in words.split(",")]
    if gfx is not None and cu is not None:
        found.append(by_hand(gfx, cu))
    return tuple(dict.fromkeys(found)) or tuple(named(n) for n in DEFAULT_GPUS)


def _launches(backend: str, tokens: str) -> tuple[int, ...]:
    """The token counts of a smoke run, before anything is read."""
    from moe_preflight.smoke.parent import BACKENDS

    wanted = Tokens.parse(tokens)
    if backend not in BACKENDS:
        raise UsageError(f"smoke_backend {backend}: unknown.", hint=f"Expected {', '.join(BACKENDS)}.")
    if not wanted.counts or wanted.ranges:
        raise UsageError(f"smoke_tokens {tokens}: launches take counts.", hint='For example "1,64,4096".')
    return wanted.counts
