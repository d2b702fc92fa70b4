"""The run as the JSON document of schema_version 1 (DESIGN section 6): plain dicts and lists, every format's only input."""

from __future__ import annotations

from typing import Any

from moe_preflight import __version__
from moe_preflight.aiter.basis import AiterBasis
from moe_preflight.aiter.key import Dispatch, Stage, TunedRow
from moe_preflight.arithmetic import padding_cost
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation
from moe_preflight.model.moe import MoEModel, Quantization
from moe_preflight.report.types import Finding, NotEvaluated, verdict
from moe_preflight.rules.run import ModelEntry, Run

SCHEMA_VERSION = 1

Document = dict[str, Any]


def document(
    run: Run,
    findings: tuple[Finding, ...],
    not_evaluated: tuple[NotEvaluated, ...],
    observations: tuple[Document, ...] = (),
    environment: Document | None = None,
) -> Document:
    """The whole report. Same run, same document: nothing here reads a clock or the machine."""
    doc: Document = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "moe-preflight", "version": __version__},
        "verdict": verdict(findings, not_evaluated),
        "models": [_model(m) for m in run.models],
        "aiter": _aiter(run.aiter),
        "targets": [_target(run, t, findings, not_evaluated) for t in run.targets],
        "findings": [_finding(f) for f in findings],
        "observations": list(observations),
        "not_evaluated": [_not_evaluated(n) for n in not_evaluated],
    }
    if environment is not None:
        doc["environment"] = environment
    return doc


def _model(entry: ModelEntry) -> Document:
    m = entry.model
    if m is None:
        return {"id": entry.asked, "error": str(entry.error)} | dict.fromkeys(
            ("source", "revision", "architecture", "model_type", "hidden_size", "num_layers", "dtype", "quantization"), None
        )
    return {
        "id": m.id,
        "source": m.source,
        "revision": m.revision,
        "architecture": m.architecture,
        "model_type": m.model_type,
        "hidden_size": m.hidden_size or None,
        "num_layers": m.num_layers or None,
        "dtype": m.dtype,
        "quantization": _quantization(_main_quantization(m)),
        "error": None,
    }


def _main_quantization(m: MoEModel) -> Quantization:
    return m.layers[0].quantization if m.layers else m.quantization


def _quantization(q: Quantization) -> Document:
    return {
        "method": q.method,
        "scheme": q.scheme,
        "weight_dtype": q.weight_dtype,
        "activation_dtype": q.activation_dtype,
        "q_type": Q_TYPE_OF.get(q.scheme),
        "block_shape": list(q.block_shape) if q.block_shape else None,
        "excluded_modules_count": q.excluded_modules_count,
    }


Q_TYPE_OF = {
    "none": "No", "fp8_tensor": "per_Tensor", "fp8_channel": "per_Token", "fp8_block": "per_128x128",
    "mxfp4": "per_1x32", "mxfp4_a4": "per_1x32", "mxfp4_a8": "per_1x32", "mxfp8": "per_1x32", "int4_fp8": "per_Token",
}  # fmt: skip
"""AITER's QuantType for a scheme AITER has one for (vLLM 0.33.0 _aiter_ops.py); others never reach AITER."""


def _aiter(a: AiterBasis) -> Document:
    c = a.census
    return {
        "version": str(a.version) if a.version else None,
        "root": a.root,
        "found_by": a.found_by or None,
        "csv_files": c.files if c else 0,
        "csv_rows": c.rows if c else 0,
        "moe_csv_files": c.moe_files if c else 0,
        "moe_csv_rows": c.moe_rows if c else 0,
        "dispatch_confidence": a.confidence,
    } | ({"looked_up": a.looked_up} if a.looked_up else {})


def _target(run: Run, t: TargetEvaluation, findings: tuple[Finding, ...], not_evaluated: tuple[NotEvaluated, ...]) -> Document:
    d = t.plan.deployment
    mine = [f for f in findings if f.concerns(t.index, t.model)]
    missing = [n for n in not_evaluated if n.concerns(t.index, t.model)]
    return {
        "model": run.models[t.model].model.id,  # type: ignore[union-attr]  # a target exists only for a model that was read
        "deployment": {
            "engine": d.engine,
            "engine_version": d.engine_version,
            "gpu": d.gpu.name,
            "gfx": d.gpu.gfx,
            "cu_num": d.gpu.cu_num,
            "tp": d.tp,
            "dp": d.dp,
            "pcp": d.pcp,
            "pp": d.pp,
            "ep": d.ep,
            "ep_size": t.plan.ep_size,
        },
        "verdict": verdict(mine, missing),
        "layers": [_layer(x, d.max_num_batched_tokens) for x in t.layers],
    }


