"""What a lint looks at: the tuned tables of one place, row by row, with file and line. Pure.

A cell is text here; ``Row`` gives the few typed values the checks need, read as pandas would. How AITER treats the rows
(what makes two the same, which architecture an old row belongs to) is that release's business: facts/dispatch_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from moe_preflight.aiter.ck_facts import CkFacts
from moe_preflight.aiter.csvtable import EMPTY, Csv, Value, typed
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.kernel_names import MAX_NAME
from moe_preflight.aiter.lookup import FALLBACK_TAG
from moe_preflight.aiter.tiles import TileVerdict
from moe_preflight.aiter.tuned import ANY_GFX, GFX_BY_CU, KEY_COLUMNS, Source
from moe_preflight.aiter.version import Version

ACT = "act_type"
NEEDED = ("block_m", "ksplit", "kernelName1", "kernelName2")
"""Columns get_2stage_cfgs reads without a default (aiter/fused_moe.py; v0.1.20.post1:2379-2386)."""
NO_GFX = frozenset(["0", "", "nan", "None", "0.0"])


@lru_cache(maxsize=1 << 16)
def number(text: str) -> int | float | None:
    """A cell as a number; None when it is empty or holds no number."""
    value = typed([text])[text]
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@dataclass(slots=True)
class File:
    """One table. ``name`` is relative to the tree, or as the user wrote it. ``loaded``: would AITER read it by itself?"""

    name: str
    csv: Csv
    loaded: bool = True
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Row:
    """One row. ``cells`` maps column to text; ``order`` is its place in the merged table."""

    file: File
    line: int
    order: int
    cells: Mapping[str, str]

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file.name}:{self.line}"

    def text(self, column: str) -> str:
        """The cell as written, without blanks around it; empty when the column is not there. One longer than any kernel's name may be
        is no value of AITER's, and is told by its beginning."""
        text = self.cells.get(column, "").strip()
        return text if len(text) <= MAX_NAME else f"{text[:80]}... ({len(text):,} characters)"

    def number(self, column: str) -> int | float | None:
        """The cell as a number, or None."""
        return number(self.cells.get(column, ""))

    def integer(self, column: str) -> int | None:
        """The cell as a whole number (``80`` or ``80.0``), or None."""
        n = self.number(column)
        return int(n) if n is not None and n == n and abs(n) < 1e15 and n == int(n) else None

    @cached_property
    def cu_num(self) -> int | None:
        return self.integer("cu_num")

    @cached_property
    def token(self) -> int | None:
        return self.integer("token")

    @cached_property
    def act(self) -> str:
        return self.text(ACT)

    @cached_property
    def tag(self) -> str:
        text = self.text("_tag")
        return "" if text in EMPTY else text

    @cached_property
    def gfx(self) -> str:
        """The architecture AITER takes the row for (``*``: the running GPU's, whatever it is)."""
        given = self.text("gfx")
        return GFX_BY_CU.get(self.cu_num, ANY_GFX) if given in NO_GFX or given in EMPTY else given

    @cached_property
    def kernels(self) -> tuple[str, str]:
        """kernelName1 and kernelName2; empty for a cell pandas reads as NaN, and for the word Null of one-stage rows."""
        names = (self.text("kernelName1"), self.text("kernelName2"))
        return tuple("" if n in EMPTY or n == "Null" else n for n in names)  # type: ignore[return-value]

    @cached_property
    def one_stage(self) -> bool:
        """As Python judges the cell: an empty one is NaN, and NaN is true."""
        text = self.text("run_1stage")
        return text.lower() == "true" or ("run_1stage" in self.cells and text in EMPTY) or bool(self.number("run_1stage"))

    @cached_property
    def key(self) -> tuple[Value, ...]:
        """The twelve columns of tuned.KEY_COLUMNS, typed; act_type and gfx stay apart."""
        return tuple(_value(self.cells.get(c, "")) for c in KEY_COLUMNS)

    def shape(self) -> str:
        """The key in words, for a message."""
        cells = (self.text(c) for c in ("token", "model_dim", "inter_dim", "expert", "topk"))
        token, model_dim, inter_dim, expert, topk = cells
        return f"{token} tokens, model_dim {model_dim}, inter_dim {inter_dim}, {expert} experts, topk {topk}"


@lru_cache(maxsize=1 << 16)
def _value(text: str) -> Value:
    value = typed([text])[text]
    return int(value) if isinstance(value, float) and value == value and abs(value) < 1e15 and value == int(value) else value


@dataclass(slots=True)
class Tables:
    """Everything a check may look at. ``files`` stand in merge order; ``others`` are MoE tables AITER would not load.

    ``merged``: AITER puts several files together, with that release's merge rules (else the one file is used as it is).
    ``untuned`` names the columns that make two rows the same. ``asm`` holds the assembly kernels of each architecture that
    the tree lists (None: it has no lists). ``in_tree`` is False for files named one by one.
    """

    version: Version
    rules: Rules
    files: list[File]
    others: list[File]
    merged: bool
    untuned: Sequence[str]
    source: Source | None
    asm: Mapping[str, Mapping[str, str]] | None
    in_tree: bool
    confidence: str = "read"
    ck: CkFacts | None = None
    """CK's tables as the tree's own sources have them; None: the built-in ones of the release."""
    registry: bool = True
    """Is the release one whose FlyDSL kernels were listed? Of another, and of a tree whose code is none of them, no name is unknown."""
    judged: dict[tuple[object, ...], TileVerdict] = field(default_factory=dict)
    """CK's word on kernels already asked about: many rows share a question."""

    def rows(self) -> Iterator[Row]:
        """Rows of loaded tables, in merge order."""
        for f in self.files:
            yield from f.rows

    def every_row(self) -> Iterator[Row]:
        """Rows of all tables, loaded or not."""
        yield from self.rows()
        for f in self.others:
            yield from f.rows

    def usable(self, row: Row) -> bool:
        """Does the row survive AITER's tag filter?"""
        if self.rules.tag == "untagged":
            return row.tag == ""
        return self.rules.tag != "not-fallback" or row.tag != FALLBACK_TAG

    @property
    def columns(self) -> list[str]:
        """Every column of a loaded table, in order of appearance."""
        return list(dict.fromkeys(c for f in self.files for c in f.csv.header))


def rows_of(file: File, start: int) -> list[Row]:
    """The rows of a file; ``start`` is the number of rows before it in the merge."""
    header = file.csv.header
    return [
        Row(file, line, start + i, dict(zip(header, cells, strict=True)))
        for i, (line, cells) in enumerate(zip(file.csv.lines, file.csv.rows, strict=True))
    ]
