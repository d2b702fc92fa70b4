"""--shape: a model without a config."""

from __future__ import annotations

import pytest

from moe_preflight.errors import UsageError
from moe_preflight.model.shape import parse_shape


def test_the_k2_horizon_shape() -> None:
    model = parse_shape("experts=192,topk=8,hidden=6144,inter=1792,scoring=sigmoid,bias=1,layers=58", quant="fp8_block")
    (layer,) = model.layers
    assert (layer.experts, layer.topk, layer.model_dim, layer.moe_intermediate_size) == (192, 8, 6144, 1792)
    assert (layer.scoring, layer.selection_bias, layer.count, layer.quantization.scheme) == ("sigmoid", True, 58, "fp8_block")
    assert (model.source, model.num_layers, model.dtype) == ("shape", 58, "bf16")


def test_defaults_are_plain() -> None:
    (layer,) = parse_shape(" experts = 8 , topk=2,hidden=64,inter=32").layers
    assert (layer.activation, layer.scoring, layer.selection_bias, layer.n_group, layer.count) == (
        "silu",
        "softmax",
        False,
        None,
        1,
    )
    assert layer.quantization.scheme == "none"


def test_groups_and_activation() -> None:
    (layer,) = parse_shape("experts=256,topk=8,hidden=64,inter=32,n_group=8,topk_group=4,act=relu2_no_mul").layers
    assert (layer.n_group, layer.topk_group, layer.gated) == (8, 4, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not key=value"),
        ("experts=8", "topk, hidden, inter missing"),
        ("experts=8,topk=9,hidden=1,inter=1", "topk=9 is more than experts=8"),
        ("experts=8,topk=2,hidden=64,inter=0", "inter=0 is not valid"),
        ("experts=1e3,topk=2,hidden=64,inter=1", "experts=1e3 is not valid"),
        ("experts=99999999999999999999,topk=2,hidden=64,inter=1", "is not valid"),
        ("experts=8,experts=8,topk=2,hidden=64,inter=1", "given twice"),
        ("experts=8,topk=2,hidden=64,inter=1,intre=3", "Did you mean inter?"),
        ("experts=8,topk=2,hidden=64,inter=1,act=relu", "expected one of silu"),
        ("experts=8,topk=2,hidden=64,inter=1,n_group=2", "belong together"),
        ("experts=8,topk=2,hidden=64,inter=1,n_group=2,topk_group=4", "topk_group=4 is more than n_group=2"),
        ("experts=٨,topk=2,hidden=64,inter=1", "not valid"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_shape(text)
    assert says in str(e.value)
    assert "\n" not in str(e.value)
