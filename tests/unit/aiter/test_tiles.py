"""Tiles: which one AITER picks, by release, GPU, family, block_m and width, and when CK rejects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_preflight.aiter.ck import FAMILIES, PACK, CkModule, Instance, compare, family
from moe_preflight.aiter.ck_facts import builtin, tag_of
from moe_preflight.aiter.kernel_names import parse
from moe_preflight.aiter.tiles import NO_BLOCK_M, NO_CONFIG, REJECTED, TileVerdict, judge_stage
from moe_preflight.aiter.version import Version

NEW = Version.of("0.1.20.post1")
WHEEL = Version.of("0.1.7.post2.dev18")


def both(
    gfx: str, block_m: int, model_dim: int, inter_dim: int, fam: str = "a16w16", version: Version = NEW
) -> tuple[bool | None, ...]:
    return tuple(judge_stage(version, gfx, fam, s, block_m, model_dim, inter_dim).accepted for s in (1, 2))


def tile(
    gfx: str, fam: str, stage: int, block_m: int, inter_dim: int, version: Version | None = NEW
) -> tuple[int | None, int | None]:
    v = judge_stage(version, gfx, fam, stage, block_m, 4096, inter_dim)
    return v.tile_n, v.tile_k


class TestHeadline:
    """Shapes people really deployed."""

    def test_320_on_mi300x_is_accepted_only_while_block_m_is_32(self) -> None:
        assert both("gfx942", 32, 4096, 320) == (True, True)
        assert both("gfx942", 64, 4096, 320) == (False, True)
        assert both("gfx942", 128, 4096, 320) == (False, True)

    @pytest.mark.parametrize("inter_dim", [384, 768, 1536, 2944])
    def test_2880_is_rejected_by_stage_2(self, inter_dim: int) -> None:
        for block_m in (32, 64, 128):
            assert both("gfx950", block_m, 2880, inter_dim) == (True, False)
        assert both("gfx942", 32, 2880, inter_dim) == (True, True)
        for block_m in (64, 128):
            assert both("gfx942", block_m, 2880, inter_dim) == (True, False)

    def test_the_reason_says_the_numbers(self) -> None:
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 128, 6144, 224)
        assert (v.reason, v.raises) == ("224 is not a multiple of tile N 128", REJECTED)
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 128, 6144, 256)
        assert v.reason == "256 is a multiple of tile N 128 and 6144 of tile K 64"
        v = judge_stage(NEW, "gfx950", "a8w8", 2, 32, 2880, 384)
        assert v.reason == "2880 is not a multiple of tile N 128, and 384 is not a multiple of tile K 256"

    def test_packed_fp4_counts_elements_in_words_and_pairs_in_numbers(self) -> None:
        v = judge_stage(NEW, "gfx950", "a4w4", 2, 64, 4096, 384)
        assert (v.tile_n, v.tile_k, v.accepted) == (128, 128, False)
        assert v.reason == "384 is not a multiple of tile K 128 (packed pairs, 256 elements)"


class TestTables:
    # facts/aiter_dispatch.md C, both stages, below and above 192 (256 for a4w4).
    @pytest.mark.parametrize(
        ("gfx", "fam", "block_m", "narrow", "wide"),
        [
            ("gfx942", "a16w16", 32, ((64, 64), (64, 64)), ((64, 64), (64, 64))),
            ("gfx942", "a16w16", 64, ((64, 64), (64, 64)), ((128, 64), (128, 64))),
            ("gfx942", "a16w16", 256, ((64, 64), (64, 64)), ((128, 64), (128, 64))),
            ("gfx950", "a16w16", 32, ((64, 64), (64, 64)), ((64, 64), (128, 128))),
            ("gfx950", "a16w16", 64, ((64, 64), (128, 64)), ((64, 64), (128, 128))),
            ("gfx950", "a16w16", 128, ((64, 64), (64, 64)), ((128, 64), (128, 64))),
            ("gfx942", "a8w8", 16, ((64, 256), (64, 64)), ((64, 256), (64, 64))),
            ("gfx942", "a8w8", 32, ((64, 128), (64, 64)), ((64, 128), (64, 128))),
            ("gfx942", "a8w8", 128, ((64, 128), (64, 64)), ((128, 128), (128, 128))),
            ("gfx950", "a8w8", 32, ((64, 128), (128, 256)), ((64, 128), (128, 256))),
            ("gfx950", "a8w8", 128, ((64, 128), (128, 128)), ((128, 128), (128, 128))),
            ("gfx942", "a8w8blkscale", 16, ((128, 256), (128, 128)), ((128, 256), (128, 128))),
            ("gfx950", "a8w8blkscale", 64, ((128, 128), (128, 128)), ((128, 128), (128, 128))),
            ("gfx942", "a8w4", 256, ((64, 128), (128, 128)), ((64, 128), (128, 128))),
            ("gfx950", "a4w4", 32, ((32, 128), (32, 128)), ((32, 128), (128, 128))),
            ("gfx950", "a4w4_bns", 128, ((64, 128), (128, 128)), ((64, 128), (64, 128))),
        ],
    )
    def test_since_v0_1_10_post3(self, gfx: str, fam: str, block_m: int, narrow: object, wide: object) -> None:
        for version in (Version.of("0.1.10.post3"), NEW):
            assert tuple(tile(gfx, fam, s, block_m, 192, version) for s in (1, 2)) == narrow
            assert tuple(tile(gfx, fam, s, block_m, 320, version) for s in (1, 2)) == wide

    def test_blockscale_stage_2_looks_at_256(self) -> None:
        assert tile("gfx942", "a8w8blkscale", 2, 16, 512) == (128, 256)
        assert tile("gfx942", "a8w8blkscale", 2, 16, 384) == (128, 128)

    # Each row: the last release without a tile or rule, and the first with it.
    @pytest.mark.parametrize(
        ("before", "since", "fam", "stage", "block_m", "inter_dim", "old", "new"),
        [
            ("0.1.7.post2", "0.1.7.post3", "a4w4", 1, 32, 512, (128, 128), (32, 128)),
            ("0.1.7.post5", "0.1.8", "a16w16", 1, 64, 128, (128, 128), (64, 64)),
            ("0.1.7.post5", "0.1.8", "a8w8", 1, 64, 384, (128, 256), (128, 128)),
            ("0.1.9", "0.1.9.post1", "a8w8blkscale", 2, 16, 384, (128, 256), (128, 128)),
            ("0.1.9.post1", "0.1.10", "a8w8blkscale", 1, 32, 384, (None, None), (128, 128)),
            ("0.1.10.post2", "0.1.10.post3", "a8w8", 1, 16, 384, (None, None), (64, 256)),
        ],
    )
    def test_releases_that_changed_a_tile(
        self, before: str, since: str, fam: str, stage: int, block_m: int, inter_dim: int, old: object, new: object
    ) -> None:
        assert tile("gfx942", fam, stage, block_m, inter_dim, Version.of(before)) == old
        assert tile("gfx942", fam, stage, block_m, inter_dim, Version.of(since)) == new

    def test_the_wheel_is_its_tag(self) -> None:
        assert builtin(WHEEL) == builtin(Version.of("0.1.7.post2"))
        assert tile("gfx942", "a16w16", 1, 64, 128, WHEEL) == (128, 128)

    @pytest.mark.parametrize(
        ("version", "confidence"),
        [("0.1.7.post2", "modelled"), ("0.1.20.post1", "modelled"), ("0.1.21", "unverified"), ("0.1.6", "unverified")],
    )
    def test_confidence(self, version: str, confidence: str) -> None:
        assert judge_stage(Version.of(version), "gfx942", "a16w16", 1, 32, 4096, 256).confidence == confidence

    def test_without_a_version_the_newest_tables_hold(self) -> None:
        assert builtin(None).rules == builtin(NEW).rules

    def test_every_tile_names_its_source(self) -> None:
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 32, 4096, 256)
        assert v.source.startswith("csrc/ck_gemm_moe_2stages_codegen/gen_instances.py:")
        assert v.source.endswith(", v0.1.8")

    def test_every_heuristic_tile_is_compiled(self) -> None:
        for text in ("0.1.7.post2", "0.1.8", "0.1.9", "0.1.9.post1", "0.1.10", "0.1.10.post3", "0.1.13", "0.1.20"):
            facts = builtin(Version.of(text))
            for slot, rules in facts.rules.items():
                for rule in rules:
                    assert Instance.parse(rule.instance) in facts.instances[slot], (text, slot, rule)
                    assert Instance.parse(rule.instance).m == rule.block_m


class TestRefusals:
    @pytest.mark.parametrize(
        ("gfx", "fam", "block_m"),
        [("gfx942", "a16w16", 16), ("gfx950", "a8w8", 16), ("gfx950", "a4w4", 256), ("gfx942", "a8w8blkscale", 128)],
    )
    def test_block_m_without_a_tile_raises(self, gfx: str, fam: str, block_m: int) -> None:
        v = judge_stage(NEW, gfx, fam, 1, block_m, 4096, 256)
        assert (v.tile_n, v.accepted, v.raises) == (None, False, f"{NO_BLOCK_M}{block_m}")

    def test_no_kernel_for_the_operands(self) -> None:
        assert judge_stage(NEW, "gfx950", None, 1, 32, 4096, 256).raises == NO_CONFIG

    def test_an_activation_the_generator_does_not_know(self) -> None:
        module = CkModule("fp4x2", "fp4x2", "bf16", "situv2", "per_1x32")
        v = judge_stage(NEW, "gfx950", "a4w4", 1, 32, 4096, 256, module=module)
        assert v.accepted is False
        assert "invalid choice: 'situv2'" in v.raises
        swiglu = CkModule("fp8", "fp8", "bf16", "swiglu", "per_Token")
        assert judge_stage(NEW, "gfx942", "a8w8", 1, 32, 4096, 256, module=swiglu).accepted
        assert not judge_stage(Version.of("0.1.19"), "gfx942", "a8w8", 1, 32, 4096, 256, module=swiglu).accepted

    def test_split_k_has_a_check_of_its_own(self) -> None:
        v = judge_stage(NEW, "gfx942", "a8w8blkscale", 1, 16, 7168, 256, ksplit=4)
        assert v.accepted
        v = judge_stage(NEW, "gfx942", "a8w8blkscale", 1, 16, 7168, 256, ksplit=3)
        assert (v.accepted, v.raises) == (False, "K(7168) must be a multiple of KPerBlock(256) * splitk(3).")

    def test_an_ungated_weight_is_taken_for_a_gated_one_of_half_the_width(self) -> None:
        assert judge_stage(NEW, "gfx942", "a16w16", 1, 32, 4096, 192).accepted
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 32, 4096, 192, use_g1u1=False)
        assert v.reason == "96 is not a multiple of tile N 64"
        assert judge_stage(NEW, "gfx942", "a16w16", 2, 32, 4096, 192, use_g1u1=False).accepted


NAME1 = "moe_ck2stages_gemm1_256x32x64x128_1x4_TypeCast_v1_Nswizzle0_Quant0_MulRoutedWeight0_silu_B16_B16_B16"
FP8_2 = "moe_ck2stages_gemm2_64x16x64x64_1x1_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"


class TestNames:
    def test_a_tuned_name_brings_its_own_tile(self) -> None:
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 32, 4096, 320, NAME1, module=CkModule("bf16", "bf16", "bf16", "silu", "No"))
        assert (v.tile_n, v.tile_k, v.from_name, v.name_missing, v.source) == (64, 128, True, False, "the kernel's name")
        assert judge_stage(NEW, "gfx942", "a16w16", 1, 32, 2880, 320, NAME1).reason == "2880 is not a multiple of tile K 128"

    @pytest.mark.parametrize(
        "module",
        [
            CkModule("bf16", "bf16", "bf16", "gelu", "No"),
            CkModule("fp16", "fp16", "fp16", "silu", "No"),
            CkModule("bf16", "bf16", "bf16", "silu", "No", doweight_stage1=True),
        ],
    )
    def test_a_name_of_another_module_falls_back_and_says_so(self, module: CkModule) -> None:
        v = judge_stage(NEW, "gfx942", "a16w16", 1, 128, 4096, 320, NAME1, module=module)
        assert (v.tile_n, v.from_name, v.name_missing, v.accepted) == (128, False, True, False)
        assert v.reason == f"{NAME1} is not in {module.name}: the heuristic tile is taken; 320 is not a multiple of tile N 128"

    def test_names_come_and_go_with_releases(self) -> None:
        assert judge_stage(NEW, "gfx942", "a8w8", 2, 16, 7168, 256, FP8_2).from_name
        v = judge_stage(Version.of("0.1.10.post2"), "gfx942", "a8w8", 2, 16, 7168, 256, FP8_2)
        assert (v.name_missing, v.accepted, v.raises) == (True, False, f"{NO_BLOCK_M}16")

    @pytest.mark.parametrize(
        "name", ["flydsl_moe2_afp4_wfp4_bf16_t32x128x256_atomic", "nonsense", NAME1.replace("gemm1", "gemm3"), NAME1 + "x"]
    )
    def test_what_is_no_ck_name_is_missing(self, name: str) -> None:
        assert judge_stage(NEW, "gfx942", "a16w16", 1, 32, 4096, 256, name).name_missing

    def test_a_name_of_the_other_stage_is_missing(self) -> None:
        assert judge_stage(NEW, "gfx942", "a16w16", 2, 32, 4096, 256, NAME1).name_missing

    def test_split_k_names_live_in_a_module_of_their_own(self) -> None:
        name = "moe_ck2stages_gemm1_256x32x128x128_1x4_MulABScaleExpertWeightA8W8blkscaleSplitk_v1_Nswizzle0_Quant4"
        name += "_MulRoutedWeight0_silu_F8_F8_B16"
        plain = CkModule("fp8", "fp8", "bf16", "silu", "per_1x128")
        split = CkModule("fp8", "fp8", "bf16", "silu", "per_128x128", splitk=True)
        assert judge_stage(NEW, "gfx950", "a8w8blkscale", 1, 32, 6144, 256, name, module=split).from_name
        assert judge_stage(NEW, "gfx950", "a8w8blkscale", 1, 32, 6144, 256, name, module=plain).name_missing
        assert judge_stage(NEW, "gfx950", "a8w8blkscale", 1, 32, 6144, 256, name).from_name


class TestMultiArch:
    """Prebuilt modules of a build for gfx942 and gfx950 at once hold gfx950's table (AITER #5766)."""

    FP8 = CkModule("fp8", "fp8", "bf16", "silu", "per_Token")

    def test_fp8_384_passes_alone_and_fails_prebuilt(self) -> None:
        args = (NEW, "gfx942", "a8w8", 2, 32, 2048, 384)
        assert judge_stage(*args, module=self.FP8).accepted
        v = judge_stage(*args, module=self.FP8, multi_arch=True)
        assert (v.accepted, v.reason) == (False, "384 is not a multiple of tile K 256")

    def test_blockscale_has_one_table(self) -> None:
        args = (NEW, "gfx942", "a8w8blkscale", 2, 64, 2048, 384)
        assert judge_stage(*args) == judge_stage(*args, multi_arch=True)

    def test_names_tuned_on_gfx942_are_missing_there(self) -> None:
        assert judge_stage(NEW, "gfx942", "a8w8", 2, 16, 7168, 256, FP8_2, module=self.FP8, multi_arch=True).name_missing

    def test_only_what_is_prebuilt(self) -> None:
        fp16 = CkModule("fp16", "fp16", "fp16", "silu", "No")
        args = (NEW, "gfx942", "a16w16", 2, 32, 4096, 320)
        assert judge_stage(*args, module=fp16, multi_arch=True).accepted
        assert not judge_stage(*args, module=CkModule("bf16", "bf16", "bf16", "silu", "No"), multi_arch=True).accepted

    def test_there_are_13_of_them(self) -> None:
        found = [
            m
            for dtype, q in (
                ("bf16", "No"),
                ("fp16", "No"),
                ("fp8", "per_Tensor"),
                ("fp8", "per_Token"),
                ("i8", "per_Tensor"),
                ("i8", "per_Token"),
            )
            for act in ("silu", "gelu", "swiglu")
            for first in (False, True)
            for shuffled in (False, True)
            for out in ("bf16", "fp16")
            if (dtype[0] not in "b" and dtype != "fp16") or out == dtype
            if (m := CkModule(dtype, dtype, out, act, q, first, shuffled)).prebuilt
        ]
        assert len(found) == 13

    def test_the_module_name_is_aiters(self) -> None:
        assert self.FP8.name == "module_moe_ck2stages_f8_f8_preshuffle_on_b16_silu_per_token_mulWeightStage2"


