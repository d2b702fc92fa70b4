"""What the engine itself does: refuses, goes elsewhere, or drops something without a word."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.engine.plan import Note, Refusal
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run

REFUSES = Rule(
    code="MP401",
    name="engine-refuses",
    severity="error",
    depends="the model could be read",
    what="The engine stops before or while it builds the MoE layers.",
    why="The deployment does not start. The text is the engine's own, so that you can find it in a log.",
    example='FP8 blocks of 128 and a per-rank width of 192: "FP8 MoE backend AITER does not support the deployment configuration".',
    remedy="See the finding's own text.",
    source="vLLM wheels 0.29.0 - 0.33.0, SGLang 0.5.23; file and line in the evidence",
)

NOT_ON_AITER = Rule(
    code="MP402",
    name="experts-not-on-aiter",
    severity="warning",
    depends="AITER's MoE is switched on",
    what="AITER's MoE is asked for, and the experts do not run on it.",
    why="The engine falls back, often with one log line: expect another speed than AITER's.",
    example="gelu_tanh experts (Gemma 4) go to Triton: AITER's class does not list that activation.",
    remedy="Accept the fallback knowingly, or choose a checkpoint or backend that AITER serves.",
    source="vLLM 0.33.0 model_executor/layers/fused_moe/oracle/*.py",
)

SILENT = Rule(
    code="MP403",
    name="engine-note",
    severity="warning",
    depends="the model could be read",
    what="Something the engine does, or is taken to do, that no error tells.",
    why="It changes the numbers, the cost, or what this report rests on.",
    example="An unquantized MoE with expert bias on AITER loses its bias: bias1 / bias2 are passed for MXFP4 only.",
    remedy="See the finding's own text.",
    source="file and line in the evidence",
)

_WRONG = "The results are wrong, and no log line says so."

# code of an engine's note -> (severity, why, what to do). A note without a row here is a warning with the rule's own text.
_NOTES: dict[str, tuple[str, str, str]] = {
    "expert-bias-dropped": (
        "error",
        _WRONG,
        "Run these experts on Triton (VLLM_ROCM_USE_AITER_MOE=0), or use the MXFP4 checkpoint.",
    ),
    "weight-on-input-needs-top1": (
        "error",
        "vLLM asserts it in the first forward pass.",
        "Correct num_experts_per_tok in the config.",
    ),
    "weight-on-input-asserts": (
        "error",
        "vLLM asserts it in the first forward pass.",
        "Run these experts on Triton, or unquantized.",
    ),
    "experts-uneven": (
        "info",
        "The ranks with more experts take longer; sizes here are the largest rank's.",
        "Choose an EP size that divides.",
    ),
    "fp8-fnuz": ("info", "gfx942 computes in e4m3fnuz: weights are converted and scales doubled at load.", "Nothing to do."),
    "fp8-block-refined": (
        "info",
        "The blocks no longer match the checkpoint's; only some kernels take them.",
        "Nothing to do if the backend is the one you want.",
    ),
    "aiter-taken-as-on": (
        "info",
        "This is the question the tool answers; the engine's own default is off.",
        "Set it in the deployment too. To judge the engine without it: --engine-env NAME=0.",
    ),
    "shared-experts-fused": (
        "info",
        "The fused experts are counted in expert and topk, so tuned rows are looked up for that key.",
        "Nothing to do.",
    ),
    "shared-experts-not-fused": (
        "warning",
        "Fusion was asked for and the engine does not do it: the shared experts run separately.",
        "Unset VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS, or meet its conditions.",
    ),
    "w4a16-without-bias-wrong": (
        "error",
        _WRONG,
        "Use an engine with the fix the finding names, or run these experts on Triton.",
    ),
    "w4a16-top1-hangs": ("error", "The GPU hangs or faults in the first pass.", "Run these experts on another backend."),
    "quantization-ignored": (
        "warning",
        "The experts run in another format than the checkpoint's name promises.",
        "Check the quantization_config.",
    ),
    "emulation-needs-quark": (
        "warning",
        "Without the package the engine does not start.",
        "Install amd-quark in the engine's environment.",
    ),
    "model-pads-width": ("info", "The padded width is what every kernel and every tuned row sees.", "Nothing to do."),
    "vision-tower-heads": (
        "warning",
        "The engine asserts it at start, though the experts are fine.",
        "Add --mm-encoder-tp-mode data.",
    ),
    "pipeline-ranks-without-layers": ("warning", "Some ranks hold no layer, or no MoE layer.", "Use a smaller pipeline degree."),
    "aiter-falls-back": (
        "warning",
        "The engine goes elsewhere with one log line.",
        "Choose a split whose width the engine hands to AITER.",
    ),
    "scheme-not-modelled": (
        "warning",
        "What the engine does with this scheme was not read; nothing is claimed.",
        "Look at the engine's log.",
    ),
    "engine-version-nearest": ("info", "The nearest release that was read answers.", "Nothing to do."),
    "env-reads-as-off": ("warning", "The engine reads this value as off.", "Use 1 or true."),
}

_ELSEWHERE = frozenset({"padding-not-zeroed", "intermediate-pad-ignored", "engine-version-unverified"})
"""Notes that are findings of rules/padding.py and rules/versions.py."""


def refuses(run: Run) -> Iterator[Finding]:
    """MP401: once per target for the whole engine, once per layer for a layer's own."""
    for target in run.targets:
        for r in target.plan.refusals:
            yield _refusal(target.name, r, target.index, None)
    for target, i, layer in run.layers():
        for r in layer.plan.refusals:
            yield _refusal(target.name, r, target.index, i)
    for target, i, layer in run.started():
        b = layer.plan.backend
        if b.name is None:
            yield REFUSES.finding(
                f"{target.name}: no backend takes these experts: {b.reason}.",
                remedy="Choose a checkpoint or an engine whose scheme has a kernel on this GPU.",
                confidence="read",
                target=target.index,
                layer=i,
                evidence=[Evidence(b.source, None, b.reason)],
            )


