"""AITER's assembly MoE kernels: which are shipped, and what their launchers check.

The lists are CSV files below ``hsa/<gfx>/fmoe`` (one-stage) and ``hsa/<gfx>/fmoe_2stages`` (stage 1 of two), compiled into
maps by file name. A launcher takes the named kernel from the map its operands select, or looks for one whose tile fits:
csrc/py_itfs_cu/asm_fmoe.cu get_heuristic_kernel and asm_moe_2stage.cu moe_stage1_g1u1 (read at every tag from v0.1.7.post2
to v0.1.20.post1; line numbers below are of v0.1.20.post1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moe_preflight.aiter.key import NOT_READ
from moe_preflight.aiter.tiles import TileVerdict
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.version import Version
from moe_preflight.errors import FileUnreadable

MAX_LIST = 1 << 20
"""Bytes of one list. The longest AITER ships has 11 kB."""


@dataclass(frozen=True, slots=True)
class AsmKernel:
    """One shipped kernel: its tile, the flags a launcher filters by, and where it is listed."""

    name: str
    tile_m: int
    tile_n: int
    vskip: int
    smf: int
    flat: int
    source: str


@dataclass(frozen=True, slots=True)
class AsmLists:
    """All lists of one gfx architecture by file name without its ending. ``unreadable`` are (file, reason)."""

    gfx: str
    lists: Mapping[str, tuple[AsmKernel, ...]]
    unreadable: tuple[tuple[str, str], ...] = ()


def asm_lists(tree: Tree, gfx: str) -> AsmLists | None:
    """The kernels ``tree`` ships for ``gfx``; None when it has none, so that nothing can be said."""
    lists: dict[str, tuple[AsmKernel, ...]] = {}
    unreadable: list[tuple[str, str]] = []
    for folder in ("fmoe", "fmoe_2stages"):
        for file in tree.names(f"{tree.hsa_prefix}/{gfx}/{folder}", ".csv"):
            try:
                lists[file.rpartition("/")[2].removesuffix(".csv")] = _read(file, tree.read_text(file, MAX_LIST))
            except FileUnreadable as e:
                unreadable.append((file, e.reason))
    below = f"{tree.hsa_prefix}/{gfx}/fmoe"
    unreadable += [(name, why) for name, why in tree.unreadable if name.startswith(below) or below.startswith(f"{name}/")]
    return AsmLists(gfx, lists, tuple(unreadable)) if lists or unreadable else None


def _unread(lists: AsmLists, listed: str) -> TileVerdict | None:
    """What to say of list ``listed`` when it, or the folder it would be in, could not be read: nothing about the kernel."""
    if listed in lists.lists:
        return None
    for name, why in lists.unreadable:
        if not name.endswith(".csv") or name.endswith(f"/{listed}.csv"):
            return TileVerdict(None, None, None, f"{NOT_READ}{name} could not be read ({why})", source=name)
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 7


def _read(file: str, text: str) -> tuple[AsmKernel, ...]:
    lines = text.splitlines()
    columns = [c.strip() for c in lines[0].split(",")] if lines else []
    out = []
    for number, line in enumerate(lines[1:], 2):
        cells = dict(zip(columns, (c.strip() for c in line.split(",")), strict=False))
        m, n = (cells.get(a) or cells.get(b) or "" for a, b in (("subGU_m", "tile_m"), ("subGU_n", "tile_n")))
        if not cells.get("knl_name") or not _is_number(m) or not _is_number(n) or int(n) == 0:
            if line.strip():
                raise FileUnreadable(file, f"line {number} is not a kernel with a tile")
            continue
        vskip, smf, flat = (int(v) if _is_number(v := cells.get(c, "")) else 0 for c in ("vskip", "smf", "flat"))
        out.append(AsmKernel(cells["knl_name"], int(m), int(n), vskip, smf, flat, f"{file}:{number}"))
    return tuple(out)


# --- one stage -------------------------------------------------------------------------------------------------------

_BLOCK_M_SINCE = Version.of("0.1.12")
"""From here on a kernel's rows per block must be the sorted block's (asm_fmoe.cu:267)."""
_NARROW_BLOCKSCALE_SINCE = Version.of("0.1.9")
"""From here on block-scaled one-stage kernels take widths that are a multiple of 128, before of 256."""
_FLAT_SKIPPED_SINCE = Version.of("0.1.20")
"""From here on the search passes over flat kernels (asm_fmoe.cu:268)."""
_NAMES_ARE_CHECKED_SINCE = Version.of("0.1.7.post3")
"""From here on a named stage 1 kernel is checked for its width and block_m (asm_moe_2stage.cu:196, :215)."""
_INT8_TILES = (512, 448, 384, 320, 256, 192, 128)
_INT4_TILES = (512, 256, 128)
_PER_TOKEN = {"fp8": "pertokenFp8", "i8": "pertokenInt8", "fp4x2": "pertokenMXfp4"}


@dataclass(frozen=True, slots=True)
class AsmCall:
    """What decides about an assembly kernel. dtypes are short names; ``kernel`` is the tuned row's name or empty;
    ``xbf16`` that the activation is quantized inside the kernel."""

    q_type: str
    dtype_a: str
    dtype_w: str
    dtype_out: str
    act: str
    inter_dim: int
    block_m: int
    use_g1u1: bool = True
    doweight: bool = False
    kernel: str = ""
    xbf16: bool = False


def judge_one_stage(lists: AsmLists, version: Version, call: AsmCall) -> TileVerdict:
    """Whether the one-stage launcher finds a kernel (aiter/fused_moe.py fused_moe_1stage chooses the launcher)."""
    out = {"bf16": "bf16", "fp16": "fp16"}.get(call.dtype_out, call.dtype_out)
    if call.q_type == "No" and call.act == "silu" and not call.use_g1u1:
        return TileVerdict(None, None, None, "fmoe has one kernel per dtype and checks no size", source="asm_fmoe.cu:374")
    if call.act not in ("silu", "gelu"):
        return _abort(f"there are no one-stage kernels for activation {call.act}", "Not find proper cfg")
    if call.q_type in ("per_1x128", "per_128x128"):
        unit = 128 if version >= _NARROW_BLOCKSCALE_SINCE else 256
        if out != "bf16" or call.inter_dim % unit:
            why = f"{call.inter_dim} is not a multiple of {unit}" if out == "bf16" else f"the output is {out}, not bf16"
            return _abort(why, "Unsupported the type for fmoe_fp8_blockscale_g1u1")
        kind = "blockscaleBf16" if call.xbf16 else "blockscaleFp8"
        return _find(lists, f"fmoe_bf16_{kind}_g1u1_{call.act}", version, call, call.block_m)
    if not call.use_g1u1:
        return _of_tiles(call.inter_dim, _INT8_TILES)
    if call.dtype_w in ("u32", "i4x2"):
        return _of_tiles(call.inter_dim, _INT4_TILES)
    kind = _PER_TOKEN.get("fp4x2" if call.dtype_w == "fp4x2" else call.dtype_a, "")
    if not kind:
        return _abort(f"there are no one-stage kernels for {call.dtype_a} x {call.dtype_w}", "unsupport current input type")
    suffix = "_tkw1" if call.doweight and call.q_type == "per_Token" else ""
    # These launchers sort by 32 rows whatever the dispatch says: block_size_M keeps its default.
    return _find(lists, f"fmoe_{out}_{kind}_g1u1_{call.act}{suffix}", version, call, 32)


def _find(lists: AsmLists, listed: str, version: Version, call: AsmCall, block_m: int) -> TileVerdict:
    """get_heuristic_kernel: the named kernel, or any whose tile fits."""
    unread = _unread(lists, listed)
    if unread is not None:
        return unread
    kernels = lists.lists.get(listed, ())
    if call.kernel:
        found = next((k for k in kernels if k.name == call.kernel), None)
        if found is None:
            return _abort(f"{call.kernel} is not in {listed} of {lists.gfx}", f" not find kernel {call.kernel}")
        return TileVerdict(found.tile_n, None, True, "the named kernel is shipped", True, source=found.source)
    fitting = [
        k
        for k in kernels
        if k.vskip == 1
        and k.smf == 0
        and call.inter_dim % k.tile_n == 0
        and (version < _BLOCK_M_SINCE or (k.tile_m == block_m and (version < _FLAT_SKIPPED_SINCE or not k.flat)))
    ]
    if not fitting:
        tiles = ", ".join(map(str, sorted({k.tile_n for k in kernels if k.vskip == 1 and k.smf == 0})))
        why = f"{call.inter_dim} is not a multiple of a shipped tile ({tiles})" if tiles else f"{lists.gfx} has no kernels"
        return _abort(f"{why} in {listed}", f"No suitable kernel found for inter_dim: {call.inter_dim}")
    return _one_of(fitting, call.inter_dim)


def _one_of(fitting: list[AsmKernel], inter_dim: int) -> TileVerdict:
    """Which of several is taken depends on the number of sorted blocks; the tile is given when they all have the same."""
    tiles = sorted({k.tile_n for k in fitting})
    only = tiles[0] if len(tiles) == 1 else None
    said = f"{inter_dim} is a multiple of shipped tile{'s' if not only else ''} {', '.join(map(str, tiles))}"
    return TileVerdict(only, None, True, said, source=fitting[0].source)


def _of_tiles(inter_dim: int, tiles: tuple[int, ...]) -> TileVerdict:
    """Launchers with their tiles written down in the source (asm_fmoe.cu:423-520 and :568-600)."""
    fitting = [t for t in tiles if inter_dim % t == 0]
    if not fitting:
        which = ", ".join(map(str, sorted(tiles)))
        return _abort(f"{inter_dim} is not a multiple of {which}", f" Unsupported inter_dim {inter_dim}")
    return TileVerdict(fitting[0] if len(fitting) == 1 else None, None, True, f"{inter_dim} is a multiple of tile {fitting[-1]}")


def _abort(why: str, raises: str) -> TileVerdict:
    return TileVerdict(None, None, False, why, raises=raises, source="csrc/py_itfs_cu/asm_fmoe.cu")


# --- stage 1 of two --------------------------------------------------------------------------------------------------


def judge_asm_stage1(lists: AsmLists, version: Version, call: AsmCall) -> TileVerdict:
    """Whether moe_stage1_g1u1 finds a kernel, and takes the sizes (asm_moe_2stage.cu:62-146, :196, :215)."""
    listed = _stage1_list(call)
    if listed is None:
        what = f"{call.dtype_a} x {call.dtype_w}, {call.q_type}{', weighted' if call.doweight else ''}"
        return _abort(f"there are no assembly stage 1 kernels for {what}", "Unsupported input_type")
    unread = _unread(lists, listed)
    if unread is not None:
        return unread
    kernels = lists.lists.get(listed, ())
    if call.kernel:
        found = next((k for k in kernels if k.name == call.kernel), None)
        if found is None:
            return _abort(f"{call.kernel} is not in {listed} of {lists.gfx}", f" not find kernel {call.kernel}")
        checked = version >= _NAMES_ARE_CHECKED_SINCE
        if checked and call.inter_dim % found.tile_n:
            why = f"{call.inter_dim} is not a multiple of tile N {found.tile_n}"
            return TileVerdict(found.tile_n, None, False, why, True, raises="is not supported for inter_dim", source=found.source)
        if checked and call.block_m != found.tile_m:
            why = f"block_m is {call.block_m} and the kernel needs {found.tile_m}"
            return TileVerdict(
                found.tile_n, None, False, why, True, raises=f"need block_m == {found.tile_m}", source=found.source
            )
        return TileVerdict(found.tile_n, None, True, "the named kernel is shipped and takes the width", True, source=found.source)
    fitting = [k for k in kernels if k.tile_m == call.block_m and call.inter_dim % k.tile_n == 0]
    if not fitting:
        tiles = ", ".join(map(str, sorted({k.tile_n for k in kernels if k.tile_m == call.block_m}))) or "none"
        why = f"no shipped tile for block_m {call.block_m} divides {call.inter_dim} (tiles: {tiles})"
        return _abort(why, f" not find kernel inter_dim = {call.inter_dim}")
    return _one_of(fitting, call.inter_dim)


def _stage1_list(call: AsmCall) -> str | None:
    # aiter/fused_moe.py asm_stage1 turns per_Tensor into per_Token.
    per_token = call.q_type in ("per_Token", "per_Tensor")
    match call.dtype_a, call.dtype_w, per_token, call.doweight:
        case "fp8", "fp8", True, True:
            return "fmoe_stage1_bf16_pertokenFp8_doweight_g1u1"
        case "fp8", "fp8", True, False:
            return "fmoe_stage1_bf16_pertokenFp8_g1u1"
        case "i8", "i8", True, False:
            return "fmoe_stage1_bf16_pertokenInt8_g1u1"
        case "fp8", "fp8", False, False if call.q_type in ("per_1x128", "per_128x128"):
            return "fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1"
    return None
