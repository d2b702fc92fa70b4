"""``--engine aiter``: no engine at all. The layer's own numbers go to AITER as they are: no rounding, no router choice."""

from __future__ import annotations

from moe_preflight.engine import parallel
from moe_preflight.engine.call import ACT_TYPES
from moe_preflight.engine.plan import BackendChoice, Deployment, EnginePlan, LayerPlan, RankProblem, RouterCall
from moe_preflight.model.moe import ExpertLayer, MoEModel

KEYS: dict[str, tuple[str, str, str]] = {
    "fp8_tensor": ("per_Tensor", "fp8", "fp8"),
    "fp8_channel": ("per_Token", "fp8", "fp8"),
    "fp8_block": ("per_128x128", "fp8", "fp8"),
    "mxfp4": ("per_1x32", "bf16", "fp4x2"),
    "mxfp4_a4": ("per_1x32", "fp4x2", "fp4x2"),
    "mxfp4_a8": ("per_1x32", "fp8", "fp4x2"),
    "mxfp8": ("per_1x32", "fp8", "fp8"),
    "int8": ("per_Token", "i8", "i8"),
    "int4_fp8": ("per_Token", "fp8", "i4x2"),
}
"""Scheme -> (q_type, q_dtype_a, q_dtype_w) of AITER's key; a scheme without a row has no AITER kernel."""

_SOURCE = "no engine: the shape goes to AITER as it is"


def plan(model: MoEModel, deployment: Deployment) -> EnginePlan:
    """Every layer as AITER would be asked by a caller that neither pads nor chooses."""
    split = parallel.split(deployment)
    layers = tuple(_layer(model, layer, deployment, split) for layer in model.layers)
    return EnginePlan(model, deployment, layers, ep_size=split.ep_size)


def _layer(model: MoEModel, layer: ExpertLayer, deployment: Deployment, split: parallel.Split) -> LayerPlan:
    scheme = layer.quantization.scheme
    key = ("No", model.dtype, model.dtype) if scheme == "none" else KEYS.get(scheme)
    inter = split.inter_dim(layer.moe_intermediate_size)
    act = {"gelu_pytorch_tanh": "gelu_tanh"}.get(layer.activation, layer.activation)
    known = act in ACT_TYPES
    problem = RankProblem(
        model_dim=layer.model_dim,
        model_dim_padded=layer.model_dim,
        inter_dim=inter,
        inter_dim_padded=inter,
        alignment=None,
        expert=split.local_experts(layer.experts + deployment.redundant_experts),
        topk=layer.topk,
        act_type=ACT_TYPES.get(act, act),
        dtype=model.dtype,
        q_dtype_a=key[1] if key and known else None,
        q_dtype_w=key[2] if key and known else None,
        q_type=key[0] if key and known else None,
        use_g1u1=layer.gated,
        doweight_stage1=layer.weight_on_input,
        is_ep=split.use_ep,
        moe_tp_size=split.moe_tp,
        ep_size=split.ep_size,
        global_experts=layer.experts,
        weight_bytes_per_element=BYTES.get(scheme, 2.0),
    )
    if not known:
        backend = BackendChoice(None, f"AITER has no MoE kernel for activation {act}", (), False, _SOURCE)
    elif key:
        backend = BackendChoice("AITER", "no engine stands in between", (), True, _SOURCE)
    else:
        backend = BackendChoice(None, f"AITER has no MoE kernel for {scheme} experts", (), False, _SOURCE)
    return LayerPlan(
        layer=layer,
        backend=backend,
        problem=problem,
        router=_router(layer, model.dtype),
        layers_per_rank=parallel.most_on_one_rank(layer.layers, layer.count, model.num_layers, max(1, deployment.pp)),
    )


BYTES: dict[str, float] = {
    "fp8_tensor": 1.0, "fp8_channel": 1.0, "fp8_block": 1.0, "mxfp4": 0.5, "mxfp4_a4": 0.5, "mxfp4_a8": 0.5, "mxfp8": 1.0,
    "mxfp6": 0.75, "nvfp4": 0.5, "nvfp4_a16": 0.5, "int4": 0.5, "int8_w8a16": 1.0, "int8": 1.0, "int4_fp8": 0.5,
}  # fmt: skip
"""Bytes of one stored expert weight, scales not counted."""


def _router(layer: ExpertLayer, dtype: str) -> RouterCall:
    """The model's own grouping, asked of AITER as it stands: the kernel a caller without an engine would reach for."""
    groups = layer.n_group or 1
    if layer.selection_bias and layer.scoring == "sigmoid":
        kernel = "biased_grouped_topk"
    elif layer.n_group and layer.n_group > 1:
        kernel = "grouped_topk"
    elif layer.scoring == "sigmoid":
        kernel = "topk_sigmoid"
    elif layer.scoring == "softmax" and not layer.selection_bias:
        kernel = "topk_softmax"
    else:
        kernel = "other"
    grouped = kernel in ("biased_grouped_topk", "grouped_topk")
    return RouterCall(
        "none",
        kernel,
        layer.experts,
        layer.topk,
        num_expert_group=groups if grouped else None,
        topk_group=(layer.topk_group or 1) if grouped else None,
        renormalize=layer.renormalize,
        scoring=layer.scoring,
        bias=layer.selection_bias,
        scaling_inside=layer.routed_scaling_factor if grouped else 1.0,
        on_aiter=kernel != "other",
        logits_dtype=dtype,
        source=_SOURCE,
    )