def _refusal(where: str, r: Refusal, target: int, layer: int | None) -> Finding:
    return REFUSES.finding(
        f'{where}: the engine stops: "{r.error}"',
        why=r.why,
        remedy=r.remedy,
        confidence="read",
        target=target,
        layer=layer,
        evidence=[Evidence(r.source, None, r.error)],
    )


def not_on_aiter(run: Run) -> Iterator[Finding]:
    """MP402."""
    for target, i, layer in run.started():
        b = layer.plan.backend
        if b.name and not b.on_aiter:
            tried = "; ".join(f"{name}: {reason}" for name, reason in b.rejected if "AITER" in name)
            yield NOT_ON_AITER.finding(
                f"{target.name}: the experts run on {b.name}, not on AITER: {tried or b.reason}.",
                confidence="read",
                target=target.index,
                layer=i,
                evidence=[Evidence(b.source, None, b.reason)],
            )


def silent(run: Run) -> Iterator[Finding]:
    """MP403: the plan's notes, of the whole engine and of each layer."""
    for target in run.targets:
        for n in target.plan.notes:
            if n.code not in _ELSEWHERE:
                yield _note(target.name, n, target.index, None)
    for target, i, layer in run.started():
        for n in layer.plan.notes:
            if n.code not in _ELSEWHERE:
                yield _note(target.name, n, target.index, i)


def _note(where: str, n: Note, target: int, layer: int | None) -> Finding:
    severity, why, remedy = _NOTES.get(n.code, (SILENT.severity, SILENT.why, SILENT.remedy))
    return SILENT.finding(
        f"{where}: {n.message}",
        severity=severity,
        why=why,
        remedy=remedy,
        confidence="read",
        target=target,
        layer=layer,
        evidence=[Evidence(n.source, None, n.code)],
    )


RULES = (REFUSES, NOT_ON_AITER, SILENT)
CHECKS = (refuses, not_on_aiter, silent)
