"""Which split to take: every TP x EP of one model on one GPU, judged, and the one to recommend with the reason in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moe_preflight.aiter.key import Dispatch
from moe_preflight.arithmetic import USABLE_MEMORY, expert_weight_bytes, padding_cost
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation
from moe_preflight.report.types import Finding
from moe_preflight.rules.run import spans
from moe_preflight.settings import DECODE_MAX


@dataclass(frozen=True, slots=True)
class Hits:
    """Tuned buckets out of those judged; ``of`` is 0 when nothing was looked up."""

    hit: int
    of: int


@dataclass(frozen=True, slots=True)
class Row:
    """One split on one GPU. ``runs``: the engine starts and no kernel is known to refuse. ``accepted`` is over every judged
    bucket of every layer: True, False, or None when a kernel's own rule is not known. ``outcome`` is that in words.
    ``errors`` are the errors that check would report, ``MP201 router-kernel``: with any of them the split is not recommended.
    ``expert_bytes`` are the padded expert weights on one GPU, ``memory_bytes`` its memory (None: not known)."""

    tp: int
    ep: bool
    ep_size: int
    outcome: str
    runs: bool
    accepted: bool | None
    padded: bool
    extra_compute_pct: float
    decode: Hits
    prefill: Hits
    router: str
    expert_bytes: int
    memory_bytes: int | None
    errors: tuple[str, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Do the expert weights alone fit into what the engine may use of the memory? None: memory not known."""
        return None if self.memory_bytes is None else self.expert_bytes <= USABLE_MEMORY * self.memory_bytes

    @property
    def name(self) -> str:
        """``TP8`` or ``TP8 EP8``."""
        return f"TP{self.tp}" + (f" EP{self.ep_size}" if self.ep else "")


def row_of(target: TargetEvaluation, findings: Sequence[Finding] = ()) -> Row:
    """The row of one evaluated target; a model with several kinds of layer counts with its worst. ``findings`` are those of the
    run the target belongs to: its errors count, whatever they are about."""
    d = target.plan.deployment
    layers = target.layers
    refusals = [*target.plan.refusals, *(r for x in layers for r in x.plan.refusals)]
    padded = any(_padded(x) for x in layers)
    asked = [s for x in layers for dd in x.dispatches for s in _accepted(dd)]
    accepted = False if False in asked else None if None in asked or not asked else True
    mine = [f for f in findings if f.severity == "error" and f.concerns(target.index, target.model)]
    errors = tuple(dict.fromkeys(f"{f.code} {f.name}" for f in mine))
    return Row(
        tp=d.tp,
        ep=d.ep,
        ep_size=target.plan.ep_size,
        outcome=_refused(refusals[0].error) if refusals else _outcome(layers) + _others(errors),
        runs=not refusals and accepted is not False,
        accepted=accepted if not refusals else False,
        padded=padded,
        extra_compute_pct=max((padding_cost(x.plan).extra_compute_pct for x in layers), default=0.0),
        decode=_hits(layers, decode=True),
        prefill=_hits(layers, decode=False),
        router="-" if refusals or not layers else _router(layers[0]),
        expert_bytes=sum(expert_weight_bytes(x.plan) for x in layers),
        memory_bytes=d.gpu.memory_bytes,
        errors=errors,
    )


def recommend(rows: Sequence[Row]) -> tuple[Row | None, str]:
    """The row to take and why, in words; None when no split runs without an error and fits.

    Of those, in this order: it fits, is accepted at every reachable bucket, without padding, with most decode hits, with fewest bytes.
    """
    able = [r for r in rows if r.runs and r.fits is not False]
    if not able:
        return None, "no split both starts and fits"
    right = [r for r in able if not r.errors]
    if not right:
        return (
            None,
            f"every split that starts and fits has an error in check: {', '.join(dict.fromkeys(e for r in able for e in r.errors))}",
        )
    able = right
    best = max(able, key=_worth)
    reasons = ["its expert weights fit" if best.fits else "memory is not known, so nothing is said about fit"]
    reasons.append("every reachable bucket is accepted" if best.accepted else "no kernel is known to refuse a bucket")
    reasons.append(
        f"padding costs {best.extra_compute_pct:.1f} %, and no better split pads less" if best.padded else "nothing is padded"
    )
    if best.decode.of:
        reasons.append(f"{best.decode.hit} of {best.decode.of} decode buckets are tuned")
    rivals = [r for r in able if r is not best and _worth(r)[:-1] == _worth(best)[:-1]]
    if rivals:
        reasons.append("of equals it holds the fewest expert bytes per GPU")
    return best, ", ".join(reasons)


def _worth(r: Row) -> tuple[object, ...]:
    certain = {True: 2, None: 1, False: 0}
    return certain[r.fits], certain[r.accepted], not r.padded, -r.extra_compute_pct, r.decode.hit, -r.expert_bytes


def _padded(x: LayerEvaluation) -> bool:
    p = x.plan.problem
    return (p.inter_dim, p.model_dim) != (p.inter_dim_padded, p.model_dim_padded)


def _accepted(d: Dispatch) -> list[bool | None]:
    if d.error:
        return [False]
    return [s.accepted for s in (d.stage1, d.stage2) if s is not None]


def _refused(error: str) -> str:
    return f"refused by the engine: {error.splitlines()[0] if error else 'no reason given'}"


def _outcome(layers: Sequence[LayerEvaluation]) -> str:
    if not layers:
        return "no MoE layer"
    for x in layers:
        bad = {d.token for d in x.dispatches if False in _accepted(d)}
        if bad:
            every = len(bad) == len(x.dispatches)
            return "rejected" if every else f"rejected under load ({spans(x.dispatches, bad)} tokens)"
    off = next((x for x in layers if not x.plan.backend.on_aiter), None)
    if off is not None:
        return f"not on AITER ({off.plan.backend.name})"
    x = max(layers, key=lambda x: padding_cost(x.plan).extra_compute_pct)
    known = all(s is not None for x in layers for d in x.dispatches for s in _accepted(d))
    word = "accepted" if known else "no rejection known"
    if not _padded(x):
        return word
    p = x.plan.problem
    to = f"{p.inter_dim_padded}" if p.model_dim == p.model_dim_padded else f"{p.inter_dim_padded} x {p.model_dim_padded}"
    return f"{word}, padded to {to} (+{padding_cost(x.plan).extra_compute_pct:.1f} %)"


def _others(errors: Sequence[str]) -> str:
    """The errors that are not about acceptance, which the outcome tells already."""
    other = [e for e in errors if not e.startswith("MP1")]
    return f"; {'errors' if len(other) > 1 else 'error'}: {', '.join(other)}" if other else ""


def _hits(layers: Sequence[LayerEvaluation], *, decode: bool) -> Hits:
    """Of the first kind of layer, which is where the time goes."""
    looked_up = [d for x in layers[:1] for d in x.dispatches if d.tuned != "unknown" and (d.token <= DECODE_MAX) is decode]
    return Hits(sum(d.tuned in ("hit", "tier") for d in looked_up), len(looked_up))


def _router(x: LayerEvaluation) -> str:
    r = x.plan.router
    if r.falls_back_to:
        return r.falls_back_to
    missing = x.router is not None and x.router.compiled is False
    return f"{r.kernel}{' (no such kernel)' if missing else ''}"
