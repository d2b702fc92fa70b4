"""Facts out of source text: understood in any layout, or refused whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from moe_preflight.aiter import extract
from moe_preflight.aiter.ck import Instance, TileRule
from moe_preflight.aiter.ck_facts import builtin
from moe_preflight.aiter.differences import builtin_tiers, differences
from moe_preflight.aiter.extract import TreeFacts, read_facts
from moe_preflight.aiter.extract_ck import heuristic_dispatch, instance_lists
from moe_preflight.aiter.extract_dispatch import NAMES, act_mode, lookup_columns, token_tiers
from moe_preflight.aiter.extract_router import group_counts
from moe_preflight.aiter.lookup import bucket as pad_tokens
from moe_preflight.aiter.sources import COMMON, FUSED_MOE, GEN, KERNEL, MAX_SOURCE, Refused
from moe_preflight.aiter.syntax import parse_only
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.version import Version
from tests.unit.aiter import sources as src

NEW = Version.of("0.1.20.post1")


def reformatted(source: str) -> list[str]:
    """The same Python, written by another hand."""
    return [
        ast.unparse(ast.parse(source)),
        source.replace("    ", "\t"),
        "\n\n".join(source.split("\n")) if '"""' not in source else source + "\n# end\n",
    ]


class TestTiles:
    RULES = (
        TileRule(32, "", "256x32x64x64_1x4_v1"),
        TileRule(64, "inter_dim <= 192", "256x64x64x64_1x4_v1"),
        TileRule(64, "", "256x64x128x64_1x4_v3"),
    )

    def test_a_table(self) -> None:
        found = heuristic_dispatch(src.gen_instances())
        assert found.rules["a16w16", 1] == self.RULES
        # sizeof is 1 for every other family.
        assert found.rules["a8w8", 1][0].instance == "256x32x64x128_1x4_v1"
        assert found.activations == ("silu", "gelu")
        assert src.gen_instances().split("\n")[found.lines["a16w16", 1] - 1].startswith("a16w16_1 =")

    def test_layout_does_not_matter(self) -> None:
        source = src.gen_instances()
        expected = heuristic_dispatch(source).rules
        for other in reformatted(source):
            assert heuristic_dispatch(other).rules == expected
        squeezed = {(t, s): re.sub(r"\s+", " ", src.template(s)) for t in src.TAGS for s in (1, 2)}
        assert heuristic_dispatch(src.gen_instances(squeezed)).rules == expected
        spread = {(t, s): re.sub(r"([;,(])", r"\1 /* c */ // d\n", src.template(s)) for t in src.TAGS for s in (1, 2)}
        assert heuristic_dispatch(src.gen_instances(spread)).rules == expected

    def test_comments_in_the_template(self) -> None:
        body = src.template(1).replace("if (block_m == 32)", "// if (block_m == 16) {{ }}\n/* else { */ if (block_m == 32)")
        assert heuristic_dispatch(src.gen_instances({("a16w16", 1): body})).rules["a16w16", 1] == self.RULES

    def test_braces_may_be_left_out(self) -> None:
        body = f"if (block_m == 16) {{{{ if (inter_dim % 256 == 0) {src.leaf(2, 1, 16, 128, '256')} else {src.leaf(2, 1, 16, 128, '128')} }}}}"
        found = heuristic_dispatch(src.gen_instances({("a8w8", 2): src.template(2, body)})).rules["a8w8", 2]
        assert found == (TileRule(16, "inter_dim % 256 == 0", "256x16x128x256_1x4_v1"), TileRule(16, "", "256x16x128x128_1x4_v1"))

    def test_the_width_may_be_asked_first(self) -> None:
        narrow, wide, wider = (src.leaf(2, v, m, n, "128") for v, m, n in ((1, 32, 32), (3, 32, 128), (3, 64, 128)))
        body = (
            f"if (inter_dim <= 256) {{{{ if (block_m == 32) {{{{ {narrow} }}}} else {{{{ TORCH_CHECK(false, block_m); }}}} }}}}"
        )
        body += f"else {{{{ if (block_m == 32) {{{{ {wide} }}}} else if (block_m == 64) {{{{ {wider} }}}} }}}}"
        source = src.gen_instances({("a4w4", 2): src.template(2, body)})
        facts = builtin(NEW)
        found = heuristic_dispatch(source).rules["a4w4", 2]
        # 64 is refused up to 256, although a later rule would answer: the refusal has to stay in the table.
        assert found == (
            TileRule(32, "inter_dim <= 256", "256x32x32x128_1x4_v1"),
            TileRule(0, "inter_dim <= 256", ""),
            TileRule(32, "", "256x32x128x128_1x4_v3"),
            TileRule(64, "", "256x64x128x128_1x4_v3"),
        )
        tables = type(facts)({("a4w4", 2): found}, {}, {}, ())
        assert tables.tile("a4w4", 2, 64, 256) is None
        assert tables.tile("a4w4", 2, 64, 320) == Instance(256, 64, 128, 128, 1, 4, 3)

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("block_m == 32", "block_m <= 32", "asks \\(block_m <= 32\\)"),
            ("block_m == 32", "block_m == 32 && inter_dim > 1", "asks"),
            ("inter_dim <= 192", "inter_dim <= model_dim", "asks"),
            ("inter_dim <= 192", "inter_dim % 0 == 0", "asks"),
            ("V1, 256", "V1, BLOCK", "tile is 'BLOCK'"),
            ("V1, 256", "256, V1", "pipeline is '256'"),
            ("{B0DataType}, ", "", "known order"),
            ("ck_moe_stage1_gemm", "ck_moe_stage2_gemm", "returns 'ck_moe_stage2_gemm'"),
            ("return ck", "auto k = ck", "unexpected 'auto'"),
            ("TORCH_CHECK(\n    false,", "TORCH_CHECK(\n    true,", "something other than false"),
            ("{Quant} == quant", "sparse == 1", "guarded by \\['sparse'\\]"),
            ("{{\nif (block_m", "#ifdef NEW\n{{\nif (block_m", "directive #ifdef NEW"),
            ("128/sizeof", "129/sizeof", "tile is"),
            (";", ";$", "unexpected character"),
            ("else {{ TORCH", "/* else {{ TORCH", "comment does not end"),
        ],
    )
    def test_what_is_not_understood_is_refused_whole(self, old: str, new: str, reason: str) -> None:
        body = src.template(1)
        assert old in body
        with pytest.raises(Refused, match=reason):
            heuristic_dispatch(src.gen_instances({("a16w16", 1): body.replace(old, new, 1)}))

    @pytest.mark.parametrize(
        ("extra", "reason"),
        [
            ('heuristic_dispatch_dict["a4w4"] = [a4w4_bns_1, a4w4_2]\n', "changed after"),
            ("heuristic_dispatch_dict.update(x)\n", "changed after"),
            ("heuristic_dispatch_dict |= x\n", "changed after"),
            ("heuristic_dispatch_dict = load()\n", "not a dictionary"),
            ('heuristic_dispatch_dict = {"a16w16": [a16w16_1, a16w16_2]}\n', "no dispatch template for"),
            ("heuristic_dispatch_dict = {a: [a16w16_1, a16w16_2]}\n", "not a plain string"),
            ("a4w4_1 = a4w4_2 + ''\n", "does not name a template"),
            ("def f(:\n", "not Python"),
        ],
    )
    def test_a_table_that_is_put_together_elsewhere_is_refused(self, extra: str, reason: str) -> None:
        with pytest.raises(Refused, match=reason):
            heuristic_dispatch(src.gen_instances(extra=extra))

    def test_without_choices_there_are_no_activations(self) -> None:
        with pytest.raises(Refused, match="--activation"):
            heuristic_dispatch(src.gen_instances().replace("--activation", "--act"))


