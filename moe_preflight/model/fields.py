"""Typed, recorded access to one config object: every value we use leaves a trace of where it was read.

Strict: ``true`` is not 1, ``8.0`` is not 8, ``"8"`` is not 8. A field of the wrong shape is a ConfigError that names the
path, the value and what was expected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moe_preflight.errors import ConfigError

TRANSFORMERS = "5.24.0"
"""The transformers release whose config classes' defaults are in ``facts/``."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Value:
    """One value and where it came from. ``raw`` is MISSING when neither the config nor a sourced default has it.

    ``origin`` is ``file``, ``engine`` (a default in the engine's code) or ``class`` (a default of the config class).
    """

    raw: object
    path: str
    origin: str = "file"

    @property
    def missing(self) -> bool:
        return isinstance(self.raw, _Missing)


@dataclass(slots=True)
class Fields:
    """The part of a config that describes the decoder. ``section`` is its path inside the file ("" for the root).

    ``defaults`` are the config class's own, used only for a field the file lacks; ``aliases`` its second spellings.
    """

    config: Mapping[str, object]
    section: str = ""
    model_type: str | None = None
    _class: Mapping[str, object] | None = field(default=None, repr=False)

    def find(self, *paths: str) -> Value:
        """The first of ``paths`` that the file holds; else the first that its config class has a default for."""
        for path in paths:
            raw = self._at(path)
            if not isinstance(raw, _Missing):
                return Value(raw, self.where(path))
        return self._by_class(paths)

    def given(self, *paths: str) -> Value:
        """As ``find``, without defaults."""
        for path in paths:
            raw = self._at(path)
            if not isinstance(raw, _Missing):
                return Value(raw, self.where(path))
        return Value(MISSING, self.where(paths[0]))

    def where(self, path: str) -> str:
        return f"{self.section}.{path}" if self.section else path

    def _at(self, path: str) -> object:
        if "." not in path:
            return self.config.get(path, MISSING)
        here: object = self.config
        for part in path.split("."):
            if not isinstance(here, Mapping) or part not in here:
                return MISSING
            here = here[part]
        return here

    def _by_class(self, paths: Sequence[str]) -> Value:
        """A second spelling the class accepts, else the class's default."""
        known = self._config_class()
        aliases, defaults = known.get("aliases"), known.get("defaults")
        if isinstance(aliases, Mapping):
            for path in paths:
                for spelling, attribute in aliases.items():
                    other = attribute if spelling == path else spelling if attribute == path else None
                    if isinstance(other, str) and not isinstance(raw := self._at(other), _Missing):
                        return Value(raw, self.where(other))
        if isinstance(defaults, Mapping):
            for path in paths:
                spellings = [path]
                if isinstance(aliases, Mapping):
                    spellings += [a for s, a in aliases.items() if s == path] + [s for s, a in aliases.items() if a == path]
                for spelling in spellings:
                    if spelling in defaults:
                        source = f"default (transformers {TRANSFORMERS} {known.get('file')})"
                        return Value(defaults[spelling], source, "class")
        return Value(MISSING, self.where(paths[0]))

    def _config_class(self) -> Mapping[str, object]:
        if self._class is None:
            name = self.model_type or ""
            self._class = _classes().get(_SAME_CLASS.get(name, name), {})
        return self._class


_SAME_CLASS = {
    "kimi_k2": "deepseek_v3",
    "deepseek_ref": "deepseek_v4",
    "deepseek_v41": "deepseek_v4",
    "deepseek_v41_text": "deepseek_v4",
}
"""Model types that are loaded with another one's config class (vLLM 0.33.0 transformers_utils/config.py:144)."""

_CLASSES: dict[str, dict[str, object]] = {}


def _classes() -> dict[str, dict[str, object]]:
    """Defaults and second spellings of transformers' config classes, read once and only when a field is missing."""
    if not _CLASSES:
        with open(os.path.join(os.path.dirname(__file__), "facts", f"transformers-{TRANSFORMERS}.json"), encoding="utf-8") as f:
            _CLASSES.update(json.load(f))
    return _CLASSES


def shown(value: object, limit: int = 60) -> str:
    """A JSON value as it stands in the file, cut to a length that fits a line."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def wrong(path: str, value: object, expected: str) -> ConfigError:
    """The one shape of a complaint about a field."""
    return ConfigError(f"{path}: {shown(value)} is not valid; expected {expected}.")


def as_int(value: Value, low: int, high: int) -> int:
    raw = value.raw
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise wrong(value.path, raw, f"a whole number from {low} to {high}")
    if not low <= raw <= high:
        raise wrong(value.path, raw, f"a whole number from {low} to {high}")
    return raw


def as_float(value: Value) -> float:
    raw = value.raw
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or raw != raw or abs(raw) > 1e9:
        raise wrong(value.path, raw, "a number")
    return float(raw)


def as_bool(value: Value) -> bool:
    if not isinstance(value.raw, bool):
        raise wrong(value.path, value.raw, "true or false")
    return value.raw


def as_str(value: Value) -> str:
    if not isinstance(value.raw, str):
        raise wrong(value.path, value.raw, "a string")
    return value.raw


def as_list(value: Value, longest: int) -> list[object]:
    if not isinstance(value.raw, list):
        raise wrong(value.path, value.raw, "an array")
    if len(value.raw) > longest:
        raise ConfigError(f"{value.path}: {len(value.raw):,} entries; expected at most {longest:,}.")
    return value.raw
