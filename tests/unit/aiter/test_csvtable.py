"""The CSV reader against its description, and against pandas where pandas is."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moe_preflight.aiter.csvtable import Csv, CsvProblem, Value, column, count_rows, parse, typed


def rows(text: str) -> list[list[str]]:
    return parse(text.encode()).rows


def test_blank_lines_are_no_rows_and_lines_keep_their_numbers() -> None:
    csv = parse(b"a,b\n1,2\n\n  \n3,4\n\t\n")
    assert csv.rows == [["1", "2"], ["3", "4"]]
    assert list(csv.lines) == [2, 5]


def test_no_blank_line_keeps_a_range() -> None:
    assert parse(b"a\n1\n2\n").lines == range(2, 4)


def test_byte_order_mark_and_carriage_returns() -> None:
    assert parse("\ufeffa,b\r\n1,2\r\n".encode()) == Csv(["a", "b"], [["1", "2"]], range(2, 3), [])
    assert parse(b"a,b\r1,2\r").rows == [["1", "2"]]


def test_a_short_row_is_filled_and_noted() -> None:
    csv = parse(b"a,b,c\n1,2,3\n4\n")
    assert csv.rows == [["1", "2", "3"], ["4", "", ""]]
    assert csv.ragged == [1]


def test_a_longer_first_row_shifts_its_leading_cells_out() -> None:
    assert rows("a,b\n9,1,2\n3,4\n") == [["1", "2"], ["4", ""]]


def test_a_longer_later_row_ends_the_reading() -> None:
    with pytest.raises(CsvProblem, match="3 cells where 2 are expected") as e:
        parse(b"a,b\n1,2\n\n3,4,5\n")
    assert e.value.line == 4
    assert e.value.text == "ParserError: Error tokenizing data. C error: Expected 2 fields in line 4, saw 3"


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_nothing_is_no_table(data: bytes) -> None:
    with pytest.raises(CsvProblem) as e:
        parse(data)
    assert e.value.text == "EmptyDataError: No columns to parse from file"


def test_bytes_that_are_not_utf8_name_their_line() -> None:
    with pytest.raises(CsvProblem, match="0xff is not UTF-8") as e:
        parse(b"a\n1\n\xff\n")
    assert e.value.line == 3


def test_a_nul_byte_is_refused() -> None:
    with pytest.raises(CsvProblem, match="NUL") as e:
        parse(b"a\n\0\n")
    assert e.value.line == 2


def test_quotes_may_hold_commas_and_line_ends() -> None:
    csv = parse(b'a,b\n"x,y","1\n2"\n3,4\n')
    assert csv.rows == [["x,y", "1\n2"], ["3", "4"]]
    assert list(csv.lines) == [2, 4]


def test_doubled_and_empty_names_are_told_apart() -> None:
    assert parse(b"us,,us,us\n1,2,3,4\n").header == ["us", "Unnamed: 1", "us.1", "us.2"]


@pytest.mark.parametrize(
    ("cells", "worth"),
    [
        (["1", " 2", "+3"], [1, 2, 3]),
        (["1", ""], [1.0, None]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["True", "false", ""], [True, False, None]),
        (["True", "1"], ["True", "1"]),
        (["Null", "None", "null", "NaN"], ["Null", None, None, None]),
        (["", "NA"], [None, None]),
        (["1_0"], ["1_0"]),
        (["0x10"], ["0x10"]),
        (["-inf", "1"], [-math.inf, 1.0]),
    ],
)
def test_a_column_has_one_type(cells: list[str], worth: list[Value]) -> None:
    got = [typed(cells)[c] for c in cells]
    assert got == worth
    assert list(map(type, got)) == list(map(type, worth))


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,4", "a\n", "a\n\n1\n \n2\n", 'a,b\n"1\n2",3\n', "a,b\r\n1,2\r\n\r\n", "a,inter_dim\n1,2\n3\n"]
)
def test_counting_is_parsing_without_the_rows(text: str) -> None:
    assert count_rows(text.encode()) == len(rows(text))


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\n\n", b" \n", b"\t\n ", b"\r", b"\r\n", b" ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\xef\xbb\xbf\r\n "],
)
def test_a_file_without_a_header_is_empty_to_both(data: bytes) -> None:
    """Never a table of -1 rows."""
    for read in (parse, count_rows):
        with pytest.raises(CsvProblem, match="empty"):
            read(data)


@pytest.mark.parametrize(
    "text", ["a,w,b\n1,2,3\n4,5,6\n", "a,w\n1\n2,3\n", "w\n\n1\n", 'a,w\n"x,y",2\n', "a,w,b\n0,1,2,3\n4,5,6\n", "w,a\r\n1,2\r\n"]
)
def test_one_column_is_the_same_as_of_the_whole(text: str) -> None:
    csv = parse(text.encode())
    assert column(text.encode(), "w") == ([r[csv.header.index("w")] for r in csv.rows], True)


def test_a_file_without_the_column_says_so() -> None:
    assert column(b"a,b\n1,2\n", "w") == ([], False)


# --- pandas says -------------------------------------------------------------------------------------------------------

_CELL = st.sampled_from(["", "1", "2", " 3", "4.5", "-1e2", "True", "False", "abc", "NaN", "None", "null", "Null", "x y", "0"])
_QUOTED = st.sampled_from(['"1"', '"a,b"', '""', '"x""y"'])


@st.composite
def tables(draw: st.DrawFn) -> str:
    width = draw(st.integers(1, 4))
    cell = st.one_of(_CELL, _QUOTED) if draw(st.booleans()) else _CELL
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "us", "us", ""]), min_size=width, max_size=width))
    lines = [",".join(names)]
    for _ in range(draw(st.integers(0, 5))):
        n = draw(st.sampled_from([width, width, width, width - 1, width + 1]))
        lines.append(",".join(draw(st.lists(cell, min_size=n, max_size=n))))
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(st.sampled_from(["", "  ", "\t"])))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))


def _pandas(data: bytes) -> tuple[list[str], list[list[Value]]] | None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    try:
        df = pd.read_csv(io.BytesIO(data))
    except (pd.errors.ParserError, pd.errors.EmptyDataError):
        return None
    columns = [[None if pd.isna(v) else v for v in df.iloc[:, i].tolist()] for i in range(df.shape[1])]
    return list(df.columns), columns


def _ours(data: bytes) -> tuple[list[str], list[list[Value]]] | None:
    try:
        csv = parse(data)
    except CsvProblem:
        return None
    across = [list(c) for c in zip(*csv.rows, strict=True)] if csv.rows else [[] for _ in csv.header]
    return csv.header, [[typed(c)[x] for x in c] for c in across]


@settings(max_examples=400, deadline=None)
@given(tables())
def test_pandas_reads_the_same(text: str) -> None:
    data = text.encode()
    theirs, ours = _pandas(data), _ours(data)
    assert ours == theirs
    if theirs is not None and ours is not None:
        for a, b in zip(ours[1], theirs[1], strict=True):
            assert [type(x) for x in a] == [type(x) for x in b], text
