"""Does the kernel take the shape at all? Tuning cannot mend a rejected one."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.aiter.key import Dispatch, Stage
from moe_preflight.aiter.version import Version
from moe_preflight.arithmetic import splits_of
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run, spans
from moe_preflight.rules.tuned import table_remedy, where_of
from moe_preflight.units import any_of, sentence_of

CK_TEXT = "device_gemm with the specified compilation parameters does not support this GEMM problem"

REJECTED = Rule(
    code="MP101",
    name="ck-rejects-shape",
    severity="error",
    depends="the experts reach AITER and the path is CK",
    what="CK's own acceptance check refuses the expert GEMM: N is not a multiple of the tile's N, or K not of the tile's K.",
    why=f'AITER raises "{CK_TEXT}" the first time such a batch arrives; no tuning can help.',
    example="K2-Horizon at TP8 has 1792 / 8 = 224; above width 192 stage 1 uses 128-wide tiles, and 224 % 128 = 96.",
    remedy="Choose a TP whose per-rank width is a multiple of the tile, use expert parallelism (the width stays whole), "
    "or an engine release that pads.",
    source="composable_kernel device_moe_gemm.hpp:408 IsSupportedArgument (compiled and checked, 6417 shapes); tile table: "
    "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py",
)

RAISES = Rule(
    code="MP102",
    name="dispatch-raises",
    severity="error",
    depends="the experts reach AITER",
    what="AITER's own dispatch raises for this key: there is no kernel it would launch.",
    why="The request fails in the worker; AITER aborts or raises before any arithmetic.",
    example='bf16 at block_m 16 raises "Unsupported block_m value for moe heuristic dispatch".',
    remedy="Change what decides the key: the split, the quantization, or the AITER release.",
    source="aiter/fused_moe.py get_2stage_cfgs; csrc/ck_gemm_moe_2stages_codegen",
)

NOT_IN_LIST = Rule(
    code="MP103",
    name="tuned-kernel-not-built",
    severity="warning",
    depends="a tuned row was found",
    what="The tuned row names a kernel that AITER's instance list does not hold.",
    why='AITER warns "ck kernel not found" and falls back to the heuristic tile, so the tuned time is not what you get.',
    example="A row tuned with an older release names an instance that was since removed.",
    remedy="Retune the row with this AITER (moe-preflight tune), or remove it.",
    source="csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages.cu (lookup by name, heuristic otherwise)",
)


NO_ASM = Rule(
    code="MP104",
    name="no-assembly-kernel",
    severity="error",
    depends="the experts reach AITER, the path is assembly, and the AITER tree lists its kernels",
    what="No assembly kernel that AITER ships takes this width, block_m or activation.",
    why="The launcher finds no kernel and stops: RuntimeError up to v0.1.18, an abort of the worker from v0.1.19.",
    example="A tuned one-stage row of another activation: its kernel is not in this activation's list.",
    remedy="Choose a split whose width a shipped tile divides, or keep AITER from the row (AITER_BYPASS_TUNE_CONFIG=1).",
    source="csrc/py_itfs_cu/asm_fmoe.cu get_heuristic_kernel, asm_moe_2stage.cu; hsa/<gfx>/fmoe*/**.csv",
)


def _stages(d: Dispatch) -> Iterator[tuple[int, Stage]]:
    yield 1, d.stage1
    if d.stage2 is not None:
        yield 2, d.stage2


def _when(ds: tuple[Dispatch, ...], bad: set[int]) -> str:
    """When it fails, in words. Acceptance is not monotone in tokens, so every range is named."""
    good = {d.token for d in ds} - bad
    if not good:
        return "at every token bucket"
    first_bad = min(bad)
    if min(good) < first_bad and not any(g > first_bad for g in good):
        return f"from {first_bad:,} tokens up: it starts and answers small batches, then fails under load"
    return f"at token buckets {spans(ds, bad)}: it fails only at those batch sizes"


_WIDE_TILES_UNTIL = Version.of("0.1.8")
"""Before it CK's 16-bit tiles are 128 wide at every width (ROCm/aiter PR 1463)."""
_PADS_SINCE = Version.of("0.32.0")
"""The vLLM that pads unquantized experts (PR 55368)."""


