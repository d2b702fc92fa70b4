"""How AITER's Python dispatch changed from release to release, as data.

``HISTORY`` starts with everything that held in v0.1.7.post2 and then lists, release by release, only what changed. A
post release can carry a backport that the next minor release does not have (v0.1.13.post1, v0.1.16.post4), so a later
entry sometimes sets a field back. Every entry was read in ``aiter/fused_moe.py`` (lookup, heuristics, paths) or
``aiter/jit/core.py`` (merging) of that tag, and checked by asking the tag's own code on a CPU;
facts/dispatch_sources.py says where.

``VERIFIED`` are the releases whose dispatch code was read and asked. Anything else is answered with the newest facts
not newer than it, and is unverified.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from moe_preflight.aiter.version import Version

Tiers = tuple[tuple[int | None, int | str], ...]
"""Padding of the token count: (below this many tokens or None, the padded count or "pow2"), smallest first."""

PADDING: dict[str, Tiers] = {
    "1024": ((1, "pow2"), (17, 16), (1024, "pow2"), (None, 1024)),
    "16384": ((1, "pow2"), (17, 16), (1024, "pow2"), (2048, 1024), (16384, 2048), (None, 16384)),
    "16384-small": ((1024, "pow2"), (2048, 1024), (16384, 2048), (None, 16384)),
    "32768": ((32768, "pow2"), (None, 32768)),
    "tiers": ((32768, "pow2"), (131072, 32768), (None, 131072)),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """One release's dispatch behaviour. Field by field: which of the known variants holds."""

    # --- token buckets (get_padded_M)
    padding: str = "1024"
    """A name in PADDING."""
    tree_tiers: Tiers | None = None
    """What the tree's own get_padded_M says, where that is not what PADDING holds for the release."""
    tier: int = 0
    """Above this many tokens a key without a row is looked up again as if it had this many; 0: it is not."""

    # --- activation dtype (fused_moe entry)
    a_per_1x32: str = "fp4"
    """fp4: always fp4x2. swiglu: Swiglu takes bf16 or fp8 by tokens. gate-mode: the separated/interleaved rules."""
    bf16_bound: int = 512
    """Tokens from which gfx950 Swiglu takes an fp8 activation, where no environment variable says otherwise."""
    bf16_bound_env: str = ""
    a16wi4: bool = False
    """int4 weights under per_1x32 keep a bf16 activation."""
    mxfp8: bool = False
    """fp8 weights under per_1x32 take an fp8 activation; they may also reach the FlyDSL heuristic."""
    situv2: str = ""
    """late: after the interleave test. first: before it, with AITER_SITUV2_A4W4. Empty: no such activation."""
    situv2_guard: bool = False
    """The entry refuses a16w4 SiTUv2 that FlyDSL cannot run."""
    gfx1250_a: bool = False
    """gfx1250 overrides the activation dtype."""
    has_gate_mode: bool = False

    # --- tables (aiter/jit/core.py update_config_files)
    merge: str = "lowest-us"
    """lowest-us: columns must agree, the lowest us of a key wins silently. refuse: columns must agree, a key held twice
    raises. fill: missing columns are filled, a key held twice raises."""
    mismatch_error: str = "AssertionError"
    first_path_must_exist: bool = True
    dedup_cu_num: bool = False
    dedup_gfx: bool = False
    dedup_tag: bool = False
    ignore_tag_column: bool = False
    """A _tag column of one file alone is no column mismatch."""
    fill_gfx: bool = False
    any_suffix: bool = True
    """model_configs files need not end in .csv, and the whole path must not contain untuned."""
    unique_index: bool = True
    """A key held twice in the table that is used raises ValueError; otherwise the first row wins."""

    # --- lookup
    gfx_in_key: bool = False
    act: str = "exact"
    """exact; ignored: the first row of any activation; exact-else-any; exact-else-any-non-ck: as before, without CK rows
    among the borrowed; any-non-ck: the first row of any activation that is no CK row."""
    one_stage_acts: bool = False
    """A one-stage row is used for Silu and Gelu alone."""
    flydsl_optional: bool = True
    """FlyDSL may be missing; without the test for it AITER takes it for granted."""
    tag: str = "all"
    """all: _tag is not looked at. untagged: only empty tags. not-fallback: all but flydsl_fallback."""
    blockscale_bypass: str = ""
    """Silu bf16 fp8 per_1x128 ignores its tuned row: always, or small (token x topk <= 128)."""
    bypass_env: bool = False
    flydsl_fallback: bool = False
    """Without FlyDSL a row naming it is replaced by the row tagged flydsl_fallback, or by the heuristics."""
    ep_topk: bool = False
    """With an expert mask the looked-up and used topk is one less than the columns of topk_ids."""
    opus: str = ""
    """Which table of Opus stage 2 kernels holds (facts/dispatch_opus.py); empty: none."""
    opus_guard: bool = False
    """An Opus row needs shuffled weights, and Silu, Swiglu or SiTUv2 for stage 1."""
    ksplit_env_zeroes: bool = False
    """AITER_KSPLIT=-1 zeroes the ksplit of a tuned row."""

    # --- heuristics
    one_stage_map: str = "v0.1.7.post2"
    one_stage_unknown_gfx: str = "KeyError"
    one_stage_blockscale: str = "any-256"
    """any-256, over32-256, never, over32-128: tokens and what inter_dim must be a multiple of."""
    one_stage_fp8_token: str = "over32"
    """over32, over16, gfx950-192 (over16 elsewhere), over16-or-128."""
    blockscale_block_m: str = "64"
    """64, or 16-64 (16 up to 32 tokens)."""
    ksplit: str = ""
    """blockscale-2n: per_1x128 only, N counted twice. mx: per_1x128 and per_1x32."""
    non_temporal: bool = False
    xbf16: bool = False
    flat: bool = False

    # --- paths, in the order they are tried (aiter/branches.py)
    paths: tuple[str, ...] = ("one-stage", "swiglu-cktile", "ck2stages", "asm")
    nan_names: str = "raise"
    """raise: an empty kernel name of a tuned row raises while choosing a path. skip: it is no name."""
    swiglu_block_m: str = "16-32"
    """16-32, 16-32-64, or fp8-32 (32 for an fp8 activation, else 16-32-64)."""
    swiglu_ksplit: str = "row"
    """row: as it is; a16: only for a 16-bit activation, else 0."""
    swiglu_not_fp8: bool = False
    cktile_splitk: str = "plain"
    """plain: ksplit > 1. bf16-swiglu: also every preshuffled bf16 Swiglu fp4 case, with at least 2."""
    shuffled_matters: bool = False
    i4_ksplit: bool = True
    mxfp4_flydsl: str = ""
    """swiglu: fp4 x fp4 Swiglu only. forced: every activation, fp8 x fp4 too, ksplit -1. mxfp8: fp8 weights too.
    situv2-16: also 16-bit SiTUv2. situv2-bf16: bf16 SiTUv2 alone."""
    ck_names: str = "named-or-16bit"
    """named-or-16bit: also taken by any row of the listed weight dtypes. named-or-16bit-fp8: fp8 listed too.
    untuned: the weight dtype counts only without a kernel name."""
    ck_stage1: str = "ck_moe_stage1_fwd"
    ck_flydsl_stage2: bool = False
    cktile_stage2: bool = False
    asm_block_ms: tuple[int, ...] = (32, 64, 128)
    layout_stage2: bool = False
    opus_stage1: str = ""
    """Name of AITER's function for Opus stage 1; empty: none."""

    @property
    def tiers(self) -> Tiers:
        """The padding of the token count, spelled out."""
        return self.tree_tiers or PADDING[self.padding]


