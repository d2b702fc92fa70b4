"""One small file of each kind; and one good file nothing is said about."""

from __future__ import annotations

from pathlib import Path

import pytest

from moe_preflight.aiter.basis import open_basis
from moe_preflight.aiter.version import Version
from moe_preflight.coverage.lint.rows import tolerance
from moe_preflight.coverage.lint.rules import RULES
from moe_preflight.coverage.lint.run import Linted, lint_files, lint_tree
from moe_preflight.errors import FileUnreadable
from moe_preflight.report.types import Finding
from tests.unit.coverage.tables import ASM, GEMM1, GEMM2, HEADER, row, table, tree

ONE_STAGE = "_ZN5aiter45fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256E"

V20 = Version.of("0.1.20.post1")
NAME = "good_tuned_fmoe.csv"


def one(*rows: str, version: str = "0.1.20.post1", header: str = HEADER, name: str = NAME) -> Linted:
    return lint_files({name: table(*rows, header=header).encode()}, Version.of(version))


def named(found: Linted, name: str) -> list[Finding]:
    return [f for f in found.findings if f.name == name]


def quiet(found: Linted) -> list[str]:
    return [f.name for f in found.findings if f.severity != "info"]


def only(found: Linted, name: str) -> Finding:
    """The finding called ``name``, and nothing louder than info beside it."""
    assert quiet(found) == [name]
    return named(found, name)[0]


@pytest.mark.parametrize("version", ["0.1.7.post2", "0.1.12", "0.1.13", "0.1.16.post4", "0.1.18", "0.1.20.post1"])
def test_nothing_is_said_of_a_good_table(version: str) -> None:
    assert quiet(one(row(), row(token="128"), version=version)) == []


def test_names_are_the_fourteen_of_the_issue() -> None:
    assert {r.name for r in RULES} == {
        "duplicate-key", "conflicting-key", "unreachable-token", "activation-shadowed", "gfx-mismatch", "unknown-cu", "bad-time",
        "shape-rejected", "block-m-mismatch", "unknown-kernel", "column-layout", "ragged-row", "error-above-tolerance",
        "not-loaded-by-name",
    }  # fmt: skip
    assert len({r.code for r in RULES}) == len(RULES) == 14


class TestKeys:
    def test_the_same_row_twice_is_a_duplicate_and_points_at_the_second(self) -> None:
        f = only(one(row(), row(token="128"), row()), "duplicate-key")
        assert [(e.file, e.line) for e in f.evidence] == [(NAME, 4), (NAME, 2)]
        assert f.severity == "error"
        assert "rewrites the CSV files in place" in f.message

    def test_other_kernels_for_one_key_conflict(self) -> None:
        f = only(
            one(row(), row(kernelName1=GEMM1.replace("32x64x64_1x4", "64x64x64_1x4"), block_m="64", kernelName2="")),
            "conflicting-key",
        )
        assert f.evidence[0].line == 3

    def test_another_block_m_conflicts(self) -> None:
        assert named(
            one(row(kernelName1="", kernelName2=""), row(kernelName1="", kernelName2="", block_m="64")), "conflicting-key"
        )

    @pytest.mark.parametrize("changed", [{"act_type": "ActivationType.Gelu"}, {"_tag": "flydsl_fallback"}, {"cu_num": "80"}])
    def test_activation_tag_and_cu_num_are_part_of_the_key(self, changed: dict[str, str]) -> None:
        found = one(row(kernelName1="", kernelName2=""), row(kernelName1="", kernelName2="", **changed), version="0.1.13")
        assert quiet(found) == []

    def test_across_files_of_a_tree(self, tmp_path: Path) -> None:
        found = lint(tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(us="3.0"))))
        f = only(found, "duplicate-key")
        assert [e.file for e in f.evidence] == ["aiter/configs/model_configs/x_tuned_fmoe.csv", "aiter/configs/tuned_fmoe.csv"]

    @pytest.mark.parametrize(
        ("version", "severity", "words"),
        [
            ("0.1.7.post3", "warning", "silently keeps the row with the lowest us"),
            ("0.1.11", "warning", "silently keeps the row with the lowest us"),
            ("0.1.12", "error", "rewrites the CSV files in place"),
            ("0.1.20.post1", "error", "rewrites the CSV files in place"),
        ],
    )
    def test_what_aiter_does_by_version(self, tmp_path: Path, version: str, severity: str, words: str) -> None:
        f = only(lint(tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row())), version), "duplicate-key")
        assert f.severity == severity
        assert words in f.message

    def test_one_file_alone_is_not_merged(self, tmp_path: Path) -> None:
        """No model_configs table: no merge, so pandas' unique index or the first row decides."""
        root = tree(tmp_path, default=table(row(), row()))
        assert "must be unique" in only(lint(root, "0.1.13"), "duplicate-key").message
        f = only(lint(root, "0.1.20.post1"), "duplicate-key")
        assert (f.severity, "keeps the first row" in f.message) == ("warning", True)

    def test_the_oldest_merge_does_not_look_at_cu_num(self, tmp_path: Path) -> None:
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(cu_num="80")))
        f = only(lint(root, "0.1.7.post2"), "duplicate-key")
        assert "does not look at cu_num" in f.message
        assert quiet(lint(root, "0.1.7.post3")) == []


