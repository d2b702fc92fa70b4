"""How each MoE model file of vLLM calls its FusedMoE factory: groups, scoring, scale, checks (0.33.0 wheel; 0.29 - 0.32 agree, but for
laguna before 0.31.0, which took norm_topk_prob from its config).

A row says only what the *file* fixes; everything else comes from the checkpoint's config. ``line`` is the factory call in
``vllm/model_executor/models/<name>.py`` (or ``vllm/models/...`` where the path says so).
"""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """One MoE block of vLLM.

    ``groups``: ``config`` passes n_group / topk_group as they are (a missing one counts as 1), ``both`` groups only when the
    config has both, ``one`` is hard-coded 1/1, ``none`` never groups.
    ``scale``: who applies routed_scaling_factor: the ``router``, the ``output`` (runner), or ``aiter`` (router with AITER's
    MoE on, output otherwise). ``renormalize`` / ``scoring`` are set where the file ignores the config.
    ``tp_within_experts``: raises when TP exceeds the expert count.
    ``fse``: how shared experts may be fused: ``no``, ``shared`` (n_shared_experts slots), ``gated`` (one sigmoid-gated slot),
    ``own`` (rules of its own).
    """

    name: str
    line: str
    groups: str = "none"
    scale: str = "router"
    custom: str | None = None
    scoring: str | None = None
    renormalize: bool | None = None
    tp_within_experts: bool = False
    logits: str = "model"
    """``fp32`` where the gate is widened, ``model`` where it is not, else the config field that says."""
    logits_default: str | None = None
    fse: str = "no"
    custom_kernel: str = "torch"
    custom_scoring: str | None = None
    """The custom function is used for this scoring only; every other falls to the plain routers."""
    activation: str = "silu"
    """What the file passes: its own word, or ``config`` where it hands the checkpoint's on."""


GELU_TANH = "gelu_tanh"


