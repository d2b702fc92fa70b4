"""What holds for every plan, whatever is asked: a problem and a router for each layer, sources, sizes that never shrink."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.engine.facts.vllm_releases import RELEASES
from moe_preflight.model.moe import SCHEMES
from tests.unit.engine.build import model, quantized, run

METHODS = ("fp8", "compressed-tensors", "quark", "modelopt", "mxfp4", "gptq", "awq", None, "mlx", "nobody")


@settings(max_examples=300, deadline=None)
@given(
    scheme=st.sampled_from(SCHEMES),
    method=st.sampled_from(METHODS),
    engine=st.sampled_from(["vllm", "vllm", "sglang", "aiter"]),
    gfx=st.sampled_from(["gfx90a", "gfx942", "gfx950", "gfx1250", "gfx1100", "gfx1201"]),
    version=st.sampled_from([r.version for r in RELEASES]),
    backend=st.sampled_from(["auto", "aiter", "triton", "marlin"]),
    experts=st.integers(1, 1024),
    width=st.integers(1, 8192),
    hidden=st.integers(1, 8192),
    tp=st.sampled_from([-1, 0, 1, 2, 3, 8, 16, 64]),
    ep=st.booleans(),
    dp=st.sampled_from([1, 2]),
    pp=st.sampled_from([0, 1, 3, 7]),
    activation=st.sampled_from(["silu", "gelu", "gelu_tanh", "relu2", "situ", "swigluoai", "swiglustep", "tanh"]),
    gated=st.booleans(),
    scoring=st.sampled_from(["softmax", "sigmoid", "sqrtsoftplus", "sparsemixer"]),
    bias=st.booleans(),
    groups=st.sampled_from([None, 1, 3, 8]),
)
def test_every_layer_is_answered(
    scheme,
    method,
    engine,
    gfx,
    version,
    backend,
    experts,
    width,
    hidden,
    tp,
    ep,
    dp,
    pp,
    activation,
    gated,
    scoring,
    bias,
    groups,
):
    m = model(
        experts=experts, topk=min(8, experts), moe_intermediate_size=width, model_dim=hidden, activation=activation, gated=gated,
        scoring=scoring, selection_bias=bias, n_group=groups, topk_group=groups, shared_intermediate_size=width, n_shared=1,
        quantization=quantized(scheme, method=method, block_shape=(128, 128), group_size=32, weight_strategy="group"),
    )  # fmt: skip
    plan = run(m, gfx, version, engine=engine, tp=tp, ep=ep, dp=dp, pp=pp, moe_backend=backend)
    (layer,) = plan.layers
    problem, router = layer.problem, layer.router
    assert problem.inter_dim_padded >= problem.inter_dim >= 1
    assert problem.model_dim_padded >= problem.model_dim
    assert problem.expert >= 1
    assert (problem.q_type is not None) == (layer.backend.on_aiter and layer.backend.name is not None)
    assert router.kernel
    assert router.source
    assert layer.backend.source
    assert 0 < layer.layers_per_rank <= layer.layer.count
    for stop in (*plan.refusals, *layer.refusals):
        assert stop.error
        assert stop.source
        assert stop.remedy
    for note in (*plan.notes, *layer.notes):
        assert note.code
        assert note.source
    if layer.backend.name is None and engine == "vllm":
        assert layer.refusals