class TestShadowed:
    ROWS = (row(act_type="ActivationType.Gelu", kernelName1=GEMM1.replace("silu", "gelu")), row())

    def test_the_second_activation_is_never_taken(self) -> None:
        f = only(one(*self.ROWS), "activation-shadowed")
        assert [e.line for e in f.evidence] == [3, 2]
        assert "ActivationType.Silu's row" in f.message

    @pytest.mark.parametrize("version", ["0.1.13", "0.1.18", "0.1.19"])
    def test_releases_that_match_the_activation(self, version: str) -> None:
        assert quiet(one(*self.ROWS, version=version)) == []

    def test_nothing_is_lost_when_both_name_the_same_kernels(self) -> None:
        same = {"kernelName1": "", "kernelName2": ""}
        assert quiet(one(row(**same), row(act_type="ActivationType.Gelu", **same))) == []

    def test_between_model_files_the_directory_order_decides(self, tmp_path: Path) -> None:
        found = lint(tree(tmp_path, a_tuned_fmoe=table(self.ROWS[0]), b_tuned_fmoe=table(self.ROWS[1])))
        fs = named(found, "activation-shadowed")
        assert [f.evidence[0].file[-16:] for f in fs] == ["a_tuned_fmoe.csv", "b_tuned_fmoe.csv"]
        assert all("when the directory lists that file first" in f.message for f in fs)

    def test_the_default_file_is_always_first(self, tmp_path: Path) -> None:
        found = lint(tree(tmp_path, default=table(self.ROWS[0]), b_tuned_fmoe=table(self.ROWS[1])))
        f = only(found, "activation-shadowed")
        assert f.evidence[0].file.endswith("b_tuned_fmoe.csv")
        assert "when the directory" not in f.message


