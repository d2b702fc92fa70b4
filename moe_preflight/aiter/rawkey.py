"""Raw dispatch keys: one JSON object per line in, one per line out (DESIGN section 7).

Strict: an integer is an integer (``true`` and ``8.0`` are none), an unknown field is an error, a size has a cap. The
words are AITER's or our short ones: ``fp8`` or ``torch.float8_e4m3fn``, ``silu`` or ``ActivationType.Silu``.

``topk`` of a raw key is the routed top-k. AITER's callers append one masked column per token under an expert mask, so
``is_ep`` makes it one more in the Key (and in what AITER sees).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moe_preflight.aiter.dtypes import ACTS, DTYPES, GATE_MODES, QUANTS, SHORT, torch_name
from moe_preflight.aiter.key import Dispatch, Key, Stage
from moe_preflight.errors import KeyFieldError

MAX_SIZE = (1 << 31) - 1
"""Largest size a key may hold: AITER's kernels take 32-bit sizes."""
MAX_LINE = 1 << 16

REQUIRED = ("token", "model_dim", "inter_dim", "expert", "topk", "act", "dtype", "q_dtype_w", "q_type")

_BIND_NO_NAME = frozenset(("cktile_moe_stage1", "cktile_moe_stage2", "_mxfp4_a4w4_stage1_fw", "_mxfp4_a4w4_stage2_fw"))
"""Functions AITER gives no ``kernelName``: CK-Tile picks itself, the MXFP4 port is told under other names."""


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _size(field: str, value: Any) -> int:
    if type(value) is not int:
        raise KeyFieldError(field, f"{field}: {_shown(value)} is no integer; allowed: 0 to {MAX_SIZE}.")
    if not 0 <= value <= MAX_SIZE:
        raise KeyFieldError(field, f"{field}: {value} is out of range; allowed: 0 to {MAX_SIZE}.")
    return value


def _flag(field: str, value: Any) -> bool:
    if type(value) is bool or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise KeyFieldError(field, f"{field}: {_shown(value)} is not known; allowed: 0, 1, true, false.")


def _one_of(names: dict[str, str], prefix: str) -> Callable[[str, Any], str]:
    def read(field: str, value: Any) -> str:
        found = names.get(value.removeprefix(prefix).lower()) if isinstance(value, str) else None
        if found is None:
            raise KeyFieldError(field, f"{field}: {_shown(value)} is not known; allowed: {', '.join(names.values())}.")
        return found

    return read


def _dtype(gfx: str) -> Callable[[str, Any], str]:
    def read(field: str, value: Any) -> str:
        if isinstance(value, str):
            if value in DTYPES:
                return value
            # The other architecture's fp8 is a type of its own here.
            if value in SHORT:
                return SHORT[value] if torch_name(SHORT[value], gfx) == value else value
        raise KeyFieldError(field, f"{field}: {_shown(value)} is not known; allowed: {', '.join(DTYPES)}.")

    return read


def reader(gfx: str) -> Callable[[object], tuple[Key, bool]]:
    """A function that turns one parsed JSON value into a Key and whether its token count is to be padded.

    It raises KeyFieldError naming the field and what is allowed.
    """
    dtype = _dtype(gfx)
    act = _one_of({a: a for a in ACTS}, "ActivationType.")
    quant = _one_of({q.lower(): q for q in QUANTS}, "QuantType.")
    gate = _one_of({g: g for g in GATE_MODES}, "GateMode.")
    sizes = dict.fromkeys(("token", "model_dim", "inter_dim", "expert", "topk", "hidden_pad", "intermediate_pad"))
    readers: dict[str, Callable[[str, Any], Any]] = {
        **dict.fromkeys(sizes, _size),
        **dict.fromkeys(("use_g1u1", "doweight_stage1", "is_shuffled", "is_ep", "bias2", "pad_token"), _flag),
        **dict.fromkeys(("dtype", "q_dtype_w", "q_dtype_a"), dtype),
        "act": act,
        "q_type": quant,
        "gate_mode": gate,
    }

    # Most keys are in plain words: those are looked up, the rest goes through its reader.
    words: dict[tuple[str, str], str] = {
        **{("act", a): a for a in ACTS},
        **{("q_type", q): q for q in QUANTS},
        **{(f, d): d for f in ("dtype", "q_dtype_w", "q_dtype_a") for d in DTYPES},
    }

    def read(raw: object) -> tuple[Key, bool]:
        if not isinstance(raw, dict):
            raise KeyFieldError("", f"a key is a JSON object, not {_shown(raw)}.")
        got: dict[str, Any] = {}
        for field, value in raw.items():
            kind = type(value)
            if kind is int and field in sizes and 0 <= value <= MAX_SIZE:
                got[field] = value
            elif kind is str and (known := words.get((field, value))) is not None:
                got[field] = known
            elif (parse := readers.get(field)) is not None:
                got[field] = parse(field, value)
            else:
                raise KeyFieldError(field, f"{_shown(field)}: no such field; allowed: {', '.join(readers)}.")
        for field in REQUIRED:
            if field not in got:
                raise KeyFieldError(field, f"{field}: missing; needed: {', '.join(REQUIRED)}.")
        padded = got.pop("pad_token", True) or "q_dtype_a" not in got
        # Neither pad changes a choice: they only reach the kernels' arguments.
        got.pop("hidden_pad", None)
        got.pop("intermediate_pad", None)
        if got.get("is_ep"):
            got["topk"] += 1
        return Key(**got), padded

    return read


def answer(raw: object, d: Dispatch, gfx: str) -> dict[str, Any]:
    """One output object. ``kernelName1``/``kernelName2`` are what AITER binds under that name, null where it binds none;
    ``kernel1``/``kernel2`` are the names of the kernels themselves."""
    if d.error is not None:
        return {"key": raw, "error": d.error, "raised_by": "aiter"}
    s1, s2 = d.stage1, d.stage2
    return {
        "key": raw,
        "asked_token": d.lookup_token,
        "q_dtype_a": torch_name(d.q_dtype_a, gfx),
        "tuned": d.tuned in ("hit", "tier"),
        "stage1": s1.func,
        "kernelName1": _bound(s1),
        "stage2": None if s2 is None else s2.func,
        "kernelName2": None if s2 is None else _bound(s2),
        "block_m": d.block_m,
        "ksplit": d.ksplit,
        "run_1stage": d.run_1stage,
        "rows": [f"{r.file}:{r.line}" for r in d.rows],
        "path": d.path,
        "lookup": d.tuned,
        "row": None if d.row is None else f"{d.row.file}:{d.row.line}",
        "kernel1": s1.kernel,
        "kernel2": None if s2 is None else s2.kernel,
        "tile1": _tile(s1),
        "tile2": None if s2 is None else _tile(s2),
        "accepted1": s1.accepted,
        "accepted2": None if s2 is None else s2.accepted,
        "reason1": s1.reason,
        "reason2": None if s2 is None else s2.reason,
        "notes": list(d.notes),
        "confidence": d.confidence,
    }


def _bound(stage: Stage) -> str | None:
    return None if stage.func in _BIND_NO_NAME else stage.kernel


def _tile(stage: Stage) -> list[int] | None:
    return None if stage.tile_n is None or stage.tile_k is None else [stage.tile_n, stage.tile_k]
