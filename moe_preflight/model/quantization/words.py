"""Strict access to a quantization config, and the words its readers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from moe_preflight.errors import ConfigError
from moe_preflight.model.fields import MISSING, Value, as_int, wrong
from moe_preflight.model.moe import Quantization
from moe_preflight.model.quantization.patterns import Matcher, Modules

MAX_MODULES = 100_000
"""The longest list seen names 29 000 modules (a per-module map of a 60-layer model)."""


class Format(Protocol):
    """One way to write a quantization config. ``of`` answers for one layer's experts, ``overall`` for the checkpoint."""

    def of(self, modules: Modules, matcher: Matcher) -> Quantization: ...

    def overall(self) -> Quantization: ...


class Raw:
    """A quantization config (or an object inside one) with the path it stands at."""

    __slots__ = ("data", "path")

    def __init__(self, data: Mapping[str, object], path: str) -> None:
        self.data = data
        self.path = path

    def value(self, key: str) -> Value:
        return Value(self.data.get(key, MISSING), f"{self.path}.{key}")

    def has(self, key: str) -> bool:
        return self.data.get(key) is not None

    def text(self, key: str, otherwise: str | None = None) -> str | None:
        raw = self.data.get(key)
        if raw is None:
            return otherwise
        if not isinstance(raw, str):
            raise wrong(f"{self.path}.{key}", raw, "a string")
        return raw

    def number(self, key: str, low: int, high: int) -> int | None:
        return as_int(self.value(key), low, high) if self.has(key) else None

    def flag(self, key: str) -> bool | None:
        raw = self.data.get(key)
        if raw is None or isinstance(raw, bool):
            return raw
        raise wrong(f"{self.path}.{key}", raw, "true or false")

    def inner(self, key: str) -> Raw | None:
        raw = self.data.get(key)
        if raw is None:
            return None
        if not isinstance(raw, Mapping):
            raise wrong(f"{self.path}.{key}", raw, "an object")
        return Raw(raw, f"{self.path}.{key}")

    def names(self, *keys: str) -> list[str]:
        """The first list of module names or patterns among ``keys`` that is there and not empty."""
        for key in keys:
            raw = self.data.get(key)
            if raw is None or raw == []:
                continue
            if not isinstance(raw, list):
                raise wrong(f"{self.path}.{key}", raw, "an array of module names")
            if len(raw) > MAX_MODULES:
                raise ConfigError(f"{self.path}.{key}: {len(raw):,} entries; expected at most {MAX_MODULES:,}.")
            for i, name in enumerate(raw):
                if not isinstance(name, str):
                    raise wrong(f"{self.path}.{key}[{i}]", name, "a string")
            return raw
        return []

    def pair(self, key: str) -> tuple[int, int] | None:
        """A block shape ``[rows, columns]``."""
        raw = self.data.get(key)
        if raw is None:
            return None
        if not isinstance(raw, list) or len(raw) != 2:
            raise wrong(f"{self.path}.{key}", raw, "two whole numbers, such as [128, 128]")
        rows, columns = (as_int(Value(x, f"{self.path}.{key}[{i}]"), 1, 1 << 16) for i, x in enumerate(raw))
        return rows, columns

    def keep(self, *keys: str) -> dict[str, object]:
        """The named plain values, for ``Quantization.detail``."""
        return {k: self.data[k] for k in keys if self.data.get(k) is not None and not isinstance(self.data[k], (list, Mapping))}


NONE = Quantization()


def excluded(method: str | None, count: int) -> Quantization:
    """Experts the checkpoint leaves out of its quantization."""
    return Quantization(method=method, scheme="none", excluded_modules_count=count)
