"""What each deployment must reach, judged one requirement at a time: met, not met (findings), or not to be looked at.

A requirement with nothing to look at is never met: an engine that refuses and experts that run elsewhere are findings, a model that
was not read is inconclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from moe_preflight.aiter.key import Dispatch
from moe_preflight.arithmetic import padding_cost
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation
from moe_preflight.gate.spec import Require
from moe_preflight.report.types import SEVERITIES, Evidence, Finding, NotEvaluated
from moe_preflight.rules import gate as rules
from moe_preflight.rules.run import Run, spans
from moe_preflight.settings import DECODE_MAX

OPEN_TIER = 32768
"""Without max_num_batched_tokens no batch is taken to be larger (aiter/router.py, the same)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One requirement of one deployment: ``met`` is None when it could not be looked at everywhere. ``key`` and ``value`` are the gate
    file's. ``forgiven``: it is not met, and all of that is in the baseline or ignored."""

    key: str
    value: object
    met: bool | None
    forgiven: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """Every requirement, the findings of those not met, and what could not be looked at."""

    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]


Said = Finding | NotEvaluated


def judge(run: Run, findings: Iterable[Finding], require: Require) -> Judged:
    """``findings`` are all the check found, with their own severities."""
    found = tuple(findings)
    given = ((key, getattr(require, key)) for key in JUDGES)
    asked = [
        (key, value) for key, value in given if value is not None and value is not False
    ]  # 0.0 == False, and 0 % asks for much
    of_layers = [key for key, _ in asked if key in _OF_STARTED]
    started = {t.index for t, _, _ in run.started()}
    refused = [t for t in run.targets if t.index not in started and t.layers]
    said: list[Said] = []
    if of_layers:
        said += [
            rules.REFUSED.finding(
                f"{t.name}: the gate requires {', '.join(of_layers)}, and the engine refuses to start.",
                confidence="read",
                target=t.index,
            )
            for t in refused
        ]
    off = [] if not {"on_aiter", "accepted", "min_tuned_decode_pct"} & {key for key, _ in asked} else list(_off_aiter(run))
    said += off
    outcomes = []
    for key, value in asked:
        mine = list(JUDGES[key](run, found, value))
        said += mine
        failed = any(isinstance(s, Finding) for s in mine)
        failed = failed or (key in _OF_STARTED and bool(refused)) or (key in _OF_KERNELS and bool(off))
        unseen = not run.targets or any(isinstance(s, NotEvaluated) for s in mine)
        outcomes.append(Outcome(key, value, False if failed else None if unseen else True))
    return Judged(
        tuple(outcomes),
        tuple(s for s in said if isinstance(s, Finding)),
        tuple(s for s in said if isinstance(s, NotEvaluated)),
    )


def _off_aiter(run: Run) -> Iterator[Finding]:
    """MP812, which stands for every requirement of the expert kernels."""
    for target, i, layer in run.started():
        b = layer.plan.backend
        if not b.on_aiter:
            yield rules.ON_AITER.finding(
                f"{target.name}: the experts run on {b.name}, not on AITER: {b.reason}",
                confidence="read",
                target=target.index,
                layer=i,
                evidence=[Evidence(b.source, None, b.name or "")],
            )


def _on_kernels(run: Run) -> Iterator[tuple[TargetEvaluation, int, LayerEvaluation]]:
    return ((t, i, x) for t, i, x in run.started() if x.plan.backend.on_aiter)


def _on_aiter(run: Run, found: tuple[Finding, ...], value: object) -> Iterator[Said]:
    """All said by _off_aiter."""
    return iter(())