class TestRows:
    @pytest.mark.parametrize(
        ("version", "token", "ok"),
        [
            ("0.1.20.post1", "56", False), ("0.1.20.post1", "64", True), ("0.1.20.post1", "32768", True), ("0.1.20.post1", "65536", False),
            ("0.1.20.post1", "131072", True), ("0.1.13", "131072", False), ("0.1.7.post2", "8", False), ("0.1.7.post2", "16", True),
            ("0.1.7.post2", "2048", False), ("0.1.9", "4096", False), ("0.1.20.post1", "0", False), ("0.1.20.post1", "many", False),
        ],
    )  # fmt: skip
    def test_unreachable_token(self, version: str, token: str, ok: bool) -> None:
        found = one(row(token=token), version=version)
        assert quiet(found) == ([] if ok else ["unreachable-token"])

    def test_where_the_batch_goes_instead(self) -> None:
        assert "looked up as 64" in only(one(row(token="56")), "unreachable-token").message
        assert "looked up as 32,768" in only(one(row(token="65536")), "unreachable-token").message

    GFX_HEADER = "gfx," + HEADER

    @pytest.mark.parametrize(
        ("cells", "ok"),
        [
            ({"gfx": "gfx950"}, False), ({"gfx": "gfx942"}, True), ({"gfx": "0"}, True), ({"gfx": ""}, True),
            ({"gfx": "gfx950", "cu_num": "256"}, True), ({"gfx": "gfx1250", "cu_num": "256"}, True), ({"gfx": "gfx942", "cu_num": "256"}, False),
        ],
    )  # fmt: skip
    def test_gfx_mismatch(self, cells: dict[str, str], ok: bool) -> None:
        found = one(row(self.GFX_HEADER, **cells), header=self.GFX_HEADER)
        assert ("gfx-mismatch" not in quiet(found)) == ok

    def test_the_other_architectures_fp8_is_a_mismatch(self) -> None:
        fp8 = {"kernelName1": "", "kernelName2": "", "q_type": "QuantType.per_Token"}
        wrong = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fn")
        right = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")
        assert "gfx942 asks for torch.float8_e4m3fnuz" in only(one(row(**fp8, **wrong)), "gfx-mismatch").message
        assert quiet(one(row(**fp8, **right), row(**fp8, **wrong, cu_num="256"))) == []

    @pytest.mark.parametrize(
        ("cu", "severity"), [("300", "warning"), ("", "error"), ("all", "error"), ("228", None), ("304.0", None)]
    )
    def test_unknown_cu(self, cu: str, severity: str | None) -> None:
        fs = named(one(row(cu_num=cu)), "unknown-cu")
        assert [f.severity for f in fs] == ([severity] if severity else [])

    @pytest.mark.parametrize(
        ("us", "words"),
        [
            ("0.0", "is zero"),
            ("0", "is zero"),
            ("", "is missing"),
            ("inf", "not finite"),
            ("-1.5", "below zero"),
            ("fast", "not a number"),
        ],
    )
    def test_bad_time(self, us: str, words: str) -> None:
        assert words in only(one(row(us=us)), "bad-time").message

    @pytest.mark.parametrize(
        ("version", "err", "ok"),
        [("0.1.20.post1", "10.0%", True), ("0.1.20.post1", "10.1%", False), ("0.1.18", "49.9%", True), ("0.1.18", "50.1%", False),
         ("0.1.20.post1", "0.0284", True), ("0.1.20.post1", "0.2", False), ("0.1.20.post1", "", True)],
    )  # fmt: skip
    @pytest.mark.parametrize("column", ["err1", "err2"])
    def test_error_above_tolerance(self, version: str, err: str, ok: bool, column: str) -> None:
        found = one(row(**{column: err}), version=version)
        assert quiet(found) == ([] if ok else ["error-above-tolerance"])

    def test_tolerance_changed_with_0_1_19(self) -> None:
        assert [tolerance(Version.of(v)) for v in ("0.1.7.post2", "0.1.18", "0.1.19", "0.1.26")] == [0.5, 0.5, 0.1, 0.1]


