"""How a lint says something: one finding at one row, others beside it as further evidence."""

from __future__ import annotations

from moe_preflight.coverage.lint.table import File, Row, Tables
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule


def found(
    t: Tables,
    rule: Rule,
    row: Row,
    message: str,
    *others: Row,
    severity: str | None = None,
    confidence: str | None = None,
    remedy: str | None = None,
) -> Finding:
    """A finding at ``row``; its message starts with the place."""
    return rule.finding(
        f"{row.where}: {message}",
        severity=severity,
        confidence=confidence or t.confidence,
        remedy=remedy,
        evidence=[evidence(x) for x in (row, *others)],
    )


def evidence(row: Row) -> Evidence:
    """The row as a reader recognises it."""
    names = " ".join(n for n in row.kernels if n) or "no kernel named"
    us = row.text("us")
    return Evidence(row.file.name, row.line, f"{row.shape()}, {row.act}: {names}" + (f", {us} us" if us else ""))


def at_file(
    t: Tables, rule: Rule, file: File, message: str, *, line: int = 1, severity: str | None = None, confidence: str | None = None
) -> Finding:
    """A finding about a whole file, at its header."""
    return rule.finding(
        f"{file.name}:{line}: {message}",
        severity=severity,
        confidence=confidence or t.confidence,
        evidence=[Evidence(file.name, line, ",".join(file.csv.header)[:300])],
    )
