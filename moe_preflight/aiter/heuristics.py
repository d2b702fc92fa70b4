"""What AITER chooses when no tuned row is used: block_m, ksplit, one stage or two, non-temporal loads.

Source: get_block_size_M, get_ksplit, use_nt and the untuned half of get_2stage_cfgs in aiter/fused_moe.py. Pure
arithmetic on integers, as AITER writes it: a zero expert count raises ZeroDivisionError here as there.
"""

from __future__ import annotations

from collections.abc import Mapping

from moe_preflight.aiter.facts.dispatch_onestage import ARCHITECTURES, ONE_STAGE
from moe_preflight.aiter.facts.dispatch_rules import Rules

ONE_STAGE_BLOCK_M = 32


def block_size_m(token: int, topk: int, expert: int, inter_dim: int, cu_num: int) -> int:
    """32, 64 or 128: the one that needs the fewest rounds over all CUs, then leaves the fewest idle (get_block_size_M)."""
    columns = (inter_dim + 127) // 128
    best = (0, 0, 0)
    for size in (32, 64, 128):
        rows = token * topk + expert * size - topk
        groups = columns * (rows + size - 1) // size
        rank = ((groups + cu_num - 1) // cu_num, cu_num - groups % cu_num, size)
        if not best[2] or rank[:2] < best[:2]:
            best = rank
    return best[2]


def k_split(token: int, topk: int, expert: int, inter_dim: int, model_dim: int, cu_num: int, forced: int) -> int:
    """How many ways stage 1 splits K in decode (get_ksplit); 0 when it does not. ``forced``: AITER_KSPLIT.

    ``inter_dim`` is doubled by the caller for the release that counts gate and up.
    """
    if forced:
        return forced
    if token * topk > expert:
        return 0
    groups = ((inter_dim + 127) // 128) * token * topk
    if groups >= cu_num:
        return 0
    for i in range((cu_num + groups - 1) // groups, 1, -1):
        if model_dim % i == 0 and (model_dim // i) % 256 == 0:
            return i
    return 0


def env_int(env: Mapping[str, str], name: str, default: int) -> int:
    """An integer AITER reads from the environment; ValueError as it raises for anything else."""
    return int(env.get(name, default))


def one_stage(
    rules: Rules,
    gfx: str,
    act: str,
    quant: str,
    dtypes: tuple[str, str, str],
    g1u1: bool,
    doweight: bool,
    token: int,
    inter_dim: int,
) -> bool:
    """Whether the one-stage asm kernel is taken. ``dtypes``: dtype, q_dtype_a, q_dtype_w in short names.

    Raises KeyError(gfx) for an architecture the release's map does not know at all.
    """
    if gfx not in ARCHITECTURES:
        if rules.one_stage_unknown_gfx == "KeyError":
            raise KeyError(gfx)
        return False
    if (gfx, act, quant, *dtypes, g1u1, doweight) not in ONE_STAGE[rules.one_stage_map]:
        return False
    if quant == "per_1x128":
        match rules.one_stage_blockscale:
            case "never":
                return False
            case "any-256":
                return inter_dim % 256 == 0
            case "over32-256":
                return token > 32 and inter_dim % 256 == 0
            case _:
                return token > 32 and inter_dim % 128 == 0
    if quant == "per_Token" and dtypes[2] == "i8":
        return token > 32
    if quant == "per_Token" and dtypes[2] == "fp8":
        match rules.one_stage_fp8_token:
            case "over32":
                return token > 32
            case "over16":
                return token > 16
            case "gfx950-192":
                return inter_dim == 192 if gfx == "gfx950" and not doweight else token > 16
            case _:
                return token > 16 or inter_dim % 128 != 0
    return quant != "per_1x32" and token < 256
