"""Every rule there is, wherever its findings come from: judging, tables, logs, launches."""

from __future__ import annotations

from importlib import import_module

from moe_preflight.rules.rule import Rule

ROOMS = ("moe_preflight.rules.catalogue:ALL", "moe_preflight.coverage.catalogue:RULES", "moe_preflight.smoke.findings:RULES")


def every_rule() -> list[Rule]:
    """All rules in the order of their rooms; a code belongs to one rule only (a test holds them to it)."""
    found: list[Rule] = []
    for room in ROOMS:
        module, _, name = room.partition(":")
        found += getattr(import_module(module), name)
    return found