class TestInstances:
    def test_lists_and_operations(self) -> None:
        found = instance_lists(src.common())
        assert found.instances["a8w8", 2] == ("256x32x64x64_1x4_v1", "256x64x64x64_1x4_v1", "256x64x128x64_1x4_v3")
        assert found.operations["a8w8", 1, True, False] == "MulABScale"
        assert found.operations["a8w8_gfx950", 1, True, False] == "TypeCast"
        assert found.operations["a8w8blkscale", 1, False, True] == "BlkSplitk"
        assert found.operations["a16w16", 2, True, False] == "Weighted"
        assert found.operations["a16w16", 2, False, True] == "TypeCast"

    def test_layout_does_not_matter(self) -> None:
        expected = instance_lists(src.common())
        for other in reformatted(src.common()):
            found = instance_lists(other)
            assert (found.instances, found.operations) == (expected.instances, expected.operations)

    def test_keywords_are_as_good_as_places(self) -> None:
        text = "kernelInstanceGEMM1(256, 32, 64, 64, NWaves=4, MWaves=1, GemmPipelineVersion=1)"
        source = src.common().replace("kernelInstanceGEMM1(256, 32, 64, 64, 1, 4, 1,)", text)
        assert instance_lists(source).instances == instance_lists(src.common()).instances

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (("256, 32, 64, 64, 1, 4, 1,", "256, 32, 64, 64, 1, 4,"), "other fields"),
            (("256, 32, 64, 64, 1, 4, 1,", "256, 32, 64, 64, 1, 4, 1, True"), "other fields"),
            (("256, 32, 64, 64, 1, 4, 1,", "256, N, 64, 64, 1, 4, 1,"), "not a number"),
            (("256, 32, 64, 64, 1, 4, 1,", "256, True, 64, 64, 1, 4, 1,"), "not a number"),
            (("     0: kernelInstanceGEMM1(", "     0: make("), "is not a kernelInstanceGEMM1"),
            (("NPerBlock: int\n    KPerBlock: int", "KPerBlock: int\n    NPerBlock: int"), "does not start with its tile"),
            (('"Quant" + str', '"Q" + str'), "kernel names of stage 1"),
            (("if splitk:", "if Adtype:"), "asks something"),
            (('if tag == "a8w8"', 'if tag.startswith("a8w8")'), "asks something"),
            (("kernel.MulRoutedWeight = MulRoutedWeight", "kernel.CDEElementOp = pick()"), "not a choice"),
            (("gemm2_kernels_dict = {", "gemm2_kernels_dict = build() or {"), "not a dictionary"),
        ],
    )
    def test_what_is_not_understood_is_refused_whole(self, change: tuple[str, str], reason: str) -> None:
        source = src.common()
        assert change[0] in source
        with pytest.raises(Refused, match=reason):
            instance_lists(source.replace(*change, 1))

    def test_lists_changed_later_are_refused(self) -> None:
        with pytest.raises(Refused, match="a4w4_1 is changed"):
            instance_lists(src.common(extra="\na4w4_1[7] = a4w4_1[0]\n"))


