"""What AITER's routing and sorting kernels can do, by release: tables, each value with the place it was read.

Boundaries were found by reading the file at *every* v0.1.* tag (blob by blob), not by ``git tag --contains``: the tags up
to v0.1.11 share no ancestor with the later ones, and post releases carry backports (v0.1.16.post4 has code v0.1.17 lacks).
A ``Span`` says from which release (inclusive) to which (exclusive) a value holds. The newest release read is ``NEWEST``;
copies of aiter/ops/topk.py from about v0.1.22 agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from moe_preflight.aiter.version import Version

T = TypeVar("T")

OLDEST = Version.of("0.1.4")
"""Oldest tag whose routing kernels were read."""
NEWEST = Version.of("0.1.20.post1")
"""Newest tag whose routing kernels were read."""

GROUPED = "csrc/kernels/topk_softmax_kernels_group.cu"
GATE = "csrc/kernels/moe_fused_gate.cu"
TOPK = "aiter/ops/topk.py"
SOFTMAX = "csrc/kernels/topk_softmax_kernels.cu"
SORT = "csrc/include/moe_sorting_opus.h"


@dataclass(frozen=True, slots=True)
class Span(Generic[T]):
    """``value`` holds from release ``since`` up to but not including ``until`` (None: still so at NEWEST)."""

    since: Version
    until: Version | None
    value: T
    source: str

    def covers(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


def _span(since: str, until: str | None, value: T, source: str) -> Span[T]:
    return Span(Version.of(since), Version.of(until) if until else None, value, source)


def at(table: tuple[Span[T], ...], version: Version) -> Span[T] | None:
    """The entry of ``table`` that holds for ``version``, or None when none does."""
    return next((s for s in table if s.covers(version)), None)


def has(feature: str, version: Version) -> bool:
    """Does this release have ``feature`` (a key of FEATURES)?"""
    return at(FEATURES[feature], version) is not None


def in_range(version: Version) -> bool:
    """Were the routing kernels of this release read?"""
    return OLDEST <= version <= NEWEST


# biased_grouped_topk / grouped_topk -----------------------------------------------------------------------------------

GROUP_COUNTS: tuple[Span[frozenset[int]], ...] = (
    _span("0.1.1", None, frozenset({1, 2, 4, 8}), f"{GROUPED}:1109-1116 (v0.1.20.post1), :1114-1121 (v0.1.7.post2)"),
)
"""num_expert_group values the kernel is instantiated for. The same set at every tag, on every arch and dtype."""

GATE_TOKENS_PER_CU: tuple[Span[int], ...] = (
    _span("0.1.5", "0.1.5.post3", 16, f"{TOPK}:87 (v0.1.5)"),
    _span("0.1.5.post3", "0.1.5.post4", 48, f"{TOPK}:87 (v0.1.5.post3)"),
    _span("0.1.5.post4", None, 212, f"{TOPK}:189 (v0.1.20.post1), :87 (v0.1.7.post2)"),
)
"""biased_grouped_topk hands batches above this many tokens per compute unit to moe_fused_gate. v0.1.4 has no such kernel."""

GATE_STATIC: tuple[Span[frozenset[tuple[int, int]]], ...] = (
    _span(
        "0.1.5", "0.1.8", frozenset({(256, 8), (128, 4)}), f"{GATE}:592-658 (v0.1.7.post2; 256/16, 128/8 behind a dangling else)"
    ),
    _span("0.1.8", "0.1.12", frozenset({(256, 8), (256, 16), (128, 4), (128, 8)}), f"{GATE}:592-658 (v0.1.8)"),
    _span(
        "0.1.12",
        None,
        frozenset({(256, 8), (256, 16), (128, 4), (128, 8), (192, 8), (96, 8)}),
        f"{GATE}:604-690 (v0.1.20.post1)",
    ),
)
"""(experts, groups) moe_fused_gate has a compile-time kernel for; everything else takes its dynamic kernel."""

GATE_MAX_PER_GROUP = 32
"""MAX_VPT of moe_fused_gate: most experts one group may have (moe_fused_gate.cu:580 at v0.1.20.post1)."""

REDUCE_WIDTHS = {64: frozenset({1, 2, 4, 8, 16, 32, 64}), 32: frozenset({1, 2, 4, 8, 16, 32})}
"""Group counts multithread_reduce has a case for, by wave size (csrc/include/hip_reduce.h:323-369 at v0.1.20.post1)."""

REDUCED_LANES = frozenset({2, 4, 8})
"""Lanes per group that biased_grouped_topk's group score is reduced over (lane_steps, group.cu:433 at v0.1.20.post1)."""

# topk_softmax_asm -----------------------------------------------------------------------------------------------------

_ASM_OLD = frozenset({(128, 6), (128, 8), (256, 6), (256, 8)})
_ASM_CSV = _ASM_OLD | {(128, 4)}


