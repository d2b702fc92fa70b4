"""What an upgrade changes: two evaluations of one model under one split on one GPU, side by side. Pure.

Both sides are asked at the same token counts: every bucket of either release, for their buckets can differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.key import Dispatch
from moe_preflight.aiter.router import RouterRange, RouterVerdict
from moe_preflight.arithmetic import padding_cost
from moe_preflight.coverage import compare_rules as r
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation, key_of
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import spans

WORSE, BETTER, OTHER = "worse", "better", "other"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``direction`` is worse, better or other; ``tokens`` says at which batch sizes, in words (empty: all)."""

    rule: Rule
    direction: str
    layer: str
    tokens: str
    old: str
    new: str
    severity: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def message(self) -> str:
        """``tuned-coverage: 1-64 tokens: hit -> miss``."""
        where = f" at {self.tokens} tokens" if self.tokens else ""
        return f"{self.old or 'nothing'} -> {self.new or 'nothing'}{where}"


@dataclass(frozen=True, slots=True)
class Side:
    """One side's evaluation and the dispatcher behind it."""

    target: TargetEvaluation
    dispatcher: Dispatcher
    tuned: bool


def changes(old: Side, new: Side, tokens: Sequence[int]) -> Iterator[Change]:
    """Every difference between the sides, layer by layer."""
    refusals = [next((x.error for x in s.target.plan.refusals), "") for s in (old, new)]
    if refusals[0] != refusals[1]:
        yield _outcome(
            "all", *(f"refused: {e}" if e else "starts" for e in refusals), worse=bool(refusals[1]), better=bool(refusals[0])
        )
    before = {x.plan.layer.name: x for x in old.target.layers}
    after = {x.plan.layer.name: x for x in new.target.layers}
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            yield Change(
                r.KEY,
                OTHER,
                name,
                "",
                "no such layer" if a is None else "planned",
                "no such layer" if b is None else "planned",
                "info",
            )
            continue
        yield from _layer(name, a, b, old, new, tokens)


def _outcome(layer: str, old: str, new: str, *, worse: bool, better: bool, severity: str = "error") -> Change:
    direction = WORSE if worse else BETTER if better else OTHER
    return Change(r.REFUSED, direction, layer, "", old, new, severity if worse else "info")


def _layer(name: str, a: LayerEvaluation, b: LayerEvaluation, old: Side, new: Side, tokens: Sequence[int]) -> Iterator[Change]:
    errors = [next((x.error for x in e.plan.refusals), "") for e in (a, b)]
    if errors[0] != errors[1]:
        yield _outcome(name, *(f"refused: {e}" if e else "served" for e in errors), worse=bool(errors[1]), better=bool(errors[0]))
    elif (a.plan.backend.name, a.plan.backend.on_aiter) != (b.plan.backend.name, b.plan.backend.on_aiter):
        lost = a.plan.backend.on_aiter and not b.plan.backend.on_aiter
        gained = b.plan.backend.on_aiter and not a.plan.backend.on_aiter
        yield _outcome(name, str(a.plan.backend.name), str(b.plan.backend.name), worse=lost, better=gained, severity="warning")
    pairs = list(zip(_answers(a, old, tokens), _answers(b, new, tokens), strict=True)) if a.dispatches and b.dispatches else []
    accepted = list(_accepted(name, pairs))
    mended = any(c.direction == BETTER for c in accepted) and not any(c.direction == WORSE for c in accepted)
    yield from _padding(name, a, b, mended=mended)
    yield from _question(name, a, b)
    yield from _router(name, a, b)
    yield from accepted
    if pairs:
        if old.tuned and new.tuned:
            yield from _hits(name, pairs)
        yield from _kernels(name, pairs)


def _answers(x: LayerEvaluation, side: Side, tokens: Sequence[int]) -> list[Dispatch]:
    key = key_of(x.plan.problem, side.dispatcher.rules)
    return [side.dispatcher.dispatch(replace(key, token=t)) for t in tokens]


def _padding(name: str, a: LayerEvaluation, b: LayerEvaluation, *, mended: bool) -> Iterator[Change]:
    """``mended``: the new sizes are accepted where the old ones were rejected, so their cost is no loss."""
    sizes = [(x.plan.problem.inter_dim_padded, x.plan.problem.model_dim_padded) for x in (a, b)]
    if sizes[0] == sizes[1]:
        return
    cost = [padding_cost(x.plan).extra_compute_pct for x in (a, b)]
    direction = BETTER if cost[1] < cost[0] else OTHER if mended or cost[1] == cost[0] else WORSE
    was, now = (f"inter_dim {i} model_dim {m} (+{c:.1f} % arithmetic)" for (i, m), c in zip(sizes, cost, strict=True))
    yield Change(r.PADDING, direction, name, "", was, now, "warning" if direction == WORSE else "info")


def _question(name: str, a: LayerEvaluation, b: LayerEvaluation) -> Iterator[Change]:
    fields = ("expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1", "is_ep")
    if not (a.dispatches and b.dispatches):
        return
    p, q = a.plan.problem, b.plan.problem
    moved = [f for f in fields if getattr(p, f) != getattr(q, f)]
    if moved:
        was, now = (", ".join(f"{f} {getattr(x, f)}" for f in moved) for x in (p, q))
        yield Change(r.KEY, OTHER, name, "", was, now, "info")


# --- routing ---------------------------------------------------------------------------------------------------------


