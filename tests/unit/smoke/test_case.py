from __future__ import annotations

import json
from dataclasses import replace

import pytest

from moe_preflight.smoke.case import FIELDS, Prediction, RealWeights, RouterSpec, SmokeCase, tolerance
from tests.unit.smoke.cases import BIASED, small


def test_a_case_survives_the_process_border() -> None:
    case = small(
        weights=RealWeights("/data/model", 3, 0, 1792, "k2_horizon"),
        prediction=Prediction(path="ck2stages", stages=2, kernels=("a", "b"), notes=("x",), accepted=True),
    )
    assert SmokeCase.from_json(json.loads(json.dumps(case.to_json()))) == case
    assert set(case.to_json()) == set(FIELDS)


def test_an_unpadded_case_has_no_tail() -> None:
    case = small(inter_dim_padded=0)
    assert (case.inter_dim_padded, case.model_dim_padded, case.padded) == (96, 256, False)
    assert small().padded


def test_label_names_both_sizes() -> None:
    assert small().label == "E16 top4 256 x 96->128 bf16"
    assert small(scheme="fp8_block", inter_dim=128).label == "E16 top4 256 x 128 fp8_block"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tokens": 0}, "tokens"),
        ({"tokens": True}, "tokens"),
        ({"model_dim": 1 << 40}, "model_dim"),
        ({"inter_dim_padded": 64}, "smaller"),
        ({"scheme": "nvfp4"}, "scheme"),
        ({"activation": "relu2"}, "activation"),
        ({"dtype": "fp32"}, "dtype"),
        ({"topk": 5}, "topk"),
        ({"experts": 15}, "routed experts"),
        ({"router": replace(BIASED, kernel="other")}, "router"),
        ({"router": replace(BIASED, scoring="tanh")}, "scoring"),
        ({"router": replace(BIASED, topk_group=5)}, "groups"),
        ({"scheme": "fp8_block", "inter_dim_padded": 192}, "blocks"),
        ({"scheme": "mxfp4", "inter_dim": 80}, "groups of 32"),
    ],
)
def test_what_makes_no_sense_is_named(change: dict[str, object], word: str) -> None:
    assert word in small(**change).problem()
    assert small().problem() == ""


def test_a_rank_may_hold_a_part_of_the_experts() -> None:
    assert small(experts=4, is_ep=True).problem() == ""
    assert small(experts=4).problem() != ""


def test_shared_experts_count_beside_the_routed_ones() -> None:
    spec = RouterSpec("topk_softmax", 16, 4)
    assert small(router=spec, experts=17, topk=5, num_shared_fused=1).problem() == ""


@pytest.mark.parametrize(
    ("scheme", "q_dtype_a", "backend", "limit"),
    [
        ("none", None, "aiter", 0.02),
        ("fp8_block", "fp8", "aiter", 0.1),
        ("fp8_block", None, "aiter", 0.1),
        ("mxfp4_a4", "fp4x2", "aiter", 0.35),
        ("mxfp4", "bf16", "aiter", 0.02),
        ("mxfp4_a4", "fp4x2", "torch", 0.02),
    ],
)
def test_tolerance_is_that_of_the_activations(scheme: str, q_dtype_a: str | None, backend: str, limit: float) -> None:
    assert tolerance(small(scheme=scheme, q_dtype_a=q_dtype_a), backend) == limit