class TestFamily:
    @pytest.mark.parametrize(
        ("q_type", "a", "w", "shuffled", "expected"),
        [
            ("No", "bf16", "bf16", True, "a16w16"),
            ("No", "fp16", "bf16", True, None),
            ("per_Token", "fp8", "fp8", True, "a8w8"),
            ("per_Tensor", "i8", "i8", True, "a8w8"),
            ("per_1x128", "fp8", "fp8", True, "a8w8blkscale"),
            ("per_128x128", "fp8", "fp8", True, "a8w8blkscale"),
            ("per_Token", "fp8", "u32", True, "a8w4"),
            ("per_1x32", "bf16", "i4x2", True, None),
            ("per_1x32", "fp4x2", "fp4x2", True, "a4w4"),
            ("per_1x32", "fp4x2", "fp4x2", False, "a4w4_bns"),
            ("per_1x32", "fp8", "fp4x2", True, None),
            ("per_1x32", "bf16", "fp4x2", True, None),
        ],
    )
    def test_family(self, q_type: str, a: str, w: str, shuffled: bool, expected: str | None) -> None:
        assert family(q_type, a, w, shuffled) == expected


@given(
    st.sampled_from(FAMILIES),
    st.sampled_from(["gfx942", "gfx950"]),
    st.sampled_from([1, 2]),
    st.sampled_from([16, 32, 64, 128, 256]),
    st.integers(1, 6000),
    st.integers(1, 9000),
)
def test_accepted_exactly_on_multiples_of_the_tile(
    fam: str, gfx: str, stage: int, block_m: int, inter_dim: int, model_dim: int
) -> None:
    v: TileVerdict = judge_stage(NEW, gfx, fam, stage, block_m, model_dim, inter_dim)
    if v.tile_n is None or v.tile_k is None:
        assert v.accepted is False
        return
    n, k = (inter_dim, model_dim) if stage == 1 else (model_dim, inter_dim)
    assert v.accepted == (n % v.tile_n == 0 and k % (v.tile_k * PACK.get(fam, 1)) == 0)
    # Padding up to the next multiple within the same branch of the table is accepted on this axis.
    assert v.instance == str(builtin(NEW).tile(tag_of(fam, gfx), stage, block_m, inter_dim))


