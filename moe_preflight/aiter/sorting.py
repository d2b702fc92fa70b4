"""moe_sorting: which backend a release uses, its limits, and what expert parallelism does to ids, masks and tuned keys.

Sources: aiter/fused_moe.py (backend, EP key), csrc/include/moe_sorting_opus.h and CK's example/ck_tile/13_moe_sorting
(limits; both have the same structure), at the tags named in aiter/facts/routing.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.facts import routing as facts
from moe_preflight.aiter.version import Version

_NO_ENV: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class SortCall:
    """What ``fused_moe`` hands to the sort. ``experts`` is the E of the sort: the length of the expert mask under EP
    (vLLM: global experts + fused shared + 1), else the experts of w1. ``topk`` counts columns of topk_ids.

    ``fake_column``: does the caller append AITER's fake expert as an extra topk column under EP (SGLang-style callers and
    vLLM with fused shared experts do, vLLM's standard routing does not)? ``port``: does the tuned row lead to the mxfp4
    a4w4 port? ``situv2_a16w4``: bf16 activations, MXFP4 weights, SiTUv2. ``negative_ids``: may padding rows carry id -1?
    """

    experts: int
    topk: int
    dispatch_policy: int = 0
    is_ep: bool = False
    fake_column: bool = False
    port: bool = False
    situv2_a16w4: bool = False
    negative_ids: bool = False
    local_ids: bool = False
    ids_dtype: str = "int32"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SortVerdict:
    """``backend`` is ck, opus or flydsl."""

    backend: str
    defects: tuple[Defect, ...]
    source: str


def backend(version: Version, env: Mapping[str, str] = _NO_ENV, *, local_ids: bool = False, policy: int = 0) -> tuple[str, str]:
    """(backend, source) of ``moe_sorting``. ``return_local_topk_ids`` forces opus from v0.1.15 on; FlyDSL's needs policy 0."""
    default = facts.at(facts.SORT_DEFAULT, version) or facts.SORT_DEFAULT[0]
    if local_ids and version >= Version.of("0.1.15"):
        return "opus", "aiter/fused_moe.py:63 (v0.1.15)"
    for name, chosen, spans in facts.SORT_SWITCHES:
        span = facts.at(spans, version)
        if span is not None and env.get(name) == "1" and (chosen != "flydsl" or policy == 0):
            return chosen, span.source
    return default.value, default.source


def judge_sorting(call: SortCall, version: Version, gfx: str, *, max_tokens: int | None = None) -> SortVerdict:
    """The backend and what is known to go wrong. ``max_tokens`` drops what only larger batches reach."""
    name, source = backend(version, call.env, local_ids=call.local_ids, policy=call.dispatch_policy)
    confidence = "read" if facts.in_range(version) else "unverified"
    found = [*_limits(call, name, gfx, max_tokens, confidence), *_expert_parallel(call, version, confidence)]
    return SortVerdict(name, tuple(found), source)