def _rows() -> tuple[Block, ...]:
    return (
        Block("AXK1", "AXK1.py:187", "config", "aiter", fse="shared"),
        Block("afmoe", "afmoe.py:121", "config", logits="fp32"),
        Block("alice_ai", "alice_ai.py:269", scoring="sigmoid", tp_within_experts=True, fse="gated"),
        Block("aria", "aria.py:218", scoring="softmax", renormalize=True),
        Block("bailing_moe", "bailing_moe.py:296", "both", logits="router_dtype"),
        Block("bailing_moe_linear", "bailing_moe_linear.py:312", "both", "output", logits="router_dtype", logits_default="fp32"),
        Block("bailing_moe_v3", "bailing_moe_v3.py:1199", "config", scoring="sigmoid", renormalize=True, logits="fp32"),
        Block("beam", "vllm/models/beam/nvidia/moe.py:84", "both", "output", scoring="sigmoid"),
        Block(
            "cohere2_moe", "cohere2_moe.py:351", custom="token_choice_with_bias", custom_scoring="sigmoid", tp_within_experts=True
        ),
        Block("dbrx", "dbrx.py:165", scoring="softmax", renormalize=True),
        Block("deepseek_v2", "deepseek_v2.py:374", "config", "aiter", logits="moe_router_dtype", fse="shared"),
        Block("deepseek_v4", "vllm/models/deepseek_v4/amd/model.py:749", logits="fp32", fse="own"),
        Block("ernie45_moe", "ernie45_moe.py:184", renormalize=True, scoring="softmax", tp_within_experts=True, logits="fp32"),
        Block(
            "ernie45_vl_moe", "ernie45_vl_moe.py:264", renormalize=True, scoring="softmax", tp_within_experts=True, logits="fp32"
        ),
        Block("exaone_moe", "exaone_moe.py:129", "config", scoring="sigmoid", tp_within_experts=True),
        Block("flint", "vllm/models/flint/model.py:182"),
        Block("gemma4", "gemma4.py:646", custom="routing_function", custom_kernel="other", activation=GELU_TANH),
        Block("glm4_moe", "glm4_moe.py:183", "config", "aiter", scoring="sigmoid", logits="fp32", fse="shared"),
        Block("glm5next", "vllm/models/glm5next/common/model.py:299", "config", "aiter", logits="fp32", fse="shared"),
        Block("gpt_oss", "gpt_oss.py:390", scoring="softmax", renormalize=True, activation="swigluoai"),
        Block("granitemoe", "granitemoe.py:106", scoring="softmax", renormalize=True),
        Block("hy_v3", "hy_v3.py:182", "one", tp_within_experts=True, logits="fp32"),
        Block("hy_v4", "vllm/models/hy_v4/nvidia/moe.py:152", "one", scoring="sigmoid", tp_within_experts=True, logits="fp32"),
        Block("inkling", "vllm/models/inkling/amd/moe.py:461", custom="_select_routed", renormalize=False, logits="fp32"),
        Block("interns1_pro", "interns1_pro.py:171", custom="_custom_routing_function", tp_within_experts=True),
        Block("interns2_mobius", "interns2_mobius.py:105", scoring="softmax", tp_within_experts=True, activation="config"),
        Block("jamba", "jamba.py:83", scoring="softmax", renormalize=False),
        Block("k2_horizon", "k2_horizon.py:520", tp_within_experts=True),
        Block("kimi_k3", "vllm/models/kimi_k3/amd/linear.py:327", "config", logits="fp32", activation="config"),
        Block("laguna", "laguna.py:214", scale="output", scoring="sigmoid", renormalize=True, tp_within_experts=True),
        Block("lfm2_moe", "lfm2_moe.py:141", "one", scoring="sigmoid", tp_within_experts=True),
        Block("llama4", "llama4.py:132", custom="Llama4MoE.custom_routing_function", renormalize=False),
        Block("longcat_flash", "longcat_flash.py:200", renormalize=False, scoring="softmax"),
        Block("mimo_v2", "mimo_v2.py:173", "config", scoring="sigmoid", tp_within_experts=True, logits="fp32"),
        Block("minimax_m2", "minimax_m2.py:96", renormalize=True, tp_within_experts=True, logits="fp32"),
        Block(
            "minimax_m3", "vllm/models/minimax_m3/amd/model.py:454", scale="output", renormalize=True, tp_within_experts=True,
            logits="fp32", fse="own", activation="swigluoai_uninterleave",
        ),
        Block("mixtral", "mixtral.py:118", scoring="softmax", renormalize=True),
        Block("muse_spark", "vllm/models/muse_spark/amd/model.py:261", custom="moe_router", renormalize=True, scoring="sigmoid"),
        Block("nemotron_h", "nemotron_h.py:229", "config", "output", scoring="sigmoid", logits="fp32", activation="config"),
        Block("olmoe", "olmoe.py:95", scoring="softmax", renormalize=False),
        Block("openpangu", "openpangu.py:194", "one", "output", scoring="sigmoid"),
        Block("param2moe", "param2moe.py:331", "both"),
        Block("phimoe", "phimoe.py:274", custom="phimoe_routing_function", renormalize=False),
        Block("qwen2_moe", "qwen2_moe.py:170", scoring="softmax", tp_within_experts=True),
        Block("qwen3_moe", "qwen3_moe.py:203", scoring="softmax", tp_within_experts=True),
        Block("qwen3_next", "qwen3_next.py:223", scoring="softmax", tp_within_experts=True, fse="gated"),
        Block("sarvam", "sarvam.py:350", "both", logits="router_dtype", logits_default="fp32"),
        Block("step3_text", "step3_text.py:72", scoring="softmax", tp_within_experts=True),
        Block("step3p5", "step3p5.py:388", tp_within_experts=True, logits="fp32", activation="config"),
        Block("step5", "vllm/models/step5/nvidia/model.py:1799", tp_within_experts=True, logits="fp32", activation="config"),
        Block("transformers", "transformers/moe.py:438", "both", "aiter"),
    )  # fmt: skip


BLOCKS: dict[str, Block] = {b.name: b for b in _rows()}

GENERIC = Block("unknown", "no model file of vLLM known to us", "both", "router", activation="config")
"""A model whose file we do not know: grouped when its config has groups, everything else as its config says."""

