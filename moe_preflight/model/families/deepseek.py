"""Families that spell it DeepSeek's way: ``n_routed_experts``, expert groups, dense layers first."""

from __future__ import annotations

from moe_preflight.model import variants
from moe_preflight.model.family import Equals, Family, Fixed, at
from moe_preflight.model.layout import after_dense, every, switches, typed

_M = "model_executor/models/"
_SPARSE = typed("mlp_layer_types", "sparse", "moe")
_NAUX = Equals(("topk_method",), "noaux_tc")
_W = ("w1", "w3", "w2")

DEEPSEEK_LINE: tuple[Family, ...] = (
    Family(
        "deepseek",
        (
            "DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV3BidirectionalModel", "DeepseekV32ForCausalLM",
            "KimiK25ForConditionalGeneration", "KimiVLForConditionalGeneration", "DeepseekVLV2ForCausalLM",
            "DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM", "UnlimitedOCRForCausalLM",
            "MistralLarge3ForCausalLM", "Dots3NoteForCausalLM",
        ),
        (
            "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "deepseek_vl_v2",
            "deepseek_ocr2_text", "unlimited_ocr_text", "dots3_note_text",
        ),
        experts=at("n_routed_experts", null=0), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(after_dense(), _SPARSE, every), shared_count=at("n_shared_experts", 0, _M + "deepseek_v2.py", null=0),
        n_group=at("n_group", 1, _M + "deepseek_v2.py:383"),
        topk_group=at("topk_group", 1, _M + "deepseek_v2.py:384"),
        scoring=at("scoring_func", "softmax", _M + "deepseek_v2.py:386"), bias=_NAUX,
        renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", 1.0, _M + "deepseek_v2.py:313", null=1.0),
        mtp=at("num_nextn_predict_layers"), source=_M + "deepseek_v2.py:374",
    ),
    Family(
        "glm_moe_dsa", ("GlmMoeDsaForCausalLM",), ("glm_moe_dsa",),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(after_dense(), _SPARSE, every), shared_count=at("n_shared_experts", null=0),
        n_group=at("n_group", 1, _M + "deepseek_v2.py:383"),
        topk_group=at("topk_group", 1, _M + "deepseek_v2.py:384"),
        scoring=at("scoring_func", "softmax", _M + "deepseek_v2.py:386"), bias=_NAUX,
        renormalize=at("norm_topk_prob"), scaling=at("routed_scaling_factor", null=1.0),
        mtp=at("num_nextn_predict_layers"), source=_M + "deepseek_v2.py:374",
    ),
    Family(
        "glm5_next", ("Glm5NextForCausalLM", "Glm5NextForConditionalGeneration"), ("glm5_next", "glm5_next_text"),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(_SPARSE, after_dense(), every), shared_count=at("n_shared_experts", null=0), n_group=at("n_group"),
        topk_group=at("topk_group"), scoring=at("scoring_func"), bias=_NAUX, renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", null=1.0), mtp=at("num_nextn_predict_layers"),
        source="models/glm5next/common/model.py:299",
    ),
    Family(
        "deepseek_v4",
        ("DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration", "DeepseekV41ForCausalLM"),
        ("deepseek_v4", "deepseek_v41", "deepseek_v41_text", "deepseek_ref"),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        shared_count=at("n_shared_experts", null=0),
        scoring=at("scoring_func", "sqrtsoftplus", "models/deepseek_v4/amd/model.py:612"), bias=_NAUX,
        renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", 1.0, "models/deepseek_v4/amd/model.py:602", null=1.0),
        hash_layers=at("num_hash_layers", null=0), mtp=at("num_nextn_predict_layers"), parts=_W,
        prefix=("model.layers.{}.ffn.experts", "layers.{}.ffn.experts"),
        mtp_prefix=("model.layers.{n}.ffn.experts", "mtp.{}.ffn.experts", "model.mtp.{}.ffn.experts"),
        source="models/deepseek_v4/amd/model.py:749",
    ),
    Family(
        "glm4_moe",
        ("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "Glm4vMoeForConditionalGeneration"),
        ("glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm4v_moe_text"),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(variants.glm4_dense, _SPARSE, variants.first_layer_dense), shared_count=at("n_shared_experts", null=0),
        n_group=at("n_group"), topk_group=at("topk_group"), scoring=Fixed("sigmoid", _M + "glm4_moe.py:196"),
        bias=Fixed(True, _M + "glm4_moe.py:148"), renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", null=1.0), mtp=at("num_nextn_predict_layers"),
        source=_M + "glm4_moe.py:183",
    ),
    Family(
        "mistral4", ("Mistral4ForCausalLM",), ("mistral4",),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(after_dense(), every), shared_count=at("n_shared_experts", null=0), n_group=at("n_group"),
        topk_group=at("topk_group"), scoring=at("scoring_func", "softmax", "transformers models/mistral4"),
        renormalize=at("norm_topk_prob"), scaling=at("routed_scaling_factor", null=1.0),
        source="transformers models/mistral4",
    ),
    Family(
        "dots1", ("Dots1ForCausalLM",), ("dots1",),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(after_dense(step=""), every), shared_count=at("n_shared_experts", null=0), n_group=at("n_group"),
        topk_group=at("topk_group"), scoring=at("scoring_func", "sigmoid", "transformers models/dots1"),
        bias=Fixed(True, "transformers models/dots1"), renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", null=1.0), source=_M + "transformers/moe.py:221",
    ),
    Family(
        "solar_open", ("SolarOpenForCausalLM",), ("solar_open",),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(every,), shared_count=at("n_shared_experts", null=0), n_group=at("n_group"),
        topk_group=at("topk_group"), scoring=Fixed("sigmoid", "transformers models/solar_open"),
        bias=Fixed(True, "transformers models/solar_open"), renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", null=1.0), source=_M + "glm4_moe.py:183",
    ),
    Family(
        "axk1", ("AXK1ForCausalLM",), ("axk1", "AXK1"),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(_SPARSE, after_dense(), every), shared_count=at("n_shared_experts", null=0), n_group=at("n_group"),
        topk_group=at("topk_group"), scoring=at("scoring_func", "sigmoid", _M + "AXK1.py:198"),
        bias=Equals(("topk_method",), "noaux_tc", default=True), renormalize=at("norm_topk_prob"),
        scaling=at("routed_scaling_factor", null=1.0), mtp=at("num_nextn_predict_layers"), source=_M + "AXK1.py:187",
    ),
    Family(
        "mimo_v2",
        ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM"),
        ("mimo_v2_flash", "mimo_v2", "mimo_v2_omni"),
        experts=at("n_routed_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(switches("moe_layer_freq"), _SPARSE, variants.first_layer_dense),
        shared_count=at("n_shared_experts", 0, _M + "mimo_v2.py", null=0), n_group=at("n_group"),
        topk_group=at("topk_group"), scoring=Fixed("sigmoid", _M + "mimo_v2.py:188"),
        bias=Fixed(True, _M + "mimo_v2.py:169"), renormalize=at("norm_topk_prob"),
        scaling=Fixed(1.0, _M + "mimo_v2.py:173 passes none"), source=_M + "mimo_v2.py:173",
    ),
    Family(
        "openpangu",
        ("PanguUltraMoEForCausalLM", "PanguProMoEV2ForCausalLM"),
        ("pangu_ultra_moe", "PanguProMoE", "openpangu_moe"),
        experts=at("n_routed_experts|num_experts"), topk=at("num_experts_per_tok"), inter=at("moe_intermediate_size"),
        where=(after_dense(step=""), every), shared_count=at("n_shared_experts", 0, _M + "openpangu.py", null=0),
        n_group=Fixed(1, _M + "openpangu.py:204"), topk_group=Fixed(1, _M + "openpangu.py:205"),
        scoring=Fixed("sigmoid", _M + "openpangu.py:206"),
        bias=at("router_enable_expert_bias", False, _M + "openpangu.py:163"),
        renormalize=at("norm_topk_prob", True, _M + "openpangu.py"),
        scaling=at("routed_scaling_factor", 1.0, _M + "openpangu.py", null=1.0), mtp=at("num_nextn_predict_layers"),
        source=_M + "openpangu.py:194",
    ),
)  # fmt: skip
