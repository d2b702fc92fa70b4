"""Kernel names of AITER's MoE paths, taken apart: kind, stage, tile, dtypes.

Every name in a tuned table says which kernel was measured. What is not understood is None, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from moe_preflight.aiter.ck import Instance

MAX_NAME = 400
"""Characters. The longest name AITER ships has 139."""


@dataclass(frozen=True, slots=True)
class KernelName:
    """One name. ``kind``: ck, asm-1stage, asm-stage1, flydsl, mxmoe, opus or cktile. ``stage`` is 0 for a one-stage kernel.

    Tiles are None where the name does not say them; ``tile_k`` counts elements as the name does. ``dtype_a`` and
    ``dtype_w`` are the name's own words in lower case. ``act`` is empty where the name does not say it.
    """

    text: str
    kind: str
    stage: int
    tile_m: int | None = None
    tile_n: int | None = None
    tile_k: int | None = None
    dtype_a: str = ""
    dtype_w: str = ""
    dtype_out: str = ""
    act: str = ""
    ck: CkName | None = None


@dataclass(frozen=True, slots=True)
class CkName:
    """The parts of a CK name that say which module it belongs to (kernelInstanceGEMM1.name, gemm_moe_ck2stages_common.py)."""

    instance: Instance
    operation: str
    quant: int
    weighted: bool
    act: str
    dtypes: tuple[str, str, str]
    swizzled: bool = False


# Plain strings: compiled when first used (re keeps them), because most runs meet one or two kinds of names.
_N = r"(\d{1,5})"
_CK = (
    rf"(?a)moe_ck2stages_gemm([12])_{_N}x{_N}x{_N}x{_N}_(\d{{1,2}})x(\d{{1,2}})_([A-Za-z0-9]{{1,80}})_v(\d)_Nswizzle([01])_Quant(\d)"
    r"_MulRoutedWeight([01])(?:_([a-z]\w{0,30}?))?_([A-Z0-9]{2,8})_([A-Z0-9]{2,8})_([A-Z0-9]{2,8})\Z"
)
_ASM = r"(?a)_ZN5aiter(\d{1,3})(fmoe_\w{1,200})E\Z"
_ASM_TILE = r"(?a)(?:\A|_)(\d{1,4})x(\d{1,4})(?:_|\Z)"
_FLYDSL = rf"(?a)flydsl_moe([12])(?:_layout)?_a([a-z0-9]{{2,8}})_w([a-z0-9]{{2,8}})_([a-z0-9]{{2,8}})_t{_N}x{_N}x{_N}(?:_\w+)?\Z"
_MXMOE = rf"(?a)flydsl_mxmoe_g([12])_(a\d)(w\d)_{_N}x{_N}x{_N}(?:_\w+)?\Z"
_OPUS = rf"(?a)opus_moe([12])(?:_layout)?_a([a-z0-9]{{2,8}})_w([a-z0-9]{{2,8}})_([a-z0-9]{{2,8}})_t{_N}x{_N}(?:x{_N})?(?:_\w+)?\Z"
_CKTILE = r"(?a)cktile_(a\d{1,2})(w\d{1,2})(?:_bm(\d{1,4}))?\Z"
_ACTIVATIONS = ("silu", "gelu", "swiglu", "situv2", "gelutanh")


@lru_cache(maxsize=4096)
def parse(name: str) -> KernelName | None:
    """The parts of ``name``, or None when it is empty, too long or of no known kind."""
    if not name or len(name) > MAX_NAME:
        return None
    return next((reader(name) for prefix, reader in _READERS.items() if name.startswith(prefix)), None)


def _ck(name: str) -> KernelName | None:
    m = re.match(_CK, name)
    if not m:
        return None
    block_size, tile_m, tile_n, tile_k, m_waves, n_waves = (int(m[i]) for i in range(2, 8))
    instance = Instance(block_size, tile_m, tile_n, tile_k, m_waves, n_waves, int(m[9]))
    act = m[13] or ""
    # Stage 1 names say their activation, stage 2 names have none.
    if (m[1] == "1") != bool(act):
        return None
    a, w, out = (m[i].lower() for i in (14, 15, 16))
    ck = CkName(instance, m[8], int(m[11]), m[12] == "1", act, (a, w, out), m[10] == "1")
    return KernelName(name, "ck", int(m[1]), tile_m, tile_n, tile_k, a, w, out, act, ck)


def _asm(name: str) -> KernelName | None:
    m = re.match(_ASM, name)
    if not m or int(m[1]) != len(m[2]):
        return None
    tile = re.search(_ASM_TILE, m[2])
    words = m[2].split("_")
    act = next((a for a in _ACTIVATIONS if a in words), "")
    stage1 = words[1] == "stage1"
    return KernelName(
        name,
        "asm-stage1" if stage1 else "asm-1stage",
        int(stage1),
        int(tile[1]) if tile else None,
        int(tile[2]) if tile else None,
        act=act,
        dtype_out=words[2] if stage1 and len(words) > 2 else words[1],
    )


def _flydsl(name: str) -> KernelName | None:
    m = re.match(_FLYDSL, name)
    return m and KernelName(name, "flydsl", int(m[1]), int(m[5]), int(m[6]), int(m[7]), m[2], m[3], m[4])


def _mxmoe(name: str) -> KernelName | None:
    m = re.match(_MXMOE, name, re.I)
    return m and KernelName(name, "mxmoe", int(m[1]), int(m[4]), int(m[5]), int(m[6]), m[2].lower(), m[3].lower())


def _opus(name: str) -> KernelName | None:
    m = re.match(_OPUS, name)
    return m and KernelName(name, "opus", int(m[1]), int(m[5]), int(m[6]), int(m[7]) if m[7] else None, m[2], m[3], m[4])


def _cktile(name: str) -> KernelName | None:
    if name == "swiglu_mxfp4_bf16_cktile":
        return KernelName(name, "cktile", 0, dtype_a="bf16", dtype_w="fp4", act="swiglu")
    m = re.match(_CKTILE, name)
    return m and KernelName(name, "cktile", 0, int(m[3]) if m[3] else None, dtype_a=m[1], dtype_w=m[2])


_READERS = {
    "moe_ck2stages_": _ck,
    "_ZN5aiter": _asm,
    "flydsl_mxmoe_": _mxmoe,
    "flydsl_moe": _flydsl,
    "opus_moe": _opus,
    "cktile_": _cktile,
    "swiglu_": _cktile,
}