class TestRouter:
    def test_cases_of_the_switch(self) -> None:
        assert group_counts(src.GROUP_KERNEL) == (frozenset({1, 4, 8}), 3)

    def test_layout_does_not_matter(self) -> None:
        flat = re.sub(r"\\\n\s*", " ", src.GROUP_KERNEL)
        assert group_counts(flat)[0] == {1, 4, 8}
        assert group_counts(src.GROUP_KERNEL.replace("switch(num_expert_group)", "switch ( num_expert_group )"))[0] == {1, 4, 8}

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("", "0 different switches"),
            (src.GROUP_KERNEL + src.GROUP_KERNEL.replace("case 8", "case 16"), "2 different switches"),
            (src.GROUP_KERNEL.replace("case 8", "case NUM"), "case NUM"),
            ("switch(num_expert_group) { case 1: x;", "does not end"),
            ("switch(num_expert_group) { default: x; }", "is empty"),
            ("switch(num_expert_group) {" * 100, "more than"),
            ("/* no end", "comment does not end"),
        ],
    )
    def test_refusals(self, source: str, reason: str) -> None:
        with pytest.raises(Refused, match=reason):
            group_counts(source)


def fused(*changes: tuple[str, str]) -> ast.Module:
    source = src.FUSED_MOE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return parse_only(source, "fused_moe.py", NAMES)