class TestKernels:
    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            ({"inter_dim": "224"}, "224 is not a multiple of tile N 64"),
            ({"model_dim": "4128"}, "4128 is not a multiple of tile K 64"),
        ],
    )
    def test_shape_rejected(self, cells: dict[str, str], words: str) -> None:
        fs = named(one(row(**cells)), "shape-rejected")
        assert fs
        assert words in fs[0].message
        assert fs[0].severity == "error"

    def test_an_assembly_tile_must_divide_inter_dim(self) -> None:
        fp8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")
        cells = {"kernelName1": ASM, "kernelName2": "", "q_type": "QuantType.per_Token", **fp8}
        assert "not a multiple of its tile N 128" in only(one(row(**cells)), "shape-rejected").message
        assert quiet(one(row(**cells, inter_dim="256"))) == []

    @pytest.mark.parametrize("block_m", ["16", "64", ""])
    def test_block_m_mismatch(self, block_m: str) -> None:
        fs = named(one(row(block_m=block_m)), "block-m-mismatch")
        assert fs
        assert "blocks of 32 rows" in fs[0].message

    def test_a_sort_block_in_the_name_is_what_block_m_must_be(self) -> None:
        name = "flydsl_moe2_afp4_wfp4_bf16_t16x256x256_atomic_sbm32"
        assert named(one(row(kernelName2=name, block_m="32")), "block-m-mismatch") == []
        assert named(one(row(kernelName2=name, block_m="64")), "block-m-mismatch")

    @pytest.mark.parametrize(
        ("cells", "severity"),
        [
            ({"kernelName1": GEMM1.replace("32x64x64", "32x96x64")}, "warning"),
            ({"kernelName1": GEMM1.replace("silu", "gelu")}, "warning"),
            ({"kernelName1": GEMM2}, "error"),
            ({"kernelName1": "my_kernel"}, "error"),
            ({"kernelName2": "opus_moe2_afp8_wfp4_fp8_t1x2x3"}, "error"),
            ({"run_1stage": "1"}, "error"),
        ],
    )
    def test_unknown_kernel(self, cells: dict[str, str], severity: str) -> None:
        fs = named(one(row(**cells)), "unknown-kernel")
        assert [f.severity for f in fs] == [severity]

    def test_assembly_names_are_looked_up_in_the_trees_lists(self, tmp_path: Path) -> None:
        fp8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")
        stage2 = "moe_ck2stages_gemm2_256x32x64x128_1x4_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"
        cells = {"kernelName1": ASM, "kernelName2": stage2, "q_type": "QuantType.per_Token", "inter_dim": "256", **fp8}
        listed = tree(
            tmp_path / "a", x_tuned_fmoe=table(row(**cells)), hsa_gfx942=f"tile_m,tile_n,knl_name,co_name\n32,128,{ASM},x.co\n"
        )
        other = tree(
            tmp_path / "b",
            x_tuned_fmoe=table(row(**cells)),
            hsa_gfx942="tile_m,tile_n,knl_name,co_name\n32,128,_ZN5aiter1xE,x.co\n",
        )
        unlisted = tree(tmp_path / "c", x_tuned_fmoe=table(row(**cells)))
        assert quiet(lint(listed)) == []
        assert "is in no assembly list of gfx942" in only(lint(other), "unknown-kernel").message
        assert quiet(lint(unlisted)) == [], "without lists nothing can be said"

    def test_a_row_without_a_name_makes_aiter_raise(self, tmp_path: Path) -> None:
        f = only(lint(tree(tmp_path, x_tuned_fmoe=table(row(kernelName1="")))), "unknown-kernel")
        assert "AITER raises \"TypeError: argument of type 'float' is not iterable\"" in f.message

    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            ({"kernelName1": GEMM1.replace("Nswizzle0", "Nswizzle1")}, "not in CK's instance list"),
            ({"kernelName2": GEMM2.replace("Nswizzle0", "Nswizzle1")}, "not in CK's instance list"),
            ({"kernelName2": "Null"}, "the word Null in a two-stage row"),
            ({"kernelName2": ONE_STAGE}, "which no second stage runs"),
            ({"run_1stage": ""}, "run_1stage (empty, which pandas reads as NaN, and NaN is true) runs one stage"),
            ({"run_1stage": "1", "kernelName1": "", "kernelName2": ONE_STAGE}, "lets its assembly choose"),
        ],
    )
    def test_names_no_registry_has(self, cells: dict[str, str], words: str) -> None:
        assert words in only(one(row(**cells)), "unknown-kernel").message

    def test_a_one_stage_row_needs_no_second_name(self) -> None:
        fp8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")
        for second in ("Null", ""):
            cells = {"kernelName1": ONE_STAGE, "kernelName2": second, "run_1stage": "1", "q_type": "QuantType.per_Token", **fp8}
            assert quiet(one(row(**cells))) == []

    @pytest.mark.parametrize(
        ("list_", "cells", "said"),
        [
            ("fmoe_stage1_bf16_pertokenFp8_g1u1", {}, ""),
            ("fmoe_stage1_bf16_pertokenFp8_g1u1", {"q_type": "QuantType.per_Tensor"}, ""),
            ("fmoe_stage1_bf16_pertokenFp8_g1u1", {"doweight_stage1": "1"}, "pertokenFp8_doweight_g1u1.csv and aborts"),
            ("fmoe_stage1_bf16_pertokenFp8_g1u1", {"q_type": "QuantType.per_1x128"}, "blockscale_g1u1.csv and aborts"),
            ("fmoe_stage1_bf16_pertokenInt8_g1u1", {}, "pertokenFp8_g1u1.csv and aborts"),
            ("fmoe_stage1_bf16_pertokenFp8_g1u1", {"q_type": "QuantType.No"}, "no assembly stage 1 for them"),
            ("a_list_of_tomorrow", {"q_type": "QuantType.No"}, ""),
        ],
    )
    def test_assembly_is_looked_up_by_the_rows_operands(
        self, tmp_path: Path, list_: str, cells: dict[str, str], said: str
    ) -> None:
        fp8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")
        cells = {"kernelName1": ASM, "q_type": "QuantType.per_Token", "inter_dim": "256", **fp8, **cells}
        root = tree(tmp_path, x_tuned_fmoe=table(row(**cells)))
        place = root / "hsa" / "gfx942" / "fmoe_2stages" / f"{list_}.csv"
        place.parent.mkdir(parents=True)
        place.write_text(f"tile_m,tile_n,knl_name,co_name\n32,128,{ASM},x.co\n")
        found = [f.message for f in named(lint(root), "unknown-kernel") if "kernelName1" in f.message]
        assert len(found) == bool(said)
        assert all(said in m for m in found)

    @pytest.mark.parametrize(
        ("version", "name", "block_m", "ok"),
        [
            ("0.1.12", "afp4_wfp4_bf16_t16x128x256_w3", "32", True),
            ("0.1.12.post1", "afp4_wfp4_bf16_t16x128x256_w3", "16", False),
            ("0.1.14", "abf16_wint4_bf16_t16x128x256", "16", True),
            ("0.1.14", "abf16_wint4_bf16_t16x128x256", "32", False),
            ("0.1.12", "afp4_wfp4_bf16_t64x128x256_w3", "32", False),
            ("0.1.19.post1", "afp8_wfp4_bf16_t16x128x256_w3_gui", "16", True),
            ("0.1.19.post1", "afp8_wfp4_bf16_t16x128x256_w3_gui", "32", True),
            ("0.1.20.post1", "afp8_wfp4_bf16_t16x128x256_w3_gui", "16", True),
            ("0.1.20.post1", "afp8_wfp4_bf16_t16x128x256_w3_gui", "32", False),
        ],
    )
    def test_a_small_flydsl_stage_1(self, version: str, name: str, block_m: str, ok: bool) -> None:
        name = f"flydsl_moe1_{name}"
        fs = named(one(row(kernelName1=name, block_m=block_m), version=version), "block-m-mismatch")
        assert ("kernelName1" in " ".join(f.message for f in fs)) != ok

    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            ({"ksplit": ""}, "over ksplit (empty)"),
            ({"block_m": "", "kernelName2": "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_atomic"}, "over block_m (empty)"),
        ],
    )
    def test_an_empty_setting_makes_aiter_raise(self, tmp_path: Path, cells: dict[str, str], words: str) -> None:
        good = row(token="128")
        found = named(lint(tree(tmp_path, x_tuned_fmoe=table(good, row(**cells)))), "tuned-row-unused")
        assert [(f.severity, f.evidence[0].line) for f in found] == [("error", 3)]
        assert words in found[0].message
        assert "cannot convert float NaN to integer" in found[0].message

    def test_a_name_aiter_cannot_take_apart(self, tmp_path: Path) -> None:
        fp4 = {"q_dtype_a": "torch.float4_e2m1fn_x2", "q_dtype_w": "torch.float4_e2m1fn_x2", "q_type": "QuantType.per_1x32"}
        names = {
            "kernelName1": "flydsl_moe1_afp4_wfp4_bf16_t32x64x256_w3_fp4",
            "kernelName2": "flydsl_moe2_layout_afp4_wfp4_bf16_t32x128x256_atomic_nt_sbm32_x",
        }
        found = lint(tree(tmp_path, x_tuned_fmoe=table(row(cu_num="256", inter_dim="512", **names, **fp4))))
        assert "Invalid FlyDSL v2 GEMM2 kernel name" in only(found, "unknown-kernel").message

    @pytest.mark.parametrize(
        ("column", "cell", "severity"),
        [
            ("dtype", "torch.float32", "warning"),
            ("q_dtype_a", "torch.float8_e4m3fnuznuz", "warning"),
            ("q_dtype_w", "fp8", "warning"),
            ("q_type", "per_Token", "warning"),
            ("inter_dim", "", "warning"),
            ("inter_dim", "wide", "error"),
            ("use_g1u1", "yes", "error"),
        ],
    )
    def test_a_key_no_call_asks_for(self, column: str, cell: str, severity: str) -> None:
        found = named(one(row(token="128"), row(**{column: cell})), "tuned-row-unused")
        assert [(f.severity, f.evidence[0].line) for f in found] == [(severity, 3)]
        assert found[0].message.startswith(f"{NAME}:3: {column} is ")

    @pytest.mark.parametrize(("version", "said"), [("0.1.13", True), ("0.1.16", False), ("0.1.20.post1", False)])
    def test_an_unknown_activation_counts_where_the_release_matches_it(self, version: str, said: bool) -> None:
        found = named(one(row(act_type="ActivationType.Sillu"), version=version), "tuned-row-unused")
        assert bool(found) == said

    @pytest.mark.parametrize(
        ("version", "name", "known"),
        [
            ("0.1.20.post1", "flydsl_moe1_afp8_wfp4_bf16_t32x64x256_w3_gui_kw2_fp8", True),
            ("0.1.20.post1", "flydsl_moe1_afp8_wfp4_bf16_t32x64x256_w3_kw2_fp8", False),  # no gui
            ("0.1.20.post1", "flydsl_moe1_afp8_wfp4_bf16_t32x96x256_w3_gui", False),  # no such tile
            ("0.1.16", "flydsl_moe1_afp8_wfp4_bf16_t32x64x256_w3_gui_kw2_fp8", False),  # kw came with v0.1.17
            ("0.1.15.post3", "flydsl_moe2_afp4_wfp4_bf16_t32x128x128_atomic", False),  # its own tables name it
            ("0.1.16", "flydsl_moe2_afp4_wfp4_bf16_t32x128x128_atomic", True),
            ("0.1.26", "flydsl_moe2_afp4_wfp4_bf16_t32x96x128_atomic", True),  # a release that was not read may have it
            ("0.1.10.post3", "flydsl_moe2_afp4_wfp4_bf16_t32x96x128_atomic", True),  # before FlyDSL
        ],
    )
    def test_a_flydsl_kernel_the_release_does_not_have(self, version: str, name: str, known: bool) -> None:
        column = f"kernelName{name[10]}"
        found = [f for f in named(one(row(**{column: name}), version=version), "unknown-kernel") if name in f.message]
        assert [f.severity for f in found] == ([] if known else ["error"])
        assert all("Invalid FlyDSL kernel name" in f.message for f in found)


