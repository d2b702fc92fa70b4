"""moe-preflight: what will AMD's AITER do with this model's experts?

``check`` and ``Report`` are the Python API; they are imported on first use, so that ``--version`` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moe_preflight.api import check
    from moe_preflight.preflight import Report

__version__ = "0.1.0"
__all__ = ["Report", "__version__", "check"]


def __getattr__(name: str) -> Any:
    if name in ("check", "Report"):
        from moe_preflight import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