PAD = """if M < _PADDED_M_TIERS[0]:
        return nextPow2(M)
    for tier in reversed(_PADDED_M_TIERS):
        if M >= tier:
            return tier
    return _PADDED_M_TIERS[0]"""


class TestTokenTiers:
    def test_a_list_of_tiers(self) -> None:
        assert token_tiers(fused())[0] == ((32768, "pow2"), (131072, 32768), (None, 131072)) == builtin_tiers(NEW)

    def test_a_chain_of_ifs(self) -> None:
        chain = (
            "padded_m = M\n    if M >= 1 and M <= 16:\n        padded_m = 16\n    elif M < 1024:\n        padded_m = nextPow2(padded_m)\n"
            "    else:\n        padded_m = 1024\n    return padded_m"
        )
        assert token_tiers(fused((PAD, chain)))[0] == ((17, 16), (1024, "pow2"), (None, 1024))

    def test_neighbours_that_say_the_same_are_one(self) -> None:
        chain = "if M <= 16:\n        return nextPow2(M)\n    if M < 1024:\n        return nextPow2(M)\n    return 1024"
        assert token_tiers(fused((PAD, chain)))[0] == ((1024, "pow2"), (None, 1024))

    @pytest.mark.parametrize(
        "chain",
        [
            "return M",
            "if M > 5:\n        return 5\n    return 6",
            "if M < 1024:\n        return nextPow2(M)",
            "if M < 1024:\n        return other(M)\n    return 1024",
            "if M < 1024:\n        return nextPow2(M + 1)\n    return 1024",
            "if M < 1024:\n        M += 1\n    return 1024",
            "if M < 64:\n        return 64\n    elif M < 32:\n        return 32\n    return 1024",
            "while M:\n        pass",
        ],
    )
    def test_anything_else_is_refused(self, chain: str) -> None:
        with pytest.raises(Refused):
            token_tiers(fused((PAD, chain)))

    @pytest.mark.parametrize(
        "change",
        [("[32768, 131072]", "[131072, 32768]"), ("[32768, 131072]", "load()"), ("(n - 1)", "n"), ("M >= tier", "M > tier")],
    )
    def test_tiers_that_are_not_what_they_seem(self, change: tuple[str, str]) -> None:
        with pytest.raises(Refused):
            token_tiers(fused(change))

    @pytest.mark.parametrize(
        ("token", "bucket"), [(1, 1), (3, 4), (32767, 32768), (32768, 32768), (131071, 32768), (131072, 131072), (10**9, 131072)]
    )
    def test_padding(self, token: int, bucket: int) -> None:
        assert pad_tokens(token, builtin_tiers(NEW)) == bucket


TEXT_KEY = ("activation, str(dtype))", "str(activation), str(dtype))")
NO_LENDING = ('        fallback["act_type"] = _ACT_TYPE_DISABLED_KEY\n', "")
SPARE_CK = ('logger.info("loaded")', 'fallback = fallback[~fallback["kernelName1"].str.contains("moe_ck2stages", na=False)]')
REPLACED = ("    if token > 1:", "    lookup_keys = keys[:3] + (str(activation),) + keys[4:]\n    if token > 1:")
DEDICATED = (
    "    if token > 1:",
    "    if config_file is not None:\n        lookup_keys = keys[:3] + (str(activation),) + keys[4:]\n    if token > 1:",
)


class TestLookup:
    def test_columns(self) -> None:
        assert lookup_columns(fused())[0] == ("gfx", "token", "expert", "act_type", "dtype")

    @pytest.mark.parametrize(
        ("changes", "mode"),
        [
            ((), "ignored"),
            ((TEXT_KEY,), "exact-else-any"),
            ((TEXT_KEY, NO_LENDING), "exact"),
            ((REPLACED,), "exact-else-any"),
            ((REPLACED, SPARE_CK), "exact-else-any-non-ck"),
            ((SPARE_CK,), "any-non-ck"),
            ((DEDICATED,), "ignored"),
        ],
    )
    def test_act_type(self, changes: tuple[tuple[str, str], ...], mode: str) -> None:
        module = fused(*changes)
        assert act_mode(module, lookup_columns(module)[0])[0] == mode

    @pytest.mark.parametrize(
        "changes",
        [
            (NO_LENDING,),
            (("keys = (gfx, ", "keys = ("),),
            (("activation, str(dtype))", "act, str(dtype))"),),
            (("keys = (", "keys = make("),),
        ],
    )
    def test_refusals(self, changes: tuple[tuple[str, str], ...]) -> None:
        module = fused(*changes)
        with pytest.raises(Refused):
            act_mode(module, lookup_columns(module)[0])

    def test_two_lists_of_columns_are_one_too_many(self) -> None:
        with pytest.raises(Refused, match="2 lists"):
            lookup_columns(fused(("    keys = (", '    OTHER = ["token", "expert", "act_type"]\n    keys = (')))