_SWIGLU = ("one-stage", "swiglu-cktile", "cktile-splitk", "ck2stages", "asm")
_ROWS = ("one-stage", "flydsl-rows", "swiglu-cktile", "cktile-splitk", "ck2stages", "asm")
_I4_FIRST = ("one-stage", "flydsl-rows", "i4-flydsl", "swiglu-cktile", "cktile-splitk", "ck2stages", "asm")
_GATED = ("one-stage", "flydsl-rows", "swiglu-cktile", "i4-flydsl", "mxfp4-flydsl", "cktile-splitk", "ck2stages", "asm")
_UNSHUFFLED = (*_GATED[:-2], "swiglu-unshuffled", "ck2stages", "asm")

HISTORY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("0.1.7.post2", {}),
    (
        "0.1.7.post3",
        {"dedup_cu_num": True, "one_stage_map": "v0.1.7.post3", "one_stage_fp8_token": "over16"},
    ),
    ("0.1.8", {"padding": "16384", "swiglu_block_m": "16-32-64"}),
    (
        "0.1.9",
        {
            "padding": "16384-small",
            "a_per_1x32": "swiglu",
            "blockscale_bypass": "small",
            "bypass_env": True,
            "one_stage_blockscale": "over32-256",
            "blockscale_block_m": "16-64",
            "ksplit": "blockscale-2n",
            "swiglu_block_m": "fp8-32",
            "ck_names": "named-or-16bit-fp8",
            "ck_stage1": "ck_moe_stage1",
        },
    ),
    (
        "0.1.9.post1",
        {"ksplit": "mx", "paths": _SWIGLU, "ck_names": "untuned", "asm_block_ms": (16, 32, 64, 128)},
    ),
    ("0.1.10", {"non_temporal": True, "blockscale_bypass": "always", "one_stage_blockscale": "never"}),
    ("0.1.10.post1", {"blockscale_bypass": "small", "one_stage_blockscale": "over32-256"}),
    ("0.1.10.post2", {"shuffled_matters": True}),
    (
        "0.1.11",
        {
            "dedup_tag": True,
            "ignore_tag_column": True,
            "tag": "untagged",
            "flydsl_fallback": True,
            "one_stage_map": "v0.1.11",
            "one_stage_fp8_token": "gfx950-192",
            "ck_flydsl_stage2": True,
        },
    ),
    (
        "0.1.12",
        {
            "padding": "32768",
            "merge": "refuse",
            "mismatch_error": "ValueError",
            "first_path_must_exist": False,
            "one_stage_map": "v0.1.12",
            "one_stage_blockscale": "over32-128",
            "one_stage_fp8_token": "over16-or-128",
            "paths": _ROWS,
        },
    ),
    ("0.1.12.post2", {"dedup_gfx": True}),
    (
        "0.1.13rc1",
        {
            "any_suffix": False,
            "bf16_bound": 256,
            "blockscale_bypass": "",
            "one_stage_blockscale": "over32-256",
            "ksplit_env_zeroes": True,
        },
    ),
    (
        "0.1.13rc4",
        {
            "bf16_bound": 512,
            "bf16_bound_env": "AITER_BF16_FP8_BOUND",
            "a16wi4": True,
            "paths": _I4_FIRST,
            "swiglu_ksplit": "a16",
        },
    ),
    (
        "0.1.13rc5",
        {
            "merge": "fill",
            "bf16_bound": 256,
            "bf16_bound_env": "",
            "a16wi4": False,
            "one_stage_blockscale": "over32-128",
            "xbf16": True,
            "paths": _ROWS,
            "swiglu_ksplit": "row",
        },
    ),
    (
        "0.1.13.post1",
        {
            "bf16_bound": 512,
            "bf16_bound_env": "AITER_BF16_FP8_BOUND",
            "a16wi4": True,
            "paths": _I4_FIRST,
            "swiglu_ksplit": "a16",
        },
    ),
    (
        "0.1.14rc0",
        {
            "padding": "tiers",
            "tier": 32768,
            "a_per_1x32": "gate-mode",
            "bf16_bound": 256,
            "bf16_bound_env": "AITER_BF16_FP8_MOE_BOUND",
            "has_gate_mode": True,
            "unique_index": False,
            "act": "ignored",
            "paths": _GATED,
            "swiglu_ksplit": "row",
            "cktile_splitk": "bf16-swiglu",
            "mxfp4_flydsl": "swiglu",
        },
    ),
    ("0.1.15rc0", {"cktile_stage2": True}),
    (
        "0.1.16",
        {"fill_gfx": True, "gfx_in_key": True, "ep_topk": True, "flat": True, "mxfp4_flydsl": "forced"},
    ),
    ("0.1.16.post1", {"mxfp8": True, "swiglu_not_fp8": True, "mxfp4_flydsl": "mxfp8"}),
    (
        "0.1.16.post4",
        {"tag": "not-fallback", "nan_names": "skip", "paths": ("mxfp4-port", *_GATED)},
    ),
    (
        "0.1.17rc0",
        {
            "tag": "untagged",
            "nan_names": "raise",
            "paths": _UNSHUFFLED,
            "opus": "v0.1.17",
            "gfx1250_a": True,
        },
    ),
    (
        "0.1.18",
        {
            "act": "exact-else-any",
            "tag": "not-fallback",
            "flydsl_fallback": False,
            "nan_names": "skip",
            "paths": ("mxfp4-port", *_UNSHUFFLED),
            "opus": "v0.1.18",
        },
    ),
    ("0.1.19", {"situv2": "late", "one_stage_unknown_gfx": "none", "mxfp4_flydsl": "situv2-16"}),
    (
        "0.1.19.post1",
        {
            "act": "ignored",
            "situv2": "first",
            "opus": "v0.1.19.post1",
            "layout_stage2": True,
            "opus_stage1": "_opus_a8w4_stage1_wrapper",
        },
    ),
    (
        "0.1.20",
        {
            "situv2_guard": True,
            "i4_ksplit": False,
            "mxfp4_flydsl": "situv2-bf16",
            "opus": "v0.1.20",
            "opus_guard": True,
        },
    ),
    # main at e4048607 (2026-08-22), the newest source read; no release carries it yet.
    ("0.1.20.post2", {"opus": "main-e4048607", "opus_stage1": "opus_a8w4_stage1_wrapper"}),
    # Read in newer public copies and threads only, never asked (unverified): exact activation first, no CK row among the
    # borrowed ones, a one-stage row for Silu and Gelu alone, FlyDSL taken for granted.
    ("0.1.21", {"act": "exact-else-any-non-ck", "one_stage_acts": True, "flydsl_optional": False}),
)

