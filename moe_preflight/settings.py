"""What was asked, as one frozen value. Built by the command line or by the Python API; nothing further on reads argv.

A run judges every model under every split on every GPU. ``Request`` holds no live object: it can be printed, compared
and put in a gate file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moe_preflight.errors import UsageError
from moe_preflight.hardware import DEFAULT_GPUS, GPUS, Gpu

DEFAULT_ENGINE = "vllm"
DEFAULT_ENGINE_VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23", "aiter": ""}
"""The newest release of each engine whose sources were read. ``aiter`` is no engine: the raw shape goes to AITER."""

DECODE_MAX = 256
"""Token buckets up to this one are decode, larger ones prefill."""

AITER_ENV = ("AITER_", "GPTOSS_SWIGLU_")
"""How the variables start that AITER itself reads; the others are the engine's."""


@dataclass(frozen=True, slots=True)
class Split:
    """One way to spread a model: tensor, data, prefill-context, pipeline and expert parallelism.

    ``ep_size`` is set only where the engine takes a number (SGLang ``--ep N``)."""

    tp: int = 1
    dp: int = 1
    pcp: int = 1
    pp: int = 1
    ep: bool = False
    ep_size: int | None = None
    redundant_experts: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One run: models x splits x GPUs under one engine and one AITER."""

    models: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    quant: str | None = None
    splits: tuple[Split, ...] = (Split(),)
    gpus: tuple[Gpu, ...] = tuple(GPUS[name] for name in DEFAULT_GPUS)
    engine: str = DEFAULT_ENGINE
    engine_version: str = DEFAULT_ENGINE_VERSIONS[DEFAULT_ENGINE]
    engine_env: Mapping[str, str] = field(default_factory=dict)
    moe_backend: str = "auto"
    all2all: str | None = None
    lora: bool = False
    aiter: str = "auto"
    aiter_version: str | None = None
    aiter_env: Mapping[str, str] = field(default_factory=dict)
    """The AITER_* variables the engine would run under (AITER_CONFIG_FMOE, AITER_BYPASS_TUNE_CONFIG ...)."""
    flydsl: bool = True
    multi_arch: bool = False
    """AITER was built for several architectures at once: its prebuilt modules hold one tile table for all of them."""
    tuned: bool = True
    tokens: str = "all"
    max_num_batched_tokens: int | None = None
    revision: str | None = None
    offline: bool = False
    checkpoint: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def reads(self) -> tuple[str, ...]:
        """The names of what is read, paths or not: models, the AITER tree, and tables that an AITER_CONFIG_* variable names."""
        tables = (path for name, value in self.aiter_env.items() if name.startswith("AITER_CONFIG") for path in value.split(":"))
        return (*self.models, self.aiter, *tables)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Which token buckets are judged: by name (all, decode, prefill), or the buckets of the counts and ranges (both ends
    included) given."""

    name: str
    counts: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Tokens:
        low = text.strip().lower()
        if low in ("all", "decode", "prefill"):
            return cls(low)
        counts, ranges = [], []
        try:
            for part in low.split(","):
                first, dash, last = part.partition("-")
                if dash and first.strip():
                    ranges.append((_count(first), _count(last)))
                else:
                    counts.append(_count(part))
            if any(first > last for first, last in ranges):
                raise UsageError("a range ends before it starts.")
        except UsageError as e:
            raise UsageError(
                f"--tokens {text}: {e.message}", hint="Expected all, decode, prefill, or counts and ranges such as 1,64,512-4096."
            ) from e
        return cls("counts", tuple(counts), tuple(ranges))


def _count(text: str) -> int:
    return integer(text, "--tokens", 1, 1 << 31)


def integer(text: str, flag: str, low: int, high: int) -> int:
    """A plain decimal integer in [low, high]; anything else is a UsageError that names the flag."""
    word = text.strip()
    if not (word.isascii() and word.lstrip("-").isdigit() and len(word) < 12):
        # A bound below 0 is there for the engine to refuse in its own words; it is no advice.
        raise UsageError(
            f"{flag}: {text!r} is not a whole number.", hint=f"Expected {low if low >= 0 else 1} to {high}, in plain digits."
        )
    value = int(word)
    if not low <= value <= high:
        raise UsageError(f"{flag}: {value} is out of range.", hint=f"Expected {low} to {high}.")
    return value


def integers(values: list[str] | None, flag: str, low: int, high: int) -> tuple[int, ...]:
    """A repeatable flag whose values may be comma lists: ``--tp 8 --tp 4`` is ``--tp 8,4``. Order kept, doubles dropped."""
    parts = [p for v in values or [] for p in v.split(",")]
    return tuple(dict.fromkeys(integer(p, flag, low, high) for p in parts))


def assignments(values: list[str] | None, flag: str) -> dict[str, str]:
    """``NAME=VALUE`` pairs of a repeatable flag; the last one of a name wins."""
    out = {}
    for v in values or []:
        name, eq, value = v.partition("=")
        if not eq or not name.strip().isidentifier():
            raise UsageError(f"{flag} {v}: expected NAME=VALUE.", hint=f"For example {flag} VLLM_ROCM_USE_AITER_MOE=0.")
        out[name.strip()] = value
    return out


def with_ep(splits: tuple[Split, ...], *, numbered: bool) -> tuple[Split, ...]:
    """Each split without and, where there is more than one rank, with expert parallelism over all of them.

    ``numbered``: the engine takes the EP size as a number (SGLang), so it is set to the TP degree."""
    out: list[Split] = []
    for s in splits:
        ranks = s.tp * s.dp * s.pcp
        out.append(replace(s, ep=False, ep_size=None))
        if ranks > 1:
            out.append(replace(s, ep=True, ep_size=s.tp if numbered else None))
    return tuple(out)
