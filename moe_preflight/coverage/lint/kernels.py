"""Lints about the kernels a row names: do they exist, do they take the shape, do they fit block_m?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from moe_preflight.aiter.ck import CkModule, family
from moe_preflight.aiter.ck_facts import CkFacts
from moe_preflight.aiter.dtypes import ACTS, QUANTS, SHORT
from moe_preflight.aiter.entry import QUANT_REMAP
from moe_preflight.aiter.facts.dispatch_opus import LEGACY_NAME, OPUS
from moe_preflight.aiter.flydsl import is_listed
from moe_preflight.aiter.kernel_names import KernelName, parse
from moe_preflight.aiter.opus import is_kernel
from moe_preflight.aiter.tiles import TileVerdict, judge_stage
from moe_preflight.aiter.tuned import ANY_GFX
from moe_preflight.aiter.version import Version
from moe_preflight.coverage.lint import rules as r
from moe_preflight.coverage.lint.say import found
from moe_preflight.coverage.lint.table import Row, Tables
from moe_preflight.report.types import Finding

_ACT_OF = {full: short for short, full in ACTS.items()}
_QUANT_OF = {full: short for short, full in QUANTS.items()}
_SORT_BLOCK = re.compile(r"_sbm([0-9]{1,4})(?:_|\Z)")


def kernels(t: Tables) -> Iterator[Finding]:
    """unknown-kernel, shape-rejected and block-m-mismatch, per stage that names a kernel."""
    for row in t.every_row():
        for stage, name in enumerate(row.kernels, 1):
            if name:
                yield from _one(t, row, stage, name)
            elif nameless := _nameless(row, stage):
                yield found(t, r.KERNEL, row, nameless, severity="warning")


def _nameless(row: Row, stage: int) -> str:
    """What comes of a stage without a name where AITER does not raise for want of one; empty where it does, or needs none."""
    if "run_1stage" not in row.cells:
        return ""
    if row.one_stage:
        if stage == 1 and row.text("kernelName1") != "Null":
            return (
                "kernelName1 is empty in a one-stage row: AITER lets its assembly choose a kernel, which is not the one measured."
            )
    elif row.text(f"kernelName{stage}") == "Null":
        return f"kernelName{stage} is the word Null in a two-stage row: AITER looks for a kernel of that name and has none."
    return ""


def _one(t: Tables, row: Row, stage: int, name: str) -> Iterator[Finding]:
    parsed = parse(name)
    column = f"kernelName{stage}"
    if parsed is None:
        yield found(t, r.KERNEL, row, f"{column} {name} is no kernel name of any known form.")
        return
    complaint = _unknown(t, row, stage, parsed)
    if complaint is not None:
        why, severity = complaint
        yield found(t, r.KERNEL, row, f"{column} {name} {why}.", severity=severity)
        return
    rejected = _rejected(t, row, stage, parsed)
    if rejected:
        yield found(t, r.SHAPE, row, f"{column} {name} cannot take this shape: {rejected}.")
    block = _block_of(t.version, parsed)
    block_m = row.integer("block_m")
    if block is not None and block_m != block and not (row.one_stage and row.number("flat")):
        shown = row.text("block_m") or "(empty)"
        yield found(t, r.BLOCK_M, row, f"block_m is {shown}, but {column} {name} works on blocks of {block} rows.")


def _block_of(version: Version, k: KernelName) -> int | None:
    """Rows per sorted block the kernel expects: its sbm suffix, else its tile_m; None where the release does not say.

    A FlyDSL stage 1 of fewer than 32 rows takes blocks of 32 in v0.1.12 (aiter/ops/flydsl/moe_kernels.py:562). Up to v0.1.19.post2 its
    kernel still does while its caller counts tile_m (kernels/mixed_moe_gemm_2stage.py:165, moe_kernels.py:644, v0.1.13); the int4
    kernels are others.
    """
    if m := _SORT_BLOCK.search(k.text):
        return int(m[1])
    small = k.kind == "flydsl" and k.stage == 1 and (k.tile_m or 32) < 32 and k.dtype_w != "int4"
    if small and Version.of("0.1.12") <= version < Version.of("0.1.20"):
        return 32 if version < Version.of("0.1.13-rc0") else None
    return k.tile_m


# --- does it exist ---------------------------------------------------------------------------------------------------


def _unknown(t: Tables, row: Row, stage: int, k: KernelName) -> tuple[str, str] | None:
    """(why it is unknown, severity), or None when it is known or cannot be checked."""
    if k.stage not in (0, stage):
        return f"is a stage {k.stage} kernel", "error"
    if stage == 1 and "run_1stage" in row.cells and row.one_stage != (k.kind == "asm-1stage"):
        stages = ("a one-stage kernel", "two stages") if k.kind == "asm-1stage" else ("no one-stage kernel", "one stage")
        said = row.text("run_1stage") or "(empty, which pandas reads as NaN, and NaN is true)"
        return f"is {stages[0]}, but run_1stage {said} runs {stages[1]}, which has no such kernel", "error"
    if stage == 2 and k.kind == "asm-1stage" and not row.one_stage:
        return "is a one-stage kernel, which no second stage runs", "error"
    if k.kind == "ck":
        v = _ck(t, row, stage, k.text)
        if v is not None and not v.from_name:
            why = "is not in CK's instance list for this row's dtypes, quantization and activation"
            return f"{why}; AITER warns and takes the heuristic tile", "warning"
        return None
    if k.kind in ("asm-1stage", "asm-stage1"):
        return _unknown_asm(t, row, k)
    if k.kind == "flydsl" and t.registry and is_listed(t.version, k.text) is False:
        return f'is no FlyDSL kernel of AITER {t.version}, which raises "Invalid FlyDSL kernel name" when it runs', "error"
    if k.kind == "opus" and stage == 2:
        table = OPUS.get(t.rules.opus)
        if not is_kernel(table, k.text) and k.text != LEGACY_NAME:
            return f"is no Opus stage 2 kernel of AITER {t.version}", "error"
    return None


def _unknown_asm(t: Tables, row: Row, k: KernelName) -> tuple[str, str] | None:
    lists = None if t.asm is None or row.gfx == ANY_GFX else t.asm.get(row.gfx)
    if lists is None:
        return None
    place = lists.get(k.text)
    if place is None:
        return f'is in no assembly list of {row.gfx} (hsa/{row.gfx}); AITER aborts with "not find kernel"', "error"
    if k.kind == "asm-stage1" and (wrong := _other_list(row, place)):
        return wrong, "error"
    act = _ACT_OF.get(row.act)
    if k.kind == "asm-1stage" and act in ("silu", "gelu") and f"/{'gelu' if act == 'silu' else 'silu'}/" in place:
        return f'is another activation\'s kernel ({place}); AITER aborts with "not find kernel"', "error"
    return None


STAGE1_LISTS = {
    ("fp8", "per_Token", False): "fmoe_stage1_bf16_pertokenFp8_g1u1",
    ("fp8", "per_Token", True): "fmoe_stage1_bf16_pertokenFp8_doweight_g1u1",
    ("i8", "per_Token", False): "fmoe_stage1_bf16_pertokenInt8_g1u1",
    ("fp8", "per_1x128", False): "fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1",
}
"""Which assembly list stage 1 looks its name up in, by dtype, quantization and routing weight (csrc/py_itfs_cu/asm_moe_2stage.cu get_cfg,
v0.1.20.post1:66-109). aiter/fused_moe.py asm_stage1 makes per_Token of per_Tensor first."""


def _other_list(row: Row, place: str) -> str:
    """Why a listed stage 1 kernel is not one the row's operands are looked up among; empty when it is, or cannot be said."""
    a, w = (SHORT.get(row.text(c)) for c in ("q_dtype_a", "q_dtype_w"))
    quant, doweight = _QUANT_OF.get(row.text("q_type")), row.number("doweight_stage1")
    held = place.rsplit("/", 1)[-1].removesuffix(".csv")
    if a is None or w is None or quant is None or doweight is None or held not in STAGE1_LISTS.values():
        return ""
    quant = "per_Token" if quant == "per_Tensor" else QUANT_REMAP.get(quant, quant)
    wanted = STAGE1_LISTS.get((a, quant, bool(doweight))) if a == w else None
    if wanted == held:
        return ""
    said = f"AITER looks in {wanted}.csv" if wanted else "AITER has no assembly stage 1 for them"
    return f"is a kernel of other operands than the row's ({place}); {said} and aborts"


