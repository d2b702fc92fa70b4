"""TOML from a stranger: bytes to plain tables, or one line that says what is wrong and where."""

from __future__ import annotations

from typing import Any

from moe_preflight.errors import SettingsError

MAX_BYTES = 1 << 19
MAX_DOTS = 200
"""Parts of one dotted key. tomllib walks them all for every line, so half a megabyte of long ones would take minutes."""


def parse(data: bytes, name: str) -> dict[str, Any]:
    """The tables of a TOML file ``name``. A byte order mark is passed over. Raises SettingsError."""
    import tomllib

    if len(data) > MAX_BYTES:
        raise SettingsError(f"{name}: {len(data):,} bytes; at most {MAX_BYTES:,} are read.", hint="Is this the right file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise SettingsError(f"{name}: line {line} is not UTF-8 text.", hint="TOML is always UTF-8.") from None
    for number, row in enumerate(text.split("\n"), 1):
        if row.count(".") > MAX_DOTS and not row.lstrip().startswith("#"):
            raise SettingsError(f"{name}: line {number} has more than {MAX_DOTS} dots.", hint="Is this the right file?")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{name}: nested too deeply to read.", hint="A gate needs three levels.") from None
    except ValueError as e:  # TOMLDecodeError, and what int() and date() say of a number out of range
        raise SettingsError(
            f"{name}: not TOML: {str(e)[:200].rstrip('.')}.", hint="Mend the line, or check it with a TOML editor."
        ) from None
