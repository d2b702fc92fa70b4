"""Assembly kernels: which are shipped, and when a launcher finds none."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from moe_preflight.aiter.asm_kernels import AsmCall, AsmLists, asm_lists, judge_asm_stage1, judge_one_stage
from moe_preflight.aiter.kernel_names import parse
from moe_preflight.aiter.key import NOT_READ
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.version import Version
from tests.corpus import corpus, needs_corpus

NEW, OLD = Version.of("0.1.20.post1"), Version.of("0.1.7.post2")
HEADER = "knl_name,co_name,atm,vskip,smf,tg_num_perCU,ps,subGU_m,subGU_n,flat\n"
FILES = {
    "fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv": HEADER + "a,a.co,0,1,0,1,0,32,192,0\nb,b.co,0,1,0,1,0,32,256,0\n"
    "c,c.co,0,0,0,1,0,32,64,0\nd,d.co,0,1,2,1,0,32,64,0\ne,e.co,0,1,0,1,0,16,64,0\n\n",
    "fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_silu.csv": HEADER
    + "f,f.co,0,1,0,1,0,16,128,0\ng,g.co,0,1,0,1,0,32,128,1\nh,h.co,0,1,0,1,0,64,256,0\n",
    "fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1.csv": "tile_m,tile_n,knl_name,co_name\n32,128,s1,s1.co\n64,256,s2,s2.co\n",
}


@pytest.fixture
def lists(tmp_path: Path) -> AsmLists:
    (tmp_path / "aiter/configs").mkdir(parents=True)
    for name, text in FILES.items():
        path = tmp_path / "hsa/gfx942" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = asm_lists(open_tree(str(tmp_path)), "gfx942")
    assert found is not None
    assert found.unreadable == ()
    return found


def fp8(inter_dim: int, kernel: str = "", **more: object) -> AsmCall:
    return AsmCall("per_Token", "fp8", "fp8", "bf16", "silu", inter_dim, 32, kernel=kernel, **more)  # type: ignore[arg-type]


def test_a_tree_without_lists_says_nothing(tmp_path: Path, lists: AsmLists) -> None:
    assert asm_lists(open_tree(str(tmp_path)), "gfx950") is None


@pytest.mark.parametrize("kind", ["list", "folder"])
def test_a_list_that_cannot_be_read_says_nothing_of_its_kernels(tmp_path: Path, lists: AsmLists, kind: str) -> None:
    """An unread list is no absent kernel: the verdict stays open, named or not, in one stage and in two."""
    gfx = tmp_path / "hsa/gfx942"
    if kind == "list":
        (gfx / "fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv").write_bytes(b"\xff")
        (gfx / "fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1.csv").write_text("tile_m,knl_name\n1,x\n")
    else:
        other = tmp_path.parent / f"{tmp_path.name}-out"
        other.mkdir()
        for folder in ("fmoe/silu", "fmoe_2stages"):
            (gfx / folder).rename(other / ("moved_" + folder.replace("/", "_")))
            (gfx / folder).symlink_to(other / ("moved_" + folder.replace("/", "_")))
    broken = asm_lists(open_tree(str(tmp_path)), "gfx942")
    assert broken is not None
    for judge, known in ((judge_one_stage, "a"), (judge_asm_stage1, "s1")):
        for kernel in (known, "no_such_kernel", ""):
            v = judge(broken, NEW, fp8(384, kernel))
            assert (v.accepted, v.raises) == (None, "")
            assert v.reason.startswith(NOT_READ)


def test_one_stage_needs_a_tile_that_divides_the_width(lists: AsmLists) -> None:
    v = judge_one_stage(lists, NEW, fp8(384))
    assert (v.accepted, v.tile_n, v.source) == (True, 192, "hsa/gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_silu.csv:2")
    assert judge_one_stage(lists, NEW, fp8(768)).tile_n is None
    # 64 is only shipped without vskip, for smooth quantization, and for other blocks.
    v = judge_one_stage(lists, NEW, fp8(320))
    assert (v.accepted, v.raises) == (False, "No suitable kernel found for inter_dim: 320")
    assert v.reason == "320 is not a multiple of a shipped tile (64, 192, 256) in fmoe_bf16_pertokenFp8_g1u1_silu"


def test_rows_per_block_count_since_v0_1_12(lists: AsmLists) -> None:
    assert judge_one_stage(lists, Version.of("0.1.11"), fp8(320)).accepted
    assert not judge_one_stage(lists, Version.of("0.1.12"), fp8(320)).accepted


@pytest.mark.parametrize(
    ("version", "inter_dim", "block_m", "accepted"),
    [
        (NEW, 384, 16, True),
        (NEW, 384, 32, False),
        (NEW, 384, 64, False),
        (NEW, 512, 64, True),
        (OLD, 384, 64, False),
        (OLD, 512, 64, True),
    ],
)
def test_blockscale(lists: AsmLists, version: Version, inter_dim: int, block_m: int, accepted: bool) -> None:
    call = AsmCall("per_1x128", "fp8", "fp8", "bf16", "silu", inter_dim, block_m)
    assert judge_one_stage(lists, version, call).accepted is accepted


def test_blockscale_refuses_other_widths_and_outputs(lists: AsmLists) -> None:
    refused = "Unsupported the type for fmoe_fp8_blockscale_g1u1"
    assert judge_one_stage(lists, NEW, AsmCall("per_1x128", "fp8", "fp8", "bf16", "silu", 320, 32)).raises == refused
    assert judge_one_stage(lists, NEW, AsmCall("per_1x128", "fp8", "fp8", "fp16", "silu", 512, 64)).raises == refused


def test_a_name_must_be_in_the_list_its_operands_select(lists: AsmLists) -> None:
    v = judge_one_stage(lists, NEW, fp8(320, "b"))
    assert (v.accepted, v.tile_n, v.from_name) == (True, 256, True)
    v = judge_one_stage(lists, NEW, fp8(384, "f"))
    assert (v.accepted, v.raises) == (False, " not find kernel f")
    assert not judge_one_stage(lists, NEW, AsmCall("per_Token", "fp8", "fp8", "bf16", "gelu", 384, 32, kernel="a")).accepted


@pytest.mark.parametrize("act", ["swiglu", "gelutanh", "no"])
def test_other_activations_have_no_one_stage_kernel(lists: AsmLists, act: str) -> None:
    assert judge_one_stage(lists, NEW, AsmCall("per_Token", "fp8", "fp8", "bf16", act, 384, 32)).accepted is False


def test_tiles_written_down_in_the_source(lists: AsmLists) -> None:
    int8 = AsmCall("per_Token", "i8", "i8", "bf16", "silu", 448, 32, use_g1u1=False)
    assert judge_one_stage(lists, NEW, int8).tile_n == 448
    int4 = AsmCall("per_Token", "fp8", "u32", "bf16", "gelu", 192, 32)
    assert judge_one_stage(lists, NEW, int4).raises == " Unsupported inter_dim 192"
    assert judge_one_stage(lists, NEW, AsmCall("No", "bf16", "bf16", "bf16", "silu", 100, 32, use_g1u1=False)).accepted is None


def test_stage_1_of_two(lists: AsmLists) -> None:
    assert judge_asm_stage1(lists, NEW, fp8(384)).tile_n == 128
    v = judge_asm_stage1(lists, NEW, fp8(320))
    assert (v.accepted, v.reason) == (False, "no shipped tile for block_m 32 divides 320 (tiles: 128)")
    assert judge_asm_stage1(lists, NEW, fp8(384, "s1")).from_name
    assert judge_asm_stage1(lists, NEW, fp8(320, "s1")).reason == "320 is not a multiple of tile N 128"
    assert judge_asm_stage1(lists, NEW, fp8(512, "s2")).reason == "block_m is 32 and the kernel needs 64"
    assert judge_asm_stage1(lists, OLD, fp8(320, "s1")).accepted
    assert judge_asm_stage1(lists, NEW, fp8(512, "s3")).raises == " not find kernel s3"
    assert judge_asm_stage1(lists, NEW, fp8(512, doweight=True)).accepted is False
    assert (
        judge_asm_stage1(lists, NEW, AsmCall("per_Token", "i8", "i8", "bf16", "silu", 512, 32, doweight=True)).raises
        == "Unsupported input_type"
    )


@pytest.mark.parametrize("row", ["x,x.co,0,1,0,1,0,32,zero,0", "x,x.co,0,1,0,1,0,32,0,0", "x", "x,x.co,0,1,0,1,0,٣٢,64,0"])
def test_a_row_that_is_no_kernel_makes_the_list_unreadable(tmp_path: Path, row: str) -> None:
    path = tmp_path / "hsa/gfx942/fmoe/silu/l.csv"
    path.parent.mkdir(parents=True)
    (tmp_path / "aiter/configs").mkdir(parents=True)
    path.write_text(HEADER + row + "\n")
    found = asm_lists(open_tree(str(tmp_path)), "gfx942")
    assert found is not None
    assert found.unreadable == (("hsa/gfx942/fmoe/silu/l.csv", "line 2 is not a kernel with a tile"),)


SHORT = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float8_e4m3fnuz": "fp8",
    "torch.float8_e4m3fn": "fp8",
    "torch.int8": "i8",
}
SHORT |= {"torch.float4_e2m1fn_x2": "fp4x2", "torch.uint32": "u32"}


@needs_corpus
@pytest.mark.parametrize(("tag", "asked"), [("v0.1.13", 476), ("v0.1.16.post4", 565), ("v0.1.20.post1", 637)])
def test_every_tuned_assembly_kernel_is_shipped_for_its_own_row(tag: str, asked: int) -> None:
    tree = open_tree(str(corpus("aiter-trees", tag)), version=tag)
    lists = {gfx: asm_lists(tree, gfx) for gfx in ("gfx942", "gfx950")}
    found = 0
    for file in tree.names("aiter/configs", ".csv"):
        if "tuned_fmoe" not in file or "untuned" in file:
            continue
        for row in csv.DictReader(tree.read_text(file).splitlines()):
            name = parse((row.get("kernelName1") or "").strip())
            if name is None or not name.kind.startswith("asm"):
                continue
            on = lists[row.get("gfx") or ("gfx950" if row["cu_num"] == "256" else "gfx942")]
            assert on is not None
            call = AsmCall(
                row["q_type"].rpartition(".")[2],
                SHORT[row["q_dtype_a"]],
                SHORT[row["q_dtype_w"]],
                SHORT[row["dtype"]],
                row["act_type"].rpartition(".")[2].lower(),
                int(row["inter_dim"]),
                int(row["block_m"]),
                use_g1u1=row["use_g1u1"] in ("1", "True"),
                doweight=row["doweight_stage1"] in ("1", "True"),
                kernel=name.text,
                xbf16="blockscaleBf16" in name.text or "a16_blockscale" in name.text,
            )
            assert tree.version is not None
            verdict = (judge_one_stage if name.kind == "asm-1stage" else judge_asm_stage1)(on, tree.version, call)
            assert verdict.accepted, (file, row, verdict)
            found += 1
    assert found == asked
