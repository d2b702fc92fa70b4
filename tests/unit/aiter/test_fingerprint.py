"""The fingerprint: deaf to layout and words, awake to every change of what the code does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from moe_preflight.aiter import fingerprint as fp
from moe_preflight.aiter.digest import digest
from moe_preflight.aiter.facts.dispatch_rules import MAIN, VERIFIED
from moe_preflight.aiter.facts.fingerprints import DIGESTS, FILES
from moe_preflight.aiter.fingerprint import ABSENT, PARTS, Fingerprint, fingerprint
from moe_preflight.aiter.sources import CORE, FUSED_MOE, Refused
from moe_preflight.aiter.syntax import canonical
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.version import Version
from tests.unit.aiter import sources as src


def of(source: str) -> str:
    return digest(source, FUSED_MOE)


SAME = {
    "unparsed": ast.unparse(ast.parse(src.FUSED_MOE)),
    "tabs": src.FUSED_MOE.replace("    ", "\t"),
    "comments": src.FUSED_MOE.replace("    keys = (", "    # the key\n    keys = (  # of a row\n        "),
    "docstring": src.FUSED_MOE.replace('"""Chooses."""', '"""Chooses a kernel."""'),
    "no docstring": src.FUSED_MOE.replace('    """Chooses."""\n', ""),
    "log text": src.FUSED_MOE.replace('logger.info("loaded")', 'logger.warning(f"loaded {df}")\n        print("x")'),
    "annotations": src.FUSED_MOE.replace("(token, expert,", "(token: int, expert: int | None,").replace(
        "dtype):", "dtype) -> int:"
    ),
    "cache size": src.FUSED_MOE.replace("maxsize=2048", "maxsize=1"),
    "another function": src.FUSED_MOE + "\n\ndef launch():\n    return 3\n",
    "order": src.FUSED_MOE.replace("_PADDED_M_TIERS = [32768, 131072]\n", "") + "\n_PADDED_M_TIERS = [32768, 131072]\n",
}

OTHER = {
    "a constant": ("[32768, 131072]", "[32768, 65536]"),
    "a comparison": ("if token > 1:", "if token >= 1:"),
    "an argument": ("topk, activation", "activation, topk"),
    "a default": ("activation, dtype)", "activation, dtype=0)"),
    "a string": ('"__ignore__"', '"__any__"'),
    "a type": ("return 2", "return 2.0"),
    "True is not 1": ("return 1\n    return 2", "return True\n    return 2"),
    "a call": ("str(dtype)", "repr(dtype)"),
    "a statement": ("    return 2", "    token += 1\n    return 2"),
    "a column": ('"gfx", "token"', '"cu_num", "token"'),
}


@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    assert SAME[name] != src.FUSED_MOE
    assert of(SAME[name]) == of(src.FUSED_MOE)


@pytest.mark.parametrize("name", OTHER)
def test_other(name: str) -> None:
    old, new = OTHER[name]
    assert old in src.FUSED_MOE
    assert of(src.FUSED_MOE.replace(old, new)) != of(src.FUSED_MOE)


def test_methods_of_the_config_class_count() -> None:
    source = "class AITER_CONFIG:\n    def get_config_file(self):\n        return 1\n    def other(self):\n        return 1\n"
    assert digest(source, CORE) == digest(source.replace("    def other(self):\n        return 1\n", ""), CORE)
    assert digest(source, CORE) != digest(source.replace("return 1", "return 2", 1), CORE)


def test_the_normal_form_does_not_depend_on_this_python() -> None:
    """Fields that only some Python releases have must not show."""
    node = ast.parse("def f(a, *, b=1):\n    x = f'{a}b' 'c'\n    match a:\n        case 1: pass\n    return x").body[0]
    text = canonical(node)
    for field in ("type_params", "kind", "type_comment", "ctx", "lineno", "decorator_list"):
        assert f"{field}=" not in text
    assert isinstance(node, ast.FunctionDef)
    node.type_params = []  # type: ignore[attr-defined,unused-ignore]
    assert canonical(node) == text


def test_deep_trees_are_refused() -> None:
    with pytest.raises(Refused):
        of("def get_padded_M(M):\n    return " + "+".join("1" * 30_000))


def tree(root: Path, source: str) -> Path:
    (root / "aiter/configs").mkdir(parents=True)
    (root / "aiter/fused_moe.py").write_text(source)
    return root


def test_a_changed_tree_is_no_release(tmp_path: Path) -> None:
    found = fingerprint(open_tree(str(tree(tmp_path, src.FUSED_MOE))))
    assert found is not None
    assert found.releases == ()
    assert FUSED_MOE in found.unknown
    assert not found.verifies(Version.of("0.1.20.post1"))
    assert found.reason.startswith("the dispatch code in aiter/fused_moe.py")


def test_a_tree_without_python_has_none(tmp_path: Path) -> None:
    (tmp_path / "aiter/configs").mkdir(parents=True)
    assert fingerprint(open_tree(str(tmp_path))) is None


def test_a_known_tree_is_recognised_reformatted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {name: {ABSENT: ("0.1.20.post1",)} for name in PARTS} | {FUSED_MOE: {of(src.FUSED_MOE): ("0.1.20", "0.1.20.post1")}}
    monkeypatch.setattr("moe_preflight.aiter.facts.fingerprints.DIGESTS", digests)
    found = fingerprint(open_tree(str(tree(tmp_path, SAME["unparsed"]))))
    assert found == Fingerprint(("0.1.20.post1",), (), "the dispatch code is that of v0.1.20.post1")
    assert found.verifies(Version.of("0.1.20.post1"))
    # v0.1.20 dispatches by the same rules; v0.1.13 does not.
    assert found.verifies(Version.of("0.1.20"))
    assert not found.verifies(Version.of("0.1.13"))
    assert not found.verifies(None)


def test_parts_of_different_releases_are_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {name: {ABSENT: ("0.1.13",)} for name in PARTS} | {FUSED_MOE: {of(src.FUSED_MOE): ("0.1.20",)}}
    monkeypatch.setattr("moe_preflight.aiter.facts.fingerprints.DIGESTS", digests)
    found = fingerprint(open_tree(str(tree(tmp_path, src.FUSED_MOE))))
    assert found is not None
    assert (found.releases, found.reason) == ((), "the dispatch code is put together from different releases")


def test_only_checked_releases_have_fingerprints() -> None:
    releases = {Version.of(r) for part in DIGESTS.values() for known in part.values() for r in known}
    assert releases <= VERIFIED | {Version.of(MAIN)}
    assert Version.of("0.1.7.post2") in releases
    assert Version.of("0.1.20.post1") in releases
    for name, files in FILES.items():
        assert set(files.values()) <= set(DIGESTS[name])
    assert fp.file_hash(b"") not in {h for files in FILES.values() for h in files}