def _limits(call: SortCall, name: str, gfx: str, max_tokens: int | None, confidence: str) -> list[Defect]:
    found: list[Defect] = []

    def add(code: str, condition: str, symptom: str, effect: str, remedy: str, source: str) -> None:
        found.append(Defect(code, "error", condition, symptom, effect, remedy, source, confidence))

    limit = facts.SORT_MAX_EXPERTS_LOCAL_IDS if call.local_ids else facts.SORT_MAX_EXPERTS
    nothing = "Nothing is launched and the answer -1 is not looked at: sorted ids stay uninitialised."
    if call.experts > limit:
        text = f"do not support large expert {call.experts}"
        add(
            "sort-experts",
            f"{call.experts} experts is more than {limit}",
            text,
            nothing,
            "Split the experts.",
            f"{facts.SORT}:3550",
        )
    single = facts.SORT_SINGLE_MAX_EXPERTS
    if call.dispatch_policy == 1 and call.experts > single:
        add(
            "sort-single-kernel",
            f"dispatch policy 1 with {call.experts} experts (the single kernel has room for {single})",
            "",
            "The GPU hangs: the token loop steps by zero.",
            "Leave the dispatch policy at 0.",
            f"{facts.SORT} moe_sorting_get_sub_token (v0.1.20)",
        )
    reached = max_tokens is None or max_tokens >= facts.SORT_MESH_TOKENS
    if call.topk >= facts.SORT_TOPK_LIMIT and reached:
        add(
            "sort-topk",
            f"top-{call.topk} is {facts.SORT_TOPK_LIMIT} or more; batches of {facts.SORT_MESH_TOKENS} tokens or more",
            f"do not support large topk {call.topk}",
            nothing,
            "Correct num_experts_per_tok in the model config.",
            f"{facts.SORT}:3570 (v0.1.15)",
        )
    if call.ids_dtype != "int32":
        add(
            "sort-ids-dtype",
            f"topk_ids is {call.ids_dtype}, not int32",
            "",
            nothing,
            "Hand AITER int32 ids.",
            f"{facts.SORT} moe_sorting_opus (v0.1.20)",
        )
    flydsl = facts.SORT_FLYDSL_MAX_EXPERTS.get(gfx[:5], facts.SORT_FLYDSL_MAX_EXPERTS["gfx94"])
    if name == "flydsl" and call.experts > flydsl:
        add(
            "sort-flydsl-experts",
            f"{call.experts} experts is more than {flydsl} on {gfx}",
            f"LDS too small for E={call.experts}",
            "ValueError on the first call.",
            "Unset AITER_USE_FLYDSL_MOE_SORTING.",
            "aiter/ops/flydsl/kernels/moe_sorting_kernel.py:246 (v0.1.20)",
        )
    return found


def _expert_parallel(call: SortCall, version: Version, confidence: str) -> list[Defect]:
    if not call.is_ep and not call.negative_ids:
        return []
    found: list[Defect] = []

    def add(code: str, severity: str, condition: str, symptom: str, effect: str, remedy: str, source: str) -> None:
        found.append(Defect(code, severity, condition, symptom, effect, remedy, source, confidence))

    if call.is_ep and not call.fake_column and facts.has("ep_topk_minus_one", version):
        add(
            "ep-topk",
            "warning",
            f"expert parallel without AITER's fake column: {call.topk} topk columns are looked up as {call.topk - 1}",
            "",
            f"Tuned rows for top-{call.topk} are never found; rows for top-{call.topk - 1} are taken if there are any.",
            f"Tune rows with topk {call.topk - 1}, or use tensor parallel.",
            "aiter/fused_moe.py:1112 (v0.1.16); https://github.com/ROCm/aiter/issues/3999",
        )
    if call.is_ep and call.port and facts.has("port_refuses_ep", version):
        add(
            "ep-mxfp4-port",
            "error",
            "expert parallel, and the tuned row leads to the mxfp4 a4w4 port",
            "MXFP4 a4w4 FlyDSL port does not support expert-parallel yet (expert_mask is dropped by the output_aux sort path).",
            "NotImplementedError on the first batch of that bucket.",
            "Use tensor parallel, or AITER_BYPASS_TUNE_CONFIG=1.",
            "aiter/fused_moe.py:709 (v0.1.18), :573 (v0.1.16.post4)",
        )
    if call.is_ep and call.situv2_a16w4 and facts.has("situv2_refuses_ep", version):
        add(
            "ep-situv2",
            "error",
            "expert parallel with SiTUv2, bf16 activations and MXFP4 weights",
            "a16w4 (bf16 A x MXFP4 W) SiTUv2 is not supported: expert-parallel masking.",
            "NotImplementedError on the first batch.",
            "Use the a4w4 or a8w4 activation path, or tensor parallel.",
            "aiter/fused_moe.py:826 (v0.1.20)",
        )
    if not facts.has("sort_ids_checked", version):
        add(
            "sort-negative-ids",
            "warning" if call.negative_ids else "info",
            f"an expert id outside 0..{call.experts - 1} (such as -1 for a padding row) reaches moe_sorting",
            "Memory access fault by GPU node",
            "Out-of-bounds writes: small batches (single kernel) and batches of 2048 tokens or more are not guarded.",
            "Give padding rows a valid id with weight 0, or use AITER v0.1.22.post1 or newer.",
            f"{facts.SORT}:1671 (e4048607); https://github.com/ROCm/aiter/issues/4827",
        )
    return found
