"""The arguments vLLM hands to aiter.fused_moe (experts/rocm_aiter_moe.py:300-450) and what it silently does on the way."""

from __future__ import annotations

from moe_preflight.engine.choice import Choice, Question
from moe_preflight.engine.plan import Deployment, Note, RankProblem

ACT_TYPES = {
    "silu": "silu", "gelu": "gelu", "swigluoai": "swiglu", "swigluoai_uninterleave": "swiglu", "situ": "situv2",
    "gelu_tanh": "gelutanh",
}  # fmt: skip
"""MoEActivation -> AITER's ActivationType; others never reach it and keep vLLM's word."""

_SOURCE = "vllm/model_executor/layers/fused_moe/experts/rocm_aiter_moe.py"


def pads(q: Question, choice: Choice) -> tuple[int, int]:
    """hidden_pad, intermediate_pad as passed (aiter_moe_pads, rocm_aiter_moe.py:220)."""
    hidden = choice.sizes.hidden_padded - choice.sizes.hidden
    inter = choice.sizes.inter_padded - choice.sizes.inter
    if q.block in ("minimax_m3", "deepseek_v41"):
        inter = 0  # the model file passes intermediate_pad=0 itself
    if q.ask.activation == "situ":
        return hidden, inter
    undoubled = choice.w4a4 and q.ask.activation == "silu" and not q.ask.release.w4a4_pad_doubled
    double = q.ask.split.moe_tp == 1 and not undoubled
    return hidden // 128 * 128, inter // 64 * 64 * (2 if double else 1)


def rank_problem(q: Question, choice: Choice, deployment: Deployment, shared: int) -> RankProblem:
    """One rank's problem, whatever backend serves it; AITER's key fields only where the experts reach aiter.fused_moe."""
    split, sizes, layer = q.ask.split, choice.sizes, q.layer
    total = layer.experts + deployment.redundant_experts
    on_aiter = choice.backend.on_aiter and choice.key is not None
    hidden_pad, inter_pad = pads(q, choice) if on_aiter else (0, 0)
    q_type, q_a, q_w = choice.key if on_aiter and choice.key else (None, None, None)
    # With fused shared experts under EP each token carries one more column: the sentinel (rocm_aiter_moe.py:83).
    columns = layer.topk + shared + (1 if shared and split.use_ep else 0)
    return RankProblem(
        model_dim=sizes.hidden,
        model_dim_padded=sizes.hidden_padded,
        inter_dim=sizes.inter,
        inter_dim_padded=sizes.inter_padded,
        alignment=sizes.alignment,
        expert=split.local_experts(total) + shared,
        topk=columns,
        act_type=ACT_TYPES.get(q.ask.activation, q.ask.activation),
        dtype=q.dtype,
        q_dtype_a=q_a,
        q_dtype_w=q_w,
        q_type=q_type,
        use_g1u1=q.ask.gated,
        doweight_stage1=layer.weight_on_input,
        num_shared_fused=shared,
        hidden_pad=hidden_pad,
        intermediate_pad=inter_pad,
        gate_mode=choice.gate_mode,
        is_ep=split.use_ep,
        moe_tp_size=split.moe_tp,
        ep_size=split.ep_size,
        global_experts=layer.experts,
        weight_bytes_per_element=choice.bytes_per_element,
        aiter_env=choice.aiter_env if on_aiter else (),
        sorting_policy=q.ask.env.number("VLLM_ROCM_AITER_MOE_DISPATCH_POLICY") if on_aiter else 0,
    )


def silent_notes(q: Question, choice: Choice, deployment: Deployment) -> tuple[Note, ...]:
    """What happens without an error: a lost bias, a pad nobody reads, a padded tail nobody zeroes, uneven experts."""
    notes: list[Note] = []
    sizes = choice.sizes
    if choice.backend.on_aiter and choice.key is not None:
        pad = sizes.inter_padded - sizes.inter
        if q.layer.expert_bias and not choice.bias_passed:
            notes.append(
                Note(
                    "expert-bias-dropped",
                    "This model's experts have a bias; vLLM passes bias1/bias2 to AITER for MXFP4 W4A16 only, so it is dropped "
                    "without a word and the results are wrong.",
                    f"{_SOURCE}:428 (0.33.0)",
                )
            )
        if pad and choice.key[0] == "No":
            passed = pads(q, choice)[1]
            notes.append(
                Note(
                    "intermediate-pad-ignored",
                    f"vLLM computes intermediate_pad={passed} and passes it; AITER's unquantized path ignores it, so only the "
                    "zeroed tail keeps the result right.",
                    f"{_SOURCE}:384 (0.33.0); AITER issue 5444",
                    {"intermediate_pad": passed},
                )
            )
        if pad and choice.zero_filled_by is None:
            notes.append(
                Note(
                    "padding-not-zeroed",
                    f"inter_dim is padded by {pad} and nothing in vLLM {q.ask.release.version} zeroes the tail.",
                    f"{_SOURCE} (0.33.0)",
                    {"pad": pad},
                )
            )
        if q.layer.weight_on_input and q.layer.topk != 1:
            notes.append(
                Note(
                    "weight-on-input-needs-top1",
                    "Only support topk=1 when `apply_router_weight_on_input` is True",
                    f"{_SOURCE}:373 (0.33.0)",
                )
            )
    split = q.ask.split
    native = q.layer.moe_intermediate_size
    if q.intermediate_size != native:
        notes.append(
            Note(
                "model-pads-width",
                f"The model file itself widens the experts from {native} to {q.intermediate_size}, {sizes.inter} on a rank, before "
                "any kernel is asked.",
                "vllm/models/kimi_k3/amd/linear.py:227 (0.33.0)",
                {"native": native, "passed": q.intermediate_size},
            )
        )
    total = q.layer.experts + deployment.redundant_experts
    if split.use_ep and total % split.ep_size:
        most, least = -(-total // split.ep_size), total // split.ep_size
        notes.append(
            Note(
                "experts-uneven",
                f"{total} experts over {split.ep_size} ranks: {total % split.ep_size} ranks hold {most}, the others {least}.",
                "vllm/model_executor/layers/fused_moe/expert_map_manager.py:65 (0.33.0)",
                {"most": most, "least": least},
            )
        )
    return tuple(notes)
