"""The table of families: one row says where a family's configs keep what we need. A new family is a new row.

``source`` names the engine code a row was checked against (paths in vLLM 0.33.0, or transformers 5.24.0). Defaults that a
row does not give come from the config class (``fields.py``).
"""

from __future__ import annotations

from functools import cache

from moe_preflight.model import variants
from moe_preflight.model.families.backend import BACKEND_LINE
from moe_preflight.model.families.deepseek import DEEPSEEK_LINE
from moe_preflight.model.families.mixtral import MIXTRAL_LINE
from moe_preflight.model.families.others import OTHERS
from moe_preflight.model.families.qwen import QWEN_LINE
from moe_preflight.model.family import Equals, Family, at
from moe_preflight.model.layout import after_dense, enumerated, every, sparse_step, switches, typed

FAMILIES: tuple[Family, ...] = (*DEEPSEEK_LINE, *QWEN_LINE, *MIXTRAL_LINE, *OTHERS, *BACKEND_LINE)

_M = "model_executor/models/"

GENERIC = Family(
    "generic", (), (),
    experts=at("num_experts|moe_num_experts|n_routed_experts|num_local_experts", null=0),
    topk=at("num_experts_per_tok|num_experts_per_token|top_k_experts|moe_topk|moe_top_k|top_k|moe_k"),
    inter=at("moe_intermediate_size|expert_intermediate_size|intermediate_size"), hidden=at("hidden_size|d_model"),
    layer_counts=("num_hidden_layers", "num_layers", "n_layers"),
    where=(
        typed("mlp_layer_types", "sparse", "moe"), switches("moe_layer_freq"), enumerated(), after_dense(), sparse_step, every,
    ),
    shared_count=at("n_shared_experts|moe_num_shared_experts|num_shared_experts", 0, "no field", null=0),
    n_group=at("n_group|num_expert_group"), topk_group=at("topk_group"),
    scoring=at(
        "scoring_func|score_function|score_func|moe_router_activation_func|router_score_func", "softmax",
        "vLLM's FusedMoE default",
    ),
    bias=Equals(("topk_method",), "noaux_tc"), renormalize=variants.BACKEND_RENORM,
    scaling=at("routed_scaling_factor", 1.0, _M + "transformers/moe.py:238", null=1.0),
    activation=at("hidden_act|hidden_activation", "silu", _M + "transformers/moe.py:258"), mtp=at("num_nextn_predict_layers"),
    source="transformers_utils/config.py:56 CONFIG_FIELD_ALIASES",
)  # fmt: skip
"""For an architecture nobody told us about: the alias lists vLLM's Transformers backend reads. Results are ``modelled``."""


@cache
def by_architecture() -> dict[str, Family]:
    return {name: family for family in FAMILIES for name in family.architectures}


@cache
def by_model_type() -> dict[str, Family]:
    return {name: family for family in FAMILIES for name in family.model_types}