class TestParseOnly:
    def test_same_as_parsing_all(self) -> None:
        source = src.FUSED_MOE
        some = parse_only(source, "x", NAMES)
        assert [getattr(n, "name", "") for n in some.body] == ["", "nextPow2", "get_padded_M", "get_2stage_cfgs"]
        whole = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
        for node in some.body[1:]:
            assert isinstance(node, ast.FunctionDef)
            assert node.lineno == whole[node.name].lineno
            assert ast.dump(ast.Module(node.body, [])) == ast.dump(ast.Module(whole[node.name].body, []))

    @pytest.mark.parametrize(
        "source",
        [
            "def f():\n    s = '''\ndef g():\n    inside\n'''\n    return 1\n\ndef g():\n    return 2\n",
            "try:\n    import x\n    def f():\n        return 1\nexcept ImportError:\n    pass\n\ndef g():\n    return 2\n",
            "if True:\n    def f():\n        return 1\nelse:\n    def f():\n        return 3\ndef g(\n): return 2\n",
        ],
    )
    def test_text_that_does_not_fall_apart_at_the_margin(self, source: str) -> None:
        found = [n.name for n in parse_only(source, "x", ("f", "g")).body if isinstance(n, ast.FunctionDef)]
        assert sorted(set(found)) == ["f", "g"]

    def test_a_name_defined_over_and_over_is_refused(self) -> None:
        with pytest.raises(Refused, match="too often"):
            parse_only("f = 1\n" * 50_000, "x", ("f",))

    @pytest.mark.parametrize("source", ["def f(:\n", "def f():\n    return " + "(" * 5000])
    def test_not_python_is_refused(self, source: str) -> None:
        with pytest.raises(Refused):
            parse_only(source, "x", ("f",))