def _remedy(run: Run, target: TargetEvaluation, layer: LayerEvaluation, unit: int) -> str:
    """What would help this very shape: another split, expert parallelism, a newer engine or AITER. Only what is not in force yet."""
    plan, p, deployment = layer.plan, layer.plan.problem, target.plan.deployment
    width, options = plan.layer.moe_intermediate_size, []
    if p.inter_dim_padded % unit:
        memory = deployment.gpu.memory_bytes
        fine = [str(tp) for tp in splits_of(plan, unit, memory) if tp != p.moe_tp_size]
        if fine:
            options.append(f"a split by {any_of(fine)} gives a width that is a multiple of {unit}")
        if p.ep_size == 1 and p.moe_tp_size > 1 and width % unit == 0:
            options.append(f"expert parallelism (--ep) keeps the width whole at {width}")
        engine = Version.parse(deployment.engine_version) if deployment.engine == "vllm" else None
        if plan.layer.quantization.scheme == "none" and engine is not None and engine < _PADS_SINCE:
            options.append("vLLM 0.32.0 and newer pad unquantized experts to what AITER takes")
        aiter = run.aiter.version
        if p.q_type == "No" and p.inter_dim_padded <= 192 and aiter is not None and aiter < _WIDE_TILES_UNTIL:
            options.append("AITER v0.1.8 and newer have 64-wide tiles for widths up to 192")
    else:
        options.append(
            "no split changes model_dim: run these experts on Triton (VLLM_ROCM_USE_AITER_MOE=0, or --moe-backend triton)"
        )
    return sentence_of(options) or REJECTED.remedy


def rejected(run: Run) -> Iterator[Finding]:
    """MP101: one finding per layer that CK rejects somewhere, both stages in it."""
    for target, i, layer in run.started():
        ds = layer.dispatches
        refused = [
            (d, n, s) for d in ds for n, s in _stages(d) if s.accepted is False and s.kind == "ck" and s.tile_n is not None
        ]
        if not refused:
            continue
        p = layer.plan.problem
        bad = {d.token for d, _, _ in refused}
        said = []
        for number, n, k in ((1, p.inter_dim_padded, p.model_dim_padded), (2, p.model_dim_padded, p.inter_dim_padded)):
            mine = {d.token: s.reason for d, m, s in refused if m == number}
            if mine:
                where = "" if set(mine) == bad else f" at {spans(ds, set(mine))} tokens"
                said.append(f"Stage {number} (N {n}, K {k}){where}: {'; '.join(dict.fromkeys(mine.values()))}.")
        unit = max([s.tile_n or 1 for _, n, s in refused if n == 1] + [s.tile_k or 1 for _, n, s in refused if n == 2])
        with_row = [d for d in ds if d.token in bad and d.row]
        yield REJECTED.finding(
            f"{target.name}: CK rejects inter_dim {p.inter_dim_padded}, model_dim {p.model_dim_padded} ({_dtype(layer)}) {_when(ds, bad)}. "
            + " ".join(said),
            remedy=_remedy(run, target, layer, unit),
            confidence=_weakest(ds),
            target=target.index,
            layer=i,
            evidence=[Evidence(d.row.file, d.row.line, d.row.kernel1) for d in with_row[:3] if d.row]
            or [Evidence("composable_kernel device_moe_gemm.hpp", 408, "N % NPerBlock == 0 and K % KPerBlock == 0")],
        )


