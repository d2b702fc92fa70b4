"""One way a kernel of AITER fails or goes wrong for a given call: the noun shared by router and sorting."""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.aiter.key import Confidence


@dataclass(frozen=True, slots=True)
class Defect:
    """``condition`` is in numbers. ``symptom`` is the exact text to look for in a log, "" when it is silent; ``effect`` says
    what it means for the deployment. ``source`` is file:line with the tag it was read at. ``severity`` is error, warning or
    info; ``code`` is stable."""

    code: str
    severity: str
    condition: str
    symptom: str
    effect: str
    remedy: str
    source: str
    confidence: Confidence = "modelled"
