"""Families that vLLM has no model file of: its Transformers backend runs transformers' own (0.33.0 model_executor/models/transformers/moe.py).

What the backend asks of FusedMoE it finds by tracing transformers 5.24.0's router; ``source`` names that router.
"""

from __future__ import annotations

from moe_preflight.model import variants
from moe_preflight.model.family import Family, Fixed, at
from moe_preflight.model.layout import after_dense, every, typed

_T = "transformers models/"
_SPARSE = typed("mlp_layer_types", "sparse", "moe")

BACKEND_LINE: tuple[Family, ...] = (
    Family(
        "mellum", ("MellumForCausalLM",), ("mellum",),
        experts=at("num_experts|num_local_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(_SPARSE, every), renormalize=at("norm_topk_prob"), source=_T + "mellum/modeling_mellum.py:314",
    ),
    Family(
        "lara_mini", ("LaraMiniForCausalLM",), ("lara_mini",),
        experts=at("num_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        shared_width=at("shared_expert_intermediate_size", null=0), renormalize=at("norm_topk_prob"),
        source=_T + "lara_mini/modeling_lara_mini.py:765",
    ),
    Family(
        "kolibri1", ("Kolibri1ForCausalLM",), ("kolibri1",),
        experts=at("num_experts|num_local_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        shared_width=at("shared_expert_intermediate_size", null=0),
        scoring=Fixed("sigmoid", _T + "kolibri1/modeling_kolibri1.py:291"),
        bias=Fixed(True, _T + "kolibri1/modeling_kolibri1.py:275"), renormalize=at("norm_topk_prob"),
        source=_T + "kolibri1/modeling_kolibri1.py:267",
    ),
    Family(
        "axk2", ("AXK2ForCausalLM",), ("axk2",),
        experts=at("n_routed_experts|num_local_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(_SPARSE, after_dense(), variants.first_layer_dense), shared_count=at("n_shared_experts", null=0),
        n_group=at("n_group"), topk_group=at("topk_group"), scoring=Fixed("sigmoid", _T + "axk2/modeling_axk2.py:297"),
        bias=Fixed(True, _T + "axk2/modeling_axk2.py:292"), renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", null=1.0), source=_T + "axk2/modeling_axk2.py:281",
    ),
    Family(
        "mistral_large4", ("MistralLarge4ForConditionalGeneration", "MistralLarge4ForCausalLM"),
        ("mistral_large4", "mistral_large4_text"),
        experts=at("n_routed_experts|num_local_experts|num_experts"), topk=at("num_experts_per_tok"),
        inter=at("moe_intermediate_size"), where=(_SPARSE, after_dense(), every),
        shared_count=at("n_shared_experts", null=0), n_group=at("n_group"), topk_group=at("topk_group"),
        scaling=at("routed_scaling_factor", null=1.0), source=_T + "mistral_large4/modeling_mistral_large4.py:521",
    ),
)  # fmt: skip