@pytest.mark.parametrize(
    ("when", "yes", "no"),
    [
        ("inter_dim <= 192", 192, 193),
        ("inter_dim < 192", 191, 192),
        ("inter_dim > 192", 193, 192),
        ("inter_dim >= 192", 192, 191),
        ("inter_dim % 256 == 0", 512, 384),
    ],
)
def test_conditions(when: str, yes: int, no: int) -> None:
    assert compare(when, yes)
    assert not compare(when, no)


class TestKernelNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (NAME1, ("ck", 1, 32, 64, 128, "b16", "b16", "silu")),
            (FP8_2, ("ck", 2, 16, 64, 64, "f8", "f8", "")),
            ("_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf3E", ("asm-stage1", 1, 32, 128, None, "", "", "")),
            ("_ZN5aiter45fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x192E", ("asm-1stage", 0, 32, 192, None, "", "", "silu")),
            ("flydsl_moe1_afp8_wfp4_bf16_t32x64x256_w4_gui_fp8", ("flydsl", 1, 32, 64, 256, "fp8", "fp4", "")),
            ("flydsl_moe2_layout_afp4_wfp4_bf16_t64x256x128_reduce_sbm64_sp801", ("flydsl", 2, 64, 256, 128, "fp4", "fp4", "")),
            ("flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt", ("mxmoe", 1, 16, 256, 256, "a4", "w4", "")),
            ("opus_moe2_afp8_wfp4_atomic_t32x128x256_sbm32_occ1_cache_b2_ws2", ("opus", 2, 32, 128, 256, "fp8", "fp4", "")),
            ("opus_moe1_afp8_wfp4_bf16_t32x384_pair_kw7_m3_fp8", ("opus", 1, 32, 384, None, "fp8", "fp4", "")),
            ("cktile_a8w4_bm64", ("cktile", 0, 64, None, None, "a8", "w4", "")),
            ("swiglu_mxfp4_bf16_cktile", ("cktile", 0, None, None, None, "bf16", "fp4", "swiglu")),
        ],
    )
    def test_parts(self, name: str, expected: tuple[object, ...]) -> None:
        k = parse(name)
        assert k is not None
        assert (k.kind, k.stage, k.tile_m, k.tile_n, k.tile_k, k.dtype_a, k.dtype_w, k.act) == expected

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "Null",
            "grouped_gemm2_fp4",
            "_ZN5aiter8fmoe_bf16E",
            NAME1.replace("_silu", ""),
            FP8_2.replace("_F8_F8", "_silu_F8_F8"),
            "x" * 100_000,
        ],
    )
    def test_not_understood(self, name: str) -> None:
        assert parse(name) is None
