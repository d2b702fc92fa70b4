"""One CSV file as pandas' C reader would hand it to AITER, without pandas.

AITER reads its tuned tables with ``pandas.read_csv``; which rows exist and what a cell is worth follows from that
reader's habits. Those that matter here: blank lines are no rows; a short row is filled with empties; a first row longer
than the header turns its leading cells into an index and shifts the rest; a later longer row ends the reading; an empty
cell (and ``NaN``, ``None``, ``null`` ...) is no value; a column is integer, float, boolean or text as a whole.

One habit is not modelled: pandas infers types per block of about 256 KiB, so a column that mixes numbers and text in a
larger file may keep numbers in some blocks. No shipped table mixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Value = int | float | bool | str | None
"""A cell: None is pandas' NaN."""

# pandas/_libs/parsers.pyx STR_NA_VALUES (the same set in pandas 1.5 to 3.0).
EMPTY = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
        *("NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
BOOLS = frozenset(_TRUTH)
_INT = re.compile(r"[ \t]*[+-]?[0-9]{1,18}[ \t]*\Z")
_FLOAT = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*\Z")
_INF = re.compile(r"[ \t]*[+-]?inf(?:inity)?[ \t]*\Z", re.I)
_BLANK = re.compile(r"[ \t]*\Z")
_BLANK_LINE = re.compile(rb"\n[ \t]*\n")


class CsvProblem(Exception):
    """A file pandas would refuse. ``line`` is 1-based (0: the file as a whole); ``text`` is the exception AITER shows."""

    def __init__(self, line: int, reason: str, text: str) -> None:
        super().__init__(reason)
        self.line, self.reason, self.text = line, reason, text


@dataclass(slots=True)
class Csv:
    """Header and rows of one file. ``rows`` are as wide as the header; ``lines`` holds each row's 1-based line."""

    header: list[str]
    rows: list[list[str]]
    lines: range | list[int]
    ragged: list[int]
    """Indexes of rows that had fewer cells than the header, or more in an index-shifted file."""


def text_of(data: bytes) -> str:
    """The text of a CSV: UTF-8 with or without a byte order mark, line ends as they are read. Raises CsvProblem."""
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        why = f"byte 0x{data[e.start]:02x} is not UTF-8"
        raise CsvProblem(line, why, f"UnicodeDecodeError: 'utf-8' codec can't decode byte 0x{data[e.start]:02x}") from None
    if "\0" in text:
        raise CsvProblem(text.count("\n", 0, text.index("\0")) + 1, "holds a NUL byte", "ParserError: NULL byte detected")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


MAX_LINES = 300_000
"""Lines of one table. The longest table of v0.1.20.post1 has 9,535; a file that is nothing but line ends would cost minutes."""

MAX_COLUMNS = 1_000
"""Columns of one table. The widest of v0.1.20.post1 has 28; merging headers takes the square of their length."""


def _narrow(columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise CsvProblem(1, f"{columns:,} columns, more than the {MAX_COLUMNS:,} this tool reads", "")


def _bounded(data: bytes) -> None:
    """Raises CsvProblem for a file with more lines or columns than any table: that we do not look says nothing of what AITER
    would do."""
    end = data.find(b"\n")
    _narrow(data.count(b",", 0, end if end >= 0 else len(data)) + 1 if b'"' not in data else 1)
    if data.count(b"\n") + data.count(b"\r") > 2 * MAX_LINES:
        raise CsvProblem(0, f"more than {MAX_LINES:,} lines", "")


def _split(data: bytes) -> tuple[list[list[str]], range | list[int]]:
    """The lines that hold something, as cells, and their numbers: the header at least. Raises CsvProblem."""
    text = text_of(data)
    split, lines = _quoted(text) if '"' in text else _plain(text)
    if not split:
        raise CsvProblem(0, "empty", "EmptyDataError: No columns to parse from file")
    return split, lines


def parse(data: bytes) -> Csv:
    """The file as a table. Raises CsvProblem where pandas would raise."""
    _bounded(data)
    split, lines = _split(data)
    _narrow(len(split[0]))
    header = _mangled(split[0])
    rows, at = split[1:], lines[1:]
    width = len(header)
    ragged: list[int] = []
    if rows:
        shift = max(0, len(rows[0]) - width)
        full = width + shift
        # set() of the lengths costs one pass in C; nearly every file has one length only.
        if shift or set(map(len, rows)) != {full}:
            for i, row in enumerate(rows):
                if len(row) > full:
                    why = f"{len(row)} cells where {full} are expected"
                    what = f"ParserError: Error tokenizing data. C error: Expected {full} fields in line {at[i]}, saw {len(row)}"
                    raise CsvProblem(at[i], why, what)
                if len(row) < full:
                    row += [""] * (full - len(row))
                    ragged.append(i)
                elif shift:
                    ragged.append(i)
            if shift:
                rows = [r[shift:] for r in rows]
    return Csv(header, rows, at, ragged)


def _plain(text: str) -> tuple[list[list[str]], range | list[int]]:
    """No quotes: a line is a row. The line numbers stay a range when no line is blank."""
    raw = text.split("\n")
    if raw and not raw[-1]:
        raw.pop()
    rows = [line.split(",") for line in raw]
    if not any(len(r) == 1 and _BLANK.match(r[0]) for r in rows):
        return rows, range(1, len(rows) + 1)
    kept = [(r, i) for i, r in enumerate(rows, 1) if len(r) > 1 or not _BLANK.match(r[0])]
    return [r for r, _ in kept], [i for _, i in kept]


def _quoted(text: str) -> tuple[list[list[str]], list[int]]:
    """With quotes a row may span lines; it carries the number of its first one."""
    import csv
    import io

    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[list[str]] = []
    lines: list[int] = []
    before = 0
    try:
        for row in reader:
            # An empty line is [], a line of blanks one blank cell; a quoted empty cell is a row.
            if row and (len(row) > 1 or not row[0] or not _BLANK.match(row[0])):
                rows.append(row)
                lines.append(before + 1)
            before = reader.line_num
    except csv.Error as e:
        raise CsvProblem(reader.line_num, str(e), f"ParserError: Error tokenizing data. {e}") from None
    return rows, lines


def _mangled(header: list[str]) -> list[str]:
    """Column names as pandas makes them unique: ``us``, ``us.1``; an empty one is ``Unnamed: 3``."""
    if len(set(header)) == len(header) and "" not in header:
        return header
    seen: dict[str, int] = {}
    out: list[str] = []
    for i, name in enumerate(header):
        name = name or f"Unnamed: {i}"
        n = seen.get(name, 0)
        seen[name] = n + 1
        out.append(f"{name}.{n}" if n else name)
    return out


def typed(distinct: Iterable[str]) -> dict[str, Value]:
    """What each distinct cell of one column is worth, the column's type being inferred from all of them."""
    cells = set(distinct)
    filled = cells - EMPTY
    values: dict[str, Value]
    if all(map(_INT.match, filled)):
        whole: type[int] | type[float] = int if len(filled) == len(cells) else float
        values = {c: whole(c) for c in filled}
    elif all(_FLOAT.match(c) or _INF.match(c) for c in filled):
        values = {c: float(c) for c in filled}
    elif all(c in _TRUTH for c in filled):
        values = {c: _TRUTH[c] for c in filled}
    else:
        values = {c: c for c in filled}
    for c in cells & EMPTY:
        values[c] = None
    return values


def count_rows(data: bytes) -> int:
    """How many rows pandas would see below the header, at the price of three passes in C. Raises CsvProblem."""
    _bounded(data)
    # Counting line ends is not enough where the first line may be none: nothing at all, a blank, or a byte order mark.
    if b'"' in data or b"\r" in data or data[:1] in b" \t\n\xef" or _BLANK_LINE.search(data):
        return len(_split(data)[0]) - 1
    if not data.isascii():
        text_of(data)
    return data.count(b"\n") - (1 if data.endswith(b"\n") else 0)


def column(data: bytes, name: str) -> tuple[list[str], bool]:
    """The cells of one column, row by row, and whether the file has that column. Raises CsvProblem.

    Cheaper than parse() where one column is wanted: a line is cut only as far as that column.
    """
    _bounded(data)
    header = data[: data.find(b"\n") + 1 or len(data)].rstrip().decode("utf-8", "replace").removeprefix("\ufeff").split(",")
    if name not in header:
        return [], False
    at = header.index(name)
    if b'"' in data or b"\r" in data or not data.isascii() or _BLANK_LINE.search(data) or header.count(name) > 1:
        csv = parse(data)
        at = csv.header.index(name)
        return [row[at] for row in csv.rows], True
    lines = data.decode("ascii").split("\n")
    if not lines[-1]:
        lines.pop()
    if lines[1:2] and lines[1].count(",") >= len(header):
        return [row[at] for row in parse(data).rows], True
    cells = [line.split(",", at + 1) for line in lines[1:]]
    return [c[at] if len(c) > at else "" for c in cells], True
