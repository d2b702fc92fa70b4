"""Strict keys: what each kind of value may be, and a table of keys read by it. ``true`` is not 1, 8.0 is not 8, "8" is not 8.

A kind takes a value and where it stands (``gate.toml: deployment[0].tp``) and returns it checked, or raises SettingsError.
Names may be written with ``-`` or ``_``. Each kind also says in JSON Schema what it takes, for editors (gate/schema.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from moe_preflight.errors import SettingsError

Kind = Callable[[object, str], Any]

Schema = dict[str, Any]

MAX_ITEMS = 1000
_MAX_INT = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """A kind that says what it takes: ``check`` reads a value, ``schema`` is the same in JSON Schema 2020-12, as far as that goes."""

    check: Kind
    schema: Schema

    def __call__(self, value: object, where: str) -> Any:
        return self.check(value, where)


def shaped(**schema: Any) -> Callable[[Kind], Shaped]:
    """A decorator: the kind below is described by ``schema``."""
    return lambda check: Shaped(check, schema)


def schema_of(kind: Kind) -> Schema:
    """What a kind takes, in JSON Schema; anything, where it does not say."""
    return kind.schema if isinstance(kind, Shaped) else {}


@shaped(type="boolean")
def boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(value, where, "true or false")
    return value


@shaped(type="string", pattern=r"\S")
def text(value: object, where: str) -> str:
    """A string that is not empty and not blank."""
    if not isinstance(value, str):
        raise wrong(value, where, "a string in quotes")
    if not value.strip() or "\0" in value:
        raise SettingsError(
            f"{where}: empty." if not value.strip() else f"{where}: holds a zero byte.", hint="Expected a string."
        )
    return value


def integer(low: int, high: int = _MAX_INT) -> Shaped:
    """A whole number in [low, high]."""

    @shaped(type="integer", minimum=low, maximum=high)
    def kind(value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(value, where, "a whole number")
        if not low <= value <= high:
            raise SettingsError(f"{where}: {shown(value)} is out of range.", hint=f"Expected {low} to {high}.")
        return value

    return kind


def percent(high: int) -> Shaped:
    """A number from 0 to ``high``, whole or not; infinities and NaN are none."""

    @shaped(type="number", minimum=0, maximum=high)
    def kind(value: object, where: str) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise wrong(value, where, "a number of percent")
        if not 0 <= value <= high:
            raise SettingsError(f"{where}: {shown(value)} is out of range.", hint=f"Expected percent, 0 to {high:,}.")
        return float(value)

    return kind


def choice(*words: str) -> Shaped:
    """One of ``words``."""

    @shaped(enum=list(words))
    def kind(value: object, where: str) -> str:
        if not isinstance(value, str):
            raise wrong(value, where, f"one of {', '.join(words)}, in quotes")
        if value not in words:
            raise SettingsError(f"{where}: {shown(value)} is unknown.", hint=f"{guess(value, words)}Expected {', '.join(words)}.")
        return value

    return kind


def either(expected: str, *kinds: tuple[type, Kind]) -> Shaped:
    """The kind of the value's exact type."""

    @shaped(anyOf=[schema_of(one) for _, one in kinds])
    def kind(value: object, where: str) -> Any:
        for of, one in kinds:
            if type(value) is of:
                return one(value, where)
        raise wrong(value, where, expected)

    return kind


