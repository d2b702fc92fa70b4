"""The dispatch model piece by piece: activation dtype, heuristics, paths by release, and what AITER raises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.facts.dispatch_rules import MAIN, VERIFIED, as_the_tree_says, is_verified
from moe_preflight.aiter.heuristics import block_size_m, k_split
from moe_preflight.aiter.key import Dispatch, Key
from moe_preflight.aiter.version import Version
from tests.unit.aiter.tables import NEW, OLD, TAGGED, read, row, rules, table

BF16 = Key(token=16, model_dim=4096, inter_dim=256, expert=64, topk=8)
FP8 = replace(BF16, q_dtype_w="fp8", q_type="per_Token")
BLOCK = replace(BF16, q_dtype_w="fp8", q_type="per_1x128")
FP4 = replace(BF16, q_dtype_w="fp4x2", q_type="per_1x32")


def ask(version: str, key: Key, gfx: str = "gfx950", cu: int = 256, *, text: str | None = None, **how: object) -> Dispatch:
    rows = read(version, text) if text is not None else None
    return Dispatcher(Version.of(version), gfx, cu, table=rows, **how).dispatch(key)  # type: ignore[arg-type]


# --- activation dtype --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "gfx", "changes", "dtype"),
    [
        ("0.1.7.post2", "gfx950", {"act": "swiglu"}, "fp4x2"),
        ("0.1.9", "gfx950", {"act": "swiglu", "token": 511}, "bf16"),
        ("0.1.9", "gfx950", {"act": "swiglu", "token": 512}, "fp8"),
        ("0.1.9", "gfx942", {"act": "swiglu", "token": 4096}, "bf16"),
        ("0.1.13", "gfx950", {"act": "swiglu", "token": 256}, "fp8"),
        ("0.1.13.post1", "gfx950", {"act": "swiglu", "token": 256}, "bf16"),
        ("0.1.14", "gfx950", {"act": "swiglu", "token": 255}, "bf16"),
        ("0.1.14", "gfx950", {"act": "swiglu", "token": 256}, "fp4x2"),
        ("0.1.14", "gfx950", {"act": "swiglu", "token": 256, "gate_mode": "interleave"}, "fp8"),
        ("0.1.14", "gfx950", {"act": "silu", "token": 255, "gate_mode": "interleave"}, "bf16"),
        ("0.1.20", "gfx942", {"act": "silu", "token": 4096, "gate_mode": "interleave"}, "bf16"),
        ("0.1.20", "gfx950", {"act": "silu"}, "fp4x2"),
        ("0.1.20", "gfx950", {"act": "situv2"}, "bf16"),
        ("0.1.18", "gfx950", {"act": "situv2"}, "fp4x2"),
        ("0.1.13", "gfx950", {"q_dtype_w": "i4x2"}, "fp4x2"),
        ("0.1.14", "gfx950", {"q_dtype_w": "i4x2"}, "bf16"),
        ("0.1.16", "gfx950", {"q_dtype_w": "fp8"}, "fp4x2"),
        ("0.1.16.post1", "gfx950", {"q_dtype_w": "fp8"}, "fp8"),
        ("0.1.20", "gfx950", {"q_dtype_w": "u32", "q_type": "per_Token"}, "fp8"),
        ("0.1.20", "gfx950", {"q_dtype_a": "bf16"}, "bf16"),
    ],
)
def test_activation_dtype(version: str, gfx: str, changes: dict[str, object], dtype: str) -> None:
    assert ask(version, replace(FP4, **changes), gfx).q_dtype_a == dtype  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "act", "token", "dtype"),
    [
        ({"GPTOSS_SWIGLU_MXFP4_BF16_BOUND": "8"}, "swiglu", 16, "fp4x2"),
        ({"AITER_SITUV2_A8W4": "1"}, "situv2", 16, "fp8"),
        ({"AITER_SITUV2_A4W4": "1"}, "situv2", 16, "fp4x2"),
    ],
)
def test_activation_dtype_by_environment(env: dict[str, str], act: str, token: int, dtype: str) -> None:
    assert ask("0.1.20", replace(FP4, act=act, token=token), env=env).q_dtype_a == dtype


def test_a_malformed_bound_raises_as_aiter_does() -> None:
    got = ask("0.1.20", replace(FP4, act="swiglu"), env={"AITER_BF16_FP8_MOE_BOUND": "many"})
    assert got.error == "ValueError: invalid literal for int() with base 10: 'many'"


# --- heuristics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cu", "answers"),
    [(304, {1: 32, 256: 32, 512: 64, 1024: 128, 16384: 128}), (80, {32: 64, 64: 128, 4096: 128})],
)
def test_block_m_grows_with_tokens_and_shrinks_with_cus(cu: int, answers: dict[int, int]) -> None:
    assert {t: block_size_m(t, 8, 128, 320, cu) for t in answers} == answers


def test_k_split_needs_few_tokens_and_idle_cus() -> None:
    assert k_split(1, 8, 64, 256, 7168, 256, 0) == 14
    assert k_split(16, 8, 64, 256, 7168, 256, 0) == 0, "more rows than experts"
    assert k_split(8, 8, 64, 512, 7168, 256, 0) == 0, "all CUs busy"
    assert k_split(4096, 8, 64, 512, 7168, 256, 5) == 5, "AITER_KSPLIT"


@pytest.mark.parametrize(
    ("version", "key", "gfx", "one_stage"),
    [
        ("0.1.7.post2", replace(FP8, token=32), "gfx942", False),
        ("0.1.7.post2", replace(FP8, token=64), "gfx942", True),
        ("0.1.7.post3", replace(FP8, token=32), "gfx942", True),
        ("0.1.11", replace(FP8, token=1024), "gfx950", False),
        ("0.1.11", replace(FP8, inter_dim=192), "gfx950", True),
        ("0.1.12", replace(FP8, inter_dim=192), "gfx950", True),
        ("0.1.12", replace(FP8, inter_dim=384), "gfx950", False),
        ("0.1.7.post2", BLOCK, "gfx950", True),
        ("0.1.9", BLOCK, "gfx950", False),
        ("0.1.9", replace(BLOCK, token=64), "gfx950", True),
        ("0.1.10", replace(BLOCK, token=64), "gfx950", False),
        ("0.1.10.post1", replace(BLOCK, token=64), "gfx950", True),
        ("0.1.11", replace(BLOCK, token=64, inter_dim=384), "gfx950", False),
        ("0.1.12", replace(BLOCK, token=64, inter_dim=384), "gfx950", True),
        ("0.1.20", replace(BLOCK, token=64, act="gelu"), "gfx942", False),
        ("0.1.20", replace(BF16, use_g1u1=False, token=128), "gfx942", True),
        ("0.1.20", replace(BF16, use_g1u1=False, token=256), "gfx942", False),
        ("0.1.20", replace(FP8, doweight_stage1=True, token=64), "gfx950", True),
        ("0.1.7.post2", replace(FP8, doweight_stage1=True, token=64), "gfx942", False),
    ],
)
def test_one_stage_or_two(version: str, key: Key, gfx: str, one_stage: bool) -> None:
    got = ask(version, key, gfx)
    assert got.run_1stage is one_stage
    assert (got.path == "1stage") is one_stage
    assert (got.stage2 is None) is one_stage


# --- paths without a row -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "key", "flydsl", "path", "block_m", "ksplit"),
    [
        ("0.1.20", BF16, True, "ck2stages", 32, 0),
        ("0.1.20", replace(BLOCK, token=16), True, "ck2stages", 16, 0),
        ("0.1.8", replace(FP8, token=16), True, "asm+ck", 32, 0),
        ("0.1.9", replace(FP8, token=16), True, "ck2stages", 32, 0),
        ("0.1.20", replace(BF16, q_dtype_w="i8", q_type="per_Token", dtype="fp16"), True, "asm+ck", 32, 0),
        ("0.1.8", replace(FP4, act="swiglu", token=2048), False, "cktile", 32, 0),
        ("0.1.20", replace(FP4, act="swiglu", token=64), False, "cktile", 16, 2),
        ("0.1.20", replace(FP4, act="swiglu", token=64, gate_mode="interleave"), False, "cktile", 16, 0),
        ("0.1.20", replace(FP4, act="swiglu", token=512, is_shuffled=False), False, "cktile", 16, 2),
        ("0.1.16", replace(FP4, act="swiglu", token=512, is_shuffled=False), False, "ck2stages", 128, 0),
        ("0.1.20", replace(FP4, token=512), False, "ck2stages", 128, 0),
        ("0.1.20", replace(FP4, token=512), True, "flydsl", 32, -1),
        ("0.1.15", replace(FP4, token=512), True, "ck2stages", 128, 0),
        ("0.1.14", replace(FP4, token=512, act="swiglu"), True, "flydsl", 32, 0),
        ("0.1.20", replace(FP4, q_dtype_w="i4x2", token=4096), True, "flydsl", 32, 0),
        ("0.1.20", replace(FP4, q_dtype_w="fp8", token=4096), True, "flydsl", 128, -1),
        ("0.1.16", replace(FP4, q_dtype_w="fp8", token=4096), True, "ck2stages", 128, 0),
        ("0.1.20", replace(FP4, act="situv2"), True, "flydsl", 32, -1),
    ],
)
def test_paths_of_the_heuristics(version: str, key: Key, flydsl: bool, path: str, block_m: int, ksplit: int) -> None:
    got = ask(version, key, flydsl=flydsl)
    assert (got.error, got.path, got.block_m, got.ksplit) == (None, path, block_m, ksplit)


def test_flydsl_kernels_are_named_by_tokens_and_width() -> None:
    small = ask("0.1.20", FP4)
    assert small.stage1.kernel == "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2"
    assert small.stage2 is not None
    assert small.stage2.kernel == "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_atomic_bnt2"
    wide = ask("0.1.20", replace(FP4, token=32768, inter_dim=384, q_dtype_w="fp8", dtype="fp16"))
    assert wide.stage1.kernel == "flydsl_moe1_afp8_wfp8_f16_t64x128x256_w4_bnt0_gui"
    assert wide.stage2 is not None
    assert wide.stage2.kernel == "flydsl_moe2_afp8_wfp8_f16_t64x128x128_atomic"
    unknown = ask("0.1.20", replace(FP4, q_dtype_a="fp4x2", q_dtype_w="fp8"))
    assert unknown.stage1.kernel == "flydsl_moe1_afp4_wfp8_bf16_t32x128x256", "no such pair is registered: the bare name"


def test_without_the_force_only_swiglu_and_situv2_take_the_flydsl_heuristic() -> None:
    off = {"AITER_FLYDSL_FORCE": "0"}
    assert ask("0.1.20", replace(FP4, token=512), env=off).path == "ck2stages"
    assert ask("0.1.20", replace(FP4, token=512, act="swiglu"), env=off).path == "flydsl"


# --- rows --------------------------------------------------------------------------------------------------------------


def rowed(version: str, key: Key = BF16, *, flydsl: bool = True, header: list[str] = OLD, **cells: object) -> Dispatch:
    text = table(header, row(header, cu_num=256, gfx="gfx950", **cells))
    return ask(version, key, text=text, flydsl=flydsl)


@pytest.mark.parametrize(
    ("version", "names", "funcs", "path"),
    [
        ("0.1.20", ("moe_ck2stages_x", "moe_ck2stages_y"), ("ck_moe_stage1", "ck_moe_stage2_fwd"), "ck2stages"),
        ("0.1.8", ("moe_ck2stages_x", "moe_ck2stages_y"), ("ck_moe_stage1_fwd", "ck_moe_stage2_fwd"), "ck2stages"),
        ("0.1.20", ("asm_x", "moe_ck2stages_y"), ("asm_stage1", "ck_moe_stage2_fwd"), "asm+ck"),
        ("0.1.9", ("asm_x", "moe_ck2stages_y"), ("ck_moe_stage1", "ck_moe_stage2_fwd"), "ck2stages"),
        ("0.1.20", ("flydsl_x", "flydsl_y"), ("_flydsl_stage1_wrapper", "_flydsl_stage2_wrapper"), "flydsl"),
        ("0.1.20", ("flydsl_x", "moe_ck2stages_y"), ("_flydsl_stage1_wrapper", "ck_moe_stage2_fwd"), "flydsl"),
        ("0.1.20", ("moe_ck2stages_x", "flydsl_y"), ("ck_moe_stage1", "_flydsl_stage2_wrapper"), "flydsl"),
        ("0.1.20", ("asm_x", "cktile_y"), ("asm_stage1", "cktile_moe_stage2"), "asm+ck"),
        ("0.1.14", ("asm_x", "cktile_y"), ("asm_stage1", "ck_moe_stage2_fwd"), "asm+ck"),
        (
            "0.1.20",
            ("flydsl_x", "flydsl_moe2_layout_afp4_wfp4_bf16_t32x128x128_atomic"),
            ("_flydsl_stage1_wrapper", "_flydsl_v2_stage2_wrapper"),
            "flydsl",
        ),
        (
            "0.1.20",
            ("flydsl_mxmoe_g1_a4w4_16x256x256_nt", "flydsl_mxmoe_g2_a4w4_16x256x256_atomic"),
            ("_mxfp4_a4w4_stage1_fw", "_mxfp4_a4w4_stage2_fw"),
            "flydsl",
        ),
        ("0.1.20", ("opus_moe1_x", "flydsl_y"), ("_opus_a8w4_stage1_wrapper", "_flydsl_stage2_wrapper"), "opus"),
        (MAIN, ("opus_moe1_x", "flydsl_y"), ("opus_a8w4_stage1_wrapper", "_flydsl_stage2_wrapper"), "opus"),
    ],
)
def test_paths_of_named_kernels(version: str, names: tuple[str, str], funcs: tuple[str, str], path: str) -> None:
    got = rowed(version, kernelName1=names[0], kernelName2=names[1])
    assert got.error is None
    assert got.stage2 is not None
    assert ((got.stage1.func, got.stage2.func), got.path, got.tuned) == (funcs, path, "hit")


def test_the_port_takes_block_m_from_its_kernels_name() -> None:
    names = {"kernelName1": "flydsl_mxmoe_g1_a4w4_64x256x256", "kernelName2": "flydsl_mxmoe_g2_a4w4_64x256x256"}
    assert rowed("0.1.20", block_m=32, **names).block_m == 64
    assert rowed("0.1.20", block_m=32, **{**names, "kernelName1": "flydsl_mxmoe_g1_a4w4_what"}).block_m == 32


def test_asm_stage_1_rounds_block_m_up_to_one_stage_2_has() -> None:
    assert rowed("0.1.20", kernelName1="asm_x", block_m=48).block_m == 64
    assert rowed("0.1.20", kernelName1="asm_x", block_m=512).block_m == 128
    assert rowed("0.1.7.post2", q_dtype_w="torch.float8_e4m3fn", q_dtype_a="torch.float8_e4m3fn", q_type="QuantType.per_Token",
                 key=FP8, kernelName1="asm_x", block_m=16).block_m == 32  # fmt: skip


@pytest.mark.parametrize(
    ("version", "tuned", "kernel"),
    [("0.1.17", "miss", ""), ("0.1.18", "hit", "flydsl_x")],
)
def test_a_flydsl_row_without_flydsl(version: str, tuned: str, kernel: str) -> None:
    got = rowed(version, flydsl=False, kernelName1="flydsl_x", kernelName2="flydsl_y")
    assert (got.tuned, got.stage1.kernel) == (tuned, kernel)


def test_a_row_tagged_fallback_stands_in_without_flydsl() -> None:
    rows = row(TAGGED, cu_num=256, kernelName1="flydsl_x"), row(TAGGED, cu_num=256, kernelName1="asm_y", _tag="flydsl_fallback")
    got = ask("0.1.16", BF16, text=table(TAGGED, *rows), flydsl=False)
    assert (got.stage1.kernel, got.tuned, got.notes) == ("asm_y", "hit", ("flydsl-fallback-row",))
    assert ask("0.1.16", BF16, text=table(TAGGED, *rows), flydsl=True).stage1.kernel == "flydsl_x"


@pytest.mark.parametrize(
    ("cells", "changes", "tuned"),
    [
        ({"block_m": 32}, {}, "hit"),
        ({"block_m": 64}, {}, "miss"),
        ({"block_m": 32}, {"bias2": True}, "miss"),
        ({"block_m": 32}, {"is_shuffled": False}, "miss"),
        ({"block_m": 32, "kernelName2": "opus_no_such"}, {}, "miss"),
        ({"block_m": 32, "kernelName2": "opus_moe2_layout_afp8_wfp4_bf16_t32x256x256_sbm32_small"}, {}, "hit"),
    ],
)
def test_opus_rows_are_taken_only_where_they_run(cells: dict[str, object], changes: dict[str, bool], tuned: str) -> None:
    names = {"kernelName1": "flydsl_x", "kernelName2": "opus_moe2_afp8_wfp4_bf16_t32x256x256_sbm32_small"}
    got = rowed("0.1.20", replace(BF16, **changes), **{**names, **cells})  # type: ignore[arg-type]
    assert got.tuned == tuned
    assert (got.stage2 is not None and got.stage2.kind == "opus") is (tuned == "hit")


def test_expert_parallel_takes_one_column_of_topk_away_from_0_1_16() -> None:
    text = table(OLD, row(OLD, cu_num=256, topk=8))
    ep = replace(BF16, topk=9, is_ep=True)
    assert ask("0.1.16", ep, text=text).tuned == "hit"
    assert ask("0.1.15", ep, text=text).tuned == "miss"


def test_bypassing_the_tables_leaves_the_heuristics() -> None:
    text = table(OLD, row(OLD, cu_num=256))
    env = {"AITER_BYPASS_TUNE_CONFIG": "1"}
    got = ask("0.1.20", BF16, text=text, env=env)
    assert (got.tuned, got.stage1.kernel, got.notes, len(got.rows)) == ("miss", "", ("bypassed",), 1)
    assert ask("0.1.8", BF16, text=text, env=env).tuned == "hit", "known from 0.1.9"


def test_small_blockscale_problems_leave_their_rows_for_a_while() -> None:
    cells = {"q_dtype_a": "torch.float8_e4m3fn", "q_dtype_w": "torch.float8_e4m3fn", "q_type": "QuantType.per_1x128"}
    assert rowed("0.1.8", BLOCK, **cells).tuned == "hit"
    assert rowed("0.1.9", BLOCK, **cells).notes == ("blockscale-bypass",)
    assert rowed("0.1.9", replace(BLOCK, token=32), token=32, **cells).tuned == "hit", "32 x 8 is more than 128"
    assert rowed("0.1.10", replace(BLOCK, token=32), token=32, **cells).tuned == "miss"
    assert rowed("0.1.13", BLOCK, **cells).tuned == "hit"


def test_what_a_borrowed_or_unused_row_is_noted_with() -> None:
    assert rowed("0.1.20", act_type="ActivationType.Gelu").notes == ("borrowed-activation",)
    odd = {
        "kernelName1": "cktile_x",
        "q_dtype_a": "torch.float8_e4m3fn",
        "q_dtype_w": "torch.float4_e2m1fn_x2",
        "q_type": "QuantType.per_1x32",
    }
    assert "row-kernels-not-used" in rowed("0.1.20", replace(FP4, q_dtype_a="fp8"), **odd).notes


def test_from_0_1_21_a_one_stage_row_is_for_silu_and_gelu() -> None:
    assert rowed("0.1.20", replace(BF16, act="swiglu"), run_1stage=1).path == "1stage"
    got = rowed("0.1.21", replace(BF16, act="swiglu"), run_1stage=1, kernelName1="asm")
    assert (got.tuned, got.path, got.confidence) == ("miss", "ck2stages", "unverified")


# --- what AITER raises -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "key", "text"),
    [
        ("0.1.20", replace(BF16, expert=0, topk=0), "ZeroDivisionError: integer division or modulo by zero"),
        ("0.1.20", replace(FP4, model_dim=1), "ZeroDivisionError: integer division or modulo by zero"),
        ("0.1.20", replace(BF16, dtype="fp8"), "AssertionError: Fused_moe unsupported out dtype: torch.float8_e4m3fn"),
        (
            "0.1.20",
            replace(BF16, expert=2, inter_dim=60, q_dtype_w="u32", q_type="per_Token"),
            "AssertionError: Invalid MoE weight: w1.shape=torch.Size([2, 120, 512]) w2.shape=torch.Size([2, 4096, 7])",
        ),
        (
            "0.1.13",
            replace(BF16, gate_mode="interleave"),
            "TypeError: fused_moe() got an unexpected keyword argument 'gate_mode'",
        ),
        (
            "0.1.20",
            replace(FP4, act="situv2", is_ep=True),
            "NotImplementedError: a16w4 (bf16 A x MXFP4 W) SiTUv2 is not supported: ",
        ),
    ],
)
def test_what_aiter_refuses_is_its_own_text(version: str, key: Key, text: str) -> None:
    got = ask(version, key)
    assert got.error is not None
    assert got.error.startswith(text)
    assert (got.path, got.stage1.kind) == ("error", "none")


@pytest.mark.parametrize(
    ("version", "cells", "text"),
    [
        ("0.1.20", {"kernelName1": ""}, "TypeError: argument of type 'float' is not iterable"),
        ("0.1.16", {"kernelName1": ""}, "AttributeError: 'float' object has no attribute 'startswith'"),
        ("0.1.20", {"kernelName1": "asm_x", "kernelName2": ""}, "AttributeError: 'float' object has no attribute 'startswith'"),
        ("0.1.20", {"block_m": ""}, "ValueError: cannot convert float NaN to integer"),
        (
            "0.1.20",
            {"kernelName1": "flydsl_x", "kernelName2": "flydsl_moe2_layout_x"},
            "ValueError: Invalid FlyDSL v2 GEMM2 kernel name: ",
        ),
    ],
)
def test_rows_aiter_stumbles_over(version: str, cells: dict[str, object], text: str) -> None:
    got = rowed(version, **cells)
    assert got.error is not None
    assert got.error.startswith(text)
    assert got.row is not None


def test_an_architecture_the_map_does_not_know() -> None:
    assert ask("0.1.18", BF16, "gfx90a", 104).error == "KeyError: 'gfx90a'"
    got = ask("0.1.20", BF16, "gfx90a", 104)
    assert (got.error, got.path, got.confidence) == (None, "ck2stages", "unverified")


def test_a_broken_table_is_an_error_beside_the_answer() -> None:
    got = ask("0.1.20", BF16, text=table(OLD, row(OLD, cu_num=256), row(OLD) + ",9"))
    assert got.error is not None
    assert got.error.startswith("ParserError: ")
    assert got.path == "ck2stages"


# --- cost, confidence ----------------------------------------------------------------------------------------------------


def test_no_table_is_unknown_not_a_miss() -> None:
    assert ask("0.1.20", BF16).tuned == "unknown"
    assert ask("0.1.20", BF16, text=table(OLD)).tuned == "miss"


def test_tokens_of_one_bucket_share_an_answer_and_keep_their_count() -> None:
    d = Dispatcher(Version.of("0.1.20"), "gfx942", 304)
    a, b = d.dispatch(replace(BF16, token=100)), d.dispatch(replace(BF16, token=128))
    assert (a.token, b.token, a.lookup_token, b.lookup_token) == (100, 128, 128, 128)
    assert a.stage1 is b.stage1


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moe_preflight.aiter.dispatch.CACHE", 4)
    d = Dispatcher(Version.of("0.1.20"), "gfx942", 304)
    for i in range(1, 50):
        d.dispatch(replace(BF16, model_dim=64 * i, token=i))
    assert len(d._cache) <= 4
    assert len(d._buckets) <= 4


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.1.7.post2.dev18", True),
        ("0.1.20.post1", True),
        ("0.1.21", False),
        ("0.1.14.post9", False),
        ("0.1.20.post1-3-gabc", False),
    ],
)
def test_only_asked_releases_are_verified(version: str, known: bool) -> None:
    assert is_verified(Version.of(version)) is known
    assert ask(version, BF16).confidence == ("verified" if known else "unverified")


def test_main_is_between_the_releases() -> None:
    assert max(VERIFIED) < Version.of(MAIN) < Version.of("0.1.21")
    assert not is_verified(Version.of(MAIN)), "a release of that name is none we have read"


def test_a_tree_may_say_otherwise_than_its_release() -> None:
    base = rules("0.1.20.post1")
    assert as_the_tree_says(base, tiers=base.tiers, columns=("gfx", "cu_num"), act=base.act) == base
    changed = as_the_tree_says(base, tiers=((64, "pow2"), (None, 64)), columns=("cu_num",), act="exact")
    d = Dispatcher(Version.of("0.1.20.post1"), "gfx942", 304, rules=changed)
    assert (d.bucket(4096), changed.gfx_in_key, changed.act, d.confidence) == (64, False, "exact", "unverified")


def test_newer_aiter_takes_flydsl_for_granted() -> None:
    assert ask("0.1.21", replace(FP4, token=512), flydsl=False).path == "flydsl"


def test_a_new_layout_gfx_column_is_read() -> None:
    assert rowed("0.1.20", header=NEW).tuned == "hit"


@pytest.mark.parametrize("key", [BF16, replace(BF16, expert=0, topk=0), replace(FP8, topk=0, expert=0)])
def test_tables_are_read_before_anything_is_counted(key: Key) -> None:
    """Whatever a key would raise in the heuristics, a table AITER cannot load is what it raises on."""
    d = ask("0.1.20", key, text="token\n")
    assert d.error is not None
    assert d.error.startswith("KeyError: ")
