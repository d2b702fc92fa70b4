"""Does a pattern in a quantization config name these experts? Patterns come from strangers, so none may run away.

A regular expression is accepted when it is short, has no repeated group that itself repeats without bound, no
back-reference, and at most MAX_STARS unbounded repeats; a literal that it requires is looked for first, and what is left
spends from a budget. Worst case for a whole model: a few seconds of matching, whatever the file holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_PATTERN = 1000
MAX_NAME = 200
MAX_STARS = 3
BUDGET = 60_000
"""Each try costs 1, one with three unbounded repeats 60: the square and the cube of a name's length, in the same unit."""


@dataclass(frozen=True, slots=True)
class Modules:
    """One layer's experts by every name a config may use. ``names``: the container of the experts, the engine's spelling
    first. ``parts``: what one expert's matrices may be called, the checkpoint's spelling first."""

    names: tuple[str, ...]
    parts: tuple[tuple[str, ...], ...]

    def children(self) -> Iterable[str]:
        """``<container>.0.<part>`` for each spelling: expert 0 stands for all, as in vLLM."""
        for name in self.names:
            for spelling in self.parts:
                for part in spelling:
                    yield f"{name}.0.{part}"


@dataclass(frozen=True, slots=True)
class _Compiled:
    regex: re.Pattern[str] | None
    literals: tuple[str, ...] = ()
    cost: int = 1


@dataclass(slots=True)
class Matcher:
    """Compiled patterns and the budget of one model. ``refused`` are the patterns that could not be tried."""

    refused: list[str] = field(default_factory=list)
    _left: int = BUDGET
    _known: dict[str, _Compiled] = field(default_factory=dict)

    def regex(self, pattern: str, name: str) -> bool:
        """``re.match(pattern, name)``, as far as that is safe."""
        compiled = self._known.get(pattern)
        if compiled is None:
            compiled = self._known[pattern] = _compile(pattern)
            if compiled.regex is None:
                self.refused.append(pattern)
        if compiled.regex is None or len(name) > MAX_NAME or any(x not in name for x in compiled.literals):
            return False
        self._left -= compiled.cost
        if self._left < 0:
            if pattern not in self.refused:
                self.refused.append(pattern)
            return False
        return compiled.regex.match(name) is not None

    def glob(self, pattern: str, name: str) -> bool:
        """Shell-style, as ``fnmatch``: ``*`` any run of characters, ``?`` one, ``[...]`` one of a set."""
        if len(pattern) > MAX_PATTERN:
            return False
        if "?" not in pattern and "[" not in pattern:
            return _stars(pattern, name)
        return _glob(pattern, name)

    def target(self, pattern: str, name: str) -> bool:
        """compressed-tensors and Quark: ``re:`` and a regular expression, else the very name."""
        return self.regex(pattern[3:], name) if pattern.startswith("re:") else pattern == name


def _stars(pattern: str, name: str) -> bool:
    """Stars only: the literal pieces must follow each other. Linear, and the common case."""
    if "*" not in pattern:
        return pattern == name
    first, *middle, last = pattern.split("*")
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _glob(pattern: str, name: str) -> bool:
    """The whole language, by remembering the last star only: at most len(pattern) x len(name) steps."""
    i = j = 0
    star, mark = -1, 0
    while j < len(name):
        width = _one(pattern, i, name[j])
        if i < len(pattern) and pattern[i] == "*":
            star, mark, i = i, j, i + 1
        elif width:
            i, j = i + width, j + 1
        elif star >= 0:
            mark += 1
            i, j = star + 1, mark
        else:
            return False
    return all(c == "*" for c in pattern[i:])