SHARED_FILES: dict[str, str] = {
    "bailing_moe_mtp": "bailing_moe_linear", "bailing_moe_v3_mtp": "bailing_moe_v3", "bailing_moe_v3_vl": "bailing_moe_v3",
    "cosmos3_edge": "nemotron_h", "deepseek_mtp": "deepseek_v2", "deepseek_eagle": "deepseek_v2",
    "deepseek_eagle3": "deepseek_v2", "deepseek_ocr": "deepseek_v2", "deepseek_ocr2": "deepseek_v2",
    "deepseek_vl2": "deepseek_v2", "diffusion_gemma": "gemma4", "ernie45_vl": "ernie45_vl_moe",
    "exaone_moe_mtp": "exaone_moe", "gemma4_mm": "gemma4", "gemma4_mtp": "gemma4", "gemma4_unified": "gemma4",
    "glm4_1v": "glm4_moe", "glm4_moe_lite": "glm4_moe", "glm4_moe_mtp": "glm4_moe", "granitemoehybrid": "granitemoe",
    "granitemoeshared": "granitemoe", "hy_v3_mtp": "hy_v3", "kimi_k25": "deepseek_v2", "kimi_vl": "deepseek_v2",
    "laguna_dflash": "laguna", "llama4_eagle": "llama4", "longcat_flash_mtp": "longcat_flash",
    "longcat_flash_ngram": "longcat_flash", "mimo_v2_mtp": "mimo_v2", "mimo_v2_omni": "mimo_v2",
    "mistral_large_3": "deepseek_v2", "mistral_large_3_eagle": "deepseek_v2", "mllama4": "llama4",
    "nano_nemotron_vl": "nemotron_h", "nemotron_h_mtp": "nemotron_h", "openai_privacy_filter": "gpt_oss",
    "openpangu_mtp": "openpangu", "openpangu_vl": "openpangu", "qwen3_5": "qwen3_next", "qwen3_5_mtp": "qwen3_next",
    "qwen3_next_mtp": "qwen3_next", "qwen3_omni_moe_thinker": "qwen3_moe", "qwen3_vl_moe": "qwen3_moe",
    "step3_vl": "step3_text", "step3p5_mtp": "step3p5", "step3p7": "step3p5", "vllm.models.deepseek_v32": "deepseek_v2",
    "vllm.models.deepseek_v41": "deepseek_v4", "vllm.models.dots3_note": "deepseek_v2", "vllm.models.qwen4_exp": "qwen3_next",
}  # fmt: skip
"""Model file -> the file whose MoE block it builds (by import, or through its text model)."""

TEXT_MODELS: dict[str, str] = {
    "deepseek_v2": "deepseek_v2", "deepseek_v3": "deepseek_v2", "kimi_k2": "deepseek_v2", "kimi_linear": "kimi_k3",
    "mistral4": "deepseek_v2", "qwen2_moe": "qwen2_moe", "qwen3_moe": "qwen3_moe", "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_next": "qwen3_next", "qwen3_5_moe_text": "qwen3_next", "glm4_moe": "glm4_moe", "glm4v_moe_text": "glm4_moe",
    "gpt_oss": "gpt_oss", "mixtral": "mixtral", "llama4_text": "llama4", "gemma4_text": "gemma4", "step3_text": "step3_text",
    "nemotron_h": "nemotron_h", "minimax_m2": "minimax_m2", "granitemoe": "granitemoe", "lfm2_moe": "lfm2_moe",
    "olmoe": "olmoe", "jamba": "jamba", "phimoe": "phimoe", "dbrx": "dbrx", "ernie4_5_moe": "ernie45_moe",
}  # fmt: skip
"""Text model_type -> file, for the multimodal wrappers that build whatever text model their config names."""

TEXT_TYPES_WITHOUT_CAUSAL_LM = frozenset(("mistral4",))
"""Text model types that transformers' causal-LM table (5.16 - 5.20) does not hold: a wrapper that leaves the text model's
architecture to that table, for a config that names none, finds nothing (vllm/config/vllm.py:972)."""

WRAPPERS_THAT_ASK = frozenset(
    (
        "blip2", "eagle2_5_vl", "granite_speech", "interns1", "internvl", "lightonocr", "llava", "llava_next",
        "llava_next_video", "llava_onevision", "mistral3", "paligemma", "pixtral", "skyworkr1v", "voxtral",
    )
)  # fmt: skip
"""Wrapper files that build their text model without naming its architecture (init_vllm_registered_model)."""

HF_MOE_ARCHITECTURES = frozenset(
    (
        "Dots1ForCausalLM", "MiniMaxForCausalLM", "FlexOlmoForCausalLM", "HunYuanMoEV1ForCausalLM", "JetMoeForCausalLM",
        "NllbMoeForConditionalGeneration", "SwitchTransformersForConditionalGeneration", "Qwen2MoeForCausalLM",
        "JetMoeForCausalLM", "PhimoeForCausalLM", "DogeForCausalLM", "GraniteMoeSharedForCausalLM", "OlmoeForCausalLM",
        "DeepseekV2ForCausalLM", "LongcatFlashForCausalLM", "Lfm2MoeForCausalLM", "BambaForCausalLM",
    )
)  # fmt: skip
"""MoE architectures transformers itself carries: absent from vLLM's registry, they run through its Transformers backend."""
