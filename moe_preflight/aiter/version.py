"""AITER and engine versions as things that compare: ``v0.1.16.post4``, ``0.1.7.post2.dev18``, ``0.33.0rc1``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

_VERSION = re.compile(
    r"v?(\d{1,6}(?:\.\d{1,6}){0,4})(?:[-.]?rc(\d{1,6}))?(?:\.post(\d{1,6}))?(?:\.dev\d{0,6})?(?:[+-][\w.+-]*)?\Z"
)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A release. ``.devN`` and local parts do not take part in comparison: AMD's wheel ``0.1.7.post2.dev18`` carries
    the dispatch code of tag v0.1.7.post2 (its routing kernels are byte-identical)."""

    release: tuple[int, ...]
    rc: int | None
    post: int
    text: str

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """The version in ``text``, or None when there is none to read."""
        m = _VERSION.match(text.strip())
        if not m:
            return None
        rc = int(m.group(2)) if m.group(2) else None
        return cls(tuple(int(p) for p in m.group(1).split(".")), rc, int(m.group(3) or 0), text.strip().removeprefix("v"))

    @classmethod
    def of(cls, text: str) -> Version:
        """As parse(), for literals in our own tables: raises ValueError."""
        v = cls.parse(text)
        if v is None:
            raise ValueError(f"not a version: {text!r}")
        return v

    @property
    def _order(self) -> tuple[tuple[int, ...], int, int]:
        release = self.release + (0,) * (5 - len(self.release))
        return release, (1 << 30) if self.rc is None else self.rc, self.post

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._order == other._order

    def __lt__(self, other: Version) -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self._order)

    def __str__(self) -> str:
        return self.text
