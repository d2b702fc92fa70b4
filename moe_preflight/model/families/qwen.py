"""Families that spell it Qwen's way: ``num_experts``, ``mlp_only_layers``, ``decoder_sparse_step``."""

from __future__ import annotations

from moe_preflight.model import variants
from moe_preflight.model.family import Family, Fixed, at
from moe_preflight.model.layout import after_dense, every, sparse_step, typed

_M = "model_executor/models/"
_SPARSE = typed("mlp_layer_types", "sparse", "moe")

QWEN_LINE: tuple[Family, ...] = (
    Family(
        "qwen2_moe", ("Qwen2MoeForCausalLM",), ("qwen2_moe",),
        experts=at("num_experts|num_local_experts", null=0), topk=at("num_experts_per_tok"),
        inter=at("moe_intermediate_size"), where=(sparse_step, every),
        shared_width=at("shared_expert_intermediate_size", 0, _M + "qwen2_moe.py", null=0),
        renormalize=at("norm_topk_prob"), source=_M + "qwen2_moe.py:170",
    ),
    Family(
        "qwen3_moe",
        (
            "Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
            "InternS1ForConditionalGeneration",
        ),
        ("qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"),
        experts=at("num_experts|num_local_experts", null=0), topk=at("num_experts_per_tok"),
        inter=at("moe_intermediate_size"), where=(sparse_step, every),
        shared_width=at("shared_expert_intermediate_size", 0, _M + "qwen3_moe.py", null=0),
        renormalize=at("norm_topk_prob", True, "transformers modeling_qwen3_vl_moe.py"),
        source=_M + "qwen3_moe.py:203",
    ),
    Family(
        "qwen3_next",
        (
            "Qwen3NextForCausalLM", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
            "Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration",
        ),
        ("qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp", "qwen4_exp_text"),
        experts=at("num_experts|num_local_experts", null=0), topk=at("num_experts_per_tok"),
        inter=at("moe_intermediate_size"), where=(variants.all_of_qwen3_5, sparse_step, every),
        shared_width=at("shared_expert_intermediate_size", 0, _M + "qwen3_next.py", null=0),
        renormalize=at("norm_topk_prob", True, _M + "qwen3_next.py:230"),
        mtp=at("num_nextn_predict_layers|mtp_num_hidden_layers"), mtp_experts=at("mtp_num_experts"),
        mtp_topk=at("mtp_num_experts_per_tok"), mtp_prefix=("mtp.layers.{}.mlp.experts",),
        source=_M + "qwen3_next.py:223",
    ),
    Family(
        "interns2_mobius", ("InternS2MobiusForConditionalGeneration",), ("interns2_mobius", "interns2_mobius_text"),
        experts=at("num_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(variants.shared_banks, variants.no_layer),
        shared_width=at("shared_expert_intermediate_size", 0, _M + "interns2_mobius.py", null=0),
        renormalize=at("norm_topk_prob", True, _M + "interns2_mobius.py:112"),
        prefix=("model.meta_mlp.{}.experts",), source=_M + "interns2_mobius.py:105",
    ),
    Family(
        "interns1_pro", ("InternS1ProForConditionalGeneration",), ("interns1_pro", "interns1_pro_text"),
        experts=at("num_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(sparse_step, every), renormalize=at("norm_topk_prob"), source=_M + "interns1_pro.py:171",
    ),
    Family(
        "k2_horizon", ("K2HorizonForCausalLM",), ("k2_horizon",),
        experts=at("num_experts", null=0), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(sparse_step, every), shared_count=at("num_shared_experts", 0, _M + "k2_horizon.py", null=0),
        scoring=at("router_score_func"), bias=at("moe_gate_bias", False, _M + "k2_horizon.py"),
        renormalize=at("norm_topk_prob"), scaling=at("router_scaling_factor", 1.0, _M + "k2_horizon.py", null=1.0),
        source=_M + "k2_horizon.py:520",
    ),
    Family(
        "flint", ("FlintForCausalLM",), ("flint",),
        experts=at("num_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(sparse_step, every),
        shared_width=at("shared_expert_intermediate_size", 0, "models/flint/model.py", null=0),
        scoring=at("router_score_function"), renormalize=at("norm_topk_prob"), source="models/flint/model.py:182",
    ),
    Family(
        "laguna", ("LagunaForCausalLM",), ("laguna",),
        experts=at("num_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(_SPARSE, variants.first_layer_dense), shared_width=at("shared_expert_intermediate_size", null=0),
        scoring=Fixed("sigmoid", _M + "laguna.py:223"), bias=Fixed(True, _M + "laguna.py:202"),
        scaling=at("moe_routed_scaling_factor", null=1.0),
        weight_on_input=at("moe_apply_router_weight_on_input", False, _M + "laguna.py:225", null=False),
        source=_M + "laguna.py:214",
    ),
    Family(
        "alice_ai", ("AliceAIForCausalLM",), ("alice_ai",),
        experts=at("num_experts|n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(sparse_step, after_dense(), every),
        shared_width=at("shared_expert_intermediate_size", 0, _M + "alice_ai.py", null=0),
        scoring=Fixed("sigmoid", _M + "alice_ai.py:277"), bias=Fixed(True, _M + "alice_ai.py:241"),
        renormalize=at("norm_topk_prob", True, _M + "alice_ai.py:276"), source=_M + "alice_ai.py:269",
    ),
)  # fmt: skip
