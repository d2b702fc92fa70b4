"""Built-in dispatch facts in the shape a tree's facts have, and plain statements of where a tree says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from moe_preflight.aiter.ck_facts import CkFacts, builtin
from moe_preflight.aiter.facts.dispatch_rules import Rules, Tiers
from moe_preflight.aiter.facts.dispatch_rules import rules_for as _rules_for
from moe_preflight.aiter.facts.routing import GROUP_COUNTS, at
from moe_preflight.aiter.version import Version

if TYPE_CHECKING:
    from moe_preflight.aiter.extract import TreeFacts

# Putting a release's rules together walks the whole history; a tree asks for the same one or two again and again.
rules_for: Callable[[Version], Rules] = lru_cache(maxsize=16)(_rules_for)

_COLUMNS = (
    *("cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type"),
    *("use_g1u1", "doweight_stage1"),
)


def builtin_tiers(version: Version) -> Tiers:
    """Token padding of a release."""
    # A release's own row for zero tokens is left out: get_padded_M is never asked for them.
    return tuple(t for t in rules_for(version).tiers if t[0] != 1)


def builtin_columns(version: Version) -> tuple[str, ...]:
    """Lookup columns of a release."""
    return ("gfx", *_COLUMNS) if rules_for(version).gfx_in_key else _COLUMNS


def builtin_act(version: Version) -> str:
    """How a release matches act_type."""
    return rules_for(version).act


def builtin_group_counts(version: Version) -> frozenset[int]:
    """Group counts a release compiles its routing kernel for; empty when it was not read."""
    span = at(GROUP_COUNTS, version)
    return span.value if span else frozenset()


def differences(facts: TreeFacts, version: Version) -> list[str]:
    """Where the tree's own sources say something else than what is built in for ``version``: plain statements."""
    out: list[str] = []

    def compare(what: str, tree: object, ours: object) -> None:
        if tree is not None and tree != ours:
            where = facts.sources.get(what, "")
            out.append(f"{what}: the tree has {_say(tree)} ({where}), v{version} is known to have {_say(ours)}")

    if facts.ck is not None:
        out += _ck_differences(facts.ck, builtin(version), version)
    compare("group counts", facts.group_counts, builtin_group_counts(version))
    compare("token tiers", facts.tiers, builtin_tiers(version))
    compare("lookup columns", facts.columns, builtin_columns(version))
    compare("act_type", facts.act, builtin_act(version))
    return out


def _ck_differences(tree: CkFacts, ours: CkFacts, version: Version) -> list[str]:
    out: list[str] = []
    for (tag, stage), rules in tree.rules.items():
        known = ours.rules.get((tag, stage), ())
        if rules != known:
            changed = sorted(
                {
                    r.block_m
                    for r in (*rules, *known)
                    if [x for x in rules if x.block_m == r.block_m] != [x for x in known if x.block_m == r.block_m]
                }
            )
            where = tree.sources.get((tag, stage), "")
            blocks = ", ".join(map(str, changed)) if changed else "order"
            out.append(f"tiles: table {tag} stage {stage} differs from v{version}'s at block_m {blocks} ({where})")
    for (tag, stage), listed in tree.instances.items():
        ours_here = ours.instances.get((tag, stage), frozenset())
        for word, some in (("also has", listed - ours_here), ("lacks", ours_here - listed)):
            if some:
                names = ", ".join(sorted(map(str, some)))
                out.append(f"instances: the list {tag} stage {stage} {word} {names}, unlike v{version}'s")
    if tree.operations != ours.operations:
        keys = sorted(k for k in {*tree.operations, *ours.operations} if tree.operations.get(k) != ours.operations.get(k))
        out.append(f"instances: kernel names of {', '.join(keys)} are spelled otherwise than in v{version}")
    if tree.activations != ours.activations:
        out.append(f"activations: CK kernels for {_say(tree.activations)}, v{version} has {_say(ours.activations)}")
    return out


def _say(value: object) -> str:
    if isinstance(value, frozenset | set):
        return ", ".join(map(str, sorted(value)))
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return "; ".join(f"{'from there on' if below is None else f'below {below}'} {what}" for below, what in value)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value)