def _ck(t: Tables, row: Row, stage: int, name: str) -> TileVerdict | None:
    """CK's word on the named kernel; None when the row's own columns cannot be read."""
    short = [SHORT.get(row.text(c)) for c in ("dtype", "q_dtype_a", "q_dtype_w")]
    quant, act = _QUANT_OF.get(row.text("q_type")), _ACT_OF.get(row.act)
    sizes = [row.integer(c) for c in ("model_dim", "inter_dim", "block_m")]
    g1u1, doweight = row.number("use_g1u1"), row.number("doweight_stage1")
    if None in short or quant is None or act is None or None in sizes or g1u1 is None or doweight is None:
        return None
    ksplit = row.integer("ksplit") or 0
    question = (stage, name, row.gfx, *short, QUANT_REMAP.get(quant, quant), act, bool(g1u1), bool(doweight), *sizes, ksplit)
    verdict = t.judged.get(question)
    if verdict is None:
        verdict = t.judged[question] = _judge(t.version, t.ck, *question)  # type: ignore[arg-type]  # None was refused above
    return verdict


def _judge(
    version: Version, facts: CkFacts | None, stage: int, name: str, gfx: str, dtype: str, a: str, w: str, quant: str, act: str,
    g1u1: bool, doweight: bool, model_dim: int, inter_dim: int, block_m: int, ksplit: int,
) -> TileVerdict:  # fmt: skip
    # Only block-scale stage 1 is compiled for a split K (aiter/fused_moe.py ck_moe_stage1: is_splitk).
    splitk = stage == 1 and quant == "per_1x128" and ksplit > 1
    module = CkModule(a, w, dtype, act, quant, doweight, True, splitk)
    return judge_stage(
        version, gfx, family(quant, a, w, True), stage, block_m, model_dim, inter_dim, name, facts, module=module, use_g1u1=g1u1,
        ksplit=ksplit if splitk else 0,
    )  # fmt: skip


