"""The JSON Schema of the report, as the text that ships in the package."""

from __future__ import annotations


def text(version: int = 1) -> str:
    """The schema (JSON Schema 2020-12) of schema_version ``version``. Raises FileNotFoundError for one that never was."""
    from importlib.resources import files

    return files(__name__).joinpath(f"report-v{version}.schema.json").read_text(encoding="utf-8")
