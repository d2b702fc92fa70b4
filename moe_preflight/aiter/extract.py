"""What a tree's own sources say, next to what is built in for its release.

The tree the user points at is the best witness. Files that are byte for byte those of a release whose facts are built in
are not parsed: the facts are the same, only the line numbers are looked up. Anything else is parsed, and a fact that is not
understood is refused with a reason, whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from moe_preflight.aiter.ck_facts import CkFacts, builtin
from moe_preflight.aiter.differences import builtin_act, builtin_columns, builtin_group_counts, builtin_tiers
from moe_preflight.aiter.facts.dispatch_rules import Tiers
from moe_preflight.aiter.facts.fingerprints import DIGESTS, FILES, SOURCES
from moe_preflight.aiter.fingerprint import file_hash
from moe_preflight.aiter.sources import COMMON, FUSED_MOE, GEN, KERNEL, MAX_SOURCE, Refused, Slot
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.version import Version
from moe_preflight.errors import FileUnreadable

if TYPE_CHECKING:
    import ast

_T = TypeVar("_T")


@dataclass(frozen=True)
class TreeFacts:
    """Facts read from one tree. None where the tree does not have the source, or where it was refused.

    ``ck`` the CK tile tables and instance lists; ``group_counts`` compiled num_expert_group values; ``tiers`` token
    padding; ``columns`` of the lookup key; ``act`` how act_type is matched (extract_dispatch.ACT_MODES). ``sources`` is
    file:line by fact name; ``refused`` pairs of a fact's name and why its source was not understood.
    """

    ck: CkFacts | None = None
    group_counts: frozenset[int] | None = None
    tiers: Tiers | None = None
    columns: tuple[str, ...] | None = None
    act: str | None = None
    sources: dict[str, str] = field(default_factory=dict)
    refused: tuple[tuple[str, str], ...] = ()


def read_facts(tree: Tree) -> TreeFacts:
    """Everything the tree's sources say. A tree without sources gives empty facts."""
    reading = _Reading(tree)
    return TreeFacts(
        ck=reading.attempt("tiles", _ck),
        group_counts=reading.attempt("group counts", _groups),
        tiers=reading.attempt("token tiers", _tiers),
        columns=reading.attempt("lookup columns", _columns),
        act=reading.attempt("act_type", _act),
        sources=reading.sources,
        refused=tuple(reading.refused),
    )


class _Absent(Exception):
    """The tree does not have this source."""


@dataclass
class _Reading:
    """One pass over a tree: files read once, sources and refusals noted."""

    tree: Tree
    sources: dict[str, str] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    module: ast.Module | None = None
    columns: tuple[str, ...] | None = None
    _bytes: dict[str, bytes] = field(default_factory=dict)

    def attempt(self, what: str, reader: Callable[[_Reading], _T]) -> _T | None:
        try:
            return reader(self)
        except _Absent:
            return None
        except Refused as e:
            self.refused.append((what, e.reason))
        except RecursionError:
            self.refused.append((what, "the source is nested too deeply"))
        return None

    def data(self, name: str) -> bytes:
        if name not in self._bytes:
            if not self.tree.exists(name):
                raise _Absent
            try:
                self._bytes[name] = self.tree.read_bytes(name, MAX_SOURCE)
            except FileUnreadable as e:
                raise Refused(f"{name} cannot be read: {e.reason}") from None
        return self._bytes[name]

    def text(self, name: str) -> str:
        try:
            return self.data(name).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused(f"{name} is not UTF-8") from None

    def release(self, name: str, known: dict[str, str]) -> Version | None:
        """The release this very file is known from."""
        found = known.get(file_hash(self.data(name)))
        return Version.of(found) if found else None

    def locate(self, what: str, name: str, pattern: str) -> None:
        """Note the line of a fact in a file known byte for byte: where ``pattern`` ends."""
        text = self.text(name)
        m = re.search(pattern, text, re.M)
        self.sources[what] = f"{name}:{_line(text, m.end())}" if m else name


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


# --- csrc ------------------------------------------------------------------------------------------------------------