def no_asm(run: Run) -> Iterator[Finding]:
    """MP104: one finding per reason."""
    for target, i, layer in run.started():
        ds = layer.dispatches
        refused = [(d, s) for d in ds for _, s in _stages(d) if s.accepted is False and s.kind == "asm"]
        for reason in dict.fromkeys(s.reason for _, s in refused):
            mine = [(d, s) for d, s in refused if s.reason == reason]
            tokens = {d.token for d, _ in mine}
            yield NO_ASM.finding(
                f"{target.name}: no assembly kernel takes this ({_dtype(layer)}, inter_dim {layer.plan.problem.inter_dim_padded}) "
                f"{_when(ds, tokens)}: {reason}.",
                confidence=_weakest(ds),
                target=target.index,
                layer=i,
                evidence=[Evidence(d.row.file, d.row.line, d.row.kernel1) for d, _ in mine[:3] if d.row],
            )


_COMPILED = {"ck": "CK", "flydsl": "FlyDSL"}


def raises(run: Run) -> Iterator[Finding]:
    """MP102: one finding per distinct text AITER's dispatch would raise."""
    for target, i, layer in run.started():
        ds = layer.dispatches
        for text in dict.fromkeys(d.error for d in ds if d.error):
            bad = {d.token for d in ds if d.error == text}
            table = next((u for u in run.aiter.table_errors if u.reason == text), None)
            yield RAISES.finding(
                f'{target.name}: AITER raises "{text}" {_when(ds, bad)}'
                + (f", while it loads {where_of(table)}." if table else "."),
                remedy=table_remedy(table) if table else None,
                confidence=_weakest(ds),
                target=target.index,
                layer=i,
                evidence=[Evidence(table.file, table.line, text)] if table else (),
            )
        unbuilt = {
            d.token: (s.reason, d.row, _COMPILED[s.kind])
            for d in ds
            for _, s in _stages(d)
            if s.accepted is False and s.kind in _COMPILED and s.tile_n is None
        }
        for reason, kind in dict.fromkeys((why, of) for why, _, of in unbuilt.values()):
            bad = {t for t, (why, _, _) in unbuilt.items() if why == reason}
            rows = list(dict.fromkeys(row for why, row, _ in unbuilt.values() if why == reason and row))
            yield RAISES.finding(
                f"{target.name}: there is no {kind} kernel to launch {_when(ds, bad)}: {reason}.",
                # The row decides block_m, or names the kernel, so the row is what has to change, not the split.
                remedy=f"Retune or remove the tuned row that asks for it: {rows[0].file}:{rows[0].line}"
                + (f" and {len(rows) - 1} more." if len(rows) > 1 else ".")
                if rows
                else None,
                evidence=[Evidence(r.file, r.line, r.kernel1) for r in rows[:3]],
                confidence=_weakest(ds),
                target=target.index,
                layer=i,
            )


def not_in_list(run: Run) -> Iterator[Finding]:
    """MP103: tuned rows whose kernel the instance list does not hold."""
    for target, i, layer in run.started():
        ds = layer.dispatches
        bad = [d for d in ds if d.row and any(s.name_missing for _, s in _stages(d))]
        if bad:
            yield NOT_IN_LIST.finding(
                f"{target.name}: the tuned rows for {spans(ds, {d.token for d in bad})} tokens name kernels this AITER does not build.",
                confidence=_weakest(ds),
                target=target.index,
                layer=i,
                evidence=[Evidence(d.row.file, d.row.line, d.row.kernel1) for d in bad[:5] if d.row],
            )


def _dtype(layer: LayerEvaluation) -> str:
    p = layer.plan.problem
    return p.dtype if p.q_type in (None, "No") else f"{p.q_dtype_a or p.dtype} x {p.q_dtype_w} {p.q_type}"


_ORDER = ("measured", "verified", "read", "modelled", "unverified")


def _weakest(ds: tuple[Dispatch, ...]) -> str:
    return max((d.confidence for d in ds), key=_ORDER.index, default="modelled")


RULES = (REJECTED, RAISES, NOT_IN_LIST, NO_ASM)
CHECKS = (rejected, raises, not_in_list, no_asm)