def _one(pattern: str, i: int, char: str) -> int:
    """How much of the pattern at ``i`` matches this one character; 0 when it does not."""
    if i >= len(pattern) or pattern[i] == "*":
        return 0
    if pattern[i] == "?":
        return 1
    if pattern[i] == "[" and (end := pattern.find("]", i + 3 if pattern[i + 1 : i + 2] == "!" else i + 2)) > 0:
        body = pattern[i + 1 : end]
        negate = body.startswith("!")
        inside = _in_set(body[1:] if negate else body, char)
        return end - i + 1 if inside != negate else 0
    return 1 if pattern[i] == char else 0


def _in_set(body: str, char: str) -> bool:
    k = 0
    while k < len(body):
        if body[k + 1 : k + 2] == "-" and k + 2 < len(body):
            if body[k] <= char <= body[k + 2]:
                return True
            k += 3
        else:
            if body[k] == char:
                return True
            k += 1
    return False


def _compile(pattern: str) -> _Compiled:
    if len(pattern) > MAX_PATTERN or not pattern.isprintable():
        return _Compiled(None)
    shape = _shape(pattern)
    if shape is None:
        return _Compiled(None)
    stars, literals = shape
    try:
        return _Compiled(re.compile(pattern), literals, 60 if stars >= MAX_STARS else 1)
    except (re.error, RecursionError, OverflowError):
        return _Compiled(None)


def _shape(pattern: str) -> tuple[int, tuple[str, ...]] | None:
    """(unbounded repeats, literals every match must hold), or None for a pattern that might run away."""
    stars = 0
    nested: list[bool] = [False]
    """For each open group: does it hold an unbounded repeat?"""
    literals: list[str] = []
    run = ""
    alternatives = False
    i, n = 0, len(pattern)
    previous_group = False
    while i < n:
        c = pattern[i]
        width, literal, group_ended = 1, "", False
        if c == "\\":
            if i + 1 >= n or pattern[i + 1].isdigit():
                return None
            width = 2
            literal = pattern[i + 1] if not pattern[i + 1].isalnum() else ""
        elif c == "[":
            end = _class_end(pattern, i)
            if end is None:
                return None
            width = end - i + 1
        elif c == "(":
            if pattern.startswith("(?", i) and not re.match(r"\(\?(?::|!|=|P<\w+>)", pattern[i : i + 40]):
                return None
            nested.append(False)
            if len(nested) > 20:
                return None
        elif c == ")":
            if len(nested) == 1:
                return None
            inner = nested.pop()
            nested[-1] = nested[-1] or inner
            group_ended = True
            previous_group = inner
        elif c == "|":
            alternatives = alternatives or len(nested) == 1
        elif c in "*+" or c == "{":
            bounds = re.match(r"\{(\d{0,4})(,?)(\d{0,4})\}", pattern[i:]) if c == "{" else None
            if c == "{" and bounds is None:
                literal = c
            else:
                if bounds is not None:
                    width = len(bounds[0])
                    if int(bounds[1] or 0) > 64 or int(bounds[3] or 0) > 64:
                        return None
                if bounds is None or (bounds[2] and not bounds[3]):
                    stars += 1
                    nested[-1] = True
                if i and pattern[i - 1] == ")" and previous_group:
                    return None
                run = run[:-1]
        elif c == "?":
            run = run[:-1]
        elif c not in ".^$":
            literal = c
        if literal and len(nested) == 1:
            run += literal
        else:
            if len(run) > 1:
                literals.append(run)
            run = ""
        if group_ended and pattern[i + 1 : i + 2] in ("*", "+", "{") and previous_group:
            return None
        i += width
    if len(run) > 1:
        literals.append(run)
    if len(nested) != 1 or stars > MAX_STARS:
        return None
    return stars, () if alternatives else tuple(literals)


def _class_end(pattern: str, start: int) -> int | None:
    """Index of the ``]`` that closes the class opened at ``start``; a ``]`` right after ``[`` or ``[^`` is literal."""
    i = start + 1
    if pattern[i : i + 1] == "^":
        i += 1
    if pattern[i : i + 1] == "]":
        i += 1
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i if i < len(pattern) else None
