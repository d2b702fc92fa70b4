"""The paths AITER's get_2stage_cfgs tries, one function each; the release's order is ``Rules.paths``.

A path either answers a Choice or None (the next one is tried). Conditions and numbers are those of
``get_2stage_cfgs`` in aiter/fused_moe.py (v0.1.20: lines 2415-2925), variants by release in facts/dispatch_rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from moe_preflight.aiter.csvtable import Value
from moe_preflight.aiter.entry import AiterRaises, Asked
from moe_preflight.aiter.facts.dispatch_opus import OPUS
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.opus import is_kernel

NAN_TO_INT = "ValueError: cannot convert float NaN to integer"


class StageChoice(NamedTuple):
    """AITER's function, its kind (asm, ck, cktile, flydsl, opus) and kernel name; None where it takes none."""

    func: str
    kind: str
    kernel: str | None


class Choice(NamedTuple):
    """What get_2stage_cfgs returns, as far as it can be told apart."""

    stage1: StageChoice
    stage2: StageChoice | None
    block_m: Value
    ksplit: Value
    run_1stage: bool = False


@dataclass(slots=True)
class Ask:
    """One question on its way through the paths. ``kernel1``/``kernel2``: "" without a row, None for an empty cell."""

    rules: Rules
    gfx: str
    flydsl: bool
    token: int
    q: Asked
    block_m: Value
    ksplit: Value
    kernel1: str | None = ""
    kernel2: str | None = ""
    run_1stage: bool = False
    forced_flydsl: bool = True
    non_temporal: bool = False
    untuned_ksplit: Callable[[], int] = lambda: 0
    """get_ksplit for this question, which the int4 path asks whether or not a row was found."""


Path = Callable[[Ask], Choice | None]


def choose(ask: Ask) -> Choice:
    """The first path that takes the question. Raises AiterRaises where AITER itself would."""
    for path in _paths(ask.rules.paths, named=ask.kernel1 != "" or ask.kernel2 != "", one_stage=ask.run_1stage):
        choice = path(ask)
        if choice is not None:
            return choice
    raise AssertionError("the last path takes everything")


@lru_cache(maxsize=64)
def _paths(names: tuple[str, ...], *, named: bool, one_stage: bool) -> tuple[Path, ...]:
    """The paths worth trying: those for rows are passed over without a kernel name, the one-stage one without its flag."""
    skip = set() if named else {"mxfp4-port", "flydsl-rows"}
    if not one_stage:
        skip.add("one-stage")
    return tuple(PATHS[n] for n in names if n not in skip)


def _int(value: Value) -> int:
    """int() as AITER calls it on a cell."""
    if value is None:
        raise AiterRaises(NAN_TO_INT)
    try:
        return int(value)
    except ValueError:
        raise AiterRaises(f"ValueError: invalid literal for int() with base 10: {value!r}") from None


def _starts(name: str | None, prefix: str, ask: Ask) -> bool:
    """``bool(name) and name.startswith(prefix)``; an empty cell is a float and has no such method."""
    if name is None:
        if ask.rules.nan_names == "raise":
            raise AiterRaises("AttributeError: 'float' object has no attribute 'startswith'")
        return False
    return name.startswith(prefix)


def _named(name: str | None, prefix: str) -> bool:
    """``kernelName2 and kernelName2.startswith(prefix)``: raises for an empty cell in every release."""
    if name is None:
        raise AiterRaises("AttributeError: 'float' object has no attribute 'startswith'")
    return name.startswith(prefix)


def _tile_m(token: int) -> int:
    return 16 if token < 2048 else 32 if token < 16384 else 64


def _ck1(ask: Ask) -> StageChoice:
    return StageChoice(ask.rules.ck_stage1, "ck", ask.kernel1)


def _ck2(ask: Ask) -> StageChoice:
    return StageChoice("ck_moe_stage2_fwd", "ck", ask.kernel2)


_CKTILE1 = StageChoice("cktile_moe_stage1", "cktile", None)
_CKTILE2 = StageChoice("cktile_moe_stage2", "cktile", None)


def _flydsl1(name: str | None) -> StageChoice:
    return StageChoice("_flydsl_stage1_wrapper", "flydsl", name)


def _flydsl2(name: str | None) -> StageChoice:
    return StageChoice("_flydsl_stage2_wrapper", "flydsl", name)