def many(one: Kind) -> Shaped:
    """One value or an array of them, as a tuple: order kept, doubles dropped, never empty."""

    @shaped(anyOf=[schema_of(one), {"type": "array", "items": schema_of(one), "minItems": 1, "maxItems": MAX_ITEMS}])
    def kind(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            return (one(value, where),)
        if not value:
            raise SettingsError(f"{where}: an empty array asks for nothing.", hint="Remove the key, or name at least one.")
        if len(value) > MAX_ITEMS:
            raise SettingsError(f"{where}: {len(value):,} values; at most {MAX_ITEMS:,} are read.")
        found = {(type(v), v): v for v in (one(v, f"{where}[{i}]") for i, v in enumerate(value))}  # True == 1
        return tuple(found.values())

    return kind


@shaped(type="string", format="date", pattern=r"^\d{4}-\d{2}-\d{2}$")  # how editors hand a TOML date to a schema
def day(value: object, where: str) -> str:
    """A TOML date, as YYYY-MM-DD."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wrong(value, where, "a date without quotes, such as 2027-01-31")
    return value.isoformat()


def day_of(text: str) -> str | None:
    """``text`` when it is a day written YYYY-MM-DD, else None: fromisoformat takes weeks and leaves out dashes, too."""
    try:
        return text if date.fromisoformat(text).isoformat() == text else None
    except ValueError:
        return None


@shaped(type="object", propertyNames={"pattern": r"^[^\W\d]\w*$"}, additionalProperties={"type": "string"})
def strings(value: object, where: str) -> dict[str, str]:
    """A table of NAME = "value"."""
    if not isinstance(value, dict):
        raise wrong(value, where, 'a table such as { VLLM_ROCM_USE_AITER_MOE = "0" }')
    for name, v in value.items():
        if not name.isidentifier():
            raise SettingsError(f"{where}: {shown(name)} is no name of a variable.", hint="Expected letters, digits and _.")
        if not isinstance(v, str) or "\0" in v:
            raise wrong(v, f"{where}.{name}", "a string in quotes: variables hold text")
    return dict(sorted(value.items()))


def table(kinds: Mapping[str, Kind]) -> Shaped:
    """A table with no key but those of ``kinds``."""
    return Shaped(lambda value, where: read(value, where, kinds), keys_schema(kinds))


def keys_schema(kinds: Mapping[str, Kind]) -> Schema:
    """The schema of a table with no key but those of ``kinds``, each with ``_`` or ``-``."""
    out: Schema = {
        "type": "object",
        "properties": {key: schema_of(kind) for key, kind in kinds.items()},
        "additionalProperties": False,
    }
    spelled = {f"^{key.replace('_', '[-_]')}$": schema_of(kind) for key, kind in kinds.items() if "_" in key}
    return out | {"patternProperties": spelled} if spelled else out


def tables(kinds: Mapping[str, Kind]) -> Shaped:
    """An array of tables, as a list."""

    @shaped(type="array", maxItems=MAX_ITEMS, items=keys_schema(kinds))
    def kind(value: object, where: str) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            raise wrong(value, where, f"[[{where.rpartition(' ')[2]}]], with two brackets")
        if len(value) > MAX_ITEMS:
            raise SettingsError(f"{where}: {len(value):,} entries; at most {MAX_ITEMS:,} are read.")
        return [read(v, f"{where}[{i}]", kinds) for i, v in enumerate(value)]

    return kind


def read(value: object, where: str, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The values of a table by the keys' own spelling. ``where`` is what stands before a key: ``gate.toml:`` or a path."""
    if not isinstance(value, dict):
        raise wrong(value, where.rstrip(":"), "a table")
    out: dict[str, Any] = {}
    for written, v in value.items():
        key = written if written in kinds else written.replace("-", "_")
        if key not in kinds:
            place = _at(where, written if written.replace("-", "").isidentifier() else shown(written))
            raise SettingsError(f"{place}: unknown key.", hint=f"{guess(key, kinds)}Known: {', '.join(kinds)}.")
        if key in out:
            raise SettingsError(f"{_at(where, written)}: given twice, with - and with _.")
        out[key] = kinds[key](v, _at(where, key))
    return out


def _at(where: str, key: str) -> str:
    return f"{where} {key}" if where.endswith(":") else f"{where}.{key}"


def guess(word: str, known: Iterable[str]) -> str:
    """``Did you mean X? `` or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word[:80], list(known), n=1)
    return f"Did you mean {close[0]}? " if close else ""


_TOML_WORDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    list: "an array",
    dict: "a table",
    date: "a date",
}


def shown(value: object) -> str:
    """A value as it may stand in a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return "an array" if isinstance(value, list) else "a table"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    word = ascii(value) if isinstance(value, str) else str(value)
    return word if len(word) <= 60 else f"{word[:57]}..."


def wrong(value: object, where: str, expected: str) -> SettingsError:
    """A value of the wrong type, as one line."""
    said = shown(value)
    kind = _TOML_WORDS.get(type(value), "a date and time" if isinstance(value, datetime) else "a time")
    is_ = said if said in ("an array", "a table") else f"{said} ({kind})"
    return SettingsError(f"{where}: {is_} is not what stands here.", hint=f"Expected {expected}.")
