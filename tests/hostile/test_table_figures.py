"""A tuned table's figures are its own: whatever stands there, the report keeps its schema and says which row to mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_inputs import a_tree, report

HEAD = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,"
    "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag\n"
)
ROW = (
    "gfx942,304,1,4096,256,64,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,"
    "{block_m},{ksplit},5,moe_ck2stages_gemm1_x,0,5,moe_ck2stages_gemm2_x,0,{us},{run_1stage},1,1,\n"
)
SOUND = {"block_m": "32", "ksplit": "0", "us": "10", "run_1stage": "0"}
ODD = [(name, text) for name in SOUND for text in ("-1", "-64", "0", "7", str(2**31), str(-(2**63)))]


@pytest.mark.parametrize(("name", "text"), ODD)
def test_any_figure_of_a_tuned_row_fits_the_schema(name: str, text: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=HEAD + ROW.format(**{**SOUND, name: text}))
    done, _ = report(  # which holds the report to its schema
        *("check", "--shape", "experts=64,topk=8,hidden=4096,inter=256", "--gpu", "mi300x", "--tokens", "1,2"),
        *("--aiter", str(tree), "--aiter-version", "v0.1.20.post1"),
    )
    assert done.code in (0, 1), done.err


@pytest.mark.parametrize("block_m", ["-1", "0", "7"])
def test_a_row_without_a_tile_is_the_thing_to_mend(block_m: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=HEAD + ROW.format(**{**SOUND, "block_m": block_m}))
    _, document = report(
        *("check", "--shape", "experts=64,topk=8,hidden=4096,inter=256", "--gpu", "mi300x", "--tokens", "1,2"),
        *("--aiter", str(tree), "--aiter-version", "v0.1.20.post1"),
    )
    (finding,) = [f for f in document["findings"] if f["code"] == "MP102"]
    assert "tuned_fmoe.csv:2" in finding["remedy"]
    assert [(e["file"].rsplit("/", 1)[-1], e["line"]) for e in finding["evidence"]] == [("tuned_fmoe.csv", 2)]
