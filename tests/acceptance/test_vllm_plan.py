"""Every answer of vLLM 0.33.0 and 0.31.0 in the corpus, against our plan: agreement is asked to be complete, field by field.

vLLM's own answers were taken from its real classes on a CPU told to be gfx942 / gfx950, so two things there are not what a
deployment would see, and both are respected here:

* a row whose ``stage`` is ``layer`` stopped at the first MoE layer, so its ``moe_layers`` is 1 whatever the model has;
* the emulation of MXFP4 needs the amd-quark package, which that CPU did not have. Kimi-K3 on gfx942 is therefore refused; a
  ROCm image that has amd-quark starts on EMULATION. We say what vLLM said and add the note ``emulation-needs-quark``.

Rows of stage ``source`` were not planned at all (null answers) and only have to be readable.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import pytest

from moe_preflight.engine import plan
from moe_preflight.engine.architecture import find
from moe_preflight.engine.checks import activation
from moe_preflight.engine.facts.vllm_releases import resolve
from moe_preflight.engine.plan import Deployment, EnginePlan, LayerPlan
from moe_preflight.hardware import named
from moe_preflight.model.moe import MoEModel
from moe_preflight.model.read import read_config
from tests.corpus import corpus, needs_corpus

GPUS = {"gfx942": named("mi300x"), "gfx950": named("mi355x")}
DENSE = "no MoE layer in this model"

FIELDS = (
    "error", "stage", "backend", "hidden", "inter", "moe_tp_size", "ep_size", "local_experts", "router", "num_expert_group",
    "aiter_router_kernel", "router_ops", "activation", "has_bias", "num_experts", "top_k", "intermediate_size",
    "scoring_func", "renormalize", "select_bias", "hash_routing", "routing_method", "quant_method_class", "moe_layers",
)  # fmt: skip


def text_of(error: str) -> str:
    """vLLM's sentence, without the exception's name and pydantic's wrapping."""
    wrapped = re.search(r"Value error, (.*?) \[type=", error, re.DOTALL)
    return wrapped.group(1) if wrapped else re.sub(r"^\w+: ?", "", error, count=1)


def layer_of(model: MoEModel, planned: EnginePlan, row: dict[str, Any]) -> LayerPlan | None:
    """The kind of layer the row is about, found by the decoder index in its first module's name."""
    index = re.search(r"\.(\d+)\.", row["first_prefix"] or "")
    if index is None:
        return planned.layers[0] if planned.layers else None
    kinds = [p for p in planned.layers if int(index.group(1)) in p.layer.layers]
    if "vision_experts" in row["first_prefix"]:
        kinds = kinds[1:]
    return kinds[0] if kinds else None


def ours(model: MoEModel, planned: EnginePlan, row: dict[str, Any]) -> dict[str, Any]:
    """Our answers under the row's names, for the names that the row answers."""
    stops = [*planned.refusals, *(r for p in planned.layers for r in p.refusals if r.stage != "load")]
    out: dict[str, Any] = {}
    if row["error"] == DENSE:
        return {"error": DENSE if not planned.layers else "it has layers", "stage": "done"}
    out["error"] = stops[0].error if stops else None
    if stops:
        out["stage"] = stops[0].stage
    found = layer_of(model, planned, row)
    if row["quant_method_class"] is None or found is None:
        return out
    problem, router = found.problem, found.router
    block = find(model, resolve(row["engine"]).release).block
    out |= {
        "backend": found.backend.name,
        "hidden": [problem.model_dim, problem.model_dim_padded],
        "inter": [problem.inter_dim, problem.inter_dim_padded],
        "moe_tp_size": problem.moe_tp_size,
        "ep_size": problem.ep_size,
        "local_experts": problem.expert,
        "router": router.kind,
        "num_expert_group": router.num_expert_group,
        "aiter_router_kernel": router.on_aiter,
        "router_ops": [f"vllm.rocm_aiter_{router.kernel}.default"] if router.on_aiter else [],
        "activation": activation(found.layer, block),
        "has_bias": found.layer.expert_bias,
        "num_experts": problem.global_experts,
        "top_k": router.topk,
        "intermediate_size": problem.inter_dim * problem.moe_tp_size,
        "scoring_func": router.scoring,
        "renormalize": router.renormalize,
        "select_bias": router.bias,
        "hash_routing": found.layer.hash_routed,
        "routing_method": found.routing_method,
        "quant_method_class": found.quant_method,
        "moe_layers": found.layer.count,
    }
    return out


def wanted(row: dict[str, Any]) -> dict[str, Any]:
    """The row's answers that are answers: no null, nothing the harness could not learn."""
    if row["stage"] == "source":
        return {}
    out = {name: row[name] for name in FIELDS if row.get(name) is not None}
    out["error"] = None if row["error"] is None else row["error"] if row["error"] == DENSE else text_of(row["error"])
    if row["error"] is None or row["error"] == DENSE:
        out["stage"] = "done" if row["error"] else None
    if row["stage"] == "layer" and row["error"] is not None:
        out.pop("moe_layers", None)
    if row["router_error"] is not None or (row["router_ops"] and not row["router_ops"][0].startswith("vllm.rocm_aiter_")):
        out.pop("router_ops", None)
    if row["quant_method_class"] is None:
        out = {k: v for k, v in out.items() if k in ("error", "stage")}
    for name in ("hidden", "inter"):
        if name in out and None in out[name]:
            out.pop(name)
    return {k: v for k, v in out.items() if k == "error" or v is not None}


@pytest.fixture(scope="module")
def compared() -> dict[str, tuple[int, list[str]]]:
    """Field -> (answers compared, what differs)."""
    rows = [json.loads(line) for line in corpus("golden", "vllm_plan.jsonl").read_text().splitlines()]
    models: dict[str, MoEModel] = {}
    plans: dict[tuple[Any, ...], EnginePlan] = {}
    total: dict[str, int] = defaultdict(int)
    wrong: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        name = row["config"]
        if name not in models:
            path = corpus("hf-configs", name)
            beside = path.with_name(path.name.removesuffix(".json") + ".hf_quant_config.json")
            quant = json.loads(beside.read_text()) if beside.exists() else None
            models[name] = read_config(json.loads(path.read_text()), id=row["repo_id"], hf_quant_config=quant)
        asked = (name, row["engine"], row["gfx"], row["tp"], row["ep"], row["moe_backend"])
        if asked not in plans:
            deployment = Deployment(
                GPUS[row["gfx"]], engine_version=row["engine"], tp=row["tp"], ep=row["ep"], moe_backend=row["moe_backend"]
            )
            plans[asked] = plan(models[name], deployment)
        got = ours(models[name], plans[asked], row)
        for key, value in wanted(row).items():
            total[key] += 1
            if got.get(key) != value:
                wrong[key].append(f"{asked}: we say {got.get(key)!r}, vLLM says {value!r}")
    return {name: (total[name], wrong[name]) for name in FIELDS}


@needs_corpus
@pytest.mark.parametrize("field", FIELDS)
def test_agrees_with_vllm(compared: dict[str, tuple[int, list[str]]], field: str) -> None:
    total, wrong = compared[field]
    assert total > 150, f"{field}: the corpus has too few answers to mean something"
    assert not wrong, f"{field}: {len(wrong)} of {total} differ, such as\n" + "\n".join(wrong[:5])
