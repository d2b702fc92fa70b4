"""Is this tree's dispatch code one we have checked? A fingerprint of the functions that decide, not of the file.

The fingerprint is a hash over the normal form (syntax.canonical) of the functions that choose a path or merge tables:
layout, comments, docstrings, annotations and log texts do not change it, any change of what they do does. A file that is
byte for byte one of a known release is recognised by its own hash, without parsing.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from moe_preflight.aiter.sources import CHIP, CORE, FUSED_MOE, MAX_SOURCE, Refused
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.version import Version
from moe_preflight.errors import FileUnreadable

WHOLE = ("*",)
OPUS_ROWS = (
    "_DEFAULT_SORT_BLOCK_M",
    "_value_is_empty",
    "_cfg_first",
    "_cfg_int",
    "_cfg_optional_int",
    "_cfg_bool",
    "_cfg_str",
    "is_opus_a8w4_stage2_kernel",
    "stage2_cfg_values",
    "stage2_launch_config",
    "parse_stage2_config",
    "cfg_is_supported",
)

PARTS: dict[str, tuple[str, ...]] = {
    # The way of a key through fused_moe: padding, activation dtype, lookup, heuristics, path.
    FUSED_MOE: (
        "BLOCK_SIZE_M",
        "_ACT_TYPE_DISABLED_KEY",
        "_PADDED_M_TIERS",
        "_SWIGLU_MXFP4_BF16_BOUND",
        "quant_remap",
        "fused_moe_1stage_dict",
        "nextPow2",
        "get_padded_M",
        "get_inter_dim",
        "get_block_size_M",
        "get_ksplit",
        "use_nt",
        "_needs_swiglu_bias_support",
        "get_2stage_cfgs",
        "fused_moe",
        "fused_moe_",
        "_fused_moe_impl",
    ),
    # How tuned tables are found and merged.
    CORE: ("update_config_files", "get_config_file", "AITER_CONFIG_FMOE_FILE"),
    # Which GPU a row without a gfx column is for.
    CHIP: ("gfx_from_cu_num", "_LEGACY_CU_NUM_TO_GFX"),
    # Which FlyDSL kernels exist: the heuristics fall back when a name is not among them.
    "aiter/ops/flydsl/moe_kernels.py": (
        "_SUFFIX_RE",
        "flydsl_kernel_name",
        "pick_flydsl_stage2_tile_k",
        "get_flydsl_kernel_params",
        "get_flydsl_stage1_kernels",
        "get_flydsl_stage2_kernels",
        "get_flydsl_stage1_kernels_int4_bf16",
        "get_flydsl_stage2_kernels_int4_bf16",
        "_register_production_variants_stage2",
        "_register_all_configs",
    ),
    "aiter/ops/flydsl/mxfp4_kname.py": WHOLE,
    # Which Opus rows are taken.
    "aiter/ops/opus/moe_stage2_a8w4_meta.py": WHOLE,
    "aiter/ops/opus/moe_stage2_a8w4_fused_adapter.py": OPUS_ROWS,
    "aiter/ops/opus/moe_stage2_a8w4.py": OPUS_ROWS,
}
"""Names looked at, by file. A file or name a release does not have is part of its fingerprint as an absence."""

ABSENT = "absent"
"""Stands for the fingerprint of a file that is not there."""

HOLDERS = ("AITER_CONFIG",)
"""Classes that may hold the names of CORE as methods."""


def file_hash(data: bytes) -> str:
    """What a whole file is recognised by."""
    return sha256(data).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a tree's dispatch code is.

    ``releases`` are the checked releases whose code it is in every part, oldest first; empty when there is none.
    ``unknown`` names the parts that are no release's. ``reason`` is a plain statement.
    """

    releases: tuple[str, ...]
    unknown: tuple[str, ...]
    reason: str

    def verifies(self, version: Version | None) -> bool:
        """Whether answers for ``version`` describe this code: the code is checked and dispatches as that release does."""
        from moe_preflight.aiter.differences import rules_for

        if version is None:
            return False
        releases = [Version.of(r) for r in self.releases]
        return version in releases or any(rules_for(r) == rules_for(version) for r in releases)


def fingerprint(tree: Tree) -> Fingerprint | None:
    """The tree's fingerprint; None when it has no Python, so that only its version can be gone by."""
    from moe_preflight.aiter.facts.fingerprints import DIGESTS, FILES

    if not tree.has_python:
        return None
    releases: set[str] | None = None
    unknown: list[str] = []
    for name in PARTS:
        known = DIGESTS[name].get(_part(tree, name, FILES[name]))
        if known is None:
            unknown.append(name)
        else:
            releases = set(known) if releases is None else releases & set(known)
    agreed = () if unknown else tuple(sorted(releases or (), key=Version.of))
    return Fingerprint(agreed, tuple(unknown), _reason(agreed, unknown))


def _part(tree: Tree, name: str, files: dict[str, str]) -> str:
    """One part's fingerprint, or a word that is none."""
    if not tree.exists(name):
        return ABSENT
    try:
        data = tree.read_bytes(name, MAX_SOURCE)
        if found := files.get(file_hash(data)):
            return found
        from moe_preflight.aiter.digest import digest

        return digest(data.decode("utf-8"), name)
    except (FileUnreadable, UnicodeDecodeError, Refused):
        return "not understood"


def _reason(agreed: tuple[str, ...], unknown: list[str]) -> str:
    if unknown:
        return f"the dispatch code in {', '.join(unknown)} is not that of any release checked"
    if not agreed:
        return "the dispatch code is put together from different releases"
    return f"the dispatch code is that of v{agreed[-1]}"
