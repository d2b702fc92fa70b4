"""The rules of this room beside those of the rules room: for explaining, selecting and for SARIF."""

from __future__ import annotations

from moe_preflight.coverage.compare_rules import RULES as COMPARE
from moe_preflight.coverage.lint.rules import RULES as LINT
from moe_preflight.coverage.observe_rules import RULES as OBSERVE
from moe_preflight.errors import UsageError
from moe_preflight.report.types import Finding
from moe_preflight.rules.rule import Rule

RULES: tuple[Rule, ...] = (*LINT, *OBSERVE, *COMPARE)
BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}


def chosen(findings: tuple[Finding, ...], select: list[str] | None, ignore: list[str] | None) -> tuple[Finding, ...]:
    """Those findings --select and --ignore leave. A word is a code, the start of one, or a name; UsageError for any other."""
    wanted, unwanted = _words(select, "--select"), _words(ignore, "--ignore")
    return tuple(f for f in findings if (not wanted or _hit(f, wanted)) and not _hit(f, unwanted))


def _words(values: list[str] | None, flag: str) -> tuple[str, ...]:
    words = tuple(w.strip() for v in values or () for w in v.split(","))
    if not words:
        return ()
    from moe_preflight.rules.catalogue import BY_CODE as OTHERS

    every = {**OTHERS, **BY_CODE}
    for w in words:
        if not w or not any(code.startswith(w.upper()) or w.lower() == rule.name for code, rule in every.items()):
            raise UsageError(f"{flag} {w}: no rule has this code or name.", hint="All of them: moe-preflight rule --all.")
    return words


def _hit(f: Finding, words: tuple[str, ...]) -> bool:
    return any(f.code.startswith(w.upper()) or f.name == w.lower() for w in words)
