"""A tree heard as a witness: its own facts are used, differences said, and only checked code is verified."""

from __future__ import annotations

from pathlib import Path

from moe_preflight.aiter.facts.dispatch_rules import rules_for
from moe_preflight.aiter.lookup import bucket
from moe_preflight.aiter.sources import COMMON, FUSED_MOE, GEN
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.version import Version
from moe_preflight.aiter.witness import hear
from tests.unit.aiter import sources as src

NEW = Version.of("0.1.20.post1")


def tree(root: Path, **files: str) -> Path:
    (root / "aiter/configs").mkdir(parents=True)
    for name, text in files.items():
        path = root / {"gen": f"csrc/{GEN}", "common": f"csrc/{COMMON}", "fused": FUSED_MOE}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_tables_alone_leave_the_release_as_it_is(tmp_path: Path) -> None:
    w = hear(open_tree(str(tree(tmp_path))), NEW)
    assert (w.rules, w.ck, w.group_counts, w.verified, w.differences) == (rules_for(NEW), None, None, True, ())


def test_an_unread_release_is_not_verified_by_its_tables(tmp_path: Path) -> None:
    assert not hear(open_tree(str(tree(tmp_path))), Version.of("0.1.26")).verified


def test_changed_tiers_are_used_and_said(tmp_path: Path) -> None:
    fused = src.FUSED_MOE.replace("[32768, 131072]", "[16384, 65536]")
    w = hear(open_tree(str(tree(tmp_path, fused=fused))), NEW)
    assert bucket(20_000, w.rules.tiers) == 16384
    assert bucket(70_000, w.rules.tiers) == 65536
    assert not w.verified
    assert w.reason.startswith("the dispatch code in aiter/fused_moe.py")
    assert any(
        s.startswith("token tiers: the tree has below 16384 pow2; below 65536 16384; from there on 65536") for s in w.differences
    )


def test_the_trees_tiles_come_along(tmp_path: Path) -> None:
    w = hear(open_tree(str(tree(tmp_path, gen=src.gen_instances(), common=src.common()))), NEW)
    assert w.ck is not None
    assert w.ck.confidence == "read"
    assert any(s.startswith("tiles: table a16w16 stage 1") for s in w.differences)


def test_what_is_not_understood_is_said_and_not_used(tmp_path: Path) -> None:
    w = hear(open_tree(str(tree(tmp_path, gen="x = 1", common=src.common(), fused="def get_padded_M(M):\n    return M\n"))), NEW)
    assert (w.ck, w.rules, w.verified) == (None, rules_for(NEW), False)
    assert (
        "tiles: not read from the tree, its source is not understood (heuristic_dispatch_dict is not a dictionary)"
        in w.differences
    )
    assert sum("not understood" in s for s in w.differences) == 4
