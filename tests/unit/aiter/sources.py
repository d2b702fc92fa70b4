"""Small stand-ins for AITER's source files, in its words and layout, for tests of the readers."""

from __future__ import annotations

from itertools import product

TAGS = ("a16w16", "a16w16_gfx950", "a8w8", "a8w8_gfx950", "a8w8blkscale", "a8w4", "a4w4", "a4w4_bns")

_RETURN = (
    "return ck_moe_stage{stage}_gemm<{{A0DataType}}, {{B0DataType}}, {{AccDataType}}, {{EDataType}}, {{CDEElementOp}}, "
    "V{v}, 256, {m}, {n}, {k}, 1, 4, {{Nswizzle}}, {{Quant}} == static_cast<int>(QuantType::per_Tensor), "
    "{{MulRoutedWeight}}, {{ActOP}}>;"
)
_CHECK = 'TORCH_CHECK(\n    false,\n    "Unsupported block_m value for moe heuristic dispatch: ",\n    block_m);'
_HEAD = "if (dtype_checker<{A0DataType}>{{}}(x_dtype) && {ActOP} == act_op && {Quant} == quant)\n"


def leaf(stage: int, v: int, m: int, n: int, k: str) -> str:
    return _RETURN.format(stage=stage, v=v, m=m, n=n, k=k)


def template(stage: int, body: str = "") -> str:
    """A dispatch template: block_m 32 one tile, 64 another above 192."""
    body = body or (
        f"if (block_m == 32) {{{{ {leaf(stage, 1, 32, 64, '128/sizeof({A0DataType})')} }}}}\n"
        f"else if (block_m == 64) {{{{ if (inter_dim <= 192) {{{{ {leaf(stage, 1, 64, 64, '64')} }}}}\n"
        f"else {{{{ {leaf(stage, 3, 64, 128, '64')} }}}} }}}}\n"
        f"else {{{{ {_CHECK} }}}}"
    )
    return f"\n{_HEAD}{{{{\n{body}\n}}}}\n"


def gen_instances(
    bodies: dict[tuple[str, int], str] | None = None, *, activations: tuple[str, ...] = ("silu", "gelu"), extra: str = ""
) -> str:
    """A gen_instances.py; ``bodies`` replaces single templates."""
    out = ["import argparse\n"]
    for tag, stage in product(TAGS, (1, 2)):
        text = (bodies or {}).get((tag, stage), template(stage))
        out.append(f'{tag}_{stage} = """{text}"""\n')
    pairs = ",\n".join(f'    "{t}": [\n        {t}_1,\n        {t}_2,\n    ]' for t in TAGS)
    out.append(f"heuristic_dispatch_dict = {{\n{pairs},\n}}\n{extra}")
    out.append(
        'if __name__ == "__main__":\n    parser = argparse.ArgumentParser()\n'
        f'    parser.add_argument("-act", "--activation", default="silu", choices={list(activations)!r})\n'
    )
    return "\n".join(out)


_FIELDS = "\n".join(
    f"    {n}: int" for n in ("BLOCK_SIZE", "MPerBlock", "NPerBlock", "KPerBlock", "MWaves", "NWaves", "GemmPipelineVersion")
)


def _class(stage: int) -> str:
    act = '                "silu" if self.ActOP else "gelu",\n' if stage == 1 else ""
    return f"""
class kernelInstanceGEMM{stage}:
{_FIELDS}
    CDEElementOp: str = "TypeCast"
    stage: int = {stage}

    @property
    def name(self) -> str:
        return ("_").join(
            [
                f"moe_ck2stages_gemm{{self.stage}}",
                ("x").join(map(lambda x: str(x), [self.BLOCK_SIZE, self.MPerBlock, self.NPerBlock, self.KPerBlock])),
                ("x").join(map(lambda x: str(x), [self.MWaves, self.NWaves])),
                self.CDEElementOp,
                f"v{{self.GemmPipelineVersion}}",
                "Nswizzle" + str(int(self.Nswizzle)),
                "Quant" + str(self.QuantType),
                "MulRoutedWeight" + str(int(self.MulRoutedWeight)),
{act}                self.Adtype.upper(),
                self.Bdtype.upper(),
                self.Cdtype.upper(),
            ]
        )
"""


def common(*, extra: str = "", choice: str = "", instance: str = "") -> str:
    """A gemm_moe_ck2stages_common.py: three instances a list; ``instance`` replaces the first."""
    out = []
    for stage in (1, 2):
        first = instance or f"kernelInstanceGEMM{stage}(256, 32, 64, 64, 1, 4, 1,)"
        out.append(_class(stage))
        for tag in TAGS:
            out.append(
                f"{tag}_{stage} = {{\n     0: {first},\n    # 9: kernelInstanceGEMM{stage}(256, 99, 64, 64, 1, 4, 1,),\n"
                f"     1: kernelInstanceGEMM{stage}(       256,        64,        64,        64,     1,       4,        1,),\n"
                f"     2: kernelInstanceGEMM{stage}(       256,        64,       128,        64,     1,       4,        3,),\n}}\n"
            )
        out.append(f"gemm{stage}_kernels_dict = {{\n" + "".join(f'    "{t}": {t}_{stage},\n' for t in TAGS) + "}\n")
        out.append(
            f"def get_gemm{stage}_kernels_list(tag, splitk, MulRoutedWeight):\n    for kernel in {{}}.values():\n"
            "        kernel.MulRoutedWeight = MulRoutedWeight\n"
            + (choice or '        if tag == "a8w8" or tag == "a4w4_bns":\n            kernel.CDEElementOp = "MulABScale"\n')
            + '        elif tag == "a8w8blkscale":\n            if splitk:\n                kernel.CDEElementOp = "BlkSplitk"\n'
            '            else:\n                kernel.CDEElementOp = "Blk"\n'
            '        elif tag == "a16w16":\n            if MulRoutedWeight:\n                kernel.CDEElementOp = "Weighted"\n'
        )
    return "\n".join(out) + extra


GROUP_KERNEL = r"""
#define LAUNCHER2(VEC_F)                         \
    switch(num_expert_group)                     \
    {                                            \
    case 8: LAUNCHER3(VEC_F, 8) break;           \
    /* case 6: LAUNCHER3(VEC_F, 6) break; */     \
    case 4: { LAUNCHER3(VEC_F, 4) } break;       \
    case 1: LAUNCHER3(VEC_F, 1) break;           \
    default: AITER_CHECK(false, "Unsupported num_expert_group: ", num_expert_group); break; \
    }
"""

FUSED_MOE = '''
import functools

_PADDED_M_TIERS = [32768, 131072]
_ACT_TYPE_DISABLED_KEY = "__ignore__"


def nextPow2(n):
    if n <= 1:
        return 1
    return 1 << (n - 1).bit_length()


def get_padded_M(M):
    if M < _PADDED_M_TIERS[0]:
        return nextPow2(M)
    for tier in reversed(_PADDED_M_TIERS):
        if M >= tier:
            return tier
    return _PADDED_M_TIERS[0]


@functools.lru_cache(maxsize=2048)
def get_2stage_cfgs(token, expert, topk, activation, dtype):
    """Chooses."""
    _INDEX_COLS = ["gfx", "token", "expert", "act_type", "dtype"]

    def load(df):
        fallback = df.copy()
        fallback["act_type"] = _ACT_TYPE_DISABLED_KEY
        logger.info("loaded")
        return df, fallback

    keys = (gfx, token, expert, activation, str(dtype))
    if token > 1:
        return 1
    return 2
'''
