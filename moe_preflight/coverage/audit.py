"""Coverage of many models: for every model x split x GPU x kind of layer, how each token bucket's tuned row is found. Pure.

One model is looked at after the other and only small rows are kept; equal questions share their cells, so a thousand fine-tunes
of one model cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.key import Dispatch, Key, TunedRow
from moe_preflight.engine.plan import EnginePlan, LayerPlan
from moe_preflight.evaluate import key_of
from moe_preflight.settings import DECODE_MAX

SHARED = 4096
"""Distinct (GPU, question) pairs whose cells are kept for sharing."""


class Cell(NamedTuple):
    """One token bucket: ``tuned`` is hit, tier, miss or unknown; ``problem`` is empty, or why the kernel does not run."""

    tuned: str
    row: TunedRow | None
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One kind of layer under one split on one GPU.

    ``cells`` stand in the order of Audit.buckets; they are empty when the experts do not reach AITER, and ``reason`` says why.
    ``key`` is what AITER is asked, without its tokens.
    """

    order: int
    model: str
    layer: str
    count: int
    deployment: tuple[tuple[str, object], ...]
    name: str
    backend: str | None
    reason: str
    key: Key | None
    lookup_topk: int
    cells: tuple[Cell, ...]

    @property
    def severity(self) -> str | None:
        """error: the engine refuses, a kernel rejects or AITER raises. warning: untuned buckets, or the experts are not on AITER."""
        if self.backend is None or any(c.problem for c in self.cells):
            return "error"
        return "warning" if not self.cells or any(c.tuned == "miss" for c in self.cells) else None


@dataclass(slots=True)
class Audit:
    """The matrix. ``buckets`` are AITER's token buckets that were judged, ascending."""

    buckets: tuple[int, ...]
    rows: list[AuditRow] = field(default_factory=list)
    _shared: dict[tuple[object, ...], tuple[Cell, ...]] = field(default_factory=dict)

    def add(self, model: str, plan: EnginePlan, dispatcher: Dispatcher, name: str) -> None:
        """Every kind of layer of one target. ``name`` is the target's, such as ``TP8 MI300X``."""
        d = plan.deployment
        deployment = (
            *(
                ("engine", d.engine),
                ("engine_version", d.engine_version),
                ("gpu", d.gpu.name),
                ("gfx", d.gpu.gfx),
                ("cu_num", d.gpu.cu_num),
            ),
            *(("tp", d.tp), ("dp", d.dp), ("pcp", d.pcp), ("pp", d.pp), ("ep", d.ep), ("ep_size", plan.ep_size)),
        )
        refused = next((r.error for r in plan.refusals), None)
        for layer in plan.layers:
            refusal = refused or next((r.error for r in layer.refusals), None)
            key = None if refusal else _question(layer, dispatcher.rules)
            self.rows.append(
                AuditRow(
                    order=len(self.rows),
                    model=model,
                    layer=layer.layer.name,
                    count=layer.layer.count,
                    deployment=deployment,
                    name=name,
                    backend=None if refusal else layer.backend.name,
                    reason=refusal or layer.backend.reason,
                    key=key,
                    lookup_topk=key.topk - (1 if key.is_ep and dispatcher.rules.ep_topk else 0) if key else layer.problem.topk,
                    cells=self._cells(key, dispatcher) if key else (),
                )
            )

    def _cells(self, key: Key, dispatcher: Dispatcher) -> tuple[Cell, ...]:
        slot = (dispatcher.gfx, dispatcher.cu_num, key)
        cells = self._shared.get(slot)
        if cells is None:
            if len(self._shared) >= SHARED:
                self._shared.clear()
            cells = self._shared[slot] = tuple(_cell(d) for d in _asked(key, dispatcher, self.buckets))
        return cells

    def worst_first(self) -> list[AuditRow]:
        """Rows on AITER: kernels that do not run first, then by hits among decode buckets, then prefill. Rows without buckets
        follow: refused ones, then those on another backend. Ties as asked."""

        def place(r: AuditRow) -> tuple[int, int, float, float, int]:
            if not r.cells:
                return (2 if r.backend is not None else 1, 0, 0.0, 0.0, r.order)
            broken = -sum(bool(c.problem) for c in r.cells)
            return (0, broken, self.share(r, decode=True) or 0.0, self.share(r, decode=False) or 0.0, r.order)

        return sorted(self.rows, key=place)

    def share(self, row: AuditRow, *, decode: bool) -> float | None:
        """Hits among the decode (<= 256 tokens) or prefill buckets; a tier fallback is no hit. None when none was looked up."""
        mine = [c for b, c in zip(self.buckets, row.cells, strict=False) if (b <= DECODE_MAX) == decode and c.tuned != "unknown"]
        return sum(c.tuned == "hit" for c in mine) / len(mine) if mine else None


def _question(layer: LayerPlan, rules: Rules) -> Key | None:
    p = layer.problem
    asked = layer.backend.on_aiter and p.q_type is not None and p.q_dtype_w is not None
    return key_of(p, rules) if asked else None


def _asked(key: Key, dispatcher: Dispatcher, tokens: Sequence[int]) -> Iterator[Dispatch]:
    """The answers for ``key`` at each token count. Key's fields are copied by hand: dataclasses.replace costs more than the answer."""
    k = key
    for t in tokens:
        yield dispatcher.dispatch(
            Key(
                t, k.model_dim, k.inter_dim, k.expert, k.topk, k.act, k.dtype, k.q_dtype_w, k.q_type, k.use_g1u1, k.doweight_stage1,
                k.q_dtype_a, k.is_shuffled, k.gate_mode, k.is_ep, k.bias2, k.env,
            )
        )  # fmt: skip


def _cell(d: Dispatch) -> Cell:
    problem = d.error or next(
        (f"stage {n} rejected: {s.reason}" for n, s in ((1, d.stage1), (2, d.stage2)) if s is not None and s.accepted is False),
        "",
    )
    return Cell(d.tuned, d.row, d.path, problem)


def files_of(row: AuditRow, buckets: Iterable[int]) -> dict[str, list[int]]:
    """Which file serves which buckets of a row."""
    out: dict[str, list[int]] = {}
    for b, c in zip(buckets, row.cells, strict=False):
        if c.row is not None:
            out.setdefault(c.row.file, []).append(b)
    return out
