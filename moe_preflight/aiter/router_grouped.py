"""biased_grouped_topk, grouped_topk and moe_fused_gate: when they fail, and when they are silently wrong.

Source of every rule: AITER's csrc/kernels/topk_softmax_kernels_group.cu, csrc/kernels/moe_fused_gate.cu and
aiter/ops/topk.py at the tag named. ``g`` is num_expert_group, ``E`` the expert count.
"""

from __future__ import annotations

from moe_preflight.aiter.facts import routing as facts
from moe_preflight.aiter.router_call import Asked, Found, Rule

_OTHER_ROUTER = "Use an engine version that picks another group count or the generic path, or switch AITER's MoE off."


def group_count(a: Asked) -> Found:
    """The kernel is compiled for a fixed set of group counts."""
    if a.groups not in a.group_counts:
        allowed = ", ".join(map(str, sorted(a.group_counts)))
        yield a.defect(
            "router-group-count",
            "error",
            f"num_expert_group {a.groups} is not one of {allowed}",
            f"Unsupported num_expert_group: {a.groups}",
            f"The routing kernel does not exist; {a.stops}.",
            _OTHER_ROUTER,
            a.group_source,
        )


def topk_group_range(a: Asked) -> Found:
    """topk_group must lie in 1..g; checked from v0.1.12 on."""
    if 1 <= a.topk_group <= a.groups:
        return
    if a.has("topk_group_check"):
        yield a.defect(
            "router-topk-group",
            "error",
            f"topk_group {a.topk_group} is outside 1..{a.groups}",
            "topk_grp must be in [1, num_expert_group], but got topk_grp=",
            f"Every call fails; {a.stops}.",
            "Correct topk_group and n_group in the model config.",
            f"{facts.GROUPED}:1236 (v0.1.20.post1)",
        )
    else:
        yield a.defect(
            "router-topk-group",
            "warning",
            f"topk_group {a.topk_group} is outside 1..{a.groups}",
            "",
            "The group mask keeps a wrong set of groups.",
            "Correct topk_group and n_group in the model config.",
            f"{facts.GROUPED}:522-545 (v0.1.7.post2)",
        )


def remainder(a: Asked) -> Found:
    """E % g is not checked: trailing experts belong to a group that does not exist."""
    if a.groups > 1 and a.experts % a.groups:
        yield a.defect(
            "router-group-remainder",
            "error",
            f"{a.experts} experts do not divide by num_expert_group {a.groups} (remainder {a.experts % a.groups})",
            "",
            "The trailing experts are masked by whatever lies behind the group scores: wrong experts, silently.",
            _OTHER_ROUTER,
            f"{facts.GROUPED}:533 (v0.1.20.post1)",
        )


def score_lanes(a: Asked) -> Found:
    """Group scores are reduced over 2, 4 or 8 lanes only; with 16 or 32 lanes per group lane 0 speaks for all."""
    lanes = a.wave // a.groups if a.groups else 0
    if not (a.kernel == "biased_grouped_topk" and a.groups in a.group_counts and a.groups > 1 and a.has("lane_steps")):
        return
    if lanes > 1 and lanes not in facts.REDUCED_LANES and a.topk_group < a.groups and a.per_group // a.vec > 1:
        yield a.defect(
            "router-group-score",
            "error",
            f"topk_group {a.topk_group} < num_expert_group {a.groups}, {lanes} lanes per group on a wave of {a.wave}",
            "",
            f"A group's score looks at the first {a.vec} of its {a.per_group} experts only: wrong groups, silently.",
            "Use the generic grouped top-k (AITER off for routing) until AITER issue 2153 is fixed.",
            f"{facts.GROUPED}:433-442 (v0.1.20.post1); https://github.com/ROCm/aiter/issues/2153",
        )


