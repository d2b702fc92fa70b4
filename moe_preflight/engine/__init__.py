"""The engine room: ``plan(model, deployment)`` says what an engine asks of AITER. Data types in plan.py, one file an engine."""

from __future__ import annotations

from dataclasses import replace

from moe_preflight.engine.plan import Deployment, EnginePlan
from moe_preflight.errors import UsageError
from moe_preflight.model.moe import MoEModel

ENGINES = ("vllm", "sglang", "aiter")


def plan(model: MoEModel, deployment: Deployment) -> EnginePlan:
    """What ``deployment.engine`` would do with ``model``. Refusals are part of the answer; UsageError is for nonsense."""
    model = _as_served(model, deployment.engine)
    if deployment.engine == "vllm":
        from moe_preflight.engine import vllm

        return vllm.plan(model, deployment)
    if deployment.engine == "sglang":
        from moe_preflight.engine import sglang

        return sglang.plan(model, deployment)
    if deployment.engine == "aiter":
        from moe_preflight.engine import raw

        return raw.plan(model, deployment)
    raise UsageError(f"--engine {deployment.engine}: unknown engine.", hint=f"Known: {', '.join(ENGINES)}.")


def _as_served(model: MoEModel, engine: str) -> MoEModel:
    """fp32 checkpoints are served in 16 bits unless told otherwise: bf16 by vLLM (config/model.py:2441 and
    platforms/interface.py:194, 0.33.0), fp16 by SGLang save for Gemma (configs/model_config.py:2304, 0.5.23). AITER takes 16-bit
    activations only (aiter/fused_moe.py, v0.1.20.post1)."""
    if model.dtype != "fp32":
        return model
    half = engine == "sglang" and not (model.model_type or "").startswith("gemma")
    return replace(model, dtype="fp16" if half else "bf16")


def engine_pin(engine: str, version: str) -> str | None:
    """The AITER release that engine release ships in its image; None where it was not read, or there is no image."""
    if engine != "vllm":
        return None
    from moe_preflight.engine.facts.vllm_releases import resolve

    found = resolve(version)
    return found.release.aiter_pin if found.exact else None