@dataclass(frozen=True, slots=True)
class AsmTable:
    """What aiter.fused_moe.fused_topk sends to the assembly kernel: architectures, logits dtypes, (experts, topk)."""

    gfx: frozenset[str]
    dtypes: frozenset[str]
    shapes: frozenset[tuple[int, int]]


_CDNA = frozenset({"gfx942", "gfx950"})
_BOTH = frozenset({"bf16", "fp32"})
_ASM = "hsa/<gfx>/topksoftmax/topksoftmax.csv, aiter/fused_moe.py fused_topk"
ASM_SOFTMAX: tuple[Span[AsmTable], ...] = (
    _span("0.1.6", "0.1.10.post1", AsmTable(frozenset({"gfx942"}), frozenset({"fp32"}), _ASM_OLD), f"{_ASM}:1358 (v0.1.7.post2)"),
    _span("0.1.10.post1", "0.1.11", AsmTable(_CDNA, _BOTH, _ASM_CSV), f"{_ASM} (v0.1.10.post1)"),
    _span("0.1.11", "0.1.19.post1", AsmTable(_CDNA, _BOTH, _ASM_CSV | {(384, 8)}), f"{_ASM} (v0.1.11)"),
    _span("0.1.19.post1", None, AsmTable(_CDNA, _BOTH, _ASM_CSV | {(384, 8), (640, 8)}), f"{_ASM}:3991 (v0.1.20)"),
)

# topk_softmax / topk_sigmoid / topk_gating ----------------------------------------------------------------------------

SOFTMAX_REGISTER = frozenset({1, 2, 4, 8, 16, 32, 64, 128, 256, 512})
"""Expert counts with a register kernel (topk_softmax_kernels.cu:695-704 at v0.1.20); others use the generic two-kernel path."""

SOFTMAX_SHARED = frozenset({1, 2, 4, 8})
"""Fused shared experts the register kernel takes (topk_softmax_kernels.cu:614-624 at v0.1.20)."""

SIGMOID_MAX_EXPERTS = 192
"""Largest bucket of CK's 09_topk_softmax (topk_softmax_api.cpp:56-165, as bundled in the v0.1.7.post2 wheel)."""

KERNELS: dict[str, tuple[Span[bool], ...]] = {
    "biased_grouped_topk": (_span("0.1.1", None, True, f"{TOPK} (v0.1.1)"),),
    "grouped_topk": (_span("0.1.1", None, True, f"{TOPK} (v0.1.1)"),),
    "moe_fused_gate": (_span("0.1.5", None, True, f"{GATE} (v0.1.5)"),),
    "topk_softmax": (_span("0.1.1", None, True, f"{SOFTMAX} (v0.1.1)"),),
    "topk_sigmoid": (_span("0.1.6.post2", None, True, "csrc/py_itfs_ck/topk_sigmoid_kernels.cu (v0.1.6.post2)"),),
    "topk_gating": (_span("0.1.14", None, True, f"{TOPK}:36 (v0.1.14)"),),
}
"""Routing entry points and the first release that has them."""

ARGUMENTS: dict[tuple[str, str], tuple[Span[bool], ...]] = {
    ("topk_softmax", "num_shared_experts"): (_span("0.1.12", None, True, "aiter/ops/moe_op.py:22-23 (v0.1.12)"),),
    ("topk_softmax", "shared_expert_scoring_func"): (_span("0.1.12", None, True, "aiter/ops/moe_op.py:22-23 (v0.1.12)"),),
    ("topk_gating", "num_shared_experts"): (),
}
"""(kernel, argument) an engine may pass beyond the oldest signature, and the releases that take it. topk_gating's
num_shared_experts is in no release read (aiter/ops/topk.py:42-50 at v0.1.20.post1); the first one that has it is not known."""

# features -------------------------------------------------------------------------------------------------------------

