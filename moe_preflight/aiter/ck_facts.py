"""The CK tables that hold for one AITER: built in for a release, or read out of a tree. One shape for both.

What is asked of them is the same, so a judgement does not care where they come from; only the source it prints and the
confidence differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from moe_preflight.aiter.ck import TWINS, CkModule, Instance, TileRule, operation_of
from moe_preflight.aiter.kernel_names import KernelName
from moe_preflight.aiter.key import Confidence
from moe_preflight.aiter.version import Version

OLDEST, NEWEST = Version.of("0.1.7.post2"), Version.of("0.1.20.post2")
"""Releases whose code generator was read: all tags from v0.1.7.post2 to v0.1.20.post1. The newest stands for the main
branch at e4048607 (2026-08-22), whose generator files are byte for byte those of v0.1.20.post1."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class CkFacts:
    """Tables by (tag, stage), where a tag is a family or its gfx950 twin.

    ``sources`` says where each tile table was read (file:line, release). ``confidence`` is modelled, unverified or read.
    """

    rules: Mapping[tuple[str, int], tuple[TileRule, ...]]
    instances: Mapping[tuple[str, int], frozenset[Instance]]
    operations: Mapping[str, str]
    activations: tuple[str, ...]
    sources: Mapping[tuple[str, int], str] = field(default_factory=dict)
    confidence: Confidence = "modelled"

    def tile(self, tag: str, stage: int, block_m: int, inter_dim: int) -> Instance | None:
        """The heuristic instance, or None where AITER raises "Unsupported block_m value ..."."""
        for rule in self.rules[tag, stage]:
            if rule.holds(block_m, inter_dim):
                return Instance.parse(rule.instance) if rule.instance else None
        return None

    def holds_name(self, name: KernelName, stage: int, tag: str, module: CkModule | None) -> bool:
        """Whether the module compiled for ``tag`` has a kernel of this name.

        Without ``module`` only what the table alone says is compared: the tile and the element operation.
        """
        ck = name.ck
        # Nothing is ever generated with Nswizzle1 (gen_instances.py, self.nswizzle = False in every release read).
        if ck is None or ck.swizzled or name.stage != stage or ck.instance not in self.instances[tag, stage]:
            return False
        # Only stage 1 is built for split-k, and then under a name of its own.
        splitk = stage == 1 and (module.splitk if module else ck.operation.endswith("Splitk"))
        if ck.operation != operation_of(self.operations, tag, stage, ck.weighted, splitk):
            return False
        if module is None:
            return True
        return (
            ck.dtypes == module.codes
            and ck.quant == module.quant
            and ck.weighted == (module.weight_stage == stage)
            and (stage == 2 or ck.act == module.act)
        )


def tag_of(family: str, gfx: str, *, multi_arch: bool = False) -> str:
    """The table that serves ``family`` on ``gfx``.

    gfx950 has a table of its own for 16-bit and plain 8-bit operands. ``multi_arch``: a build for several
    architectures at once generates its prebuilt modules for the last one, so gfx942 gets gfx950's table (AITER #5766).
    That is so for 13 prebuilt modules: bf16 (4), fp8 per-tensor and per-token (8), int8 per-tensor (1); see
    CkModule.prebuilt.
    """
    return f"{family}_gfx950" if family in TWINS and (gfx == "gfx950" or multi_arch) else family


def builtin(version: Version | None) -> CkFacts:
    """The built-in tables of ``version``: of the newest release not newer than it, of the oldest for anything older,
    of the newest for None. Confidence is unverified outside of what was read."""
    return _builtin(NEWEST if version is None else version)


@lru_cache(maxsize=8)
def _builtin(version: Version) -> CkFacts:
    from moe_preflight.aiter.facts.ck_instances import INSTANCES, OPERATIONS
    from moe_preflight.aiter.facts.ck_tiles import ACTIVATIONS, TILES

    rules, sources = {}, {}
    for slot, history in TILES.items():
        since, line, rows = _in_force(history, version)
        rules[slot] = _rules(rows)
        sources[slot] = f"csrc/ck_gemm_moe_2stages_codegen/gen_instances.py:{line}, v{since}"
    return CkFacts(
        rules=rules,
        instances={k: _instances(_in_force(v, version)[2]) for k, v in INSTANCES.items()},
        operations=_in_force(OPERATIONS, version)[1],
        activations=_in_force(ACTIVATIONS, version)[1],
        sources=sources,
        confidence="modelled" if OLDEST <= version <= NEWEST else "unverified",
    )


_Entry = TypeVar("_Entry", bound=tuple[str, *tuple[object, ...]])


def _in_force(history: Sequence[_Entry], version: Version) -> _Entry:
    """The last entry not newer than ``version``; the first for anything older."""
    found = history[0]
    for entry in history[1:]:
        if _release(entry[0]) > version:
            break
        found = entry
    return found


# Releases share most tables, and a tree is compared with its release: each table is taken apart once.
_release = lru_cache(maxsize=64)(Version.of)


@lru_cache(maxsize=128)
def _rules(rows: tuple[str, ...]) -> tuple[TileRule, ...]:
    return tuple(map(_rule, rows))


@lru_cache(maxsize=128)
def _instances(names: tuple[str, ...]) -> frozenset[Instance]:
    return frozenset(map(Instance.parse, names))


def _rule(row: str) -> TileRule:
    head, _, instance = row.partition(": ")
    block_m, _, when = head.partition(", ")
    return TileRule(int(block_m), when, "" if instance == "refused" else instance)
