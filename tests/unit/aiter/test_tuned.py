"""Which files make the table, how releases merge them, and what AITER raises over it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moe_preflight.aiter import tuned
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.tuned import DEFAULT, MODEL_CONFIGS, TunedTable
from moe_preflight.aiter.version import Version
from tests.corpus import corpus, needs_corpus
from tests.unit.aiter.tables import NEW, OLD, TAGGED, MemoryTree, read, row, rules, table, tree

ONE = table(OLD, row(OLD))


def kernels(t: TunedTable) -> list[list[str | None]]:
    """First kernel names by key, in table order of the rows that a lookup can still reach."""
    left = [[r for r in held if r not in t.dropped] for held in t.index.values()]
    return [[t.name(r, "kernelName1") for r in held] for held in left if held]


def test_the_default_comes_first_then_model_files_without_untuned_ones() -> None:
    files = {DEFAULT: ONE, f"{MODEL_CONFIGS}/b_tuned_fmoe.csv": ONE, f"{MODEL_CONFIGS}/a_tuned_fmoe_x.csv": ONE}
    files |= {
        f"{MODEL_CONFIGS}/a_untuned_fmoe.csv": ONE,
        f"{MODEL_CONFIGS}/gemm.csv": ONE,
        f"{MODEL_CONFIGS}/d/c_tuned_fmoe.csv": ONE,
    }
    got = tuned.shipped_files(MemoryTree(files), rules("0.1.20.post1"))
    assert got == [DEFAULT, f"{MODEL_CONFIGS}/a_tuned_fmoe_x.csv", f"{MODEL_CONFIGS}/b_tuned_fmoe.csv"]


def test_up_to_0_1_12_a_model_file_needs_no_csv_ending() -> None:
    files = {DEFAULT: ONE, f"{MODEL_CONFIGS}/a_tuned_fmoe.csv.bak": ONE}
    assert len(tuned.shipped_files(MemoryTree(files), rules("0.1.12"))) == 2
    assert len(tuned.shipped_files(MemoryTree(files), rules("0.1.13"))) == 1


def test_every_row_knows_its_file_and_line() -> None:
    t = read("0.1.20.post1", table(OLD, row(OLD), "", row(OLD, token=32)), m=table(OLD, row(OLD, token=64)))
    assert [t.where(i) for i in range(3)] == [(DEFAULT, 2), (DEFAULT, 4), (f"{MODEL_CONFIGS}/m_tuned_fmoe.csv", 2)]
    assert [(f, line, cells["token"]) for f, line, cells in t] == [(*t.where(0), "16"), (*t.where(1), "32"), (*t.where(2), "64")]


def test_rows_carry_names_and_time() -> None:
    shown = read("0.1.20.post1", table(OLD, row(OLD, us="", kernelName2="Null"))).tuned_row(0)
    assert (shown.kernel1, shown.kernel2, shown.us) == ("moe_ck2stages_gemm1_A", "Null", None)


# --- columns that differ ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kind"), [("0.1.7.post2", "AssertionError"), ("0.1.11", "AssertionError"), ("0.1.12", "ValueError")]
)
def test_old_releases_refuse_columns_that_differ(version: str, kind: str) -> None:
    t = read(version, ONE, m=table(NEW, row(NEW)))
    assert t.error is not None
    assert t.error.startswith(f"{kind}: Column mismatch between {DEFAULT} and {MODEL_CONFIGS}/m_tuned_fmoe.csv, ['cu_num', ")
    assert t.count == 2, "the rows stay readable"


def test_a_tag_column_alone_is_no_mismatch_from_0_1_11() -> None:
    mixed = table(TAGGED, row(TAGGED, token=32))
    assert read("0.1.10.post3", ONE, m=mixed).error is not None
    assert read("0.1.11", ONE, m=mixed).error is None


def test_new_releases_fill_what_a_file_lacks() -> None:
    t = read("0.1.20.post1", ONE, m=table(NEW, row(NEW, token=32, xbf16=1, run_1stage=1)))
    assert t.error is None
    assert t.settings["xbf16"] == [0, 1]
    assert t.tag == [0, None], "a filled tag is 0, which is not empty"
    assert t.gfx == ["gfx942", "gfx942"], "a filled gfx comes from cu_num"


def test_one_file_alone_is_taken_as_it_is() -> None:
    assert read("0.1.20.post1", ONE).settings["xbf16"] is None


# --- keys held twice -------------------------------------------------------------------------------------------------

SLOW, FAST = row(OLD, us=5, kernelName1="slow"), row(OLD, us=3, kernelName1="fast")


def test_up_to_0_1_11_the_fastest_row_wins_silently() -> None:
    t = read("0.1.9", table(OLD, SLOW), m=table(OLD, FAST))
    assert (t.error, t.conflict, kernels(t)) == (None, None, [["fast"]])


def test_the_first_release_forgets_cu_num_when_it_looks_for_twins() -> None:
    other = row(OLD, us=3, kernelName1="fast", cu_num=80)
    t = read("0.1.7.post2", table(OLD, SLOW), m=table(OLD, other))
    assert kernels(t) == [["fast"]]
    assert kernels(read("0.1.7.post3", table(OLD, SLOW), m=table(OLD, other))) == [["slow"], ["fast"]]


@pytest.mark.parametrize("version", ["0.1.12", "0.1.13", "0.1.16", "0.1.20.post1"])
def test_from_0_1_12_twins_across_files_raise_once(version: str) -> None:
    t = read(version, table(OLD, SLOW), m=table(OLD, FAST, row(OLD, token=32)))
    assert t.conflict is not None
    assert t.conflict.startswith("RuntimeError: Found 2 duplicate shape entries during merge of 'tuned_fmoe'. Auto-resolved")
    assert f"{DEFAULT}:2, {MODEL_CONFIGS}/m_tuned_fmoe.csv:2" in t.conflict
    assert kernels(t) == [["fast"], ["moe_ck2stages_gemm1_A"]], "what is left after AITER rewrote its files"


def test_tags_and_architectures_make_rows_differ() -> None:
    tags = table(TAGGED, row(TAGGED), row(TAGGED, _tag="flydsl_fallback"))
    assert read("0.1.20.post1", tags, m=ONE.replace(",16,", ",32,", 1)).conflict is None
    both = table(NEW, row(NEW, cu_num=256, gfx="gfx950"), row(NEW, cu_num=256, gfx="gfx1250"))
    assert read("0.1.20.post1", both, m=table(NEW, row(NEW, token=32))).conflict is None
    assert read("0.1.12", both, m=table(NEW, row(NEW, token=32))).conflict is not None, "gfx joined the key in 0.1.12.post2"


def test_twins_in_a_single_file_raise_until_0_1_13_and_the_first_wins_after() -> None:
    twins = table(OLD, SLOW, FAST)
    old = read("0.1.13", twins)
    assert old.error is not None
    assert old.error.startswith("ValueError: DataFrame index must be unique for orient='index'.")
    new = read("0.1.14", twins)
    assert (new.error, kernels(new)) == (None, [["slow", "fast"]])


# --- files that cannot be read ---------------------------------------------------------------------------------------


def test_an_unreadable_file_is_named_and_the_rest_is_read() -> None:
    broken = table(OLD, row(OLD, token=32), row(OLD, token=64) + ",9")
    t = read("0.1.20.post1", ONE, m=broken)
    assert [(p.file, p.line) for p in t.problems] == [(f"{MODEL_CONFIGS}/m_tuned_fmoe.csv", 3)]
    assert t.error == "ParserError: Error tokenizing data. C error: Expected 25 fields in line 3, saw 26"
    assert t.count == 1


def test_no_default_file_is_what_aiter_says_it_is() -> None:
    t = tuned.load(MemoryTree({}), rules("0.1.20.post1"))
    assert t.error == f"FileNotFoundError: [Errno 2] No such file or directory: '{DEFAULT}'"
    assert t.count == 0


@pytest.mark.parametrize("column", ["topk", "act_type", "cu_num"])
def test_a_missing_key_column_is_a_key_error(column: str) -> None:
    short = [c for c in OLD if c != column]
    t = read("0.1.20.post1", table(short, row(short)))
    assert t.error == f"KeyError: Index(['{column}'], dtype='str')"


# --- AITER_CONFIG_FMOE -------------------------------------------------------------------------------------------------


def given(tmp_path: Path, version: str, *texts: str | None) -> TunedTable:
    paths = []
    for i, text in enumerate(texts):
        path = tmp_path / f"f{i}.csv"
        if text is not None:
            path.write_text(text)
        paths.append(str(path))
    return tuned.load(tree(ONE), rules(version), {"AITER_CONFIG_FMOE": os.pathsep.join(paths)})


def test_a_list_replaces_the_shipped_tables(tmp_path: Path) -> None:
    t = given(tmp_path, "0.1.20.post1", table(OLD, row(OLD, token=32)), table(OLD, row(OLD, token=64)))
    assert [f.name for f in t.files] == [str(tmp_path / "f0.csv"), str(tmp_path / "f1.csv")]
    assert sorted(k[1] for k in t.index) == [32, 64]


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert tuned.load(tree(ONE), rules("0.1.20.post1"), {"AITER_CONFIG_FMOE": ""}).files[0].name == DEFAULT


def test_a_single_missing_file_raises_and_one_of_several_is_skipped(tmp_path: Path) -> None:
    alone = given(tmp_path, "0.1.20.post1", None)
    assert alone.error == f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'f0.csv'}'"
    pair = given(tmp_path, "0.1.20.post1", None, ONE)
    assert (pair.error, pair.missing, pair.count) == (None, [str(tmp_path / "f0.csv")], 1)
    none = given(tmp_path / "nowhere", "0.1.20.post1", None, None)
    assert none.error is not None
    assert none.error.startswith("FileNotFoundError: No existing config files found in ")


def test_up_to_0_1_11_the_first_of_several_must_exist(tmp_path: Path) -> None:
    t = given(tmp_path, "0.1.11", None, ONE)
    assert t.error == f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'f0.csv'}'"


def test_a_column_boolean_here_and_numeric_there_becomes_numbers(tmp_path: Path) -> None:
    a = table(OLD, row(OLD, run_1stage=True), row(OLD, token=32, run_1stage=False))
    t = given(tmp_path, "0.1.20.post1", a, table(OLD, row(OLD, token=64)))
    assert t.settings["run_1stage"] == [1, 0, 0]


# --- shipped trees -----------------------------------------------------------------------------------------------------


@needs_corpus
@pytest.mark.parametrize("label", ["v0.1.13", "v0.1.16.post4", "v0.1.20.post1"])
def test_shipped_trees_load_whole(label: str) -> None:
    root = corpus("aiter-trees", label)
    models = [p for p in (root / MODEL_CONFIGS).glob("*tuned_fmoe*.csv") if "untuned" not in p.name]
    lines = [x for p in (root / DEFAULT, *models) for x in p.read_text().splitlines()[1:] if x.strip()]
    t = tuned.load(open_tree(str(root)), rules(str(Version.of(label))))
    assert (len(t.files), t.count, t.problems, t.error, t.conflict) == (len(models) + 1, len(lines), [], None, None)


def test_a_table_without_rows_is_still_a_table() -> None:
    """Callers ask whether there is a table; that one has no rows must not read as none."""
    t = tuned.load(MemoryTree({DEFAULT: ONE.splitlines()[0] + "\n"}), rules("0.1.13"))
    assert t.count == 0
    assert t
