"""What a quantization method of vLLM decides for one layer: backend, sizes, AITER's key fields - or the error it raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moe_preflight.engine.experts import Ask, Kernel, objection
from moe_preflight.engine.plan import BackendChoice, Note, Refusal
from moe_preflight.model.moe import ExpertLayer

LAYERS = "vllm/model_executor/layers"


class Sizes(NamedTuple):
    """One rank's expert GEMM before and after the method's rounding. ``alignment`` is the unit applied to inter_dim."""

    hidden: int
    inter: int
    hidden_padded: int
    inter_padded: int
    alignment: int | None = None

    @classmethod
    def plain(cls, hidden: int, inter: int) -> Sizes:
        return cls(hidden, inter, hidden, inter)


class Question(NamedTuple):
    """Everything a selector may look at: the layer, the deployment's ``ask``, and the unpadded sizes of one rank."""

    layer: ExpertLayer
    ask: Ask
    sizes: Sizes
    dtype: str
    intermediate_size: int
    """The whole width the model file passes, before it is split."""
    block: str = ""
    tp: int = 1
    """The tensor parallel group's own size: some checks of vLLM ask it even under EP or DP."""


class Choice(NamedTuple):
    """A selector's answer. ``key`` is (q_type, q_dtype_a, q_dtype_w) when the experts reach aiter.fused_moe; a q_dtype_a of
    None leaves the activation dtype to AITER's own rule."""

    method: str
    backend: BackendChoice
    sizes: Sizes
    key: tuple[str, str | None, str] | None = None
    gate_mode: str = "separated"
    zero_filled_by: str | None = None
    refusal: Refusal | None = None
    notes: tuple[Note, ...] = ()
    bytes_per_element: float = 2.0
    w4a4: bool = False
    bias_passed: bool = False
    weight_only: bool = False
    aiter_env: tuple[tuple[str, str], ...] = ()
    """AITER variables the method sets for the whole process (RankProblem.aiter_env)."""


class Backend(NamedTuple):
    """One entry of a selector's list: vLLM's name, what it logs itself as, and the kernels behind it, in order."""

    name: str
    kernels: tuple[Kernel, ...]
    label: str = ""

    @property
    def shown(self) -> str:
        return self.label or self.name

    @property
    def on_aiter(self) -> bool:
        return any(k.on_aiter for k in self.kernels)


def supported(backend: Backend, ask: Ask) -> str | None:
    """None when one of the backend's kernels takes ``ask``; otherwise the last kernel's objection, which vLLM reports."""
    reason: str | None = "no kernel"
    for kernel in backend.kernels:
        reason = objection(kernel, ask)
        if reason is None:
            return None
    return reason


class Pick(NamedTuple):
    """The first backend that fits, with what was turned down before it."""

    backend: Backend | None
    rejected: tuple[tuple[str, str], ...] = ()


def first_that_fits(backends: Sequence[Backend], ask: Ask, rejected: tuple[tuple[str, str], ...] = ()) -> Pick:
    """Walk ``backends`` in order as vLLM's selectors do."""
    for backend in backends:
        reason = supported(backend, ask)
        if reason is None:
            return Pick(backend, rejected)
        rejected = (*rejected, (backend.name, reason))
    return Pick(None, rejected)


def refused(method: str, sizes: Sizes, refusal: Refusal, rejected: tuple[tuple[str, str], ...] = ()) -> Choice:
    """A choice that is an error."""
    return Choice(method, BackendChoice(None, refusal.why, rejected, False, refusal.source), sizes, refusal=refusal)


def with_notes(choice: Choice, *notes: Note) -> Choice:
    return choice._replace(notes=(*choice.notes, *notes))


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
