"""topk_softmax, topk_sigmoid and topk_gating: routing without groups. When they fail, and when they are silently wrong."""

from __future__ import annotations

from moe_preflight.aiter.facts import routing as facts
from moe_preflight.aiter.router_call import Asked, Found, Rule


def missing(a: Asked) -> Found:
    """The release does not have this entry point yet."""
    table = facts.KERNELS.get(a.kernel)
    if table is not None and facts.at(table, a.version) is None:
        first = table[0].since
        yield a.defect(
            "router-missing",
            "error",
            f"AITER {a.version} has no {a.kernel}, v{first} is the first that has it",
            f"cannot import name '{a.kernel}' from 'aiter",
            "The first forward pass fails with ImportError.",
            f"Use AITER v{first} or newer, best the version the engine pins, or an engine version of that age.",
            table[0].source,
        )


def arguments(a: Asked) -> Found:
    """The engine passes arguments this release does not take."""
    if facts.at(facts.KERNELS.get(a.kernel, ()), a.version) is None:
        return
    passed = tuple(arg for kernel, arg in a.call.passes if kernel == a.kernel and (kernel, arg) in facts.ARGUMENTS)
    lacking = tuple(arg for arg in passed if facts.at(facts.ARGUMENTS[a.kernel, arg], a.version) is None)
    if not lacking:
        return
    table = facts.ARGUMENTS[a.kernel, lacking[0]]
    if a.kernel == "topk_softmax":
        symptom = f"aiter::topk_softmax() expected at most 5 argument(s) but received {5 + len(passed)}"
    else:
        symptom = f"{a.kernel}() got an unexpected keyword argument '{lacking[0]}'"
    known = bool(table) or facts.in_range(a.version)
    first = f"v{table[0].since} is the first that takes it" if table else f"no release up to v{facts.NEWEST} takes it"
    yield a.defect(
        "router-arguments",
        "error" if known else "info",
        f"the engine passes {', '.join(lacking)} to {a.kernel}; {first}",
        symptom if known else "",
        "The first such forward pass fails." if known else "Whether this release takes it was not established.",
        "Use the AITER version the engine pins, or the engine version this AITER was pinned by.",
        table[0].source if table else f"{facts.TOPK}:42-50 (v0.1.20.post1); https://github.com/vllm-project/vllm/issues/43873",
    )


def softmax_generic(a: Asked) -> Found:
    """No register kernel for this expert count: softmax and top-k run as two kernels over a workspace."""
    if a.experts not in facts.SOFTMAX_REGISTER:
        yield a.defect(
            "router-generic",
            "info",
            f"{a.experts} experts is no power of two up to 512",
            "",
            "topk_softmax works, but through the slower generic kernels with a tokens x experts workspace.",
            "Nothing to do; routing is a small part of a step.",
            f"{facts.SOFTMAX}:693-712 (v0.1.20)",
        )


def softmax_asm(a: Asked) -> Found:
    """aiter.fused_moe.fused_topk prefers an assembly kernel for a handful of shapes."""
    span = facts.at(facts.ASM_SOFTMAX, a.version)
    if not a.call.prefers_asm or span is None:
        return
    table = span.value
    shapes = ", ".join(f"{e}/{k}" for e, k in sorted(table.shapes))
    if a.gfx in table.gfx and (a.experts, a.topk) not in table.shapes:
        yield a.defect(
            "router-no-asm",
            "warning",
            f"{a.experts} experts, top-{a.topk} is none of {shapes}",
            "",
            "fused_topk runs the generic topk_softmax: slower routing, right results.",
            "Use an engine that calls topk_gating for this shape, or accept the cost (about 5 % of a decode step was reported).",
            f"{span.source}; https://github.com/sgl-project/sglang/pull/40708",
        )


def softmax_shared(a: Asked) -> Found:
    shared = a.call.num_shared
    if shared and a.experts in facts.SOFTMAX_REGISTER and shared not in facts.SOFTMAX_SHARED:
        yield a.defect(
            "router-shared-count",
            "error",
            f"{shared} fused shared experts, the kernel takes 1, 2, 4 or 8",
            f"Unsupported num_shared_experts: {shared}. Supported values: 1, 2, 4, 8",
            f"Every call fails; {a.stops}.",
            "Switch shared-expert fusion off.",
            f"{facts.SOFTMAX}:614-624 (v0.1.20)",
        )


def softmax_ids(a: Asked) -> Found:
    if a.call.ids_dtype != "int32":
        yield a.defect(
            "router-ids-dtype",
            "error",
            f"topk_ids is {a.call.ids_dtype}, the kernel writes int32",
            "",
            "Ids are written two to a slot: nearly all of them are out of range, silently.",
            "Hand AITER int32 ids.",
            "https://github.com/vllm-project/vllm/pull/55147",
        )


