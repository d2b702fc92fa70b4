"""Which routing kernel runs at which batch size, whether it exists, and what is known to go wrong with it.

``judge`` is pure: an engine's RouterCall, an AITER release and a GPU in, a RouterVerdict out. AITER's own selection is
aiter/ops/topk.py ``biased_grouped_topk`` (:176-214 at v0.1.20.post1): up to 212 tokens per compute unit the HIP kernel,
above it moe_fused_gate, except that from v0.1.12 more than 32 experts per group stay on the HIP kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moe_preflight.aiter import router_grouped, router_plain
from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.facts import routing as facts
from moe_preflight.aiter.router_call import Asked, Found, Rule
from moe_preflight.aiter.version import Version
from moe_preflight.engine.plan import RouterCall

OPEN_TIER = 32768
"""Largest bucket that is a batch size rather than AITER's catch-all tier for anything bigger (get_padded_M)."""


@dataclass(frozen=True, slots=True)
class RouterRange:
    """Batches of ``from_`` to ``to`` tokens (None: no upper end) run ``kernel``. ``compiled``: would a launch reach a
    compiled kernel? None when it is not AITER's, or when that was not established for this release."""

    from_: int
    to: int | None
    kernel: str
    compiled: bool | None
    defects: tuple[Defect, ...] = ()


@dataclass(frozen=True, slots=True)
class RouterVerdict:
    """``by_tokens`` is contiguous: it starts at 1, each range follows the last, and the last one is open."""

    by_tokens: tuple[RouterRange, ...]
    source: str

    @property
    def kernel(self) -> str:
        """The kernel of the smallest batches."""
        return self.by_tokens[0].kernel

    @property
    def compiled(self) -> bool | None:
        return self.by_tokens[0].compiled

    @property
    def defects(self) -> tuple[Defect, ...]:
        """All defects, each once, in order of batch size."""
        return tuple(dict.fromkeys(d for r in self.by_tokens for d in r.defects))


def judge(
    call: RouterCall,
    version: Version,
    gfx: str,
    cu_num: int,
    *,
    max_tokens: int | None = None,
    largest_bucket: int = OPEN_TIER,
    group_counts: frozenset[int] | None = None,
    group_source: str | None = None,
) -> RouterVerdict:
    """Judge one routing call.

    ``max_tokens`` is the largest batch the engine may form: a defect that starts above it is dropped. Without it, a defect
    that starts above ``largest_bucket`` (at most OPEN_TIER: the tier above it stands for any larger batch) is a warning
    with its threshold. ``group_counts`` are the counts read from the tree, if it has the kernel's source;
    ``group_source`` names file and line.
    """
    built_in = facts.at(facts.GROUP_COUNTS, version)
    default = built_in.value if built_in else facts.GROUP_COUNTS[-1].value
    counts = group_counts if group_counts is not None else default
    where = group_source or (built_in.source if built_in else facts.GROUP_COUNTS[-1].source)
    reach = max_tokens if max_tokens is not None else min(largest_bucket, OPEN_TIER)
    ranges = []
    for first, last, kernel in _split(call, version, cu_num):
        asked = Asked(call, version, gfx, cu_num, kernel, first, last, counts, where)
        found = _defects(asked, _rules(kernel, call))
        refused = [d for d in found if d.code in router_grouped.REFUSED]
        unknown = _elsewhere(kernel, call) or any(d.severity == "info" for d in refused)
        compiled = None if unknown else not refused
        if first > reach:
            found = () if max_tokens is not None else tuple(_as_risk(d) for d in found)
        ranges.append(RouterRange(first, last, kernel, compiled, found))
    return RouterVerdict(tuple(ranges), _source(call, version))


def _elsewhere(kernel: str, call: RouterCall) -> bool:
    """Is this range not AITER's business?"""
    return not call.on_aiter or call.falls_back_to is not None or kernel not in facts.KERNELS


def _rules(kernel: str, call: RouterCall) -> tuple[Rule, ...]:
    if _elsewhere(kernel, call):
        return (_fallback,) if call.falls_back_to is not None else ()
    if kernel == "moe_fused_gate":
        return router_grouped.GATE
    if kernel in ("biased_grouped_topk", "grouped_topk"):
        return (router_plain.missing, *router_grouped.HIP)
    return router_plain.RULES.get(kernel, ())


def _fallback(a: Asked) -> Found:
    yield a.defect(
        "router-fallback",
        "info",
        a.call.fallback_reason or f"the engine does not ask AITER's {a.call.kernel} for this model",
        "",
        f"Routing takes the engine's own {a.call.falls_back_to} path: right results, slower.",
        "Nothing to do.",
        a.call.source,
    )


def _defects(asked: Asked, rules: tuple[Rule, ...]) -> tuple[Defect, ...]:
    """Run the rules; a kernel that would not be launched can do nothing else wrong."""
    found: list[Defect] = []
    for rule in rules:
        found.extend(rule(asked))
        if found and found[-1].code in router_grouped.REFUSED:
            return (found[-1],)
    return tuple(found)


def _as_risk(d: Defect) -> Defect:
    return replace(d, severity="warning") if d.severity == "error" else d


def _split(call: RouterCall, version: Version, cu_num: int) -> list[tuple[int, int | None, str]]:
    """(first, last, kernel) of every range: the engine's own switches, then AITER's."""
    if call.falls_back_to is not None:
        return [(1, None, call.falls_back_to)]
    starts = {1: call.kernel}
    starts.update((max(1, tokens), kernel) for tokens, kernel in call.alternatives)
    if call.on_aiter:
        _switch_to_gate(starts, call, version, cu_num)
    ranges: list[tuple[int, int | None, str]] = []
    for first, kernel in sorted(starts.items()):
        if ranges and ranges[-1][2] == kernel:
            continue
        if ranges:
            ranges[-1] = (ranges[-1][0], first - 1, ranges[-1][2])
        ranges.append((first, None, kernel))
    return ranges


def _switch_to_gate(starts: dict[int, str], call: RouterCall, version: Version, cu_num: int) -> None:
    """biased_grouped_topk hands large batches to moe_fused_gate."""
    span = facts.at(facts.GATE_TOKENS_PER_CU, version)
    groups = call.num_expert_group if call.num_expert_group is not None else 1
    if span is None or groups < 1:
        return
    if call.experts // groups > facts.GATE_MAX_PER_GROUP and facts.has("big_groups_stay", version):
        return
    switch = span.value * cu_num + 1
    at_switch = max((first for first in starts if first <= switch), default=1)
    if starts[at_switch] == "biased_grouped_topk":
        starts[switch] = "moe_fused_gate"
    for first in [f for f, kernel in starts.items() if f > switch and kernel == "biased_grouped_topk"]:
        starts[first] = "moe_fused_gate"


def _source(call: RouterCall, version: Version) -> str:
    span = facts.at(facts.GATE_TOKENS_PER_CU, version)
    if call.kernel == "biased_grouped_topk" and span is not None and call.falls_back_to is None:
        return span.source
    table = facts.KERNELS.get(call.kernel)
    return table[-1].source if table and call.falls_back_to is None else call.source
