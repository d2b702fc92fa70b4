"""The text of every lint, as for ``moe-preflight rule``: what it says, why it matters, an example, what to do, where it was read."""

from __future__ import annotations

from moe_preflight.rules.rule import Rule

_TABLES = "a tuned fMoE table was read"

DUPLICATE = Rule(
    code="MP701",
    name="duplicate-key",
    severity="error",
    depends=_TABLES,
    what="Two rows have one key and name the same kernels and settings.",
    why="From v0.1.12 AITER refuses to merge them: it rewrites the CSV files in place, raises, and the first fused_moe call fails.",
    example="\"Found 2 duplicate shape entries during merge of 'tuned_fmoe'. Auto-resolved by keeping best performing ...\"",
    remedy="Remove one of the rows.",
    source="aiter/jit/core.py update_config_files (v0.1.20.post1:237-353)",
)
CONFLICTING = Rule(
    code="MP702",
    name="conflicting-key",
    severity="error",
    depends=_TABLES,
    what="Two rows have one key and name different kernels or settings, in one file or in two.",
    why="From v0.1.12 AITER rewrites the CSV files in place (the lowest us stays), raises, and the first fused_moe call fails; "
    "older releases keep the lowest us without a word.",
    example="Two model tables tuned for the same shape on different days.",
    remedy="Keep the faster row.",
    source="aiter/jit/core.py update_config_files (v0.1.20.post1:237-353; v0.1.7.post2:73)",
)
TOKEN = Rule(
    code="MP703",
    name="unreachable-token",
    severity="warning",
    depends=_TABLES,
    what="The row's token count is no token bucket of this release.",
    why="AITER pads the batch to a bucket before it looks a row up, so this row is never found.",
    example="token 56: a batch of 56 is looked up as 64.",
    remedy="Tune the bucket instead (a power of two below 32768; 32768; 131072), and remove the row.",
    source="aiter/fused_moe.py get_padded_M (v0.1.20.post1:1340)",
)
SHADOWED = Rule(
    code="MP704",
    name="activation-shadowed",
    severity="warning",
    depends="a tuned fMoE table was read, and the release ignores the activation in its lookup",
    what="Another activation's row with the same key comes first, and this release takes the first row of any activation.",
    why="The log says tuned, but the kernels are those tuned for the other activation; a CK stage 1 of another activation is not in "
    "the compiled module at all, and AITER then runs its heuristic.",
    example="v0.1.20: Gelu rows of tuned_fmoe.csv stand before the Silu rows of DeepSeek-V3 on 80 CUs.",
    remedy="Put the row's file in AITER_CONFIG_FMOE alone, or move to a release that matches the activation.",
    source="aiter/fused_moe.py get_2stage_cfgs (v0.1.20.post1:2147-2290: the key holds the enum, the table a string)",
)
GFX = Rule(
    code="MP705",
    name="gfx-mismatch",
    severity="error",
    depends=_TABLES,
    what="The row's gfx, its compute units or its fp8 type belong to different architectures.",
    why="A running GPU never asks such a key, so the row is never found.",
    example="gfx950 with 304 CUs; torch.float8_e4m3fnuz (gfx942's type) on 256 CUs.",
    remedy="Correct the column: 80 and 304 CUs are gfx942 with float8_e4m3fnuz, 256 are gfx950 with float8_e4m3fn.",
    source="aiter/jit/utils/chip_info.py gfx_from_cu_num; aiter/utility/dtypes.py",
)
CU = Rule(
    code="MP706",
    name="unknown-cu",
    severity="warning",
    depends=_TABLES,
    what="No GPU known to AITER or to this tool has this many compute units.",
    why="The key holds cu_num, so the row serves no known GPU; without a gfx column AITER takes it for whatever GPU runs.",
    example="cu_num 300.",
    remedy="Correct cu_num, or tell us about the GPU.",
    source="aiter/jit/utils/chip_info.py gfx_from_cu_num; AMD's GPU hardware specifications",
)
TIME = Rule(
    code="MP707",
    name="bad-time",
    severity="warning",
    depends=_TABLES,
    what="The row's time (us) is zero, negative, missing or not finite: it was not measured.",
    why="Of two rows with one key AITER keeps the lowest us, so a zero wins over every measured row.",
    example="us 0.0 on a hand-written row.",
    remedy="Measure the row with the tuner, or remove it.",
    source="aiter/jit/core.py update_config_files (sort by us)",
)
SHAPE = Rule(
    code="MP708",
    name="shape-rejected",
    severity="error",
    depends="the row names a kernel whose tile is known",
    what="The row's own kernel cannot take the row's inter_dim or model_dim.",
    why="AITER launches the named kernel, and the kernel's own check throws.",
    example="A 128-wide stage 1 tile in a row with inter_dim 192.",
    remedy="Tune the shape again, or remove the row.",
    source="composable_kernel device_moe_gemm.hpp:408 IsSupportedArgument; csrc/py_itfs_cu/asm_moe_2stage.cu:196",
)
BLOCK_M = Rule(
    code="MP709",
    name="block-m-mismatch",
    severity="error",
    depends="the row names a kernel whose tile is known",
    what="block_m is not the number of rows the named kernel works on.",
    why="Tokens are sorted in blocks of block_m; a kernel with another block reads past its expert or refuses.",
    example="block_m 64 with a 32x128 kernel.",
    remedy="Set block_m to the kernel's own (its sbm suffix where it has one), or tune the row again.",
    source="csrc/py_itfs_cu/asm_moe_2stage.cu:215 (need block_m == tile_m); aiter/fused_moe.py (moe_sorting takes block_m)",
)
KERNEL = Rule(
    code="MP710",
    name="unknown-kernel",
    severity="error",
    depends="the row names a kernel",
    what="The named kernel is in no registry of this release: not in CK's instance list for the row's dtypes, not in the tree's "
    "assembly lists for its architecture, not an Opus kernel, or not a name of any known form.",
    why='CK warns "ck kernel not found" and takes its heuristic tile; assembly and FlyDSL abort.',
    example="A row tuned with another release, whose instance has been removed since.",
    remedy="Tune the row with this release, or remove it.",
    source="csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages.cu:52; csrc/py_itfs_cu/asm_fmoe.cu:320; hsa/*/fmoe*/**.csv",
)
LAYOUT = Rule(
    code="MP711",
    name="column-layout",
    severity="error",
    depends=_TABLES,
    what="The file's columns make AITER's merge drop or fill rows, or refuse.",
    why="v0.1.13 to v0.1.17: a file without _tag, merged with one that has it, loses every row. Other missing columns are filled with 0.",
    example="A table of an older tuner, without run_1stage, beside tables that have it.",
    remedy="Give the file the columns of the other tables.",
    source="aiter/jit/core.py update_config_files (v0.1.20.post1:259-287; v0.1.13:183)",
)
RAGGED = Rule(
    code="MP712",
    name="ragged-row",
    severity="error",
    depends=_TABLES,
    what="The row has more or fewer cells than the header.",
    why="A longer row makes pandas, and so AITER, refuse the whole file; a shorter one is filled with empty cells.",
    example="A kernel name with a comma in it.",
    remedy="Mend the row.",
    source="pandas read_csv, as aiter/jit/core.py calls it",
)
ERROR = Rule(
    code="MP713",
    name="error-above-tolerance",
    severity="warning",
    depends="the row has err1 or err2",
    what="The error the tuner measured is above the tolerance this release's tuner accepts by default.",
    why="The kernel's numbers differ from the reference by more than a fresh tuning run would let pass. (From v0.1.19 that error is a "
    "cosine difference; rows tuned before hold the share of elements out of tolerance.)",
    example="err2 15.7% with v0.1.19 or newer, whose errRatio is 0.1.",
    remedy="Tune the row again with this release.",
    source="csrc/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py ARG_DEFAULTS errRatio (0.5 up to v0.1.18, 0.1 from v0.1.19)",
)
NAME = Rule(
    code="MP714",
    name="not-loaded-by-name",
    severity="warning",
    depends="a tree, or a file named",
    what="The file holds tuned fMoE rows, and AITER does not load it because of its name or place.",
    why="Its rows are never found unless AITER_CONFIG_FMOE names the file.",
    example="model_configs/my_moe.csv: only *tuned_fmoe*.csv directly in model_configs is loaded, and not if untuned is in the name.",
    remedy="Name it ..._tuned_fmoe.csv (without untuned) in aiter/configs/model_configs.",
    source="aiter/jit/core.py get_config_file (v0.1.20.post1:376-404)",
)

RULES: tuple[Rule, ...] = (
    DUPLICATE, CONFLICTING, TOKEN, SHADOWED, GFX, CU, TIME, SHAPE, BLOCK_M, KERNEL, LAYOUT, RAGGED, ERROR, NAME,
)  # fmt: skip