def _opus2(ask: Ask) -> StageChoice:
    return StageChoice("opus_a8w4_stage2_wrapper", "opus", ask.kernel2)


def _is_opus2(ask: Ask) -> bool:
    return is_kernel(OPUS.get(ask.rules.opus), ask.kernel2)


# --- rows that name a kernel ------------------------------------------------------------------------------------------

_MXMOE = "flydsl_mxmoe_g"
_MXMOE_G1 = "flydsl_mxmoe_g1_a4w4_"
_TILE = re.compile(r"([0-9]+)x([0-9]+)x([0-9]+)\Z")
_NUMBERED = re.compile(r"(?:SK|XCD)[0-9]+\Z")
_LAYOUT = re.compile(
    r"flydsl_moe2_layout_a\w+?_w\w+?_\w+?_t[0-9]+x[0-9]+x[0-9]+_(?:atomic|reduce)"
    r"(?:_persist)?(?:_nt)?(?:_sbm[0-9]+)?(?:_bf16lds)?(?:_sp[0-9]+)?\Z"
)


def _mxfp4_port(ask: Ask) -> Choice | None:
    """a4w4 rows of the ported MXFP4 kernels; block_m is in the name."""
    if not any(n is not None and n.startswith(_MXMOE) for n in (ask.kernel1, ask.kernel2)):
        return None
    block_m = _mxmoe_block_m(ask.kernel1)
    return Choice(
        StageChoice("_mxfp4_a4w4_stage1_fw", "flydsl", ask.kernel1),
        StageChoice("_mxfp4_a4w4_stage2_fw", "flydsl", ask.kernel2),
        _int(ask.block_m) if block_m is None else block_m,
        _int(ask.ksplit),
    )


def _mxmoe_block_m(name: str | None) -> int | None:
    """BM of a stage 1 name, None when it does not parse (aiter/ops/flydsl/mxfp4_kname.py)."""
    if name is None:
        raise AiterRaises("AttributeError: 'float' object has no attribute 'replace'")
    name = name.replace("_FLYDSL", "")
    if not name.startswith(_MXMOE_G1):
        return None
    block_m = None
    for token in name[len(_MXMOE_G1) :].split("_"):
        if m := _TILE.match(token):
            block_m = int(m[1])
        elif token and token.upper() not in ("NT", "F16IN") and not _NUMBERED.match(token.upper()):
            return None
    if block_m is None:
        raise AiterRaises("KeyError: 'BM'")
    return block_m


def _one_stage(ask: Ask) -> Choice | None:
    if not ask.run_1stage:
        return None
    return Choice(StageChoice("fused_moe_1stage", "asm", ask.kernel1), None, ask.block_m, ask.ksplit, True)


def _flydsl_rows(ask: Ask) -> Choice | None:
    """Rows that name FlyDSL (or Opus stage 1) in either stage."""
    k1, k2 = ask.kernel1, ask.kernel2
    flydsl1, flydsl2 = _starts(k1, "flydsl_", ask), _starts(k2, "flydsl_", ask)
    opus1 = bool(ask.rules.opus_stage1) and k1 is not None and k1.startswith("opus_moe1_")
    if not (opus1 or ((flydsl1 or flydsl2) and ask.flydsl)):
        return None
    stage1 = _flydsl1(k1) if flydsl1 else _ck1(ask)
    if opus1:
        stage1 = StageChoice(ask.rules.opus_stage1, "opus", k1)
    if flydsl2:
        if ask.rules.layout_stage2 and k2 is not None and k2.startswith("flydsl_moe2_layout_"):
            if not _LAYOUT.match(k2):
                raise AiterRaises(f"ValueError: Invalid FlyDSL v2 GEMM2 kernel name: {k2}")
            stage2 = StageChoice("_flydsl_v2_stage2_wrapper", "flydsl", k2)
        else:
            stage2 = _flydsl2(k2)
    elif _is_opus2(ask):
        stage2 = _opus2(ask)
    elif ask.rules.cktile_stage2 and _starts(k2, "cktile_", ask):
        stage2 = _CKTILE2
    else:
        stage2 = _ck2(ask)
    return Choice(stage1, stage2, ask.block_m, _int(ask.ksplit))


# --- MXFP4, int4 and Swiglu without a FlyDSL row ----------------------------------------------------------------------


