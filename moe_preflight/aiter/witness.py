"""What a tree's own sources change in the facts of its release: everything the tree can testify to, in one call.

The tree is the best witness. What it says is used in place of the built-in facts, where it differs that is said in words, and
where it cannot be understood the built-in facts stay in force and nothing is called verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.aiter.ck_facts import CkFacts
from moe_preflight.aiter.differences import differences, rules_for
from moe_preflight.aiter.extract import read_facts
from moe_preflight.aiter.facts.dispatch_rules import Rules, as_the_tree_says, is_verified
from moe_preflight.aiter.fingerprint import Fingerprint, fingerprint
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.version import Version


@dataclass(frozen=True)
class Witness:
    """``rules``, ``ck`` and ``group_counts`` to judge by (None: the built-in ones of the release). ``verified`` is whether the
    dispatch behind the answers was compared with AITER's own; ``reason`` says why or why not, plainly. ``differences`` are
    statements of where the tree says otherwise than its release, and of sources that were not understood."""

    rules: Rules
    ck: CkFacts | None
    group_counts: frozenset[int] | None
    verified: bool
    reason: str
    differences: tuple[str, ...]


def hear(tree: Tree, version: Version, code: Fingerprint | None = None) -> Witness:
    """Read what ``tree`` says of itself, taken to be AITER ``version``. A tree without sources leaves the release's facts. ``code`` is
    the tree's fingerprint, where it was taken already."""
    facts = read_facts(tree)
    said = differences(facts, version)
    said += [f"{what}: not read from the tree, its source is not understood ({why})" for what, why in facts.refused]
    code = code or fingerprint(tree)
    if code is None:
        verified, reason = is_verified(version), "the tree has no Python; gone by its version"
    else:
        verified, reason = code.verifies(version), code.reason
        if not verified and code.releases:
            said.append(f"dispatch: {code.reason}, not of v{version}")
    rules = as_the_tree_says(rules_for(version), tiers=facts.tiers, columns=facts.columns, act=facts.act)
    return Witness(rules, facts.ck, facts.group_counts, verified, reason, tuple(said))
