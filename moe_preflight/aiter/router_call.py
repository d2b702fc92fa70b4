"""One routing call seen by a rule, and what a rule says about it. Rules are small functions ``(Asked) -> Found``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moe_preflight.aiter.defect import Defect
from moe_preflight.aiter.facts import routing as facts
from moe_preflight.aiter.version import Version
from moe_preflight.engine.plan import RouterCall


@dataclass(frozen=True, slots=True)
class Asked:
    """``kernel`` is asked for batches of ``first`` to ``last`` tokens (None: no upper end)."""

    call: RouterCall
    version: Version
    gfx: str
    cu_num: int
    kernel: str
    first: int
    last: int | None
    group_counts: frozenset[int]
    group_source: str

    @property
    def experts(self) -> int:
        return self.call.experts

    @property
    def topk(self) -> int:
        return self.call.topk

    @property
    def groups(self) -> int:
        """num_expert_group as passed; 1 when the call has none."""
        return self.call.num_expert_group if self.call.num_expert_group is not None else 1

    @property
    def topk_group(self) -> int:
        return self.call.topk_group if self.call.topk_group is not None else self.groups

    @property
    def per_group(self) -> int:
        return self.experts // self.groups if self.groups > 0 else 0

    @property
    def vec(self) -> int:
        """Experts the group kernel loads at once: 4, 2 or 1 by divisibility of the expert count."""
        return 4 if self.experts % 4 == 0 else 2 if self.experts % 2 == 0 else 1

    @property
    def wave(self) -> int:
        return facts.wave_size(self.gfx)

    @property
    def batches(self) -> str:
        """The token range in words."""
        if self.last is None:
            return "any batch size" if self.first <= 1 else f"batches above {self.first - 1} tokens"
        return f"batches up to {self.last} tokens" if self.first <= 1 else f"batches of {self.first} to {self.last} tokens"

    def has(self, feature: str) -> bool:
        return facts.has(feature, self.version)

    @property
    def stops(self) -> str:
        """What a failed check in a pybind module does in this release."""
        if self.has("abort"):
            return "the worker process aborts (SIGABRT) after printing the text"
        return "RuntimeError in the worker"

    def defect(
        self, code: str, severity: str, condition: str, symptom: str, effect: str, remedy: str, source: str, read: bool = True
    ) -> Defect:
        """A Defect of this call. ``read``: the statement was read in the source of the release asked about; it becomes
        ``unverified`` for a release whose kernels were not read, ``modelled`` where it is inference."""
        known = facts.in_range(self.version)
        confidence = ("read" if read else "modelled") if known else "unverified"
        return Defect(code, severity, f"{condition}; {self.batches}", symptom, effect, remedy, source, confidence)


Found = Iterator[Defect]
Rule = Callable[[Asked], Found]