def _mx(ask: Ask) -> bool:
    return ask.q.dtype in ("bf16", "fp16") and ask.q.quant == "per_1x32"


def _swiglu_cktile(ask: Ask) -> Choice | None:
    q, r = ask.q, ask.rules
    if not (_mx(ask) and q.act == "swiglu"):
        return None
    if (r.has_gate_mode and q.gate_mode == "separated") or (r.swiglu_not_fp8 and q.q_dtype_w == "fp8"):
        return None
    if r.swiglu_block_m == "16-32":
        block_m = 16 if ask.token < 2048 else 32
    else:
        block_m = 32 if r.swiglu_block_m == "fp8-32" and q.q_dtype_a == "fp8" else _tile_m(ask.token)
    ksplit = ask.ksplit if r.swiglu_ksplit == "row" or q.q_dtype_a in ("bf16", "fp16") else 0
    return Choice(_CKTILE1, _CKTILE2, block_m, ksplit)


def _i4_flydsl(ask: Ask) -> Choice | None:
    """bf16 activation x int4 weight: one FlyDSL configuration, tile by tokens."""
    if not (ask.q.quant == "per_1x32" and ask.q.q_dtype_w == "i4x2" and ask.flydsl):
        return None
    tile = _tile_m(ask.token)
    ksplit = ask.untuned_ksplit() if ask.rules.i4_ksplit else 0
    name1 = f"flydsl_moe1_abf16_wint4_bf16_t{tile}x128x128" + (f"_kb{ksplit}" if ksplit > 1 else "")
    return Choice(_flydsl1(name1), _flydsl2(f"flydsl_moe2_abf16_wint4_bf16_t{tile}x128x128_atomic"), tile, ksplit)


# Tokens below -> tile_m, stage 1 suffix, stage 2 suffix.
_MX_TIERS = ((2048, 32, "_w2", "_bnt2"), (4096, 64, "_w3_bnt0", ""), (16384, 128, "_w2_bnt0", ""))
_MX_LAST = (64, "_w4_bnt0", "")
# (q_dtype_a, q_dtype_w) whose suffixed names AITER has registered; any other pair keeps the bare name
# (aiter/ops/flydsl/moe_kernels.py get_flydsl_kernel_params, asked at every release).
_MX_REGISTERED = frozenset((("fp4", "fp4"), ("fp8", "fp4"), ("fp8", "fp8"), ("bf16", "fp4"), ("fp16", "fp4")))


def _wants_mxfp4_flydsl(ask: Ask) -> bool:
    q, kind = ask.q, ask.rules.mxfp4_flydsl
    if not (_mx(ask) and q.shuffled and q.g1u1 and not q.doweight and ask.flydsl):
        return False
    a, w = q.q_dtype_a, q.q_dtype_w
    if kind == "swiglu":
        return q.act == "swiglu" and a == w == "fp4x2"
    situv2 = q.act == "situv2" and kind in ("situv2-16", "situv2-bf16")
    if situv2 and kind == "situv2-bf16" and (a, w) == ("bf16", "fp4x2"):
        return True
    if not (q.act == "swiglu" or situv2 or ask.forced_flydsl):
        return False
    if a in ("fp4x2", "fp8") and (w == "fp4x2" or (w == "fp8" and kind != "forced")):
        return True
    return situv2 and kind == "situv2-16" and a in ("bf16", "fp16") and w == "fp4x2"


def _mxfp4_flydsl(ask: Ask) -> Choice | None:
    """The FlyDSL heuristic for MXFP4/MXFP8: tile and suffixes by tokens."""
    if not _wants_mxfp4_flydsl(ask):
        return None
    q, kind = ask.q, ask.rules.mxfp4_flydsl
    a = {"fp4x2": "fp4", "fp8": "fp8"}.get(q.q_dtype_a, q.q_dtype_a)
    w = "fp8" if q.q_dtype_w == "fp8" else "fp4"
    out = "bf16" if q.dtype == "bf16" else "f16"
    tile_k = 128 if kind not in ("swiglu", "forced") and q.inter_dim % 256 else 256
    tile, end1, end2 = next((t[1:] for t in _MX_TIERS if ask.token < t[0]), _MX_LAST)
    if (a, w) not in _MX_REGISTERED:
        end1 = end2 = ""
    if a == "fp8":
        end1 += "_gui"
    return Choice(
        _flydsl1(f"flydsl_moe1_a{a}_w{w}_{out}_t{tile}x128x256{end1}"),
        _flydsl2(f"flydsl_moe2_a{a}_w{w}_{out}_t{tile}x128x{tile_k}_atomic{end2}"),
        tile,
        _int(ask.ksplit) if kind == "swiglu" else -1,
    )