def _ck(reading: _Reading) -> CkFacts:
    gen, common = f"{reading.tree.csrc_prefix}/{GEN}", f"{reading.tree.csrc_prefix}/{COMMON}"
    tiles, lists = reading.release(gen, SOURCES[GEN]), reading.release(common, SOURCES[COMMON])
    if tiles and lists:
        theirs = builtin(lists)
        sources = {slot: f"{gen}:{line}" for slot, line in _template_lines(reading.text(gen)).items()}
        facts = replace(
            builtin(tiles), instances=theirs.instances, operations=theirs.operations, sources=sources, confidence="read"
        )
    else:
        from moe_preflight.aiter.extract_ck import ck_facts

        facts = ck_facts(reading.text(gen), reading.text(common), gen)
    reading.sources["tiles"], reading.sources["instances"] = gen, common
    return facts


_PAIR = r'"(a\d{1,2}w\d{1,2}\w{0,20})"\s*:\s*\[\s*(\w{1,80})\s*,\s*(\w{1,80})\s*,?\s*\]'


def _template_lines(text: str) -> dict[Slot, int]:
    """Lines of the dispatch templates of a file known byte for byte."""
    starts = {m[1]: m.start() for m in re.finditer(r'^(\w+) = """', text, re.M)}
    return {
        (tag, stage): _line(text, starts[name])
        for tag, *names in re.findall(_PAIR, text)
        for stage, name in enumerate(names, 1)
        if name in starts
    }


def _groups(reading: _Reading) -> frozenset[int]:
    name = f"{reading.tree.csrc_prefix}/{KERNEL}"
    if release := reading.release(name, SOURCES[KERNEL]):
        reading.locate("group counts", name, r"switch\(num_expert_group\)")
        return builtin_group_counts(release)
    from moe_preflight.aiter.extract_router import group_counts

    counts, line = group_counts(reading.text(name))
    reading.sources["group counts"] = f"{name}:{line}"
    return counts


# --- aiter/fused_moe.py ----------------------------------------------------------------------------------------------


def _known_release(reading: _Reading) -> Version | None:
    """A release whose fused_moe.py this is, byte for byte."""
    found = FILES[FUSED_MOE].get(file_hash(reading.data(FUSED_MOE)))
    return Version.of(DIGESTS[FUSED_MOE][found][0]) if found else None


def _module(reading: _Reading) -> ast.Module:
    from moe_preflight.aiter.extract_dispatch import NAMES
    from moe_preflight.aiter.syntax import parse_only

    if reading.module is None:
        reading.module = parse_only(reading.text(FUSED_MOE), "fused_moe.py", NAMES)
    return reading.module


def _tiers(reading: _Reading) -> Tiers:
    if release := _known_release(reading):
        reading.locate("token tiers", FUSED_MOE, r"^def get_padded_M")
        return builtin_tiers(release)
    from moe_preflight.aiter.extract_dispatch import token_tiers

    tiers, line = token_tiers(_module(reading))
    reading.sources["token tiers"] = f"{FUSED_MOE}:{line}"
    return tiers


def _columns(reading: _Reading) -> tuple[str, ...]:
    if release := _known_release(reading):
        reading.locate("lookup columns", FUSED_MOE, r"^    _INDEX_COLS = |^ +cfg_2stages = cfg_2stages\.set_index\(\s*\[")
        return builtin_columns(release)
    from moe_preflight.aiter.extract_dispatch import lookup_columns

    reading.columns, line = lookup_columns(_module(reading))
    reading.sources["lookup columns"] = f"{FUSED_MOE}:{line}"
    return reading.columns


def _act(reading: _Reading) -> str:
    if release := _known_release(reading):
        reading.locate("act_type", FUSED_MOE, r"^    keys = \(")
        return builtin_act(release)
    from moe_preflight.aiter.extract_dispatch import act_mode

    if reading.columns is None:
        raise Refused("the lookup columns are not understood")
    mode, line = act_mode(_module(reading), reading.columns)
    reading.sources["act_type"] = f"{FUSED_MOE}:{line}"
    return mode
