"""The bridge from dispatch to tiles: what each stage's kernel says of the sizes it is given.

CK's rule and the assembly launchers' are known (tiles.py, asm_kernels.py). Other kinds keep ``accepted`` None with the reason, so
that nothing unknown reads as accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from moe_preflight.aiter.ck import CkModule, family
from moe_preflight.aiter.ck_facts import CkFacts
from moe_preflight.aiter.dispatch import ONE_STAGE, Judge, Judged
from moe_preflight.aiter.entry import Asked
from moe_preflight.aiter.facts.dispatch_rules import is_verified
from moe_preflight.aiter.flydsl import is_listed
from moe_preflight.aiter.key import Key
from moe_preflight.aiter.tiles import TileVerdict, judge_stage
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.version import Version

if TYPE_CHECKING:
    from moe_preflight.aiter.asm_kernels import AsmLists

_UNKNOWN = {
    "1stage": "one-stage assembly kernels check the width at launch; their list is in the AITER tree, and none was read",
    "asm": "assembly kernels check the width at launch; their list is in the AITER tree, and none was read",
    "flydsl": "FlyDSL kernels are compiled for the shape",
    "cktile": "CK-Tile kernels check their own sizes at launch",
    "opus": "Opus kernels check their own sizes at launch",
}

_NO_FLYDSL = 'AITER {} has no FlyDSL kernel of the row\'s name and raises "Invalid FlyDSL kernel name"'


def stage_judge(
    version: Version, gfx: str, *, tree: Tree | None = None, tree_facts: CkFacts | None = None, multi_arch: bool = False
) -> Judge:
    """A judge for Dispatcher. ``tree`` lists the assembly kernels it ships; ``tree_facts`` stand in for the release's CK tables.
    Answers are cached by everything they depend on."""

    @lru_cache(maxsize=16384)
    def ck(stage: int, q: Asked, block_m: int, kernel: str, ksplit: int) -> Judged:
        module = CkModule(q.q_dtype_a, q.q_dtype_w, q.dtype, q.act, q.quant, q.doweight, q.shuffled, stage == 1 and ksplit > 1)
        return _of(
            judge_stage(
                version, gfx, family(q.quant, q.q_dtype_a, q.q_dtype_w, q.shuffled), stage, block_m, q.model_dim, q.inter_dim,
                kernel, tree_facts, multi_arch=multi_arch, module=module, use_g1u1=q.g1u1, ksplit=ksplit,
            )
        )  # fmt: skip

    asm = _assembly(tree, version, gfx)
    listed = is_verified(version)

    def judge(kind: str, key: Key, q: Asked, block_m: int, kernel: str, ksplit: int = 0) -> Judged:
        if kind in ("ck1", "ck2"):
            return ck(int(kind[-1]), q, block_m, kernel, ksplit)
        if asm is not None and kind in (ONE_STAGE, "asm1"):
            return asm(kind, q, block_m, kernel)
        if listed and kernel and kind in ("flydsl1", "flydsl2") and is_listed(version, kernel) is False:
            return None, None, False, _NO_FLYDSL.format(version), False
        return None, None, None, _UNKNOWN.get(kind if kind == ONE_STAGE else kind[:-1], "no kernel"), False

    return judge


def _of(v: TileVerdict) -> Judged:
    return v.tile_n, v.tile_k, v.accepted, v.reason, v.name_missing


def _assembly(tree: Tree | None, version: Version, gfx: str) -> Callable[[str, Asked, int, str], Judged] | None:
    """The judge of assembly kernels; None where the tree ships no list for this architecture. The lists are read on first use."""
    if tree is None or not tree.exists(f"{tree.hsa_prefix}/{gfx}/fmoe"):
        return None
    held: list[AsmLists | None] = []

    @lru_cache(maxsize=16384)
    def judge(kind: str, q: Asked, block_m: int, kernel: str) -> Judged:
        from moe_preflight.aiter.asm_kernels import AsmCall, asm_lists, judge_asm_stage1, judge_one_stage

        if not held:
            held.append(asm_lists(tree, gfx))
        lists = held[0]
        if lists is None:
            return None, None, None, _UNKNOWN["asm"], False
        call = AsmCall(
            q.quant, q.q_dtype_a, q.q_dtype_w, q.dtype, q.act, q.inter_dim, block_m, q.g1u1, q.doweight, kernel,
            xbf16="blockscaleBf16" in kernel,
        )  # fmt: skip
        return _of((judge_one_stage if kind == ONE_STAGE else judge_asm_stage1)(lists, version, call))

    return judge