def _accepted(run: Run, found: tuple[Finding, ...], value: object) -> Iterator[Said]:
    """MP811."""
    for target, i, layer in _on_kernels(run):
        ds = layer.dispatches
        bad = {d.token for d in ds if d.error or any(s.accepted is False for s in _stages(d))}
        unknown = {d.token for d in ds if d.token not in bad and any(s.accepted is None for s in _stages(d))}
        if bad:
            yield rules.ACCEPTED.finding(
                f"{target.name}: must be accepted everywhere, and is not at {spans(ds, bad)} tokens.",
                confidence=_weakest(d for d in ds if d.token in bad),
                target=target.index,
                layer=i,
            )
        elif not ds:
            yield _nothing(target, "acceptance", "no token bucket is both asked for and reachable")
        elif unknown and value is True:
            kinds = dict.fromkeys(s.kind for d in ds if d.token in unknown for s in _stages(d) if s.accepted is None)
            yield NotEvaluated(
                f"acceptance of {target.name}",
                f"at {spans(ds, unknown)} tokens {' and '.join(kinds)} kernels check their own sizes at launch",
                'Launch it once (moe-preflight smoke), or accept the unknown: accepted = "unless-unknown".',
                target.index,
            )


def _tuned(run: Run, found: tuple[Finding, ...], value: Any) -> Iterator[Said]:
    """MP813."""
    for target, i, layer in _on_kernels(run):
        decode = [d for d in layer.dispatches if d.token <= DECODE_MAX]
        if not decode:
            yield _nothing(target, "tuned decode buckets", "no decode bucket is both asked for and reachable")
            continue
        if any(d.tuned == "unknown" for d in decode):
            yield NotEvaluated(
                f"tuned decode buckets of {target.name}",
                run.aiter.missing or "the tuned tables were not looked at",
                "Name the AITER that will run: aiter = { tree = ... }.",
                target.index,
            )
            continue
        rows = sum(d.tuned in ("hit", "tier") for d in decode)
        share = 100 * rows / len(decode)
        if share < value:
            miss = {d.token for d in decode if d.tuned == "miss"}
            yield rules.TUNED.finding(
                f"{target.name}: {rows} of {len(decode)} decode buckets have a tuned row ({share:.1f} %), {_number(value)} % are required; "
                f"none at {spans(tuple(decode), miss)} tokens.",
                confidence="read",
                target=target.index,
                layer=i,
            )


def _padding(run: Run, found: tuple[Finding, ...], value: Any) -> Iterator[Said]:
    """MP814."""
    for target, i, layer in run.started():
        p, pct = layer.plan.problem, padding_cost(layer.plan).extra_compute_pct
        if pct > value:
            yield rules.PADDING.finding(
                f"{target.name}: padding costs {pct:.1f} % expert arithmetic, at most {_number(value)} % is allowed (inter_dim {p.inter_dim} -> "
                f"{p.inter_dim_padded}, model_dim {p.model_dim} -> {p.model_dim_padded}).",
                confidence="read",
                target=target.index,
                layer=i,
            )


def _router(run: Run, found: tuple[Finding, ...], value: object) -> Iterator[Said]:
    """MP815."""
    reach = run.request.max_num_batched_tokens or OPEN_TIER
    for target, i, layer in run.started():
        said = _no_router_kernel(layer, reach)
        if said:
            yield rules.ROUTER.finding(f"{target.name}: {said}.", confidence="read", target=target.index, layer=i)


def _no_router_kernel(layer: LayerEvaluation, reach: int) -> str:
    call, verdict = layer.plan.router, layer.router
    if call.falls_back_to:
        return f"routing falls back to {call.falls_back_to}: {call.fallback_reason or 'the engine asks no AITER kernel'}".rstrip(
            "."
        )
    if verdict is None:
        return f"routing is {call.kernel}, which is no AITER kernel"
    for part in verdict.by_tokens:
        if part.from_ <= reach and part.compiled is not True:
            if part.compiled is False:
                what = f"a launch of {part.kernel} reaches no kernel of this AITER"
            elif part.defects:
                what = f"whether this AITER takes {part.kernel} as the engine calls it was not established"
            else:
                what = f"the router {part.kernel} is no AITER kernel"
            return what + (f", from {part.from_:,} tokens" if part.from_ > 1 else "")
    return ""


def _advisories(run: Run, found: tuple[Finding, ...], value: Any) -> Iterator[Said]:
    """MP816."""
    bad = SEVERITIES[: SEVERITIES.index(value) + 1]
    for f in found:
        if f.advisory and f.severity in bad:
            name = f"{run.targets[f.target].name}: " if f.target is not None else ""
            yield rules.ADVISORY.finding(
                f"{name}{f.advisory} matches ({f.severity}), and none at or above {value} is allowed.",
                confidence=f.confidence,
                target=f.target,
                layer=f.layer,
                evidence=f.evidence[-1:],
                advisory=f.advisory,
            )


