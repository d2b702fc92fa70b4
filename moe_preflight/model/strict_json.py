"""JSON from strangers: one way to read a config that says what is wrong and where, and never guesses.

Refused: more than ``max_bytes``, more than ``MAX_DEPTH`` levels, a key given twice in one object, numbers longer than
``MAX_DIGITS``, anything but UTF-8. ``Infinity`` and ``-Infinity`` are let through as floats, because real hub files hold
them (``time_step_limit`` of nemotron_h, written by Python's json); a size field refuses them later.
"""

from __future__ import annotations

import json

from moe_preflight.errors import ConfigError

MAX_BYTES = 16 << 20
"""The largest real config seen is 3 MB (a ModelOpt list of 30 000 modules)."""
MAX_DEPTH = 64
MAX_DIGITS = 40

_BOMS = ((b"\xff\xfe\x00\x00", "UTF-32"), (b"\x00\x00\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_UTF8_BOM = b"\xef\xbb\xbf"


class _Refused(ValueError):
    pass


def loads(data: bytes, where: str, *, max_bytes: int = MAX_BYTES) -> object:
    """The value in ``data``. ``where`` names the source in errors. Raises ConfigError with one line."""
    if len(data) > max_bytes:
        raise ConfigError(f"{where}: {len(data):,} bytes; a config is at most {max_bytes:,}.", hint="Is this the right file?")
    text = _decode(data, where)
    if not text.strip():
        raise ConfigError(f"{where}: empty; expected a JSON object.")
    _check_depth(text, where)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_integer, parse_constant=_constant)
    except json.JSONDecodeError as e:
        raise ConfigError(f"{where}: not JSON: line {e.lineno} column {e.colno}: {e.msg}.") from None
    except _Refused as e:
        raise ConfigError(f"{where}: {e}.") from None
    except RecursionError:
        raise ConfigError(f"{where}: nested too deeply; at most {MAX_DEPTH} levels.") from None


def load_object(data: bytes, where: str, *, max_bytes: int = MAX_BYTES) -> dict[str, object]:
    """As ``loads``, and the value must be an object."""
    value = loads(data, where, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: holds {kind(value)}; expected a JSON object, such as a model's config.json.")
    return value


def kind(value: object) -> str:
    """What a JSON value is, in JSON's own words, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {int: "a number", float: "a number", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _decode(data: bytes, where: str) -> str:
    for bom, name in _BOMS:
        if data.startswith(bom):
            raise ConfigError(f"{where}: {name} text; expected UTF-8.", hint="Save the file again as UTF-8.")
    if data.startswith(_UTF8_BOM):
        data = data[len(_UTF8_BOM) :]
    if b"\x00" in data[:4]:
        raise ConfigError(f"{where}: not UTF-8 text (it holds zero bytes, as UTF-16 or a binary file does).")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise ConfigError(f"{where}: not UTF-8: byte 0x{data[e.start]:02x} at offset {e.start} (line {line}).") from None


def _check_depth(text: str, where: str) -> None:
    """Depth by counting brackets outside strings: json recurses, so this comes first. One pass, and cheap when shallow."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    import re

    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, token.start()) + 1
                raise ConfigError(f"{where}: nested too deeply at line {line}; at most {MAX_DEPTH} levels.")
        elif first in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"key {json.dumps(key[:80])} is given twice in one object; keep one")
            seen.add(key)
    return found


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _Refused(f"a number of {len(digits)} digits ({digits[:12]}...); no config needs more than {MAX_DIGITS}")
    return int(digits)


def _constant(name: str) -> float:
    if name == "NaN":
        raise _Refused("holds NaN, which is not JSON and no number")
    return float(name)
