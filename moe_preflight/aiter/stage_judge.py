"""The bridge from dispatch to tiles: what each stage's kernel says of the sizes it is given.

Only CK's rule is known (tiles.py). Other kinds keep ``accepted`` None with the reason, so that nothing unknown reads as accepted.
"""

from __future__ import annotations

from functools import lru_cache

from moe_preflight.aiter.ck import CkModule, family
from moe_preflight.aiter.ck_facts import CkFacts
from moe_preflight.aiter.dispatch import Judge
from moe_preflight.aiter.entry import Asked
from moe_preflight.aiter.key import Key
from moe_preflight.aiter.tiles import judge_stage
from moe_preflight.aiter.version import Version

_UNKNOWN = {
    "asm": "AITER's assembly kernels check their own sizes at launch",
    "flydsl": "FlyDSL kernels are compiled for the shape",
    "cktile": "CK-Tile kernels check their own sizes at launch",
    "opus": "Opus kernels check their own sizes at launch",
    "none": "no kernel",
}


def ck_judge(version: Version, gfx: str, *, tree_facts: CkFacts | None = None, multi_arch: bool = False) -> Judge:
    """A judge for Dispatcher: (tile_n, tile_k, accepted, reason) of a stage. Answers are cached by everything they depend on."""

    @lru_cache(maxsize=16384)
    def ck(stage: int, q: Asked, block_m: int, kernel: str, ksplit: int) -> tuple[int | None, int | None, bool | None, str]:
        module = CkModule(q.q_dtype_a, q.q_dtype_w, q.dtype, q.act, q.quant, q.doweight, q.shuffled, stage == 1 and ksplit > 1)
        v = judge_stage(
            version, gfx, family(q.quant, q.q_dtype_a, q.q_dtype_w, q.shuffled), stage, block_m, q.model_dim, q.inter_dim,
            kernel, tree_facts, multi_arch=multi_arch, module=module, use_g1u1=q.g1u1, ksplit=ksplit,
        )  # fmt: skip
        return v.tile_n, v.tile_k, v.accepted, v.reason

    def judge(
        kind: str, key: Key, q: Asked, block_m: int, kernel: str, ksplit: int = 0
    ) -> tuple[int | None, int | None, bool | None, str]:
        if kind in ("ck1", "ck2"):
            return ck(int(kind[-1]), q, block_m, kernel, ksplit)
        return None, None, None, _UNKNOWN.get(kind[:-1], _UNKNOWN["none"])

    return judge
