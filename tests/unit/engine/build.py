"""Models and deployments built by hand, for tests that need no config file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moe_preflight.engine import Deployment, EnginePlan, plan
from moe_preflight.hardware import Gpu, by_hand, named
from moe_preflight.model.moe import ExpertLayer, MoEModel, Quantization

K2_LAYER = ExpertLayer(
    "main", 58, 3, experts=192, topk=8, model_dim=6144, moe_intermediate_size=1792, n_shared=1, shared_intermediate_size=1792,
    scoring="sigmoid", selection_bias=True, routed_scaling_factor=2.5, layers=tuple(range(3, 61)),
)  # fmt: skip
K2 = MoEModel(
    "IFM/K2-Horizon-375B-A23B", "local", None, "K2HorizonForCausalLM", "k2_horizon", 6144, 61, "bf16", 48, (K2_LAYER,),
    config={"num_experts": 192},
)  # fmt: skip


def model(
    architecture: str | None = None, *, heads: int | None = None, config: dict[str, Any] | None = None, **layer: Any
) -> MoEModel:
    """A model of one kind of MoE layer; without an architecture vLLM's rules apply to the bare fields."""
    fields: dict[str, Any] = {"experts": 64, "topk": 8, "model_dim": 4096, "moe_intermediate_size": 2048, **layer}
    one = ExpertLayer("main", 4, 0, layers=(0, 1, 2, 3), **fields)
    return MoEModel(
        "m", "shape", None, architecture, None, one.model_dim, 4, "bf16", heads, (one,), one.quantization, config=config or {}
    )


def quantized(scheme: str, **fields: Any) -> Quantization:
    return Quantization(method=fields.pop("method", "fp8"), scheme=scheme, **fields)


def gpu(gfx: str) -> Gpu:
    return {"gfx942": named("mi300x"), "gfx950": named("mi355x")}.get(gfx) or by_hand(gfx, 256)


def run(m: MoEModel, gfx: str = "gfx942", version: str = "0.33.0", **deployment: Any) -> EnginePlan:
    return plan(m, replace(Deployment(gpu(gfx), engine_version=version), **deployment))