FEATURES: dict[str, tuple[Span[bool], ...]] = {
    # A failed check in a pybind module prints "[AITER] file:line text" and calls abort() instead of raising.
    "abort": (_span("0.1.19", None, True, f"{GROUPED}:1123 (v0.1.19); csrc/include/aiter_hip_common.h:44-64"),),
    # moe_fused_gate no longer insists on a power-of-two expert count.
    "gate_any_experts": (_span("0.1.12", None, True, f"{GATE}:566 (v0.1.20.post1), commented out"),),
    # more than 32 experts per group stay on the HIP kernel whatever the batch.
    "big_groups_stay": (_span("0.1.12", None, True, f"{TOPK}:88 (v0.1.12)"),),
    # the dynamic gate kernel reads only its own row.
    "gate_reads_row": (_span("0.1.12", None, True, f"{GATE} (v0.1.12, PR 2604)"),),
    "topk_group_check": (_span("0.1.12", None, True, f"{GROUPED}:1234 (v0.1.12)"),),
    "wave32": (_span("0.1.12", None, True, f"{GROUPED}:1246 (v0.1.12)"),),
    # group score reduced across lanes by lane_steps (before: serially, correctly).
    "lane_steps": (_span("0.1.5.post2", None, True, f"{GROUPED}:421 (v0.1.5.post2), :433 (v0.1.20.post1)"),),
    # the unbiased sigmoid is kept in LDS right behind the group scores.
    "sig_scores": (_span("0.1.16.post4", None, True, f"{GROUPED} blob 5f8421c (v0.1.16.post4, v0.1.17)"),),
    "bias_dtype_check": (_span("0.1.1", "0.1.12", True, f"{GROUPED}:1238 (v0.1.7.post2)"),),
    "strided_group_logits": (_span("0.1.19", None, True, f"{GROUPED}:1241 (v0.1.19)"),),
    "strided_softmax": (_span("0.1.11", None, True, f"{SOFTMAX}:285 (v0.1.11), power-of-two expert counts"),),
    "strided_softmax_any": (_span("0.1.19.post1", None, True, f"{SOFTMAX}:67-77 (v0.1.19.post1)"),),
    "gating_softmax_renorm": (_span("0.1.20", None, True, f"{TOPK}:42 (v0.1.20); v0.1.19 topk_gating_kernels.cu:1223 drops it"),),
    "gating_ids_check": (_span("0.1.17", None, True, "csrc/kernels/topk_gating_kernels.cu:415 (v0.1.17)"),),
    # fused_moe's tuned key takes one off topk under expert parallelism.
    "ep_topk_minus_one": (_span("0.1.16", None, True, "aiter/fused_moe.py:1112 (v0.1.16)"),),
    # the mxfp4 a4w4 port refuses an expert mask.
    "port_refuses_ep": (
        _span("0.1.16.post4", "0.1.17", True, "aiter/fused_moe.py:573 (v0.1.16.post4)"),
        _span("0.1.18", None, True, "aiter/fused_moe.py:709 (v0.1.18)"),
    ),
    # bf16 x MXFP4 SiTUv2 refuses an expert mask.
    "situv2_refuses_ep": (_span("0.1.20", None, True, "aiter/fused_moe.py:826-835 (v0.1.20)"),),
    # ids outside 0..E-1 are skipped everywhere; after NEWEST, from the public thread only.
    "sort_ids_checked": (_span("0.1.22.post1", None, True, "ROCm/aiter PR 5295 (thread)"),),
}

# moe_sorting ----------------------------------------------------------------------------------------------------------

SORT_DEFAULT: tuple[Span[str], ...] = (
    _span("0.1.1", "0.1.14", "ck", "aiter/fused_moe.py (v0.1.7.post2: no other backend)"),
    _span("0.1.14", None, "opus", "aiter/fused_moe.py:120 (v0.1.14)"),
)
SORT_SWITCHES: tuple[tuple[str, str, tuple[Span[bool], ...]], ...] = (
    ("AITER_USE_CK_MOE_SORTING", "ck", (_span("0.1.14", None, True, "aiter/fused_moe.py:26 (v0.1.14)"),)),
    ("AITER_USE_FLYDSL_MOE_SORTING", "flydsl", (_span("0.1.18", None, True, "aiter/fused_moe.py:60 (v0.1.18)"),)),
    ("AITER_USE_OPUS_MOE_SORTING", "opus", (_span("0.1.11", "0.1.14", True, "aiter/fused_moe.py:34 (v0.1.11)"),)),
)
"""(environment variable, backend it selects when it is "1", releases that read it), the one that wins first."""

SORT_MAX_EXPERTS = 16371
"""(4 + 2*256/64 + E + 1) * 4 bytes of LDS must fit 65536 (moe_sorting_get_smem_size_p23; host code always sees 64 KiB)."""
SORT_MAX_EXPERTS_LOCAL_IDS = 8185
SORT_SINGLE_MAX_EXPERTS = 818
"""65536 / 4 / 2 / (E + 1) must leave 10 rows for the single-kernel path."""
SORT_FLYDSL_MAX_EXPERTS = {"gfx94": 818, "gfx95": 2047}
"""aiter/ops/flydsl/kernels/moe_sorting_kernel.py:234-247 (v0.1.20): LDS of 64 KiB, 160 KiB on gfx95x."""
SORT_TOPK_LIMIT = 255
SORT_MESH_TOKENS = 512
"""From this many tokens on the score board is 8 bits wide and top-k must stay below SORT_TOPK_LIMIT."""

WAVE32_PREFIXES = ("gfx10", "gfx11", "gfx12")


def wave_size(gfx: str) -> int:
    """Lanes of one wave as AITER builds for it: 64 on gfx9xx, 32 on RDNA and gfx1250."""
    return 32 if gfx.startswith(WAVE32_PREFIXES) else 64
