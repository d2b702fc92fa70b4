"""What a run rests on is read once: tables, and the fingerprint of the dispatch code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from moe_preflight.aiter import basis, census
from moe_preflight.aiter.basis import open_basis
from moe_preflight.aiter.foldertree import FolderTree
from moe_preflight.aiter.tree import MAX_FILE, Tree, open_tree
from tests.corpus import corpus, needs_corpus
from tests.unit.coverage.tables import HEADER, row, table, tree


def a_tree(tmp_path: Path) -> Path:
    odd = "inter_dimension,a\n1,2\n3,4\n"
    root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(token="128")), odd=odd, y_untuned_fmoe=table(row()))
    (root / "aiter/fused_moe.py").write_text("def get_padded_M(M):\n    return M\n")
    return root


def test_every_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()
    real = FolderTree.read_bytes

    def counted(self: FolderTree, name: str, limit: int = MAX_FILE) -> bytes:
        read[name] += 1
        return real(self, name, limit)

    monkeypatch.setattr(FolderTree, "read_bytes", counted)
    found = open_basis(str(a_tree(tmp_path)), asked_version="0.1.20.post1", pin=None, tuned=True)
    assert found.table is not None
    assert found.table.count == 2
    twice = {name for name, n in read.items() if n > 1 and name.endswith(".csv")}
    assert twice <= {"aiter/configs/untuned_fmoe.csv"}, "its header, and its rows"


def test_the_code_of_a_tree_without_a_version_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tree] = []
    real = basis.fingerprint

    def counted(t: Tree) -> object:
        asked.append(t)
        return real(t)

    for module in (basis, __import__("moe_preflight.aiter.witness", fromlist=["witness"])):
        monkeypatch.setattr(module, "fingerprint", counted)
    open_basis(str(a_tree(tmp_path)), asked_version=None, pin="0.1.20.post1", tuned=True)
    assert len(asked) == 1


def test_a_census_is_the_same_with_and_without_what_was_read(tmp_path: Path) -> None:
    root = str(a_tree(tmp_path))
    found = open_basis(root, asked_version="0.1.20.post1", pin=None, tuned=True).facts.census
    assert found == census.take(open_tree(root))
    assert found is not None
    assert (found.files, found.rows, found.moe_files, found.moe_rows) == (5, 5, 4, 3)


def test_files_of_the_environment_are_not_the_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path in AITER_CONFIG_FMOE may be called as a table of the tree is."""
    root = str(a_tree(tmp_path / "t"))
    other = tmp_path / "aiter/configs/tuned_fmoe.csv"
    other.parent.mkdir(parents=True)
    other.write_text(HEADER + "\n")
    monkeypatch.chdir(tmp_path)
    env = {"AITER_CONFIG_FMOE": "aiter/configs/tuned_fmoe.csv"}
    found = open_basis(root, asked_version="0.1.20.post1", pin=None, tuned=True, env=env)
    assert found.facts.looked_up == "0 rows in 1 table of AITER_CONFIG_FMOE"
    assert found.facts.census == census.take(open_tree(root))


@needs_corpus
@pytest.mark.parametrize("tag", ["v0.1.13", "v0.1.16.post4", "v0.1.20.post1"])
def test_the_shipped_trees(tag: str) -> None:
    root = str(corpus("aiter-trees", tag))
    found = open_basis(root, asked_version=tag[1:], pin=None, tuned=True)
    assert found.facts.census == census.take(open_tree(root))
