"""The JSON Schemas (2020-12) of everything a machine reads or writes here, as the texts that ship in this folder.

``KIND-vN.schema.json``: the report (check, gate, lint, compare, observe), the documents of audit, tune and advise, one line of dispatch's
answers, the baseline of a gate, and the gate file itself (for TOML editors).
"""

from __future__ import annotations

KINDS = ("report", "audit", "tune", "advise", "dispatch", "baseline", "gate-toml")


def text(version: int = 1, kind: str = "report") -> str:
    """The schema of one of KINDS, of schema_version ``version``. Raises FileNotFoundError for one that never was."""
    from importlib.resources import files

    return files(__name__).joinpath(f"{kind}-v{version}.schema.json").read_text(encoding="utf-8")
