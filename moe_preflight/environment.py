"""``--env``: the environment of this run, for a ticket. Never a token, a host name or a home path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moe_preflight import __version__
from moe_preflight.preflight import Report

PACKAGES = ("amd-aiter", "aiter", "flydsl", "vllm", "sglang", "torch", "huggingface-hub")
"""What a ticket is asked about first. ``aiter`` is the unrelated package of that name, which shadows AMD's."""


def _packages() -> dict[str, str]:
    """Release of each of PACKAGES that is installed beside us; read from its metadata, nothing is imported."""
    from importlib.metadata import PackageNotFoundError, version

    out: dict[str, str] = {}
    for name in PACKAGES:
        try:
            out[name] = str(version(name))
        except (PackageNotFoundError, OSError, ValueError):  # absent, or metadata that cannot be read
            continue
    return out


def describe(report: Report) -> dict[str, Any]:
    """Versions, packages that matter, the AITER variables that were set, and what the tables say about the engine's 64/128 rounding rule."""
    import platform
    import sys

    request, census = report.run.request, report.run.aiter.census
    out: dict[str, Any] = {
        "moe_preflight": __version__,
        "packages": _packages(),
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "engine_env": dict(sorted(request.engine_env.items())),
        "aiter_env": dict(sorted(request.aiter_env.items())),
    }
    if census:
        out["rounding_rule"] = (
            f"of {census.moe_rows:,} table rows with an inter_dim, tuned and untuned, the 64/128 rule moves {census.moved_by_rule} "
            f"off their key; a flat 128 would move {census.moved_by_flat_128} ({census.moved_by_flat_128_tuned} in tuned files)"
        )
    return out


def with_environment(report: Report, environment: dict[str, Any]) -> Report:
    """The same report with an environment block."""
    return replace(report, environment=environment)