def group_tail(a: Asked) -> Found:
    """Vector loads of 4 or 2 experts cut across group borders when the group size is no multiple of them."""
    if a.groups > 1 and a.topk_group < a.groups and a.experts % a.groups == 0 and a.per_group % a.vec:
        scores = "group scores leave out the tail of each group and the" if a.kernel == "biased_grouped_topk" else "the"
        yield a.defect(
            "router-group-tail",
            "error",
            f"{a.per_group} experts per group is no multiple of {a.vec} and topk_group {a.topk_group} < {a.groups}",
            "",
            f"{scores[0].upper()}{scores[1:]} group mask cuts across group borders: wrong experts, silently.",
            "Use the generic grouped top-k (AITER off for routing).",
            f"{facts.GROUPED}:448, :533 (v0.1.20.post1)",
        )


def tiny_groups(a: Asked) -> Found:
    """Fewer experts per group than one vector: no group gets a score, and the mask writes one slot past the scores."""
    if a.kernel == "biased_grouped_topk" and a.groups > 1 and 0 < a.per_group < a.vec and a.has("sig_scores"):
        yield a.defect(
            "router-tiny-groups",
            "error",
            f"{a.per_group} experts per group is less than {a.vec}",
            "",
            "Groups get no score, and a stray write lands on expert 0's weight: NaN or -inf weights.",
            "Use the generic grouped top-k (AITER off for routing).",
            f"{facts.GROUPED}:448-528 (v0.1.20.post1)",
        )


def topk_wave(a: Asked) -> Found:
    """Results are held one per lane."""
    if a.topk > a.wave:
        yield a.defect(
            "router-topk-wave",
            "error",
            f"top-{a.topk} is more than the {a.wave} lanes of a wave",
            "",
            f"Choices beyond the first {a.wave} are lost: their ids and weights are wrong, silently.",
            _OTHER_ROUTER,
            f"{facts.GROUPED}:582-606 (v0.1.20.post1)",
        )


def topk_candidates(a: Asked) -> Found:
    """More choices than the selected groups have experts: the rest is filled with duplicates."""
    candidates = min(a.topk_group, a.groups) * a.per_group
    if a.topk_group >= 1 and a.topk > candidates:
        yield a.defect(
            "router-topk-candidates",
            "error",
            f"top-{a.topk} of {a.topk_group} groups x {a.per_group} experts = {candidates} candidates",
            "",
            "The missing choices are filled with low expert ids again: duplicates and -inf weights, silently.",
            "Correct num_experts_per_tok, n_group and topk_group in the model config.",
            f"{facts.GROUPED}:545-548 (v0.1.20.post1)",
        )


def always_sigmoid(a: Asked) -> Found:
    """The biased path applies sigmoid whatever the model asks for."""
    if a.kernel in ("biased_grouped_topk", "moe_fused_gate") and a.call.scoring != "sigmoid":
        yield a.defect(
            "router-scoring",
            "error",
            f"scoring is {a.call.scoring}, the kernel applies sigmoid",
            "",
            "Experts and weights come from another scoring function than the model was trained with, silently.",
            "Use the generic path for this model (AITER off for routing).",
            f"{facts.GROUPED}:1229 (v0.1.20.post1); https://github.com/ROCm/aiter/issues/2153",
        )


def bias_dtype(a: Asked) -> Found:
    """The bias must have the dtype of the logits: checked until v0.1.18, reinterpreted from v0.1.19 on."""
    bias = a.call.bias_dtype
    if a.kernel == "grouped_topk" or not a.call.bias or bias is None or bias == a.call.logits_dtype:
        return
    silent = a.kernel == "moe_fused_gate" or a.has("abort")
    text = "gating_output.dtype() == correction_bias.dtype()" if a.has("bias_dtype_check") else "expected scalar type"
    yield a.defect(
        "router-bias-dtype",
        "error",
        f"selection bias is {bias}, logits are {a.call.logits_dtype}",
        "" if silent else text,
        "Wrong experts, silently." if silent else f"Every call fails; {a.stops}.",
        "Cast the bias to the dtype of the logits, or the logits to fp32.",
        f"{facts.GROUPED}:1158 (v0.1.20.post1), :1238 (v0.1.7.post2)",
    )


