"""Fields that contradict each other are one line that names both."""

from __future__ import annotations

from typing import Any

import pytest

from moe_preflight.errors import ConfigError
from moe_preflight.model.read import read_config

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2,
    "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "n_group": 8, "topk_group": 4, "n_shared_experts": 1,
    "first_k_dense_replace": 0, "num_attention_heads": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [({"topk_group": 9}, "topk_group: 9 is more than the 8 groups"), ({"num_experts_per_tok": 17}, "expected at most 16")],
)
def test_contradictions(change: dict[str, Any], said: str) -> None:
    assert read_config(DEEPSEEK, id="m").layers[0].topk_group == 4
    with pytest.raises(ConfigError, match=said):
        read_config(DEEPSEEK | change, id="m")
