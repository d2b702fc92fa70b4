"""A rule: one small function, with the text a reader needs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.run import Run


@dataclass(frozen=True, slots=True)
class Rule:
    """``code`` is stable and what --select / --ignore take; ``name`` is what people say.

    ``severity`` is the usual one; a finding may be milder where the text says so. ``depends`` names what must be known for
    the rule to look at all. ``what``, ``why``, ``example`` and ``remedy`` are the text of ``moe-preflight rule CODE``; ``source`` says
    where the fact behind it was read.
    """

    code: str
    name: str
    severity: str
    depends: str
    what: str
    why: str
    example: str
    remedy: str
    source: str

    def finding(
        self,
        message: str,
        *,
        remedy: str | None = None,
        why: str | None = None,
        severity: str | None = None,
        confidence: str = "modelled",
        target: int | None = None,
        layer: int | None = None,
        evidence: Iterable[Evidence] = (),
        advisory: str | None = None,
        model: int | None = None,
    ) -> Finding:
        """A finding of this rule; what is not given is the rule's own text."""
        return Finding(
            self.code,
            self.name,
            severity or self.severity,
            confidence,
            message,
            self.why if why is None else why,
            self.remedy if remedy is None else remedy,
            target,
            layer,
            tuple(evidence),
            advisory,
            model,
        )


Check = Callable[[Run], Iterator[Finding]]