def bias_rounding(a: Asked) -> Found:
    """The engine casts a float32 bias down to bf16 logits: steps of 1/32 near 8."""
    if a.kernel != "grouped_topk" and a.call.bias and a.call.logits_dtype == "bf16" and a.call.bias_dtype in (None, "bf16"):
        yield a.defect(
            "router-bias-rounding",
            "info",
            "logits are bf16, so the selection bias is rounded to bf16 (steps of 1/32 near 8)",
            "",
            "Biases that differ by less than a bf16 step become equal; close experts can swap.",
            "Let the router compute its logits in fp32 where the engine offers it.",
            "https://github.com/sgl-project/sglang/issues/34857",
        )


def ids_dtype(a: Asked) -> Found:
    """Expert ids are written as int32."""
    if a.call.ids_dtype == "int32":
        return
    silent = a.has("abort")
    yield a.defect(
        "router-ids-dtype",
        "error",
        f"topk_ids is {a.call.ids_dtype}, the kernel writes int32",
        "" if silent else "expected scalar type Int but found Long",
        "Half of each id is left as it was: ids out of range, silently." if silent else f"Every call fails; {a.stops}.",
        "Hand AITER int32 ids.",
        f"{facts.GROUPED}:1160 (v0.1.20.post1), :1165 (v0.1.7.post2); https://github.com/vllm-project/vllm/pull/55147",
    )


def strided_logits(a: Asked) -> Found:
    """Row strides of the logits are honoured from v0.1.19 on, and by moe_fused_gate never."""
    if a.call.logits_strided and (a.kernel == "moe_fused_gate" or not a.has("strided_group_logits")):
        yield a.defect(
            "router-strided",
            "error",
            "rows of the logits are not contiguous",
            "",
            "Rows after the first are read at the wrong place: wrong experts, silently.",
            "Make the logits contiguous before routing.",
            f"{facts.GROUPED}:1233 (v0.1.20.post1), {facts.GATE} (all releases)",
        )


def small_waves(a: Asked) -> Found:
    """Releases before v0.1.12 launch 64 threads and reduce over 64 lanes."""
    if a.wave == 32 and not a.has("wave32"):
        yield a.defect(
            "router-wave32",
            "error",
            f"{a.gfx} has waves of 32, the kernel is written for 64",
            "",
            "Two waves race over one token: wrong experts, silently.",
            "Use AITER v0.1.12 or newer.",
            f"{facts.GROUPED}:1247 (v0.1.11)",
        )


def gate_power_of_two(a: Asked) -> Found:
    if not a.has("gate_any_experts") and a.experts & (a.experts - 1):
        yield a.defect(
            "router-power-of-two",
            "error",
            f"{a.experts} experts is no power of two",
            f"num_experts must be a power of 2, but got {a.experts}",
            f"The first such batch fails; {a.stops}.",
            f"Use AITER v0.1.12 or newer, or keep --max-num-batched-tokens at or below {a.first - 1}.",
            f"{facts.GATE}:563 (v0.1.7.post2)",
        )


def gate_remainder(a: Asked) -> Found:
    if a.groups > 0 and a.experts % a.groups:
        yield a.defect(
            "router-group-remainder",
            "error",
            f"{a.experts} experts do not divide by num_expert_group {a.groups}",
            f"num_experts must be divisible by num_expert_group, but got {a.experts} / {a.groups}",
            f"The first such batch fails; {a.stops}.",
            _OTHER_ROUTER,
            f"{facts.GATE}:571 (v0.1.20.post1)",
        )