class TestBounds:
    @pytest.mark.parametrize("check", ["unused_rows", "same_key", "kernels"])
    def test_a_check_that_stops_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
        """Whichever check has more to say than is told, the asking of rows' own keys included."""
        monkeypatch.setattr("moe_preflight.coverage.lint.run.MAX_FINDINGS", 3)
        bad = {"unused_rows": {"ksplit": ""}, "same_key": {}, "kernels": {"kernelName1": "my_kernel"}}[check]
        tokens = ["64"] * 5 if check == "same_key" else [str(2**n) for n in range(5)]
        found = lint(tree(tmp_path, x_tuned_fmoe=table(*(row(token=t, **bad) for t in tokens))))
        name = {"unused_rows": "tuned-row-unused", "same_key": "duplicate-key", "kernels": "unknown-kernel"}[check]
        assert len(named(found, name)) == 3
        assert [n.what for n in found.not_evaluated if name in n.what] == [f"{name} findings after the first 3"]

    @pytest.mark.parametrize("column", [*HEADER.split(","), "gfx"])
    def test_a_cell_of_megabytes_is_told_by_its_beginning(self, column: str) -> None:
        header = HEADER if column in HEADER.split(",") else f"gfx,{HEADER}"
        for cell in ("7" * 2_000_000, "x" * 2_000_000):
            found = one(row(header=header, **{column: cell}), row(header=header, token="128"), header=header)
            said = [f.message for f in found.findings] + [e.text for f in found.findings for e in f.evidence]
            assert max(map(len, said), default=0) < 1_500
            assert all("characters)" in f.message for f in found.findings if cell[:50] in f.message)