def _layer(x: LayerEvaluation, max_tokens: int | None) -> Document:
    plan, p = x.plan, x.plan.problem
    cost = padding_cost(plan)
    return {
        "name": plan.layer.name,
        "count": plan.layer.count,
        "first_layer": plan.layer.first_layer,
        "backend": {
            "name": plan.backend.name,
            "reason": plan.backend.reason,
            "rejected": [{"name": n, "reason": r} for n, r in plan.backend.rejected],
        },
        "problem": {
            "model_dim": p.model_dim,
            "model_dim_padded": p.model_dim_padded,
            "inter_dim": p.inter_dim,
            "inter_dim_padded": p.inter_dim_padded,
            "alignment": p.alignment,
            "expert": p.expert,
            "topk": p.topk,
            "act_type": p.act_type,
            "dtype": p.dtype,
            "q_dtype_a": p.q_dtype_a,
            "q_dtype_w": p.q_dtype_w,
            "q_type": p.q_type,
            "use_g1u1": p.use_g1u1,
            "doweight_stage1": p.doweight_stage1,
            "num_shared_fused": p.num_shared_fused,
            "hidden_pad": p.hidden_pad,
            "intermediate_pad": p.intermediate_pad,
            "lookup": {"expert": p.expert, "topk": x.lookup_topk, "act_type": p.act_type},
        },
        "padding": {
            "extra_compute_pct": round(cost.extra_compute_pct, 2),
            "extra_weight_bytes_per_rank": cost.extra_weight_bytes,
            "zero_filled_by": plan.zero_filled_by,
        },
        "router": _router(x, max_tokens),
        "buckets": [_bucket(d) for d in x.dispatches],
        "coverage": x.coverage,
    }


def _router(x: LayerEvaluation, max_tokens: int | None) -> Document:
    """The ranges that batches of at most ``max_tokens`` (None: any) can reach; one that starts above it is nobody's concern."""
    r, v = x.plan.router, x.router
    by_tokens = [
        {
            "from": part.from_,
            "to": part.to,
            "kernel": part.kernel,
            "compiled": part.compiled,
            "defects": [
                {
                    "code": d.code,
                    "severity": d.severity,
                    "condition": d.condition,
                    "effect": d.effect,
                    "symptom": d.symptom or None,
                }
                for d in part.defects
            ],
        }
        for part in (v.by_tokens if v else ())
        if max_tokens is None or part.from_ <= max_tokens
    ]
    return {
        "kind": r.kind,
        "kernel": by_tokens[0]["kernel"] if by_tokens else r.kernel,
        "num_expert_group_naive": r.num_expert_group_naive,
        "num_expert_group": r.num_expert_group,
        "topk_group": r.topk_group,
        "compiled": by_tokens[0]["compiled"] if by_tokens else None,
        "falls_back_to": r.falls_back_to,
        "by_tokens": by_tokens,
    }


def _bucket(d: Dispatch) -> Document:
    return {
        "token": d.token,
        "lookup_token": d.lookup_token,
        "path": d.path,
        "block_m": d.block_m,
        "ksplit": d.ksplit,
        "stage1": _stage(d.stage1),
        "stage2": _stage(d.stage2) if d.stage2 else None,
        "tuned": d.tuned,
        "row": _row(d.row) if d.row else None,
        "confidence": d.confidence,
        "error": d.error,
    }


def _stage(s: Stage) -> Document:
    return {
        "kind": s.kind,
        "kernel": s.kernel or None,
        "tile_n": s.tile_n,
        "tile_k": s.tile_k,
        "accepted": s.accepted,
        "reason": s.reason,
    }


def _row(r: TunedRow) -> Document:
    return {"file": r.file, "line": r.line, "kernelName1": r.kernel1, "kernelName2": r.kernel2, "us": r.us}


def _finding(f: Finding) -> Document:
    return {
        "code": f.code,
        "name": f.name,
        "severity": f.severity,
        "confidence": f.confidence,
        "target": f.target,
        "layer": f.layer,
        "message": f.message,
        "why": f.why,
        "remedy": f.remedy,
        "evidence": [{"file": e.file, "line": e.line, "text": e.text} for e in f.evidence],
        "advisory": f.advisory,
    }


def _not_evaluated(n: NotEvaluated) -> Document:
    return {"what": n.what, "why": n.why, "how_to_get_it": n.how_to_get_it}
