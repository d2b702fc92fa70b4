"""The advisories shipped with moe-preflight. A new one is a new row in the module of its subject; ids are never reused."""

from __future__ import annotations

from moe_preflight.advisories.advisory import Advisory
from moe_preflight.advisories.data import engines, kernels, parallel, routing, tables

ALL: tuple[Advisory, ...] = (*kernels.ROWS, *tables.ROWS, *routing.ROWS, *parallel.ROWS, *engines.ROWS)
"""Every advisory, by subject; ids run on across the modules."""