class TestFiles:
    NO_TAG = HEADER.removesuffix(",_tag")

    @pytest.mark.parametrize(
        ("version", "tag", "words"),
        [
            ("0.1.13", "mine", "keeps untagged rows only"),
            ("0.1.13", "flydsl_fallback", ""),
            ("0.1.17", "flydsl_fallback", ""),
            ("0.1.18", "flydsl_fallback", "has no fallback that reads them"),
            ("0.1.20.post1", "flydsl_fallback", "has no fallback that reads them"),
            ("0.1.20.post1", "mine", ""),
        ],
    )
    def test_rows_the_tag_filter_drops(self, version: str, tag: str, words: str) -> None:
        found = named(one(row(), row(token="128", _tag=tag), version=version), "column-layout")
        assert [f.evidence[0].line for f in found] == ([3] if words else [])
        assert all(words in f.message for f in found)

    @pytest.mark.parametrize(
        ("version", "dropped"), [("0.1.13", True), ("0.1.17", True), ("0.1.16.post4", False), ("0.1.20.post1", False)]
    )
    def test_a_file_without_tag_loses_every_row(self, tmp_path: Path, version: str, dropped: bool) -> None:
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(self.NO_TAG, token="128"), header=self.NO_TAG))
        fs = [f for f in named(lint(root, version), "column-layout") if f.severity == "error"]
        assert bool(fs) == dropped
        if dropped:
            assert "drops all 1 rows" in fs[0].message
            assert (fs[0].evidence[0].file, fs[0].evidence[0].line) == ("aiter/configs/model_configs/x_tuned_fmoe.csv", 1)

    def test_a_missing_run_1stage_turns_one_stage_rows_into_two(self, tmp_path: Path) -> None:
        header = HEADER.replace(",run_1stage", "")
        name = "_ZN5aiter45fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256E"
        cells = {"kernelName1": name, "kernelName2": "Null", "inter_dim": "256"}
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(header, **cells), header=header))
        f = only(lint(root), "column-layout")
        assert "1 rows with one-stage kernels (first: line 2) run as two stages" in f.message

    def test_a_filled_column_that_changes_nothing_is_information(self, tmp_path: Path) -> None:
        header = HEADER.replace(",tflops", "")
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(header, token="128"), header=header))
        found = lint(root)
        assert quiet(found) == []
        assert "tflops (0)" in named(found, "column-layout")[0].message

    @pytest.mark.parametrize("column", ["block_m", "inter_dim", "kernelName1"])
    def test_a_missing_column_the_lookup_needs(self, column: str) -> None:
        header = HEADER.replace(f",{column},", ",")
        found = lint_files({NAME: table(row(header), header=header).encode()}, V20)
        if column == "inter_dim":
            assert found.not_evaluated or named(found, "column-layout")
        else:
            assert any(column in f.message and f.severity == "error" for f in named(found, "column-layout"))

    def test_old_releases_refuse_other_columns(self, tmp_path: Path) -> None:
        header = HEADER.replace(",tflops", "")
        root = tree(tmp_path, default=table(row()), x_tuned_fmoe=table(row(header, token="128"), header=header))
        assert "Column mismatch" in only(lint(root, "0.1.12"), "column-layout").message

    def test_a_short_row(self) -> None:
        found = one(row(), row(token="128").rsplit(",", 2)[0])
        f = only(found, "ragged-row")
        assert (f.severity, f.evidence[0].line) == ("warning", 3)

    def test_a_long_row_takes_the_whole_file_with_it(self) -> None:
        found = one(row(), row(token="128") + ",1")
        f = only(found, "ragged-row")
        assert (f.severity, f.evidence[0].line) == ("error", 3)
        assert "reads none of the file" in f.message

    def test_another_kernels_table_with_a_ragged_row(self, tmp_path: Path) -> None:
        root = tree(tmp_path, default=table(row()), gemm="M,N,K\n1,2,3\n4,5\n")
        f = only(lint(root), "ragged-row")
        assert (f.evidence[0].file, f.evidence[0].line) == ("aiter/configs/model_configs/gemm.csv", 3)

    @pytest.mark.parametrize("name", ["x_untuned_fmoe", "my_moe"])
    def test_not_loaded_by_name(self, tmp_path: Path, name: str) -> None:
        f = only(lint(tree(tmp_path, default=table(row(token="128")), **{name: table(row())})), "not-loaded-by-name")
        assert (f.severity, f.evidence[0].line) == ("warning", 1)

    def test_a_nested_folder_is_not_loaded(self, tmp_path: Path) -> None:
        root = tree(tmp_path, default=table(row(token="128")))
        nested = root / "aiter/configs/model_configs/new/x_tuned_fmoe.csv"
        nested.parent.mkdir()
        nested.write_text(table(row()))
        assert only(lint(root), "not-loaded-by-name").evidence[0].file.endswith("new/x_tuned_fmoe.csv")

    def test_tables_of_other_kernels_have_names_of_their_own(self, tmp_path: Path) -> None:
        assert quiet(lint(tree(tmp_path, default=table(row()), tuned_grouped_fmoe=table(row(token="128"))))) == []

    @pytest.mark.parametrize("text", [b"a,\x00\x01", b"", b"a,\xff\n"], ids=["nul", "empty", "not-utf-8"])
    def test_an_unreadable_table_is_a_finding(self, text: bytes) -> None:
        f = only(lint_files({NAME: text}, V20), "table-unreadable")
        assert f.severity == "error"

    def test_a_file_that_cannot_be_opened_is_a_finding(self) -> None:
        f = only(lint_files({NAME: FileUnreadable(NAME, "permission denied")}, V20), "table-unreadable")
        assert "permission denied" in f.message


def lint(root: Path, version: str = "0.1.20.post1") -> Linted:
    basis = open_basis(str(root), asked_version=version, pin=None, tuned=True)
    assert basis.tree is not None
    return lint_tree(basis.tree, basis.version, basis.table)
