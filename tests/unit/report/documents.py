"""Small reports built by hand through moe_preflight.report.document: two targets, one that fails and one that warns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moe_preflight.aiter.basis import AiterBasis
from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.key import Dispatch, Stage, TunedRow
from moe_preflight.aiter.router import RouterRange, RouterVerdict
from moe_preflight.aiter.version import Version
from moe_preflight.engine.plan import BackendChoice, Deployment, EnginePlan, LayerPlan, RankProblem, RouterCall
from moe_preflight.errors import ConfigError
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation
from moe_preflight.hardware import GPUS
from moe_preflight.model.moe import ExpertLayer, MoEModel, Quantization
from moe_preflight.report.document import document
from moe_preflight.report.sanitise import clean_document
from moe_preflight.report.types import Evidence, Finding, NotEvaluated
from moe_preflight.rules.run import ModelEntry, Run
from moe_preflight.settings import Request

TABLE = "aiter/configs/model_configs/big_fp8_tuned_fmoe.csv"
V = Version.parse("v0.1.20.post1")
assert V is not None

ROW = TunedRow(TABLE, 12, "moe_ck2stages_gemm1_256x64x128", "moe_ck2stages_gemm2_256x64x128", 41.25)
LAYER = ExpertLayer(
    "main",
    58,
    3,
    256,
    8,
    7168,
    2048,
    n_shared=1,
    quantization=Quantization("fp8", "fp8_block", "fp8", "fp8", block_shape=(128, 128)),
)
MODEL = MoEModel(
    "example/Big-MoE",
    "hub",
    "0123456789abcdef0123456789abcdef01234567",
    "BigForCausalLM",
    "big",
    7168,
    61,
    "bfloat16",
    128,
    (LAYER,),
)


def dispatch(token: int, *, accepted: bool | None = True, tuned: str = "hit", error: str | None = None) -> Dispatch:
    stage = Stage("ck_moe_stage1", "ck", ROW.kernel1, 128, 128, accepted, "" if accepted else "N 192 is no multiple of 128")
    return Dispatch(
        token, token, "fp8", "ck2stages", stage, None if token >= 1024 else replace(stage, func="ck_moe_stage2", accepted=True),
        64, 0, token >= 1024, tuned, replace(ROW, line=ROW.line + token) if tuned == "hit" else None, (), "verified", error,
    )  # fmt: skip


def layer(*, padded: int = 256, backend: str | None = "AITER", buckets: tuple[Dispatch, ...] = ()) -> LayerEvaluation:
    problem = RankProblem(7168, 7168, 192, padded, 128, 257, 9, "silu", "bf16", "fp8", "fp8", "per_128x128", num_shared_fused=1)
    call = RouterCall("GroupedTopk", "biased_grouped_topk", 256, 8, 8, 8, 4, on_aiter=True)
    defect = Defect(
        "group-overflow", "warning", "more than 32 experts a group", "", "wrong experts", "", "aiter/ops/topk.py:176", "modelled"
    )
    routing = RouterVerdict(
        (RouterRange(1, 64448, "biased_grouped_topk", True), RouterRange(64449, None, "moe_fused_gate", False, (defect,))),
        "aiter/ops/topk.py",
    )
    plan = LayerPlan(
        LAYER,
        BackendChoice(backend, "AITER is switched on", (("FLASHINFER", "not on ROCm"),), backend == "AITER"),
        problem,
        call,
        "zeros_like",
    )
    return LayerEvaluation(plan, buckets, (), routing, (), 9)


def run() -> Run:
    gpus = (GPUS["mi300x"], GPUS["mi355x"])
    good = tuple(dispatch(1 << i, tuned="hit" if i < 6 else "tier" if i < 9 else "miss") for i in range(12))
    bad = tuple(dispatch(1 << i, accepted=i % 3 != 1, tuned="unknown", error="no kernel" if i == 11 else None) for i in range(12))
    targets = (
        TargetEvaluation(0, 0, EnginePlan(MODEL, Deployment(gpus[0], tp=8), ()), (layer(buckets=bad),)),
        TargetEvaluation(
            1, 0, EnginePlan(MODEL, Deployment(gpus[1], tp=4, ep=True), (), ep_size=4), (layer(padded=192, buckets=good),)
        ),
        TargetEvaluation(2, 0, EnginePlan(MODEL, Deployment(gpus[1], tp=8), ()), (layer(backend=None),)),
    )
    models = (
        ModelEntry("example/Big-MoE", MODEL),
        ModelEntry("broken.json", None, ConfigError("broken.json: num_experts: true is not a number.")),
    )
    return Run(Request(), models, AiterBasis(V, "given", V, "verified", "/opt/aiter", "folder", tuned=True), targets)


def finding(code: str = "MP999", severity: str = "warning", **more: Any) -> Finding:
    given = {
        "name": "made-up", "confidence": "read", "message": f"Something is {severity}.", "why": "It matters.", "remedy": "Mend it.", "target": 1,
        "layer": 0,
    } | more  # fmt: skip
    return Finding(code, severity=severity, **given)


FINDINGS = (
    finding("MP101", "error", name="ck-rejects", message="TP8 mi300x: CK rejects N = 192 at 2, 16, 128 tokens.", target=0),
    finding("MP502", "error", message="broken.json: num_experts: true is not a number.", target=None, layer=None),
    finding("MP304", "warning", name="row-duplicate", message="One key, two rows.", target=None, layer=None,
            evidence=(Evidence(TABLE, 12, "64,7168,192"), Evidence(TABLE, 40, "64,7168,192"))),
    finding("MP301", "warning", message="TP4 EP4 mi355x: rows are missing: 512-2048.", advisory="ADV-2026-001", confidence="unverified"),
    finding("MP401", "info", message="TP8 mi355x: the router is generic.", target=2),
)  # fmt: skip
MISSING = (NotEvaluated("router kernels", "the tree has no sources", "Point --aiter at a checkout."),)
OBSERVATION = {
    "target": 0, "layer": 0, "tokens": 64, "backend": "aiter", "status": "confirmed", "rel_err": 0.011, "tolerance": 0.05, "median_us": 87.5,
    "experts_match": True, "kernels": ["moe_ck2stages_gemm1"], "prediction": {"verdict": "confirmed", "why": ""}, "detail": None, "case": "a",
}  # fmt: skip


def full() -> dict[str, Any]:
    """Everything a report can hold, not cleaned."""
    return document(run(), FINDINGS, MISSING, (OBSERVATION,), {"python": "3.11.9", "engine_env": {"VLLM_ROCM_USE_AITER": "1"}})


def quiet() -> dict[str, Any]:
    """A report that passes: one target, nothing found."""
    r = run()
    return document(replace(r, models=r.models[:1], targets=(replace(r.targets[1], index=0),)), (), ())


def empty() -> dict[str, Any]:
    """A report of nothing: no model was given to judge."""
    r = run()
    return document(
        replace(r, models=(), targets=(), aiter=AiterBasis(None, "", V, "unverified", missing="none found")), (), MISSING
    )


def clean_full() -> dict[str, Any]:
    """``full``, cleaned: what a format gets."""
    cleaned: dict[str, Any] = clean_document(full())
    return cleaned
