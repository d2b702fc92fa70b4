"""Small tuned tables written for tests: a good row, and files made of changed ones."""

from __future__ import annotations

from pathlib import Path

HEADER = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,"
    "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag"
)
GEMM1 = "moe_ck2stages_gemm1_256x32x64x64_1x4_TypeCast_v1_Nswizzle0_Quant0_MulRoutedWeight0_silu_B16_B16_B16"
GEMM2 = "moe_ck2stages_gemm2_256x32x64x64_1x4_TypeCastExpertWeight_v1_Nswizzle0_Quant0_MulRoutedWeight1_B16_B16_B16"
ASM = "_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_32x128_3tg_pf2E"

GOOD = {
    "cu_num": "304", "token": "64", "model_dim": "4096", "inter_dim": "192", "expert": "128", "topk": "8",
    "act_type": "ActivationType.Silu", "dtype": "torch.bfloat16", "q_dtype_a": "torch.bfloat16", "q_dtype_w": "torch.bfloat16",
    "q_type": "QuantType.No", "use_g1u1": "1", "doweight_stage1": "0", "block_m": "32", "ksplit": "0", "us1": "10.5",
    "kernelName1": GEMM1, "err1": "0.0%", "us2": "9.5", "kernelName2": GEMM2, "err2": "0.0%", "us": "20.0", "run_1stage": "0",
    "tflops": "1.0", "bw": "2.0", "_tag": "",
}  # fmt: skip
"""A bf16 row nothing is wrong with, on gfx942 with 304 CUs."""


def row(header: str = HEADER, **changed: str) -> str:
    """One line: the good row with some cells changed. Columns the header lacks are left out."""
    cells = {**GOOD, **changed}
    return ",".join(cells.get(c, "") for c in header.split(","))


def table(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


def tree(root: Path, **files: str) -> Path:
    """An AITER tree: keys are names in model_configs without .csv, ``default`` is tuned_fmoe.csv, ``hsa_<gfx>`` an assembly list."""
    configs = root / "aiter" / "configs"
    (configs / "model_configs").mkdir(parents=True)
    untuned = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
    (configs / "untuned_fmoe.csv").write_text(untuned)
    (configs / "tuned_fmoe.csv").write_text(files.pop("default", HEADER + "\n"))
    for name, text in files.items():
        if name.startswith("hsa_"):
            path = root / "hsa" / name[4:] / "fmoe_2stages" / "list.csv"
            path.parent.mkdir(parents=True)
        else:
            path = configs / "model_configs" / f"{name}.csv"
        path.write_text(text)
    return root
