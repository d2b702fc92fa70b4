"""One deployment per advisory that it is about: the facts of the public report (or the smallest set that stands for it)."""

from __future__ import annotations

from moe_preflight.aiter.version import Version

V = Version.of
_VLLM = {"engine": "vllm", "engine_version": V("0.29.0"), "on_aiter": True, "ep": False, "dp": 1, "num_shared_fused": 0}
_SGLANG = {"engine": "sglang", "engine_version": V("0.5.12"), "on_aiter": True}
_FP4 = {"q_dtype_w": "fp4x2", "q_dtype_a": "fp4x2", "q_type": "per_1x32", "scheme": "mxfp4_a4", "gfx": "gfx950"}
_BIASED = {"router_on_aiter": True, "routers": frozenset({"biased_grouped_topk"}), "selection_bias": True}

EXAMPLES: dict[str, dict[str, object]] = {
    "MPA-0001": {**_VLLM, "aiter_version": V("0.1.7.post2"), "q_type": "No", "inter_dim_padded": 192},
    "MPA-0002": {**_VLLM, "aiter_version": V("0.1.20"), "q_type": "No", "inter_dim_padded": 224},
    "MPA-0003": {**_VLLM, "scheme": "none", "model_scheme": "fp8_channel", "inter_dim_padded": 320},
    "MPA-0004": {**_VLLM, **_FP4, "inter_dim_padded": 384},
    "MPA-0005": {**_VLLM, "act_type": "gelutanh", "q_dtype_w": "fp8", "inter_dim_padded": 704},
    "MPA-0006": {**_VLLM, "q_type": "per_Tensor", "q_dtype_w": "fp8", "inter_dim_padded": 192},
    "MPA-0007": {**_VLLM, "aiter_version": V("0.1.19"), "gfx": "gfx942", "scheme": "fp8_tensor", "inter_dim_padded": 384},
    "MPA-0008": {**_VLLM, "scheme": "fp8_block", "inter_dim_padded": 192},
    "MPA-0009": {**_VLLM, **_FP4, "act_type": "swiglu", "paths": frozenset({"cktile", "flydsl"}), "inter_dim_padded": 384},
    "MPA-0010": {**_VLLM, **_FP4, "scheme": "mxfp4", "act_type": "silu", "tuned": frozenset({"miss", "hit"})},
    "MPA-0011": {**_SGLANG, **_FP4, "act_type": "silu", "gate_mode": "interleave", "buckets": (128, 256)},
    "MPA-0012": {**_SGLANG, "gfx": "gfx942", "scheme": "mxfp8", "act_type": "swiglu"},
    "MPA-0013": {
        **_VLLM, "aiter_version": V("0.1.13"), "ep": True, "gfx": "gfx950", "q_type": "per_128x128", "act_type": "silu",
        "inter_dim_padded": 1536, "paths": frozenset({"1stage"}),
    },
    "MPA-0014": {
        **_VLLM, "gfx": "gfx950", "q_type": "per_128x128", "model_dim_padded": 4096, "inter_dim_padded": 256, "expert": 288,
        "paths": frozenset({"1stage"}), "tuned": frozenset({"miss"}), "buckets": (64,),
    },
    "MPA-0020": {
        **_VLLM, "aiter_version": V("0.1.19.post2"), "tuned": frozenset({"hit"}), "gfx": "gfx942", "cu_num": 304,
        "q_type": "per_128x128", "model_dim_padded": 6144, "inter_dim_padded": 256, "expert": 257, "topk": 9, "buckets": (64,),
    },
    "MPA-0021": {
        **_VLLM, "aiter_version": V("0.1.7.post2"), "gfx": "gfx942", "cu_num": 80, "q_type": "per_Token",
        "model_dim_padded": 7168, "inter_dim_padded": 256, "expert": 256, "topk": 8,
    },
    "MPA-0022": {
        **_VLLM, **_FP4, "tuned": frozenset({"miss"}), "model_dim_padded": 7168, "inter_dim_padded": 256, "expert": 256, "topk": 8,
    },
    "MPA-0023": {
        **_VLLM, "aiter_version": V("0.1.19"), "tuned": frozenset({"miss"}), "act_type": "situv2", "expert": 896, "topk": 16,
    },
    "MPA-0024": {**_VLLM, "tuned": frozenset({"miss"}), "expert": 288, "topk": 8, "model_dim_padded": 4096},
    "MPA-0025": {
        **_VLLM, "tuned": frozenset({"miss"}), "gfx": "gfx950", "q_type": "per_Token", "model_dim_padded": 6144,
        "inter_dim_padded": 512, "expert": 257,
    },
    "MPA-0030": {**_VLLM, **_BIASED, "aiter_version": V("0.1.11"), "experts_per_group": 256},
    "MPA-0031": {**_VLLM, **_BIASED, "aiter_version": V("0.1.11"), "experts": 384},
    "MPA-0032": {**_VLLM, **_BIASED, "num_expert_group": 6},
    "MPA-0033": {**_VLLM, **_BIASED, "aiter_version": V("0.1.20"), "num_expert_group": 4, "topk_group": 2},
    "MPA-0034": {
        **_VLLM, "aiter_version": V("0.1.11"), "router_on_aiter": True, "routers": frozenset({"topk_softmax"}),
    },
    "MPA-0035": {
        **_SGLANG, "router_on_aiter": True, "routers": frozenset({"topk_softmax"}), "gfx": "gfx950", "experts_topk": "512/10",
    },
    "MPA-0036": {**_VLLM, "engine_version": V("0.11.2"), "n_group": 8, "experts_per_config_group": 1},
    "MPA-0037": {**_VLLM, **_BIASED},
    "MPA-0038": {**_VLLM, "router_on_aiter": True, "routers": frozenset({"topk_sigmoid"})},
    "MPA-0039": {**_VLLM, "router_on_aiter": True},
    "MPA-0040": {**_VLLM, "aiter_version": V("0.1.16"), "ep": True},
    "MPA-0041": {**_VLLM, "aiter_version": V("0.1.20"), "ep": True, "num_shared_fused": 1},
    "MPA-0042": {**_VLLM, **_FP4, "q_dtype_a": "fp8", "ep": True, "tuned": frozenset({"miss"})},
    "MPA-0043": {**_VLLM, **_FP4, "engine_version": V("0.12.0"), "ep": True},
    "MPA-0044": {**_VLLM, "act_type": "situv2", "dp": 4, "inter_dim": 96},
    "MPA-0045": {**_VLLM, "ep": True, "gfx": "gfx942", "all2all": "deepep_high_throughput"},
    "MPA-0046": {**_VLLM, "aiter_version": V("0.1.20.post1"), "ep": True, "dp": 8, "router_on_aiter": False},
    "MPA-0047": {**_VLLM, **_FP4, "aiter_version": V("0.1.19"), "ep": True},
    "MPA-0048": {
        **_VLLM, "engine_version": V("0.26.0"), "ep": True, "on_aiter": False, "refused": False, "router_on_aiter": True,
        "backend": "TRITON",
    },
    "MPA-0049": {
        **_VLLM, **_FP4, "aiter_version": V("0.1.13"), "ep": True, "expert_bias": True, "q_dtype_a": "bf16",
        "paths": frozenset({"cktile"}),
    },
    "MPA-0050": {
        **_VLLM, **_FP4, "aiter_version": V("0.1.21.post2"), "ep": True, "scheme": "mxfp4", "act_type": "silu", "q_dtype_a": None,
        "gate_mode": "interleave", "tuned": frozenset({"miss"}),
    },
    "MPA-0060": {**_SGLANG, "scheme": "none", "inter_dim": 96},
    "MPA-0061": {**_SGLANG, "scheme": "mxfp4", "act_type": "swiglu", "gfx": "gfx950"},
    "MPA-0062": {**_SGLANG, "engine_version": V("0.4.6.post4"), "weight_on_input": True},
    "MPA-0063": {**_VLLM, "weight_on_input": True, "scheme": "fp8_block"},
    "MPA-0064": {**_VLLM, "weight_on_input": True, "scheme": "mxfp4", "gfx": "gfx950"},
    "MPA-0065": {**_VLLM, "backend": "AITER_MXFP4_BF16", "activation": "swigluoai", "expert_bias": False},
    "MPA-0066": {**_VLLM, "gated": False, "scheme": "none"},
    "MPA-0067": {**_VLLM, "gfx": "gfx1151", "scheme": "fp8_block"},
    "MPA-0068": {**_VLLM, "gfx": "gfx942", "act_type": "situv2", "scheme": "mxfp4"},
    "MPA-0069": {**_VLLM, **_FP4, "engine_version": V("0.16.0"), "inter_dim": 384, "act_type": "silu"},
    "MPA-0070": {**_VLLM, **_FP4, "engine_version": V("0.18.1"), "inter_dim": 704, "act_type": "silu"},
}  # fmt: skip