def _cktile_splitk(ask: Ask) -> Choice | None:
    q, r = ask.q, ask.rules
    if not (_mx(ask) and q.q_dtype_w == "fp4x2") or (r.shuffled_matters and not q.shuffled):
        return None
    split = ask.ksplit is not None and not isinstance(ask.ksplit, str) and ask.ksplit > 1
    if r.cktile_splitk == "plain":
        return Choice(_CKTILE1, _CKTILE2, _tile_m(ask.token), ask.ksplit) if split else None
    if q.act == "swiglu" and q.q_dtype_a == "fp4x2":
        return None
    bf16_swiglu = q.act == "swiglu" and q.q_dtype_a in ("bf16", "fp16")
    if not (split or bf16_swiglu):
        return None
    return Choice(_CKTILE1, _CKTILE2, _tile_m(ask.token), max(_int(ask.ksplit), 2 if bf16_swiglu else 1))


def _swiglu_unshuffled(ask: Ask) -> Choice | None:
    """fp4 Swiglu that CK has no instance for."""
    if not (_mx(ask) and ask.q.act == "swiglu" and ask.q.q_dtype_w == "fp4x2" and ask.kernel1 == ""):
        return None
    return Choice(_CKTILE1, _CKTILE2, _tile_m(ask.token), max(_int(ask.ksplit), 2))


# --- CK 2-stage, and asm stage 1 + CK stage 2 -------------------------------------------------------------------------

_CK_WEIGHTS = frozenset(("bf16", "fp16", "u32", "fp4x2"))


def _ck2stages(ask: Ask) -> Choice | None:
    q, r = ask.q, ask.rules
    if ask.kernel1 is None:
        raise AiterRaises("TypeError: argument of type 'float' is not iterable")
    listed = (q.quant == "per_1x128" and q.doweight) or q.q_dtype_w in _CK_WEIGHTS
    if r.ck_names != "named-or-16bit":
        listed = listed or q.q_dtype_w == "fp8"
    if "ck2stages" not in ask.kernel1 and not (listed and (r.ck_names != "untuned" or not ask.kernel1)):
        return None
    ksplit = _int(ask.ksplit) if r.ck_names == "untuned" else ask.ksplit
    return Choice(_ck1(ask), _ck_like_stage2(ask, flydsl=True), ask.block_m, ksplit)


def _ck_like_stage2(ask: Ask, *, flydsl: bool) -> StageChoice:
    k2, r = ask.kernel2, ask.rules
    if flydsl and r.ck_flydsl_stage2 and _named(k2, "flydsl_") and ask.flydsl:
        return _flydsl2(k2)
    if _is_opus2(ask):
        return _opus2(ask)
    return _CKTILE2 if r.cktile_stage2 and _named(k2, "cktile_") else _ck2(ask)


def _asm(ask: Ask) -> Choice:
    """asm stage 1, whose block_m is rounded up to one that CK's stage 2 has."""
    block_m: Value = ask.block_m
    sizes = ask.rules.asm_block_ms
    if block_m not in sizes:
        # A NaN compares false with every size, so AITER ends at 128.
        larger = [s for s in sizes if not isinstance(block_m, (str, type(None))) and block_m < s]
        block_m = larger[0] if larger else 128
    stage1 = StageChoice("asm_stage1", "asm", ask.kernel1)
    return Choice(stage1, _ck_like_stage2(ask, flydsl=False), block_m, ask.ksplit)


PATHS: dict[str, Path] = {
    "mxfp4-port": _mxfp4_port,
    "one-stage": _one_stage,
    "flydsl-rows": _flydsl_rows,
    "swiglu-cktile": _swiglu_cktile,
    "i4-flydsl": _i4_flydsl,
    "mxfp4-flydsl": _mxfp4_flydsl,
    "cktile-splitk": _cktile_splitk,
    "swiglu-unshuffled": _swiglu_unshuffled,
    "ck2stages": _ck2stages,
    "asm": _asm,
}
