"""Opus MoE stage 2 kernels a tuned row may name, by release.

Source: aiter/ops/opus/moe_stage2_a8w4_meta.py (on main: csrc/opus_moe/opus_moe_common.py), OPUS_A8W4_STAGE2_INSTANCES.
``reduce_suffix``: a name may end in ``_rbnN`` on top. ``layout``: ``opus_moe2_layout_`` is read as ``opus_moe2_``.
``legacy``: the one old name with its settings in columns. ``sort_checked``: block_m must be the kernel's sort block.
"""

from __future__ import annotations

from dataclasses import dataclass

_PREFIX = "opus_moe2_afp8_wfp4_"


@dataclass(frozen=True, slots=True)
class OpusTable:
    """``kernels``: name without prefix -> (kernel id, block_m, sort block_m)."""

    kernels: dict[str, tuple[int, int, int]]
    reduce_suffix: bool
    layout: bool
    legacy: bool
    sort_checked: bool
    prefix: str = _PREFIX


_V17 = {
    "atomic_t16x64x256_sbm16_cache_b3_ws2": (2000, 16, 16),
    "fp8_t32x256x256_sbm32_occ4": (2001, 32, 32),
    "fp8_t32x256x256_sbm32_occ5": (2002, 32, 32),
    "fp8_t64x256x256_sbm64": (2003, 64, 64),
    "bf16_t64x256x256_sbm64": (2005, 64, 64),
    "atomic_t16x64x256_sbm16_occ6_cache_b2_ws2_k5": (2100, 16, 16),
    "atomic_t16x64x256_sbm16_cache_b3_ws2_k5": (2101, 16, 16),
    "bf16_t64x256x256_sbm64_k5": (2110, 64, 64),
    "fp8_t64x256x256_sbm64_k5": (2111, 64, 64),
}
_V18 = {
    "atomic_t16x64x256_sbm16_cache_b3_ws2": (2000, 16, 16),
    "fp8_t32x256x256_sbm32_occ4": (2001, 32, 32),
    "fp8_t32x256x256_sbm32_occ5": (2002, 32, 32),
    "fp8_t64x256x256_sbm64": (2003, 64, 64),
    "atomic_t32x128x256_sbm32_occ1_cache_b3_ws2": (2005, 32, 32),
    "fp8_t64x256x256_sbm64_cache_b3": (2006, 64, 64),
    "bf16_t32x256x256_sbm32_small": (2007, 32, 32),
}
_V19_POST1 = _V18 | {
    "atomic_t16x128x256_sbm16_cache_b3_ws2": (2008, 16, 16),
    "atomic_t16x256x256_sbm16_cache_b3_ws2": (2009, 16, 16),
    "fp8_t64x256x256_sbm128": (2010, 64, 128),
    "atomic_t16x128x256_sbm16_cache_b3_ws2_bt256": (2011, 16, 16),
    "atomic_t32x128x256_sbm32_occ1_cache_b2_ws2": (2012, 32, 32),
}
_V20 = {
    "atomic_t16x64x256_sbm16_cache_b3_ws2": (2000, 16, 16),
    "fp8_t32x256x256_sbm32_occ4_rbn2240": (2001, 32, 32),
    "fp8_t32x256x256_sbm32_occ5_rbn2304": (2002, 32, 32),
    "fp8_t64x256x256_sbm64_rbn3072": (2003, 64, 64),
    "fp8_t64x256x256_sbm64_bt128_rbn3584": (2004, 64, 64),
    "atomic_t32x128x256_sbm32_occ1_cache_b3_ws2": (2005, 32, 32),
    "fp8_t64x256x256_sbm64_cache_b3_rbn3072": (2006, 64, 64),
    "bf16_t32x256x256_sbm32_small": (2007, 32, 32),
    "atomic_t16x128x256_sbm16_cache_b3_ws2": (2008, 16, 16),
    "atomic_t16x256x256_sbm16_cache_b3_ws2": (2009, 16, 16),
    "fp8_t64x256x256_sbm128_rbn3072": (2010, 64, 128),
    "atomic_t16x128x256_sbm16_cache_b3_ws2_bt256": (2011, 16, 16),
    "atomic_t32x128x256_sbm32_occ1_cache_b2_ws2": (2012, 32, 32),
    "fp8_t64x256x256_sbm64_rbn3584": (2013, 64, 64),
    "fp8_t64x256x256_sbm128_rbn3584": (2014, 64, 128),
    "fp8_t64x256x256_sbm64_bt128_rbn3072": (2015, 64, 64),
    "fp8_t64x256x256_sbm128_bt128_rbn3584": (2016, 64, 128),
    "fp8_t64x256x256_sbm128_bt128_rbn3072": (2017, 64, 128),
    "atomic_t32x128x256_sbm32_occ1_cache_b3_ws2_ring4": (2018, 32, 32),
}

OPUS: dict[str, OpusTable] = {
    "v0.1.17": OpusTable(_V17, reduce_suffix=True, layout=False, legacy=True, sort_checked=False),
    "v0.1.18": OpusTable(_V18, reduce_suffix=True, layout=False, legacy=True, sort_checked=False),
    "v0.1.19.post1": OpusTable(_V19_POST1, reduce_suffix=True, layout=False, legacy=True, sort_checked=True),
    "v0.1.20": OpusTable(_V20, reduce_suffix=False, layout=True, legacy=True, sort_checked=True),
    "main-e4048607": OpusTable(_V20, reduce_suffix=False, layout=True, legacy=False, sort_checked=True),
}
"""Keyed by the release the table starts at; ``Rules.opus`` names one."""

LEGACY_NAME = "opus_moe_stage2_a8w4_decode"
BLOCK_MS = (16, 32, 64)
"""Kernel block_m any of the tables has."""
