"""The installed amd-aiter, read: its own sources say what is built in for its release."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from moe_preflight.aiter import extract
from moe_preflight.aiter import fingerprint as fp
from moe_preflight.aiter.ck import CkModule
from moe_preflight.aiter.ck_facts import builtin
from moe_preflight.aiter.differences import differences
from moe_preflight.aiter.extract import read_facts
from moe_preflight.aiter.fingerprint import PARTS, fingerprint
from moe_preflight.aiter.sources import COMMON, FUSED_MOE, GEN, KERNEL
from moe_preflight.aiter.tiles import judge_stage
from moe_preflight.aiter.tree import Tree, open_tree
from moe_preflight.aiter.version import Version
from moe_preflight.errors import TreeUnavailable
from tests.corpus import corpus, needs_corpus

WHEEL = Version.of("0.1.7.post2")


@pytest.fixture(scope="module")
def tree() -> Tree:
    try:
        found = open_tree()
    except TreeUnavailable:
        pytest.skip("amd-aiter is not installed (extra: aiter)")
    if found.version != WHEEL or not found.has_sources:
        pytest.skip(f"the installed amd-aiter is {found.version}, this test knows {WHEEL}")
    return found


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is recognised by its hash: everything is parsed."""
    monkeypatch.setattr(extract, "FILES", {name: {} for name in extract.FILES})
    monkeypatch.setattr(extract, "SOURCES", {name: {} for name in extract.SOURCES})
    monkeypatch.setattr("moe_preflight.aiter.facts.fingerprints.FILES", {name: {} for name in PARTS})


@pytest.mark.aiter
def test_sources_say_what_is_built_in(tree: Tree, forgetful: None) -> None:
    facts = read_facts(tree)
    assert facts.refused == ()
    assert differences(facts, WHEEL) == []
    assert facts.ck is not None
    assert facts.ck.rules == builtin(WHEEL).rules
    assert facts.ck.instances == builtin(WHEEL).instances
    assert (facts.group_counts, facts.act) == ({1, 2, 4, 8}, "exact")
    assert differences(facts, Version.of("0.1.20.post1")) != []


@pytest.mark.aiter
def test_recognising_a_file_says_the_same_as_parsing_it(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    known = read_facts(tree)
    monkeypatch.setattr(extract, "FILES", {name: {} for name in extract.FILES})
    monkeypatch.setattr(extract, "SOURCES", {name: {} for name in extract.SOURCES})
    assert read_facts(tree) == known


@pytest.mark.aiter
def test_its_dispatch_code_is_verified(tree: Tree) -> None:
    found = fingerprint(tree)
    assert found is not None
    assert found.releases == ("0.1.7.post2",)
    assert found.verifies(tree.version)


@pytest.mark.aiter
def test_parsing_gives_the_same_fingerprint(tree: Tree, forgetful: None) -> None:
    found = fingerprint(tree)
    assert found is not None
    assert found.releases == ("0.1.7.post2",)


@pytest.mark.aiter
def test_a_reformatted_copy_is_still_understood_and_verified(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "aiter/configs").mkdir(parents=True)
    sources = {name: tree.read_text(name) for name in PARTS if tree.exists(name)}
    sources |= {f"csrc/{name}": tree.read_text(f"{tree.csrc_prefix}/{name}") for name in (GEN, COMMON, KERNEL)}
    for name, text in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ast.unparse(ast.parse(text)) if name.endswith(".py") else text.replace("    ", "\t"))
    copy = open_tree(str(tmp_path), version=str(WHEEL))
    facts = read_facts(copy)
    assert facts.refused == ()
    assert differences(facts, WHEEL) == []
    found = fingerprint(copy)
    assert found is not None
    assert found.verifies(copy.version)
    # One comparison turned round, and it is verified no more.
    fused = tmp_path / FUSED_MOE
    fused.write_text(fused.read_text().replace("M < 1024", "M <= 1024"))
    changed = fingerprint(copy)
    assert changed is not None
    assert changed.unknown == (FUSED_MOE,)
    assert any(s.startswith("token tiers: the tree has") for s in differences(read_facts(copy), WHEEL))
    assert fp.file_hash(b"x") != fp.file_hash(b"y")


DTYPES = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float8_e4m3fnuz": "fp8",
    "torch.float8_e4m3fn": "fp8",
    "torch.int8": "i8",
    "torch.float4_e2m1fn_x2": "fp4x2",
}


@needs_corpus
@pytest.mark.parametrize("tag", ["v0.1.13", "v0.1.16.post4", "v0.1.20.post1"])
def test_every_tuned_ck_kernel_is_compiled_and_accepts_its_own_shape(tag: str) -> None:
    """AITER's own tables name only kernels its generator lists, with tiles that fit the row's shape."""
    import csv

    tree = open_tree(str(corpus("aiter-trees", tag)), version=tag)
    asked = 0
    for name in tree.names("aiter/configs", ".csv"):
        if "tuned_fmoe" not in name or "untuned" in name:
            continue
        for row in csv.DictReader(tree.read_text(name).splitlines()):
            gfx = row.get("gfx") or ("gfx950" if row["cu_num"] == "256" else "gfx942")
            for stage in (1, 2):
                kernel = (row.get(f"kernelName{stage}") or "").strip()
                if not kernel.startswith("moe_ck2stages"):
                    continue
                module = CkModule(
                    DTYPES[row["q_dtype_a"]],
                    DTYPES[row["q_dtype_w"]],
                    DTYPES[row["dtype"]],
                    row["act_type"].rpartition(".")[2].lower(),
                    row["q_type"].rpartition(".")[2],
                    doweight_stage1=row["doweight_stage1"] in ("1", "True"),
                    splitk="Splitk" in kernel,
                )
                sizes = int(row["block_m"]), int(row["model_dim"]), int(row["inter_dim"])
                verdict = judge_stage(tree.version, gfx, module.family, stage, *sizes, kernel, module=module)
                assert verdict.from_name, (name, row, verdict)
                assert verdict.accepted, (name, row, verdict)
                asked += 1
    assert asked > 1800