def tree_of(root: Path, **files: str) -> Path:
    (root / "aiter/configs").mkdir(parents=True)
    for name, text in files.items():
        path = root / {"gen": f"csrc/{GEN}", "common": f"csrc/{COMMON}", "kernel": f"csrc/{KERNEL}", "fused": FUSED_MOE}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class TestTreeFacts:
    def test_a_tree_with_sources(self, tmp_path: Path) -> None:
        root = tree_of(tmp_path, gen=src.gen_instances(), common=src.common(), kernel=src.GROUP_KERNEL, fused=src.FUSED_MOE)
        facts = read_facts(open_tree(str(root)))
        assert facts.refused == ()
        assert facts.ck is not None
        assert facts.ck.confidence == "read"
        assert facts.ck.sources["a16w16", 1].startswith(f"csrc/{GEN}:")
        assert (facts.group_counts, facts.act) == ({1, 4, 8}, "ignored")
        assert facts.sources["group counts"] == f"csrc/{KERNEL}:3"
        assert facts.sources["token tiers"].startswith(f"{FUSED_MOE}:")

    def test_a_tree_without_sources_says_nothing(self, tmp_path: Path) -> None:
        assert read_facts(open_tree(str(tree_of(tmp_path)))) == TreeFacts()

    def test_one_refused_fact_leaves_the_others(self, tmp_path: Path) -> None:
        root = tree_of(tmp_path, gen=src.gen_instances(), common="x = 1", kernel=src.GROUP_KERNEL)
        facts = read_facts(open_tree(str(root)))
        assert facts.ck is None
        assert facts.group_counts == {1, 4, 8}
        assert facts.refused == (("tiles", "kernelInstanceGEMM1 is not a class"),)

    @pytest.mark.parametrize("what", ["big", "binary", "folder", "deep"])
    def test_hostile_sources_are_refused_in_words(self, tmp_path: Path, what: str) -> None:
        root = tree_of(tmp_path, gen="", common="", fused="")
        path = root / FUSED_MOE
        if what == "big":
            path.write_text("#" * (MAX_SOURCE + 1))
        elif what == "binary":
            path.write_bytes(b"\xff\xfe")
        elif what == "deep":
            path.write_text(
                "def get_padded_M(M):\n    return " + "-" * 3000 + "1\ndef get_2stage_cfgs():\n    return " + "+".join("1" * 3000)
            )
        else:
            path.unlink()
            path.mkdir()
        facts = read_facts(open_tree(str(root)))
        assert {w for w, _ in facts.refused} == {"tiles", "token tiers", "lookup columns", "act_type"}
        assert not any("\n" in reason for _, reason in facts.refused)

    def test_a_template_nested_without_end_is_refused(self, tmp_path: Path) -> None:
        deep = src.gen_instances({("a16w16", 1): "if (ActOP == act_op) {{" + "{{" * 20_000})
        facts = read_facts(open_tree(str(tree_of(tmp_path, gen=deep, common=src.common()))))
        assert facts.refused == (("tiles", "the source is nested too deeply"),)

    def test_differences_are_plain_statements(self, tmp_path: Path) -> None:
        root = tree_of(
            tmp_path,
            gen=src.gen_instances(activations=("silu", "tanh")),
            common=src.common(),
            kernel=src.GROUP_KERNEL,
            fused=src.FUSED_MOE,
        )
        said = differences(read_facts(open_tree(str(root))), NEW)
        assert f"group counts: the tree has 1, 4, 8 (csrc/{KERNEL}:3), v0.1.20.post1 is known to have 1, 2, 4, 8" in said
        assert "activations: CK kernels for silu, tanh, v0.1.20.post1 has silu, gelu, swiglu" in said
        assert any(s.startswith("tiles: table a16w16 stage 1 differs from v0.1.20.post1's at block_m 128, 256") for s in said)
        assert any(s.startswith("instances: the list a4w4 stage 2 also has 256x32x64x64_1x4_v1") for s in said)
        assert any(
            s.startswith("lookup columns: the tree has gfx, token, expert, act_type, dtype (aiter/fused_moe.py:") for s in said
        )
        assert not [s for s in said if s.startswith(("token tiers", "act_type"))]

    def test_the_trees_own_tiles_are_judged_by(self, tmp_path: Path) -> None:
        from moe_preflight.aiter.tiles import judge_stage

        facts = read_facts(open_tree(str(tree_of(tmp_path, gen=src.gen_instances(), common=src.common()))))
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 128, 4096, 256, tree_facts=facts.ck)
        assert (v.accepted, v.confidence) == (False, "read")
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 64, 4096, 256, tree_facts=facts.ck)
        assert (v.tile_n, v.source.partition(":")[0]) == (128, f"csrc/{GEN}")


def test_known_files_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file recognised by its hash gives the built-in facts of its release, with its own line numbers."""
    root = tree_of(tmp_path, gen=src.gen_instances(), common=src.common(), kernel=src.GROUP_KERNEL)
    known = {name: {extract.file_hash((root / "csrc" / name).read_bytes()): "0.1.9"} for name in (GEN, COMMON, KERNEL)}
    monkeypatch.setattr(extract, "SOURCES", known)
    facts = read_facts(open_tree(str(root)))
    old = builtin(Version.of("0.1.9"))
    assert facts.ck is not None
    assert (facts.ck.rules, facts.ck.instances, facts.ck.confidence) == (old.rules, old.instances, "read")
    assert facts.ck.sources["a8w4", 2] == f"csrc/{GEN}:{heuristic_dispatch(src.gen_instances()).lines['a8w4', 2]}"
    assert facts.group_counts == {1, 2, 4, 8}
    assert differences(facts, Version.of("0.1.9")) == []