def softmax_strides(a: Asked) -> Found:
    generic = a.experts not in facts.SOFTMAX_REGISTER
    logits = a.call.logits_strided and not a.has("strided_softmax_any" if generic else "strided_softmax")
    outputs = a.call.outputs_strided and generic and not a.has("strided_softmax_any")
    if logits or outputs:
        yield a.defect(
            "router-strided",
            "error",
            f"rows of the {'logits' if logits else 'weights and ids'} are not contiguous ({a.experts} experts)",
            "",
            "Rows are read or written at the wrong place: wrong experts, silently.",
            f"Use AITER {'v0.1.19.post1' if generic else 'v0.1.11'} or newer, or make the buffers contiguous.",
            f"{facts.SOFTMAX}:67-77 (v0.1.19.post1), :285 (v0.1.11)",
        )


def sigmoid_launch(a: Asked) -> Found:
    """CK's topk_sigmoid answers -1 and launches nothing, and the answer is not looked at."""
    too_many = a.experts > facts.SIGMOID_MAX_EXPERTS
    if too_many or a.call.logits_dtype not in ("bf16", "fp16"):
        reason = f"{a.experts} experts is more than 192" if too_many else f"logits are {a.call.logits_dtype}, not bf16 or fp16"
        yield a.defect(
            "router-nothing-launched",
            "error",
            reason,
            "",
            "Nothing is launched: ids and weights stay uninitialised memory.",
            "Use the generic path for this model (AITER off for routing).",
            "CK example/ck_tile/09_topk_softmax/topk_softmax_api.cpp:36-170 (v0.1.7.post2 wheel)",
            read=a.version.release[:3] == (0, 1, 7),
        )


def sigmoid_renormalize(a: Asked) -> Found:
    """topk_sigmoid has no renormalise argument."""
    if a.call.renormalize and a.topk > 1:
        yield a.defect(
            "router-renormalize-dropped",
            "error",
            f"the model renormalises its top-{a.topk} weights, topk_sigmoid has no such argument",
            "",
            "Expert weights are not normalised, silently.",
            "Use the generic path for this model (AITER off for routing).",
            "csrc/py_itfs_ck/topk_sigmoid_kernels.cu (v0.1.20); https://github.com/vllm-project/vllm/pull/31246",
        )


def gating_limits(a: Asked) -> Found:
    for limit, name, word in ((a.wave, "WARP_SIZE", "lanes of a wave"), (a.experts, "num_experts", "experts")):
        if a.topk > limit:
            yield a.defect(
                "router-topk-wave",
                "error",
                f"top-{a.topk} is more than the {limit} {word}",
                f"topk ({a.topk}) exceeds {name} ({limit})",
                "The worker process aborts (SIGABRT) after printing the text.",
                "Correct num_experts_per_tok in the model config.",
                "csrc/kernels/topk_gating_kernels.cu:57-60 (v0.1.20), :419 (v0.1.14)",
            )


def gating_renormalize(a: Asked) -> Found:
    if a.call.scoring == "softmax" and a.call.renormalize and not a.has("gating_softmax_renorm"):
        yield a.defect(
            "router-renormalize-dropped",
            "error",
            "softmax routing with renormalised weights",
            "",
            "topk_gating drops the renormalisation for softmax: weights too small, silently.",
            "Use AITER v0.1.20 or newer.",
            "csrc/kernels/topk_gating_kernels.cu:1223 (v0.1.19), :430 (v0.1.14)",
        )


def gating_ids(a: Asked) -> Found:
    if a.call.ids_dtype != "int32":
        checked = a.has("gating_ids_check")
        yield a.defect(
            "router-ids-dtype",
            "error",
            f"topk_ids is {a.call.ids_dtype}, the kernel writes int32",
            "topk_indices must be int32" if checked else "",
            "The worker process aborts (SIGABRT)." if checked else "Ids come out wrong, silently.",
            "Hand AITER int32 ids.",
            "csrc/kernels/topk_gating_kernels.cu:47 (v0.1.20), :415 (v0.1.17)",
        )


def gating_bias(a: Asked) -> Found:
    """From v0.1.20 the bias is float32, or bf16 unless the logits are fp16."""
    bias = a.call.bias_dtype
    if a.call.bias and bias == "fp16" and a.has("gating_softmax_renorm"):
        yield a.defect(
            "router-bias-dtype",
            "error",
            f"selection bias is {bias}",
            f"correction_bias dtype torch.float16 is not supported for {a.call.logits_dtype} gating_output",
            "AssertionError on every call.",
            "Hand AITER a float32 bias.",
            f"{facts.TOPK}:32-68 (v0.1.20)",
        )


_ENTRY: tuple[Rule, ...] = (missing, arguments)
RULES: dict[str, tuple[Rule, ...]] = {
    "topk_softmax": (*_ENTRY, softmax_asm, softmax_shared, softmax_ids, softmax_strides, softmax_generic),
    "topk_sigmoid": (*_ENTRY, sigmoid_launch, sigmoid_renormalize, softmax_ids),
    "topk_gating": (*_ENTRY, gating_limits, gating_renormalize, gating_ids, gating_bias),
}
"""What is asked of each kernel, most telling first. Once a kernel is missing nothing else is asked."""
