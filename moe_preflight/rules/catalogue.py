"""All rules, in report order. The one place that knows them all."""

from __future__ import annotations

from collections.abc import Iterable

from moe_preflight.errors import UsageError
from moe_preflight.report.types import Finding
from moe_preflight.rules import acceptance, advisories, asked, checkpoint, engine, gate, inputs, padding, router, tuned, versions
from moe_preflight.rules.rule import Check, Rule
from moe_preflight.rules.run import Run

_TOPICS = (inputs, checkpoint, engine, acceptance, router, padding, tuned, versions, asked, advisories, gate)

ALL: tuple[Rule, ...] = tuple(rule for topic in _TOPICS for rule in topic.RULES)
CHECKS: tuple[Check, ...] = tuple(check for topic in _TOPICS for check in topic.CHECKS)

BY_CODE: dict[str, Rule] = {rule.code: rule for rule in ALL}

_SEVERITY = {"error": 0, "warning": 1, "info": 2}


ALWAYS = frozenset({"MP502", "MP507", "MP513"})
"""Malformed input: it ends the run with exit 2, so no --select or --ignore may hide why."""


def codes(words: Iterable[str], flag: str) -> tuple[str, ...]:
    """Rule codes or starts of them, each word one or a comma list; a word that fits no rule is a UsageError that names the ``flag``."""
    out = [c.strip().upper() for v in words for c in v.split(",")]
    for c in out:
        if not c or not any(code.startswith(c) for code in BY_CODE):
            raise UsageError(f"{flag} {c}: no rule has this code.", hint="All of them: moe-preflight rule --all.")
    return tuple(out)


def run_rules(run: Run, *, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Every finding of the run, errors first, then by code, target and layer. Codes in ``select`` / ``ignore`` may be prefixes."""
    found = advisories.join(run, [f for check in CHECKS for f in check(run)])
    kept = [f for f in found if f.code in ALWAYS]
    if select:
        found = [f for f in found if f.code.startswith(select)]
    if ignore:
        found = [f for f in found if not f.code.startswith(ignore)]
    return in_order([*found, *(f for f in kept if f not in found)])


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by code, target and layer."""
    none = -1
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                _SEVERITY[f.severity],
                f.code,
                none if f.target is None else f.target,
                none if f.layer is None else f.layer,
                f.message,
            ),
        )
    )
