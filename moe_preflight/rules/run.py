"""What the rules look at: one whole run, already evaluated. Nouns only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moe_preflight.aiter.basis import AiterBasis
from moe_preflight.aiter.key import Dispatch
from moe_preflight.errors import PreflightError
from moe_preflight.evaluate import LayerEvaluation, TargetEvaluation
from moe_preflight.model.moe import MoEModel
from moe_preflight.settings import Request

if TYPE_CHECKING:
    from moe_preflight.model.checkpoint_check import CheckpointReport


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that was asked for: either read, or the error that says why not."""

    asked: str
    model: MoEModel | None
    error: PreflightError | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The weights of model ``model`` (an index of the run), looked at or not."""

    model: int
    report: CheckpointReport | None
    error: PreflightError | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a rule may look at."""

    request: Request
    models: tuple[ModelEntry, ...]
    aiter: AiterBasis
    targets: tuple[TargetEvaluation, ...]
    checkpoints: tuple[CheckpointEntry, ...] = ()

    def layers(self) -> Iterator[tuple[TargetEvaluation, int, LayerEvaluation]]:
        """Every (target, layer index, layer) of the run, in report order."""
        for target in self.targets:
            for i, layer in enumerate(target.layers):
                yield target, i, layer

    def started(self) -> Iterator[tuple[TargetEvaluation, int, LayerEvaluation]]:
        """Those layers whose engine would start at all: nothing else is worth saying of a deployment that does not."""
        for target in self.targets:
            if not target.plan.refusals and not any(layer.plan.refusals for layer in target.layers):
                for i, layer in enumerate(target.layers):
                    yield target, i, layer


def spans(dispatches: tuple[Dispatch, ...], chosen: set[int]) -> str:
    """The token buckets of ``chosen`` in words: ``1-256, 1024``. A range never crosses a bucket that is not chosen."""
    parts: list[list[int]] = []
    open_run = False
    for d in dispatches:
        if d.token in chosen:
            if open_run:
                parts[-1][1] = d.token
            else:
                parts.append([d.token, d.token])
        open_run = d.token in chosen
    return ", ".join(f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in parts)