# --- does it take the shape ------------------------------------------------------------------------------------------


def _rejected(t: Tables, row: Row, stage: int, k: KernelName) -> str:
    """Why the named kernel refuses the row's sizes; empty when it takes them or its rule is not known."""
    if k.kind == "ck":
        v = _ck(t, row, stage, k.text)
        return v.reason if v is not None and v.from_name and v.accepted is False else ""
    inter_dim = row.integer("inter_dim")
    if inter_dim is None:
        return ""
    if k.kind == "asm-stage1" and k.tile_n and inter_dim % k.tile_n:
        return f"inter_dim {inter_dim} is not a multiple of its tile N {k.tile_n} (asm_moe_2stage.cu checks it)"
    if k.kind == "asm-1stage" and "blockscale" in k.text and inter_dim % (unit := _blockscale_unit(t.version)):
        return f"inter_dim {inter_dim} is not a multiple of {unit} (asm_fmoe.cu fmoe_fp8_blockscale_g1u1 checks it)"
    return ""


def _blockscale_unit(version: Version) -> int:
    """What the one-stage block-scale entry wants inter_dim to be a multiple of (asm_fmoe.cu:842 v0.1.8 and v0.1.9; :926 v0.1.20.post1)."""
    return 128 if version >= Version.of("0.1.9") else 256


CHECKS = (kernels,)
