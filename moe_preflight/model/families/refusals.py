"""What a model file itself refuses about a config's experts (vLLM 0.33.0; SGLang 0.5.23 keeps the same checks where it has the file).

Only checks that every start of such a model runs into are here: those in a class that some checkpoints do not build (the dense
MLP of an all-expert model) are not.
"""

from __future__ import annotations

_M = "model_executor/models/"

ACTIVATIONS = frozenset((
    "silu", "gelu", "gelu_tanh", "relu2", "swigluoai", "situ", "swigluoai_uninterleave", "swiglustep",
    "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh", "gelu_accurate", "hardswish", "laplace",
    "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu6", "sigmoid", "sqrtsoftplus", "tanh", "prelu", "xielu",
))  # fmt: skip
"""Names that some code knows: MoEActivation (fused_moe/activation.py:21), then transformers 5.24.0 activations.py ACT2CLS."""

SCORINGS = ("softmax", "sigmoid", "sqrtsoftplus")
"""fused_moe/router/router_factory.py:218 and fused_topk_router.py:168 raise for every other."""

SILU_ONLY: dict[str, str] = {
    "deepseek": f"{_M}deepseek_v2.py:314",
    "glm_moe_dsa": f"{_M}deepseek_v2.py:314",
    "glm4_moe": f"{_M}glm4_moe.py:136",
    "glm5_next": "models/glm5next/common/model.py:243",
    "axk1": f"{_M}AXK1.py:137",
    "mimo_v2": f"{_M}mimo_v2.py:144",
    "afmoe": f"{_M}afmoe.py:79",
}
"""Families whose expert block raises for a hidden_act other than silu."""

NEEDS_EXPERTS: dict[str, str] = {
    "MixtralForCausalLM": f"{_M}mixtral.py:435",
    "Qwen3MoeForCausalLM": f"{_M}qwen3_moe.py:607",
    "Qwen3VLMoeForConditionalGeneration": f"{_M}qwen3_vl_moe.py:212",
    "InternS1ProForConditionalGeneration": f"{_M}interns1_pro.py:526",
    "Glm4MoeForCausalLM": f"{_M}glm4_moe.py:509",
    "HYV3ForCausalLM": f"{_M}hy_v3.py:486",
    "Lfm2MoeForCausalLM": f"{_M}lfm2_moe.py:617",
    "PanguUltraMoEForCausalLM": f"{_M}openpangu.py:1191",
    "PanguProMoEV2ForCausalLM": f"{_M}openpangu.py:1191",
    "SarvamMLAForCausalLM": f"{_M}sarvam.py:609",
    "Step3p5ForCausalLM": f"{_M}step3p5.py:896",
}
"""Architectures that do not start without one layer of experts; others run as dense models."""
