"""Padding, placement, quantized storage and the float32 reference, in torch on the CPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'moe-preflight[smoke]')")

from moe_preflight.smoke.case import SCHEMES, RouterSpec, tolerance  # noqa: E402
from moe_preflight.smoke.quantize import E2M1, Matrix, dequantize, quantize, to_fnuz  # noqa: E402
from moe_preflight.smoke.reference import activate, distance, expected  # noqa: E402
from moe_preflight.smoke.torch_backend import TorchBackend, grouped_mm  # noqa: E402
from moe_preflight.smoke.weights import DTYPES, RandomSource, stack  # noqa: E402
from tests.unit.smoke import cases  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
torch.set_num_threads(1)  # the sizes are tiny: threads only wait for each other


def small(**changes: Any) -> Any:
    fields = {"tokens": 17, "model_dim": 128, "experts": 8, "router": replace(cases.BIASED, experts=8)}
    return cases.small(**(fields | changes))


def inputs(case: Any) -> tuple[Any, Any, Any]:
    gen = torch.Generator().manual_seed(5)
    hidden = torch.zeros(case.tokens, case.model_dim_padded, dtype=DTYPES[case.dtype])
    hidden[:, : case.model_dim] = torch.randn(case.tokens, case.model_dim, generator=gen).to(hidden.dtype)
    weights, ids = torch.rand(case.tokens, case.router.experts, generator=gen).topk(case.topk, -1)
    return hidden, weights, ids.int()


def launch(case: Any, **how: Any) -> Any:
    source = RandomSource(case, CPU)
    hidden, weights, ids = inputs(case)
    if not how.get("padded", True):
        hidden = hidden[:, : case.model_dim].contiguous()
    out = TorchBackend(case, CPU).launch(stack(case, source, CPU, **how), hidden, weights, ids)
    return out, expected(case, source, hidden, weights, ids)


def test_weights_lie_where_the_engine_loads_them() -> None:
    case = small(model_dim=64, model_dim_padded=128, expert_bias=True)
    source = RandomSource(case, CPU)
    stacked = stack(case, source, CPU)
    assert stacked.w13.shape == (8, 256, 128)
    assert stacked.w2.shape == (8, 128, 128)
    one = source.expert(5)
    assert torch.equal(stacked.w13[5, :96, :64], one.gate.data)
    assert torch.equal(stacked.w13[5, 128:224, :64], one.up.data)
    assert torch.equal(stacked.w2[5, :64, :96], one.down.data)
    assert stacked.bias13.shape == (8, 256)
    assert torch.equal(stacked.bias13[5, 128:224], one.up_bias)
    loaded = 8 * (2 * 96 * 64)
    assert int((stacked.w13 != 0).sum()) <= loaded
    for tail in (stacked.w13[:, 96:128], stacked.w13[:, 224:], stacked.w13[:, :, 64:], stacked.w2[:, :, 96:], stacked.w2[:, 64:]):
        assert not tail.any()
    assert not stacked.bias13[:, 96:128].any()
    assert not stacked.bias2[:, 64:].any()


def test_experts_do_not_depend_on_the_order_of_asking() -> None:
    a, b = RandomSource(small(), CPU), RandomSource(small(inter_dim_padded=256), CPU)
    later = b.expert(3)
    assert torch.equal(a.expert(3).gate.data, later.gate.data)
    assert not torch.equal(a.expert(3).gate.data, a.expert(4).gate.data)
    assert not torch.equal(a.expert(3).gate.data, RandomSource(small(seed=1), CPU).expert(3).gate.data)


def test_the_reference_is_the_textbook() -> None:
    case = small(tokens=5)
    source = RandomSource(case, CPU)
    hidden, weights, ids = inputs(case)
    want = torch.zeros(5, 128)
    for t in range(5):
        for k in range(4):
            e = source.expert(int(ids[t, k]))
            x = hidden[t].float()
            h = torch.nn.functional.silu(e.gate.data.float() @ x) * (e.up.data.float() @ x)
            want[t] += weights[t, k] * (e.down.data.float() @ h)
    torch.testing.assert_close(expected(case, source, hidden, weights, ids), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("padded", [True, False])
def test_padded_equals_the_unpadded_reference(scheme: str, padded: bool) -> None:
    case = small(scheme=scheme)
    if scheme == "fp8_block" and not padded:
        case = replace(case, inter_dim=128)
    out, ref = launch(case, padded=padded)
    found = distance(case, out, ref)
    assert found.within(tolerance(case, "torch")), found


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "fp16"},
        {"activation": "gelu"},
        {"activation": "gelutanh"},
        {"activation": "swiglu", "expert_bias": True},
        {"activation": "situv2"},
        {"model_dim_padded": 256},
        {"doweight_stage1": True},
        {"doweight_stage1": True, "expert_bias": True},
        {"experts": 4, "is_ep": True},
        {"tokens": 1},
        {"deterministic": False},
        {"router": RouterSpec("topk_softmax", 8, 3), "experts": 9, "num_shared_fused": 1},
    ],
    ids=str,
)
def test_every_kind_of_layer(changes: dict[str, Any]) -> None:
    case = small(**changes)
    out, ref = launch(case)
    assert distance(case, out, ref).within(tolerance(case, "torch"))


def test_an_expert_of_another_rank_adds_nothing() -> None:
    case = small(experts=4, is_ep=True)
    source = RandomSource(case, CPU)
    hidden, weights, ids = inputs(case)
    ids[0] = torch.tensor([4, 6, 7, 5])
    out = TorchBackend(case, CPU).launch(stack(case, source, CPU), hidden, weights, ids)
    assert not out[0].any()
    assert out[1:].any()


def test_the_ordered_combine_gives_the_same_bits() -> None:
    first, _ = launch(small())
    again, _ = launch(small())
    assert torch.equal(first, again)


def test_the_grouped_gemm_and_the_loop_agree() -> None:
    if grouped_mm(CPU, torch.bfloat16) is None:
        pytest.skip("this torch build has no grouped GEMM for the CPU")
    case = small()
    source, (hidden, weights, ids) = RandomSource(case, CPU), inputs(case)
    stacked = stack(case, source, CPU)
    fast, slow = TorchBackend(case, CPU), TorchBackend(case, CPU)
    slow._grouped = None
    a, b = (t.launch(stacked, hidden, weights, ids).float() for t in (fast, slow))
    assert float((a - b).norm() / b.norm()) < 0.01


@pytest.mark.parametrize("scheme", SCHEMES)
def test_poison_in_the_tail_reaches_the_output(scheme: str) -> None:
    out, _ = launch(small(scheme=scheme), poison=True)
    assert not torch.isfinite(out.float()).any()


def test_one_live_value_in_the_tail_is_seen() -> None:
    """What a tail that nobody zeroes looks like: small garbage, no NaN."""
    case = small()
    source, (hidden, weights, ids) = RandomSource(case, CPU), inputs(case)
    stacked = stack(case, source, CPU)
    stacked.w13[:, 96:128] = 0.05
    stacked.w13[:, 224:] = 0.05
    stacked.w2[:, :, 96:] = 0.05
    found = distance(
        case, TorchBackend(case, CPU).launch(stacked, hidden, weights, ids), expected(case, source, hidden, weights, ids)
    )
    assert not found.within(tolerance(case, "torch"))


def test_up_placed_at_the_unpadded_half_is_seen() -> None:
    case = small()
    source, (hidden, weights, ids) = RandomSource(case, CPU), inputs(case)
    stacked = stack(case, source, CPU)
    stacked.w13[:, 96:192] = stacked.w13[:, 128:224].clone()
    found = distance(
        case, TorchBackend(case, CPU).launch(stacked, hidden, weights, ids), expected(case, source, hidden, weights, ids)
    )
    assert not found.within(tolerance(case, "torch"))


def test_distance_never_passes_nan_and_sees_one_token() -> None:
    case = small(tokens=5000, model_dim=32)
    ref = torch.randn(5000, 32)
    assert distance(case, ref.clone(), ref).within(0.001)
    one = ref.clone()
    one[4321] *= 1.5
    found = distance(case, one, ref)
    assert not found.within(0.02)
    assert found.worst_token == 4321
    assert found.rel_err == pytest.approx(0.5, rel=1e-3)
    for bad in (float("nan"), float("inf")):
        broken = ref.clone()
        broken[7, 3] = bad
        found = distance(case, broken, ref)
        assert (found.within(math.inf), found.nonfinite, found.rel_err) == (False, 1, None)
    nothing = torch.zeros(5000, 32)
    assert not distance(case, ref, nothing).within(0.02)


def test_quantized_storage_loses_what_it_must() -> None:
    value = torch.randn(160, 256, generator=torch.Generator().manual_seed(1))
    for scheme, loss in (("fp8_tensor", 0.04), ("fp8_channel", 0.04), ("fp8_block", 0.04), ("mxfp4", 0.16)):
        m = quantize(value, scheme, torch.bfloat16)
        error = float((dequantize(m) - value).norm() / value.norm())
        assert 0.005 < error < loss, scheme
        again = quantize(dequantize(m), scheme, torch.bfloat16)
        torch.testing.assert_close(dequantize(again), dequantize(m), rtol=0.13 if scheme != "mxfp4" else 0, atol=1e-6)


def test_block_scales_cover_their_own_block() -> None:
    value = torch.ones(160, 256)
    value[128:, 128:] = 1000.0
    m = quantize(value, "fp8_block", torch.bfloat16)
    assert m.scale.shape == (2, 2)
    torch.testing.assert_close(dequantize(m), value, rtol=1e-6, atol=0)


def test_every_e2m1_code() -> None:
    data = torch.arange(16, dtype=torch.uint8)
    packed = torch.stack((data, data.flip(0)), -1).view(1, 16, 2)
    low_first = (packed[..., 0] | (packed[..., 1] << 4)).view(1, 16)
    values = dequantize(Matrix(low_first, torch.full((1, 1), 128, dtype=torch.uint8), "mx"))
    table = [2 * v for v in E2M1] + [-2 * v for v in E2M1]
    assert values[0, 0::2].tolist() == table
    assert values[0, 1::2].tolist() == table[::-1]


def test_fnuz_bits_are_half_and_minus_zero_is_no_nan() -> None:
    data = torch.tensor([0.0, -0.0, 1.0, -2.5, 448.0, 0.001953125]).to(torch.float8_e4m3fn)
    assert (to_fnuz(data).float() * 2).tolist() == [0.0, 0.0, 1.0, -2.5, 448.0, 0.001953125]
    case = small(scheme="fp8_channel")
    source = RandomSource(case, CPU)
    plain, fnuz = stack(case, source, CPU), stack(case, source, CPU, fnuz=True)
    assert fnuz.w13.dtype == torch.float8_e4m3fnuz
    torch.testing.assert_close(fnuz.w13.float() * fnuz.w13_scale, plain.w13.float() * plain.w13_scale)
    assert torch.isfinite(fnuz.w13.float()).all()
    assert torch.isnan(stack(case, source, CPU, poison=True, fnuz=True).w2[:, :, 96:].float()).all()


def test_swiglu_clamps_and_adds_one() -> None:
    case = small(activation="swiglu")
    gate, up = torch.tensor([[100.0, -1.0]]), torch.tensor([[100.0, -100.0]])
    want = torch.tensor([[7 * torch.sigmoid(torch.tensor(1.702 * 7)) * 8, -1 * torch.sigmoid(torch.tensor(-1.702)) * -6]])
    torch.testing.assert_close(activate(case, gate, up), want)
    assert float(activate(replace(case, swiglu_limit=1.0), gate, up)[0, 0]) < 2.0