def _pin(run: Run, found: tuple[Finding, ...], value: object) -> Iterator[Said]:
    """MP817."""
    from moe_preflight.aiter.version import Version

    a = run.aiter
    pin = Version.parse(a.pin) if a.pin else None
    engine = f"{run.request.engine} {run.request.engine_version}".strip()
    if pin is None:
        yield NotEvaluated(
            "the engine's pin of AITER",
            f"it is not known which AITER {engine} pins",
            "Drop aiter_is_pin, or name a release whose image was read.",
        )
    elif a.version is None:
        yield NotEvaluated("the engine's pin of AITER", "nothing said which AITER this is", "Name it: aiter = { version = ... }.")
    elif a.version != pin:
        yield rules.PIN.finding(f"AITER {a.version} was judged, and {engine} pins {a.pin}.", confidence="read")


def _dispatch(run: Run, found: tuple[Finding, ...], value: object) -> Iterator[Said]:
    """MP818."""
    a = run.aiter
    if a.confidence != "verified" and run.targets:
        yield rules.VERIFIED.finding(
            f"The dispatch of AITER {a.version or '(unknown version)'} was not compared with AITER's own code; judged as {a.facts_version}.",
            confidence="unverified",
        )


def _engine(run: Run, found: tuple[Finding, ...], value: object) -> Iterator[Said]:
    """MP818, of the engine."""
    for plan in dict.fromkeys(t.plan.facts_version for t in run.targets if t.plan.confidence == "unverified"):
        yield rules.VERIFIED.finding(
            f"{run.request.engine} {run.request.engine_version} is outside the releases that were read; judged as {plan}.",
            confidence="unverified",
        )


JUDGES: dict[str, Callable[[Run, tuple[Finding, ...], Any], Iterator[Said]]] = {
    "on_aiter": _on_aiter,
    "accepted": _accepted,
    "min_tuned_decode_pct": _tuned,
    "max_padding_pct": _padding,
    "router_kernel": _router,
    "no_advisories_from": _advisories,
    "aiter_is_pin": _pin,
    "dispatch_verified": _dispatch,
    "engine_verified": _engine,
}
"""By the keys of Require."""

_OF_STARTED = frozenset(
    {"on_aiter", "accepted", "min_tuned_decode_pct", "max_padding_pct", "router_kernel", "no_advisories_from"}
)
_OF_KERNELS = frozenset({"on_aiter", "accepted", "min_tuned_decode_pct"})
_ANY = (rules.REFUSED.code,)
CODES: dict[str, tuple[str, ...]] = {
    "on_aiter": (rules.ON_AITER.code, *_ANY),
    "accepted": (rules.ACCEPTED.code, rules.ON_AITER.code, *_ANY),
    "min_tuned_decode_pct": (rules.TUNED.code, rules.ON_AITER.code, *_ANY),
    "max_padding_pct": (rules.PADDING.code, *_ANY),
    "router_kernel": (rules.ROUTER.code, *_ANY),
    "no_advisories_from": (rules.ADVISORY.code, *_ANY),
    "aiter_is_pin": (rules.PIN.code,),
    "dispatch_verified": (rules.VERIFIED.code,),
    "engine_verified": (rules.VERIFIED.code,),
}
"""The findings that say a requirement is not met."""
_CONFIDENCE = ("measured", "verified", "read", "modelled", "unverified")


def _stages(d: Dispatch) -> tuple[Any, ...]:
    return (d.stage1,) if d.stage2 is None else (d.stage1, d.stage2)


def _weakest(ds: Iterable[Dispatch]) -> str:
    return max((d.confidence for d in ds), key=_CONFIDENCE.index, default="modelled")


def _nothing(target: TargetEvaluation, what: str, why: str) -> NotEvaluated:
    return NotEvaluated(
        f"{what} of {target.name}", why, "Widen tokens or max_num_batched_tokens, or drop the requirement.", target.index
    )


def _number(value: float) -> str:
    return f"{value:g}"