MAIN = "0.1.20.post2"
"""Stands for AITER's main branch at e4048607: newer than v0.1.20.post1, older than v0.1.21."""
MAIN_DATE = "2026-08-22"

_ASKED = """
0.1.7.post1 0.1.7.post2 0.1.7.post3 0.1.7.post4 0.1.7.post5 0.1.8 0.1.9 0.1.9.post1 0.1.10 0.1.10.post1 0.1.10.post2
0.1.10.post3 0.1.11 0.1.11.post1 0.1.12 0.1.12.post1 0.1.12.post2 0.1.13rc1 0.1.13rc2 0.1.13rc3 0.1.13rc4 0.1.13rc5 0.1.13
0.1.13.post1 0.1.14rc0 0.1.14 0.1.14.post1 0.1.15rc0 0.1.15 0.1.15.post1 0.1.15.post2 0.1.15.post3 0.1.16 0.1.16.post1
0.1.16.post2 0.1.16.post3 0.1.16.post4 0.1.16.post5 0.1.16.post6 0.1.17rc0 0.1.17 0.1.18 0.1.19 0.1.19.post1 0.1.19.post2
0.1.20 0.1.20.post1
"""
VERIFIED = frozenset(map(Version.of, _ASKED.split()))

_BETWEEN = re.compile(r"\.dev\d|-\d+-g[0-9a-f]")
"""A development build, or commits after a release as git describe counts them."""

NEWEST = HISTORY[-1][0]


def rules_for(version: Version) -> Rules:
    """The rules of ``version``: those of the newest entry not newer than it, of the oldest for anything older."""
    if _BETWEEN.search(version.text) and version >= max(VERIFIED):
        # A build from between releases we have not all read is nearest to the main branch we have.
        version = Version.of(MAIN)
    rules = Rules()
    for since, changes in HISTORY:
        if Version.of(since) > version:
            break
        rules = replace(rules, **changes)
    return rules


def as_the_tree_says(
    rules: Rules, *, tiers: Tiers | None = None, columns: tuple[str, ...] | None = None, act: str | None = None
) -> Rules:
    """``rules`` with what was read out of the tree's own dispatch in their place; None: nothing was read."""
    if tiers is not None and tiers != tuple(t for t in rules.tiers if t[0] != 1):
        rules = replace(rules, tree_tiers=tiers)
    if columns is not None:
        rules = replace(rules, gfx_in_key="gfx" in columns)
    if act is not None:
        rules = replace(rules, act=act)
    return rules


def is_verified(version: Version) -> bool:
    """Whether this release's own dispatch code was read and asked. Commits after a release (git describe) are not it."""
    return version in VERIFIED and "-g" not in version.text
