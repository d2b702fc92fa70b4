"""The nouns of a report: findings, what could not be evaluated, and the verdict and exit code they add up to.

The rules are those of DESIGN section 5: *fail* if any error, else *inconclusive* if something asked for could not be
evaluated, else *warn* if any warning, else *pass*. "Could not look" is never green.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SEVERITIES = ("error", "warning", "info")
VERDICTS = ("pass", "warn", "fail", "inconclusive")

EXIT_OK, EXIT_FINDING, EXIT_INPUT, EXIT_INCONCLUSIVE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a statement was read: a file (relative to the AITER tree, or a source citation), a 1-based line or None, the text."""

    file: str
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement a reader can act on: ``message`` says what, ``why`` why it matters to them, ``remedy`` what to do next.

    ``target`` and ``layer`` are indexes into the report's targets and that target's layers; None means the whole run.
    ``advisory`` is the id of a known-bad combination, when that is where the finding comes from. ``model`` (an index, not in the
    JSON) says that a finding without a target is about that model only, so that it does not count against the others.
    """

    code: str
    name: str
    severity: str
    confidence: str
    message: str
    why: str
    remedy: str
    target: int | None = None
    layer: int | None = None
    evidence: tuple[Evidence, ...] = ()
    advisory: str | None = None
    model: int | None = None

    def concerns(self, target: int, model: int) -> bool:
        """Does this count for target ``target`` of model ``model``?"""
        return _concerns(self, target, model)


@dataclass(frozen=True, slots=True)
class NotEvaluated:
    """Something that was not looked at: for one target, one model, or (both None) the whole run. ``asked`` is False for what nobody
    asked for and a reader should still know; only what was asked for makes a run inconclusive."""

    what: str
    why: str
    how_to_get_it: str
    target: int | None = None
    model: int | None = None
    asked: bool = True

    def concerns(self, target: int, model: int) -> bool:
        """Does this count for target ``target`` of model ``model``?"""
        return _concerns(self, target, model)


def _concerns(said: Finding | NotEvaluated, target: int, model: int) -> bool:
    """What is said of one target counts there; what is said of a model, or of the whole run, counts at each of its targets."""
    return said.target == target or (said.target is None and said.model in (None, model))


def verdict(findings: Iterable[Finding], not_evaluated: Sequence[NotEvaluated]) -> str:
    """pass, warn, fail or inconclusive, whatever --fail-on says."""
    severities = {f.severity for f in findings}
    if "error" in severities:
        return "fail"
    if any(n.asked for n in not_evaluated):
        return "inconclusive"
    return "warn" if "warning" in severities else "pass"


_FAIL_ON = {"error": ("error",), "warning": ("error", "warning"), "never": ()}


def exit_code(findings: Iterable[Finding], not_evaluated: Sequence[NotEvaluated], *, fail_on: str, malformed: bool) -> int:
    """The process exit code: the first of 2 (malformed input), 1 (finding at or above ``fail_on``), 3, 0 that applies."""
    if malformed:
        return EXIT_INPUT
    if any(f.severity in _FAIL_ON[fail_on] for f in findings):
        return EXIT_FINDING
    return EXIT_INCONCLUSIVE if any(n.asked for n in not_evaluated) else EXIT_OK
