"""Whether AITER accepts the Opus stage 2 kernel a tuned row names.

Source: aiter/ops/opus/moe_stage2_a8w4_fused_adapter.py (v0.1.17 to v0.1.20; on main moe_stage2_a8w4.py),
is_opus_a8w4_stage2_kernel, stage2_cfg_values, cfg_is_supported; kernels in facts/dispatch_opus.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from moe_preflight.aiter.csvtable import EMPTY
from moe_preflight.aiter.facts.dispatch_opus import BLOCK_MS, LEGACY_NAME, OpusTable

_REDUCE = re.compile(r"_rbn[0-9]+\Z")
_LAYOUT = "opus_moe2_layout_"
_DEFAULT_BLOCK_M = 32


def kernel(table: OpusTable | None, name: str | None) -> tuple[int, int, int] | None:
    """(kernel id, block_m, sort block_m) of a name; None when it is none of the release's kernels."""
    if table is None or name is None:
        return None
    name = name.strip()
    if table.layout and name.startswith(_LAYOUT):
        name = "opus_moe2_" + name[len(_LAYOUT) :]
    if not name.startswith(table.prefix):
        return None
    name = name[len(table.prefix) :]
    found = table.kernels.get(name)
    if found is None and table.reduce_suffix:
        found = table.kernels.get(_REDUCE.sub("", name))
    return found


def is_kernel(table: OpusTable | None, name: str | None) -> bool:
    """is_opus_a8w4_stage2_kernel: a known name, or the old one whose settings sit in columns."""
    if table is None or name is None:
        return False
    return (table.legacy and name.strip() == LEGACY_NAME) or kernel(table, name) is not None


def accepts(
    table: OpusTable, name: str, cells: Mapping[str, str], block_m: int | None, *, gfx: str, is_ep: bool, bias2: bool
) -> tuple[bool, str]:
    """cfg_is_supported: (True, "") or (False, AITER's reason). ``block_m`` is the row's, None when empty."""
    if not is_kernel(table, name):
        return False, f"unknown Opus A8W4 stage2 kernelName2={name!r}"
    if gfx != "gfx950":
        return False, f"requires gfx950, got {gfx}"
    if is_ep:
        return False, "EP expert_mask/topk_ids are not supported"
    if bias2:
        return False, "stage2 bias is not supported"
    sort = _DEFAULT_BLOCK_M if block_m is None else block_m
    if sort <= 0:
        return False, f"requires positive sort block_m, got {sort}"
    known = kernel(table, name)
    if known is None:
        return _legacy(table, cells, sort)
    if table.sort_checked and sort != known[2]:
        return False, f"requires sort block_m={known[2]}, got tuned block_m={sort}"
    return True, ""


def _legacy(table: OpusTable, cells: Mapping[str, str], sort: int) -> tuple[bool, str]:
    """The old single name: kernel id, block_m and route mode come from columns of the row."""
    kid = _int(cells, ("stage2_kernel_id", "opus_kernel_id", "kernel_id2"), -1)
    if kid != -1:
        known = next((k for k in table.kernels.values() if k[0] == kid), None)
        if known is None:
            return False, f"unsupported Opus A8W4 stage2 kid: {kid}"
        if table.sort_checked and sort != known[2]:
            return False, f"requires sort block_m={known[2]}, got tuned block_m={sort}"
        return True, ""
    block_m = _int(cells, ("stage2_block_m", "opus_block_m", "kernel_block_m"), sort)
    if block_m not in BLOCK_MS:
        return False, f"requires stage2_block_m {'/'.join(map(str, BLOCK_MS))}, got {block_m}"
    route = _first(cells, ("stage2_route_out", "route_out", "return_per_slot")).strip().lower()
    routed = route in ("true", "yes", "y") or (route not in ("", "false", "no", "n") and float(route) != 0)
    if routed and block_m != 64:
        return False, "auto route-out requires an explicit route-output kid"
    if not routed and block_m == 64:
        return False, "auto direct-atomic only supports bm16/bm32 kernels"
    return True, ""


def _first(cells: Mapping[str, str], names: tuple[str, ...]) -> str:
    for n in names:
        text = cells.get(n, "")
        if text not in EMPTY and text.strip() not in EMPTY:
            return text
    return ""


def _int(cells: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    text = _first(cells, names)
    return int(float(text)) if text else default
