"""Where AITER keeps what we read: names of its source files, and the one way to say
"not understood". Light on purpose: a pristine tree is recognised without loading a parser."""

from __future__ import annotations

FUSED_MOE = "aiter/fused_moe.py"
CORE = "aiter/jit/core.py"
CHIP = "aiter/jit/utils/chip_info.py"

# Below csrc, which is at a checkout's root or under aiter_meta (Tree.csrc_prefix).
GEN = "ck_gemm_moe_2stages_codegen/gen_instances.py"
COMMON = "ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py"
KERNEL = "kernels/topk_softmax_kernels_group.cu"

MAX_SOURCE = 2 << 20
"""Bytes of one source file. The largest of AITER's we look at has 0.15 MB."""

Slot = tuple[str, int]
"""(table name, stage): one CK table."""


class Refused(Exception):
    """A source that is not written in a way this tool understands. ``reason`` is a plain statement."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
