"""moe-preflight: what will AMD's AITER do with this model's experts?

``check``, ``compare``, ``check_gate`` and what they return are the Python API (moe_preflight/api.py); they are imported on first use, so
that importing the package, and ``--version``, stay cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moe_preflight.api import Comparison, GateReport, Report, check, check_gate, compare

__version__ = "0.1.0"
__all__ = ["Comparison", "GateReport", "Report", "__version__", "check", "check_gate", "compare"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from moe_preflight import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