def _router(name: str, a: LayerEvaluation, b: LayerEvaluation) -> Iterator[Change]:
    starts = sorted({part.from_ for x in (a, b) if x.router for part in x.router.by_tokens} or {1})
    last: tuple[object, ...] | None = None
    for start in starts:
        sides = [_route(x, start) for x in (a, b)]
        said = tuple(_route_words(x, part) for x, part in zip((a, b), sides, strict=True))
        if said[0] == said[1] or said == last:
            last = said
            continue
        last = said
        old, new = said
        before, after = (_worst(part) for part in sides)
        direction = WORSE if after < before else BETTER if after > before else OTHER
        yield Change(
            r.ROUTER, direction, name, f"{start:,} and more", old, new, _SEVERITIES[after] if direction == WORSE else "info"
        )


_SEVERITIES = ("error", "warning", "info")


def _worst(part: RouterRange | None) -> int:
    """0 for a kernel that does not exist or fails, 1 for a warning, 2 for nothing to say."""
    if part is None:
        return 2
    return min((_SEVERITIES.index(d.severity) for d in part.defects), default=2) if part.compiled is not False else 0


def _route(x: LayerEvaluation, tokens: int) -> RouterRange | None:
    verdict: RouterVerdict | None = x.router
    if verdict is None:
        return None
    return next((p for p in verdict.by_tokens if p.from_ <= tokens and (p.to is None or tokens <= p.to)), verdict.by_tokens[-1])


def _route_words(x: LayerEvaluation, part: RouterRange | None) -> str:
    call = x.plan.router
    groups = "" if call.num_expert_group is None else f" in {call.num_expert_group} groups"
    if part is None:
        return (call.falls_back_to or call.kernel) + groups
    state = {True: "", False: " (no such kernel)", None: ""}[part.compiled]
    codes = ", ".join(sorted(d.code for d in part.defects))
    return f"{part.kernel}{groups}{state}" + (f" [{codes}]" if codes else "")


# --- kernels ---------------------------------------------------------------------------------------------------------

_Pairs = list[tuple[Dispatch, Dispatch]]


def _problem(d: Dispatch) -> str:
    if d.error:
        return f"raises: {d.error}"
    return next(
        (f"stage {n} rejected: {s.reason}" for n, s in ((1, d.stage1), (2, d.stage2)) if s is not None and s.accepted is False),
        "",
    )


def _accepted(name: str, pairs: _Pairs) -> Iterator[Change]:
    for old, new, tokens, found in _grouped(pairs, lambda d: _problem(d) or "accepted"):
        worse, better = new != "accepted" and old == "accepted", old != "accepted" and new == "accepted"
        if worse or better:
            yield Change(
                r.ACCEPTANCE, WORSE if worse else BETTER, name, tokens, old, new, "error" if worse else "info", _rows(found)
            )


_TUNED = {"hit": 2, "tier": 1, "miss": 0}


def _hits(name: str, pairs: _Pairs) -> Iterator[Change]:
    for old, new, tokens, found in _grouped(pairs, lambda d: d.tuned):
        if old in _TUNED and new in _TUNED:
            worse = _TUNED[new] < _TUNED[old]
            yield Change(r.HITS, WORSE if worse else BETTER, name, tokens, old, new, "warning" if worse else "info", _rows(found))


def _kernels(name: str, pairs: _Pairs) -> Iterator[Change]:
    both = [(a, b) for a, b in pairs if not _problem(a) and not _problem(b)]
    for old, new, tokens, found in _grouped(both, _choice):
        yield Change(r.PATH, OTHER, name, tokens, old, new, "info", _rows(found))


def _choice(d: Dispatch) -> str:
    """The path, with its kernels or tiles."""
    parts = []
    for s in (d.stage1, d.stage2):
        if s is not None:
            parts.append(s.kernel or (f"{s.kind} {s.tile_n}x{s.tile_k}" if s.tile_n else s.kind))
    return f"{d.path} block_m {d.block_m}: {' + '.join(parts)}"


def _grouped(pairs: _Pairs, said: Callable[[Dispatch], str]) -> Iterator[tuple[str, str, str, _Pairs]]:
    """Differing pairs with the same two statements together: (old, new, tokens in words, the pairs)."""
    groups: dict[tuple[str, str], _Pairs] = {}
    for a, b in pairs:
        words = said(a), said(b)
        if words[0] != words[1]:
            groups.setdefault(words, []).append((a, b))
    every = tuple(a for a, _ in pairs)
    for (old, new), found in groups.items():
        chosen = {a.token for a, _ in found}
        yield old, new, "all" if len(chosen) == len(every) else spans(every, chosen), found


def _rows(found: _Pairs) -> tuple[Evidence, ...]:
    """The tuned rows behind the first few pairs, old before new."""
    rows = [d.row for pair in found[:3] for d in pair if d.row is not None]
    return tuple(Evidence(x.file, x.line, x.kernel1) for x in dict.fromkeys(rows))


def finding(change: Change, name: str, target: int, layer: int | None, confidence: str) -> Finding:
    """The change as a finding; ``name`` is the target's."""
    better = {WORSE: "Worse", BETTER: "Better", OTHER: "Changed"}[change.direction]
    of = "" if change.layer in ("all", "main") else f" [{change.layer}]"
    return change.rule.finding(
        f"{name}{of}: {better}: {change.message}",
        severity=change.severity,
        confidence=confidence,
        target=target,
        layer=layer,
        evidence=change.evidence,
    )


def observation(change: Change, target: int, layer: int | None) -> dict[str, object]:
    """The change as the JSON report shows it."""
    return {
        "kind": "change",
        "status": change.direction,
        "detail": change.message,
        "what": change.rule.name,
        "target": target,
        "layer": layer,
        "layer_name": change.layer,
        "at_tokens": change.tokens or None,
        "old": change.old,
        "new": change.new,
        "severity": change.severity,
    }