def gate_group_size(a: Asked) -> Found:
    if a.per_group > facts.GATE_MAX_PER_GROUP:
        yield a.defect(
            "router-group-size",
            "error",
            f"{a.per_group} experts per group is more than {facts.GATE_MAX_PER_GROUP}",
            f"Per group experts: num_experts / num_expert_group = ({a.per_group}) exceeds the maximum supported (32)",
            f"The first such batch fails; {a.stops}.",
            f"Use AITER v0.1.12 or newer, or keep --max-num-batched-tokens at or below {a.first - 1}.",
            f"{facts.GATE}:577 (v0.1.7.post2); https://github.com/ROCm/aiter/pull/2369",
        )


def gate_renormalize(a: Asked) -> Found:
    if not a.call.renormalize:
        yield a.defect(
            "router-renormalize",
            "error",
            "the model does not renormalise its top-k weights, moe_fused_gate always does",
            "Renormalization is required for moe_fused_gate.",
            "AssertionError on the first such batch.",
            f"Keep --max-num-batched-tokens at or below {a.first - 1}.",
            f"{facts.TOPK}:202 (v0.1.20.post1), :100 (v0.1.7.post2)",
        )


def gate_groups(a: Asked) -> Found:
    """The reduce across a row's threads has cases for powers of two only, and nothing checks it."""
    if a.groups > 0 and a.experts % a.groups == 0 and a.groups not in facts.REDUCE_WIDTHS[a.wave]:
        yield a.defect(
            "router-gate-groups",
            "error",
            f"num_expert_group {a.groups} has no case in moe_fused_gate's reduce (powers of two up to {a.wave})",
            "",
            "Each thread keeps its own maximum: wrong experts, silently.",
            _OTHER_ROUTER,
            "csrc/include/hip_reduce.h:323-369 (v0.1.20.post1)",
        )


def gate_scaling(a: Asked) -> Found:
    if a.call.scaling_inside != 1.0:
        yield a.defect(
            "router-gate-scaling",
            "error",
            f"routed_scaling_factor {a.call.scaling_inside:g} is handed to AITER, moe_fused_gate never multiplies by it",
            "",
            f"Expert weights are {a.call.scaling_inside:g} times too small in these batches, silently.",
            f"Keep --max-num-batched-tokens at or below {a.first - 1}.",
            f"{facts.GATE}:399 (v0.1.20.post1), :393 (v0.1.7.post2)",
        )


def gate_overread(a: Asked) -> Found:
    """Before v0.1.12 the dynamic kernel loads 32 elements per thread whatever the group size."""
    static = facts.at(facts.GATE_STATIC, a.version)
    known = static.value if static else frozenset()
    if not a.has("gate_reads_row") and (a.experts, a.groups) not in known and a.per_group < facts.GATE_MAX_PER_GROUP:
        yield a.defect(
            "router-gate-overread",
            "warning",
            f"{a.per_group} experts per group is less than 32 and ({a.experts}, {a.groups}) has no kernel of its own",
            "",
            "The last rows are read past the end of the logits.",
            f"Use AITER v0.1.12 or newer, or keep --max-num-batched-tokens at or below {a.first - 1}.",
            f"{facts.GATE}:140 (v0.1.7.post2); https://github.com/ROCm/aiter/pull/2604",
        )


HIP: tuple[Rule, ...] = (
    small_waves, group_count, topk_group_range, remainder, score_lanes, group_tail, tiny_groups, topk_wave,
    topk_candidates, always_sigmoid, bias_dtype, ids_dtype, strided_logits, bias_rounding,
)  # fmt: skip
GATE: tuple[Rule, ...] = (
    gate_power_of_two, gate_remainder, gate_group_size, gate_renormalize, gate_groups, gate_scaling, gate_overread,
    topk_candidates, always_sigmoid, bias_dtype, ids_dtype, strided_logits,
)  # fmt: skip
REFUSED = frozenset(
    {"router-group-count", "router-power-of-two", "router-group-size", "router-renormalize", "router-missing", "router-arguments"}
)
"""Codes after which no kernel is launched at all."""
