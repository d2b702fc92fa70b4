"""Families whose expert width is plain ``intermediate_size``: Mixtral and those after it."""

from __future__ import annotations

from moe_preflight.model import variants
from moe_preflight.model.family import Family, Fixed, at
from moe_preflight.model.layout import every, every_nth, interleaved, period, switches, typed

_M = "model_executor/models/"
_SPARSE = typed("mlp_layer_types", "sparse", "moe")
_W = ("w1", "w3", "w2")
_BSM = ("model.layers.{}.mlp.experts", "model.layers.{}.block_sparse_moe.experts")

MIXTRAL_LINE: tuple[Family, ...] = (
    Family(
        "mixtral", ("MixtralForCausalLM",), ("mixtral",),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        prefix=("model.layers.{}.block_sparse_moe.experts",), parts=_W, source=_M + "mixtral.py:118",
    ),
    Family(
        "minimax_m2", ("MiniMaxM2ForCausalLM",), ("minimax_m2",),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        shared_width=at("shared_intermediate_size", 0, _M + "minimax_m2.py has none", null=0),
        scoring=at("scoring_func"), bias=at("use_routing_bias", False, _M + "minimax_m2.py:85"), prefix=_BSM,
        parts=_W, source=_M + "minimax_m2.py:96",
    ),
    Family(
        "minimax_m3",
        ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"),
        ("minimax_m3", "minimax_m3_text", "minimax_m3_vl", "minimax_m3_vl_text"),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        where=(switches("moe_layer_freq"), _SPARSE, every), shared_count=at("n_shared_experts", null=0),
        shared_each=at("shared_intermediate_size"),
        scoring=at("scoring_func", "sigmoid", "transformers_utils/configs/minimax_m3.py"),
        bias=at("use_routing_bias", True, "transformers_utils/configs/minimax_m3.py"),
        scaling=at("routed_scaling_factor", null=1.0),
        activation=Fixed("swigluoai_uninterleave", "models/minimax_m3/amd/model.py:465"), mtp=at("num_mtp_modules"),
        prefix=_BSM, parts=_W, source="models/minimax_m3/amd/model.py:454",
    ),
    Family(
        "minimax_text_01",
        ("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM", "MiniMaxForCausalLM"),
        ("minimax", "minimax_m1", "minimax_text_01"),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        shared_width=at("shared_intermediate_size", 0, "transformers models/minimax has none", null=0), prefix=_BSM,
        parts=_W, source="transformers models/minimax",
    ),
    Family(
        "phimoe", ("PhiMoEForCausalLM",), ("phimoe",),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        renormalize=Fixed(False, _M + "phimoe.py:280"), prefix=("model.layers.{}.block_sparse_moe.experts",),
        parts=_W, source=_M + "phimoe.py:274",
    ),
    Family(
        "granitemoe",
        (
            "GraniteMoeForCausalLM", "GraniteMoeHybridForCausalLM", "GraniteMoeSharedForCausalLM",
            "GraniteMoeSWAForCausalLM",
        ),
        ("granitemoe", "granitemoehybrid", "granitemoeshared", "granitemoe_swa"),
        experts=at("num_local_experts", null=0), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        shared_width=at("shared_intermediate_size", 0, _M + "granitemoe.py has none", null=0),
        activation=at("hidden_act|activation_function", "silu", "transformers models/granitemoe"),
        prefix=("model.layers.{}.block_sparse_moe.experts", "model.layers.{}.block_sparse_moe"),
        parts=("input_linear", "output_linear"), source=_M + "granitemoe.py:106",
    ),
    Family(
        "gpt_oss", ("GptOssForCausalLM",), ("gpt_oss", "openai_privacy_filter"),
        experts=at("num_local_experts|num_experts"), topk=at("num_experts_per_tok|experts_per_token"),
        inter=at("intermediate_size"), activation=Fixed("swigluoai", _M + "gpt_oss.py:400"), expert_bias=True,
        parts=("gate_up_proj", "down_proj"), source=_M + "gpt_oss.py:390",
    ),
    Family(
        "llama4", ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"), ("llama4", "llama4_text"),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        where=(interleaved, every), shared_width=at("intermediate_size"),
        renormalize=Fixed(False, _M + "llama4.py:141"), weight_on_input=Fixed(True, _M + "llama4.py:140"),
        prefix=("model.layers.{}.feed_forward.experts",), source=_M + "llama4.py:132",
    ),
    Family(
        "olmoe", ("OlmoeForCausalLM", "FlexOlmoForCausalLM"), ("olmoe", "flex_olmo"),
        experts=at("num_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        renormalize=variants.OLMOE_RENORM, source=_M + "olmoe.py:95",
    ),
    Family(
        "jamba", ("JambaForCausalLM", "JambaForSequenceClassification"), ("jamba",),
        experts=at("layers_num_experts|num_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        where=(period, every), renormalize=Fixed(False, _M + "jamba.py:90"),
        prefix=("model.layers.{}.feed_forward.experts",), source=_M + "jamba.py:83",
    ),
    Family(
        "jetmoe", ("JetMoEForCausalLM", "JetMoeForCausalLM"), ("jetmoe",),
        experts=at("num_local_experts|moe_num_experts"), topk=at("num_experts_per_tok|moe_top_k"),
        inter=at("intermediate_size|ffn_hidden_size"),
        activation=at("activation_function|hidden_act", "silu", "transformers models/jetmoe"),
        parts=("input_linear", "output_linear"), source="transformers models/jetmoe",
    ),
    Family(
        "dbrx", ("DbrxForCausalLM",), ("dbrx",),
        experts=at("ffn_config.moe_num_experts"), topk=at("ffn_config.moe_top_k"),
        inter=at("ffn_config.ffn_hidden_size"), hidden=at("d_model|hidden_size"),
        layer_counts=("n_layers", "num_hidden_layers"),
        activation=at("ffn_config.ffn_act_fn.name", "silu", "transformers models/dbrx"),
        prefix=("transformer.blocks.{}.ffn", "transformer.blocks.{}.ffn.experts"),
        parts=("mlp.w1", "mlp.v1", "mlp.w2"), source=_M + "dbrx.py:165",
    ),
    Family(
        "arctic", ("ArcticForCausalLM",), ("arctic",),
        experts=at("num_local_experts"), topk=at("num_experts_per_tok"), inter=at("intermediate_size"),
        where=(every_nth("moe_layer_frequency"), every), prefix=("model.layers.{}.block_sparse_moe.experts",), parts=_W,
        source="github Snowflake-Labs/snowflake-arctic modeling_arctic.py",
    ),
    Family(
        "grok", ("Grok1ForCausalLM", "Grok1ModelForCausalLM", "Grok2ForCausalLM"), ("grok-1", "grok"),
        experts=at("num_local_experts|num_experts"), topk=at("num_experts_per_tok|num_selected_experts"),
        inter=at("moe_intermediate_size|intermediate_size"), activation=Fixed("gelu", "sglang srt/models/grok.py"),
        renormalize=Fixed(False, "sglang srt/models/grok.py"), prefix=("model.layers.{}.block_sparse_moe.experts",), parts=_W,
        source="sglang 0.5.23 srt/models/grok.py",
    ),
)  # fmt: skip
