"""GPUs we can judge for: gfx architecture, compute units and memory, as a table.

AITER's choices depend on two numbers of a GPU only: the gfx architecture and the count of compute units
(``cu_num``). Memory is used by ``advise`` alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from moe_preflight.errors import DeviceUnavailable, UsageError

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as AITER sees it.

    ``name`` is the marketing name in lower case (``mi300x``), or ``gfx942:304`` for a pair given by hand.
    ``memory_bytes`` is None when it was given by hand. ``source`` says where the numbers were read.
    """

    name: str
    gfx: str
    cu_num: int
    memory_bytes: int | None = None
    source: str = "given on the command line"


# CU counts: AMD's product pages and the ROCm "GPU hardware specifications" table; gfx942/304, /80 and gfx950/256 are
# also the pairs AITER itself maps (aiter/jit/utils/chip_info.py gfx_from_cu_num). HBM: the same ROCm table, which
# gives GiB: MI300X 192, MI325X 256, MI308X 192, MI300A 128 (shared with the CPU), MI350X and MI355X 288.
_SPEC = "ROCm GPU hardware specifications"
GPUS: dict[str, Gpu] = {
    g.name: g
    for g in (
        Gpu("mi300x", "gfx942", 304, 192 * GIB, _SPEC),
        Gpu("mi325x", "gfx942", 304, 256 * GIB, _SPEC),
        Gpu("mi308x", "gfx942", 80, 192 * GIB, _SPEC),
        Gpu("mi300a", "gfx942", 228, 128 * GIB, _SPEC),
        Gpu("mi350x", "gfx950", 256, 288 * GIB, _SPEC),
        Gpu("mi355x", "gfx950", 256, 288 * GIB, _SPEC),
    )
}

DEFAULT_GPUS = ("mi300x", "mi355x")
"""Judged when no GPU flag is given: one of each architecture AITER has MoE kernels for."""

_GFX = re.compile(r"gfx[0-9a-f]{3,5}\Z")


def named(name: str) -> Gpu:
    """The GPU called ``name`` (case-insensitive), or ``auto`` for the one in this machine."""
    low = name.strip().lower()
    if low == "auto":
        return detect()
    if low not in GPUS:
        from difflib import get_close_matches

        close = get_close_matches(low, GPUS, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(f"--gpu {name}: unknown GPU.", hint=f"{guess}Known: {', '.join(GPUS)}, auto; or give --gfx and --cu.")
    return GPUS[low]


def by_hand(gfx: str, cu_num: int) -> Gpu:
    """A GPU given as ``--gfx gfx942 --cu 304``."""
    if not _GFX.match(gfx):
        raise UsageError(f"--gfx {gfx}: not a gfx architecture.", hint="Expected a name such as gfx942 or gfx950.")
    if not 1 <= cu_num <= 4096:
        raise UsageError(f"--cu {cu_num}: not a number of compute units.", hint="Expected 1 to 4096, such as 304.")
    return Gpu(f"{gfx}:{cu_num}", gfx, cu_num)


_KFD = "/sys/class/kfd/kfd/topology/nodes"


def detect(nodes: str = _KFD) -> Gpu:
    """The first AMD GPU of this machine, read from the kernel's KFD topology; torch and rocminfo are not needed.

    ``gfx_target_version`` is decimal major*10000 + minor*100 + step; ``simd_count / simd_per_cu`` is the CU count
    (Linux ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c``). Raises DeviceUnavailable when there is none.
    """
    try:
        ids = sorted(os.listdir(nodes), key=lambda n: (len(n), n))
    except OSError:
        ids = []
    for node in ids:
        props = _properties(os.path.join(nodes, node, "properties"))
        version, simds, per_cu = (props.get(k, 0) for k in ("gfx_target_version", "simd_count", "simd_per_cu"))
        if version and simds and per_cu:
            gfx = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
            cu_num = simds // per_cu
            known = next((g for g in GPUS.values() if (g.gfx, g.cu_num) == (gfx, cu_num)), None)
            memory = known.memory_bytes if known else None
            return Gpu(f"{gfx}:{cu_num}", gfx, cu_num, memory, f"{nodes}/{node}/properties")
    raise DeviceUnavailable(
        "--gpu auto: no AMD GPU found in this machine.", hint="Name one, such as --gpu mi300x, or give --gfx and --cu."
    )


def _properties(path: str) -> dict[str, int]:
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            lines = f.read(1 << 16).splitlines()
    except OSError:
        return {}
    pairs = (line.split(maxsplit=1) for line in lines)
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].strip().isdecimal()}
