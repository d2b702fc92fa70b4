"""Combinations of environment, flags and model that vLLM refuses by name: MoRI, MegaMoE, DeepSeek-V4's own switches."""

from __future__ import annotations

from moe_preflight.engine.experts import Ask
from moe_preflight.engine.facts.vllm_blocks import Block
from moe_preflight.engine.facts.vllm_releases import at_least
from moe_preflight.engine.plan import Deployment, Refusal
from moe_preflight.model.moe import ExpertLayer, MoEModel

_CONFIG = "vllm/model_executor/layers/fused_moe/config.py"
_V4 = "vllm/models/deepseek_v4/amd/model.py"
_A4W4_MODELS = ("deepseek_v41", "deepseek_v41_text")


def refusals(model: MoEModel, layer: ExpertLayer, block: Block, ask: Ask, deployment: Deployment) -> list[Refusal]:
    """Every refusal a switch causes for ``layer``, in vLLM's order: the model file's first, then FusedMoEConfig's."""
    out: list[Refusal] = []
    if block.name == "deepseek_v4":
        out += _deepseek_v4(layer, ask, deployment)
    out += _a4w4(model, ask)
    out += _mori(ask)
    return out


def _deepseek_v4(layer: ExpertLayer, ask: Ask, deployment: Deployment) -> list[Refusal]:
    fused = ask.env.flag("VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS") and layer.n_shared
    out: list[Refusal] = []
    if fused and not deployment.ep and deployment.dp > 1:
        text = (
            "DeepSeek-V4 fused shared experts (VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=1) are not supported with data "
            "parallelism (data_parallel_size > 1). Set VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=0 to run the shared expert as "
            "an unfused FP8 MLP."
        )
        why = "the fused path cannot load the FP8 shared expert into an MXFP4 slot."
        remedy = "Set VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=0."
        out.append(Refusal("model", text, why, remedy, f"{_V4}:539 (0.33.0)"))
    if ask.backend == "aiter_mega_moe":
        stop = _mega_moe(layer, ask, deployment)
        out += [stop] if stop else []
    return out


def _mega_moe(layer: ExpertLayer, ask: Ask, deployment: Deployment) -> Refusal | None:
    """_validate_aiter_mega_moe_config (deepseek_v4/amd/model.py:552), first objection."""
    tests = (
        (
            ask.aiter_moe,
            "--moe-backend aiter_mega_moe requires VLLM_ROCM_USE_AITER=1  and VLLM_ROCM_USE_AITER_MOE=1.",
        ),
        (ask.gfx == "gfx950", "AITER MegaMoE requires gfx950."),
        (
            deployment.ep and deployment.tp == 1 and deployment.pp == 1,
            "AITER MegaMoE requires data parallel attention with expert parallel MoE: --data-parallel-size N "
            "--enable-expert-parallel with TP=1 and PP=1.",
        ),
        (
            (deployment.all2all or "").startswith("mori_"),
            "AITER MegaMoE runs on MoRI shmem; add --all2all-backend mori_high_throughput.",
        ),
        (not deployment.redundant_experts, "AITER MegaMoE does not support EPLB."),
        (layer.quantization.scheme.startswith("mxfp4"), "AITER MegaMoE only supports fp4 experts."),
    )
    text = next((t for ok, t in tests if not ok), None)
    if text is None:
        return None
    return Refusal("model", text, "MegaMoE runs in one set-up only.", "Leave --moe-backend at auto.", f"{_V4}:552 (0.33.0)")


def _a4w4(model: MoEModel, ask: Ask) -> list[Refusal]:
    asked = ask.env.is_set("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4") and ask.env.number("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4")
    if not (asked and ask.aiter_moe and ask.gated and at_least(ask.release, "0.32.0")) or model.model_type in _A4W4_MODELS:
        return []
    text = (
        f"VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4=1 only supports model_type in {_A4W4_MODELS}, got {model.model_type!r}. "
        "Unset this env var for this model."
    )
    why = "the switch changes the weight layout too, and is validated for DeepSeek-V4.1 only."
    return [Refusal("layer", text, why, "Unset VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4.", f"{_CONFIG}:1387 (0.33.0)")]


def _mori(ask: Ask) -> list[Refusal]:
    if not ask.split.mori:
        return []
    if not (ask.aiter_moe and ask.gated):
        text = "Mori needs to be used with aiter fused_moe for now."
        remedy = "Switch AITER's MoE on, or use another --all2all-backend."
        return [Refusal("layer", text, "MoRI's dispatch feeds AITER's kernel only.", remedy, f"{_CONFIG}:1402 (0.33.0)")]
    if ask.env.fuse_shared_experts:
        text = (
            "Mori does not support fusion shared expert now. Turn it off by setting VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=0"
        )
        remedy = "Set VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS=0."
        return [Refusal("layer", text, "MoRI has no slot for a fused shared expert.", remedy, f"{_CONFIG}:1405 (0.33.0)")]
    return []
