"""Known-bad combinations as data, and the matcher. An advisory is a row: versions, a predicate over facts, a public URL.

A predicate is a conjunction of small conditions (fact, operator, value); see vocabulary.py for the facts. A fact that is
unknown (absent or None) never matches, unless the advisory lists it under ``when_unknown``. The nouns are named tuples:
they import faster than dataclasses, and every check loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from moe_preflight.aiter.version import Version

NEWEST_READ = Version.of("0.1.22.post1")
"""AITER releases after this one were not read: an advisory that is still open is ``unverified`` for them."""


class Releases(NamedTuple):
    """Releases from ``since`` (inclusive; None: from the first) to ``until`` (exclusive; None: still so when last read)."""

    since: Version | None = None
    until: Version | None = None

    def covers(self, version: Version) -> bool:
        return (self.since is None or self.since <= version) and (self.until is None or version < self.until)

    def __str__(self) -> str:
        if self.since is None and self.until is None:
            return "all releases"
        if self.since is None:
            return f"before {self.until}"
        return f"{self.since} and newer" if self.until is None else f"{self.since} to before {self.until}"


def releases(since: str | None = None, until: str | None = None) -> Releases:
    """Releases from literals of a table; raises ValueError for a bad one."""
    return Releases(Version.of(since) if since else None, Version.of(until) if until else None)


class Condition(NamedTuple):
    """``fact`` of the vocabulary, ``op`` of OPERATORS, and the value to compare with."""

    fact: str
    op: str
    value: object

    def __str__(self) -> str:
        value = ", ".join(map(str, self.value)) if isinstance(self.value, tuple) else self.value
        return f"{self.fact} {_WORDS[self.op]} {value}"


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _compare(test: Callable[[int, int], bool]) -> Callable[[object, object], bool]:
    def run(fact: object, value: object) -> bool:
        a, b = _int(fact), _int(value)
        return a is not None and b is not None and test(a, b)

    return run


def _members(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "eq": lambda fact, value: type(fact) is type(value) and fact == value,
    "ne": lambda fact, value: fact != value,
    "in": lambda fact, value: fact in _members(value),
    "not_in": lambda fact, value: fact not in _members(value),
    "lt": _compare(lambda a, b: a < b),
    "le": _compare(lambda a, b: a <= b),
    "gt": _compare(lambda a, b: a > b),
    "ge": _compare(lambda a, b: a >= b),
    "multiple_of": _compare(lambda a, b: b > 0 and a % b == 0),
    "not_multiple_of": _compare(lambda a, b: b > 0 and a % b != 0),
    "has": lambda fact, value: isinstance(fact, frozenset) and bool(fact & set(_members(value))),
    "lacks": lambda fact, value: isinstance(fact, frozenset) and not fact & set(_members(value)),
}
"""``has`` and ``lacks`` look into facts that are sets (paths, tuned, routers); the others compare one value."""

_WORDS = {
    "eq": "is", "ne": "is not", "in": "is one of", "not_in": "is none of", "lt": "below", "le": "at most", "gt": "above",
    "ge": "at least", "multiple_of": "is a multiple of", "not_multiple_of": "is no multiple of", "has": "includes", "lacks": "includes no",
}  # fmt: skip


class Advisory(NamedTuple):
    """One known-bad combination.

    ``engines``: (engine, releases) pairs, any of them; empty: whatever the engine. ``aiter``: spans of releases, any of
    them; empty: whatever the release. ``tokens`` is the batch sizes it needs (last None: open). ``explains`` names finding
    codes (MP101) and defect codes (router-group-size) it is the public record of: a report that has such a finding for the
    layer attaches this advisory to it instead of repeating it. ``annotates``: it does only that, because a rule of ours
    decides the matter exactly and the advisory is its public record. ``confidence``: ``read`` when the cause was read in source or
    established in the thread, ``unverified`` when it is a reporter's claim.
    """

    id: str
    title: str
    severity: str
    url: str
    symptom: str
    cause: str
    remedy: str
    where: tuple[Condition, ...]
    engines: tuple[tuple[str, Releases], ...] = ()
    aiter: tuple[Releases, ...] = ()
    tokens: tuple[int, int | None] = (1, None)
    explains: tuple[str, ...] = ()
    when_unknown: frozenset[str] = frozenset()
    annotates: bool = False
    confidence: str = "read"
    see_also: tuple[str, ...] = ()


class Match(NamedTuple):
    """``advisory`` holds for the facts. ``because`` is its predicate in words with the facts' own values, ``confidence`` may
    be less than the advisory's (unknown facts, releases nobody read)."""

    advisory: Advisory
    confidence: str
    because: tuple[str, ...]


def match(advisories: Iterable[Advisory], facts: Mapping[str, object]) -> list[Match]:
    """Those of ``advisories`` that hold for ``facts`` (names of vocabulary.FACTS), in order."""
    found = (_match(a, facts) for a in advisories)
    return [m for m in found if m is not None]


def _match(a: Advisory, facts: Mapping[str, object]) -> Match | None:
    unsure = False
    because: list[str] = []
    for c in a.where:
        fact = facts.get(c.fact)
        if fact is None:
            if c.fact not in a.when_unknown:
                return None
            unsure = True
            because.append(f"{c.fact} is unknown")
        elif OPERATORS[c.op](fact, c.value):
            because.append(_said(c, fact))
        else:
            return None
    if not _reached(a, facts):
        return None
    for held in (_engine(a, facts), _aiter(a, facts)):
        if held is None:
            return None
        unsure = unsure or not held
    return Match(a, "unverified" if unsure else a.confidence, tuple(because))


def _said(c: Condition, fact: object) -> str:
    if isinstance(fact, frozenset):
        return str(c)
    return str(c) if c.op == "eq" else f"{c.fact} {fact} ({_WORDS[c.op]} {str(c).split(_WORDS[c.op] + ' ', 1)[1]})"


def _reached(a: Advisory, facts: Mapping[str, object]) -> bool:
    """Do reachable batches come into the advisory's token range? Buckets, when given, are the ones that are judged."""
    first, last = a.tokens
    most = _int(facts.get("max_tokens"))
    if most is not None and most < first:
        return False
    buckets = facts.get("buckets")
    if isinstance(buckets, tuple) and buckets and last is not None:
        return any(first <= b <= last for b in buckets)
    return True


def _engine(a: Advisory, facts: Mapping[str, object]) -> bool | None:
    """None: another engine or release. False: the release is unknown, and the advisory takes that."""
    if not a.engines:
        return True
    version = facts.get("engine_version")
    for engine, span in a.engines:
        if facts.get("engine") != engine:
            continue
        if not isinstance(version, Version):
            if "engine_version" in a.when_unknown:
                return False
        elif span.covers(version):
            return True
    return None


def _aiter(a: Advisory, facts: Mapping[str, object]) -> bool | None:
    """As _engine; False also for a release newer than any that was read, while the advisory is open."""
    if not a.aiter:
        return True
    version = facts.get("aiter_version")
    if not isinstance(version, Version):
        return False if "aiter_version" in a.when_unknown else None
    for span in a.aiter:
        if span.covers(version):
            return not (span.until is None and version > NEWEST_READ)
    return None
