"""Token buckets and the row a key finds, by release; and that a lookup is what a scan of the table would find."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from moe_preflight.aiter import tuned
from moe_preflight.aiter.facts.dispatch_rules import HISTORY, MAIN, PADDING, rules_for
from moe_preflight.aiter.facts.dispatch_sources import SOURCES
from moe_preflight.aiter.lookup import Lookup, LookupKey, bucket, buckets
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.version import Version
from tests.corpus import corpus, needs_corpus
from tests.unit.aiter.tables import NEW, OLD, TAGGED, read, row, rules, table

KEY: LookupKey = (304, 16, 4096, 256, 64, 8, *["torch.bfloat16"] * 3, "QuantType.No", True, False)
SILU, GELU, SWIGLU = (f"ActivationType.{a}" for a in ("Silu", "Gelu", "Swiglu"))


def found(version: str, text: str, act: str = SILU, key: LookupKey = KEY, gfx: str = "gfx942") -> tuple[str | None, str]:
    """Kernel name of the row a release finds, and how."""
    t = read(version, text)
    r, how = Lookup(t, rules(version), gfx).find(key, act)
    return (None if r is None else t.name(r, "kernelName1")), how


@pytest.mark.parametrize(
    ("version", "answers"),
    [
        ("0.1.7.post2", {0: 1, 1: 16, 16: 16, 17: 32, 1023: 1024, 1024: 1024, 99999: 1024}),
        ("0.1.8", {1: 16, 100: 128, 1024: 1024, 2047: 1024, 2048: 2048, 16383: 2048, 16384: 16384, 99999: 16384}),
        ("0.1.9", {1: 1, 3: 4, 16: 16, 1500: 1024, 4096: 2048}),
        ("0.1.12", {1: 1, 3: 4, 1500: 2048, 32767: 32768, 32768: 32768, 200000: 32768}),
        ("0.1.14", {1: 1, 5: 8, 32769: 32768, 131071: 32768, 131072: 131072, 900000: 131072}),
    ],
)
def test_token_counts_fall_into_buckets(version: str, answers: dict[int, int]) -> None:
    assert {t: bucket(t, rules(version).tiers) for t in answers} == answers


@pytest.mark.parametrize("name", list(PADDING))
def test_buckets_are_what_batches_fall_into(name: str) -> None:
    assert set(buckets(name)) == {bucket(t, name) for t in range(1, 140_000)}


# --- activation --------------------------------------------------------------------------------------------------------

BOTH = table(OLD, row(OLD, act_type=GELU, kernelName1="gelu"), row(OLD, kernelName1="silu"))
CK_BOTH = table(
    OLD, row(OLD, act_type=GELU, kernelName1="moe_ck2stages_gelu"), row(OLD, act_type=SWIGLU, kernelName1="asm_swiglu")
)


@pytest.mark.parametrize(
    ("version", "silu", "swiglu"),
    [
        ("0.1.13", "silu", None),
        ("0.1.14", "gelu", "gelu"),
        ("0.1.17", "gelu", "gelu"),
        ("0.1.18", "silu", "gelu"),
        ("0.1.19", "silu", "gelu"),
        ("0.1.19.post1", "gelu", "gelu"),
        ("0.1.20.post1", "gelu", "gelu"),
        ("0.1.21", "silu", "gelu"),
    ],
)
def test_activation_by_release(version: str, silu: str, swiglu: str | None) -> None:
    assert found(version, BOTH)[0] == silu
    assert found(version, BOTH, SWIGLU)[0] == swiglu


def test_a_ck_row_is_not_lent_from_0_1_21() -> None:
    assert found("0.1.20.post1", CK_BOTH)[0] == "moe_ck2stages_gelu"
    assert found("0.1.21", CK_BOTH)[0] == "asm_swiglu"
    assert found("0.1.21", CK_BOTH, GELU)[0] == "moe_ck2stages_gelu", "its own activation still finds it"


# --- tags, architectures, tiers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "tag", "hit"),
    [
        ("0.1.10.post3", "anything", True),
        ("0.1.11", "anything", False),
        ("0.1.16.post3", "anything", False),
        ("0.1.16.post4", "anything", True),
        ("0.1.16.post4", "flydsl_fallback", False),
        ("0.1.17", "anything", False),
        ("0.1.18", "anything", True),
        ("0.1.18", "flydsl_fallback", False),
    ],
)
def test_tags_by_release(version: str, tag: str, hit: bool) -> None:
    assert (found(version, table(TAGGED, row(TAGGED, _tag=tag)))[1] == "hit") is hit


@pytest.mark.parametrize(
    ("gfx", "cu_num", "on", "hit"),
    [
        ("gfx942", 304, "gfx942", True),
        ("gfx950", 304, "gfx942", False),
        ("", 304, "gfx942", True),
        ("0", 304, "gfx950", False),
        ("nan", 228, "gfx950", True),
        ("gfx1250", 256, "gfx950", False),
    ],
)
def test_architecture_is_in_the_key_from_0_1_16(gfx: str, cu_num: int, on: str, hit: bool) -> None:
    text = table(NEW, row(NEW, gfx=gfx, cu_num=cu_num))
    key = (cu_num, *KEY[1:])
    assert (found("0.1.16", text, key=key, gfx=on)[1] == "hit") is hit
    assert found("0.1.15", text, key=key, gfx=on)[1] == "hit"


def test_no_gfx_column_takes_the_architecture_of_the_cu_count() -> None:
    text = table(OLD, row(OLD, cu_num=80), row(OLD, cu_num=64))
    assert found("0.1.20.post1", text, key=(80, *KEY[1:]), gfx="gfx950")[1] == "miss"
    assert found("0.1.20.post1", text, key=(64, *KEY[1:]), gfx="gfx950")[1] == "hit", "an unknown count is the running GPU's"


def test_the_largest_tier_falls_back_to_the_smaller_one() -> None:
    text = table(OLD, row(OLD, token=32768))
    assert found("0.1.14", text, key=(304, 131072, *KEY[2:])) == ("moe_ck2stages_gemm1_A", "tier")
    assert found("0.1.13", text, key=(304, 131072, *KEY[2:]))[1] == "miss"
    assert found("0.1.14", text, key=(304, 16384, *KEY[2:]))[1] == "miss", "never below 32768"


def test_the_default_file_settles_a_contest_and_model_files_do_not() -> None:
    mine, theirs = table(OLD, row(OLD, act_type=GELU, kernelName1="g")), table(OLD, row(OLD, kernelName1="s"))
    version = "0.1.20.post1"
    for files, contested in (((mine, theirs, None), False), ((table(OLD), mine, theirs), True)):
        default, a, b = files
        t = read(version, default, **{n: x for n, x in (("a", a), ("b", b)) if x is not None})
        look = Lookup(t, rules(version), "gfx942")
        r, _ = look.find(KEY, SILU)
        assert r is not None
        assert look.contested(KEY, r) is contested


# --- a lookup is a scan ------------------------------------------------------------------------------------------------

Row = dict[str, str]


def scan(version: str, everything: list[tuple[str, int, Row]], key: LookupKey, act: str, gfx: str) -> tuple[str, int] | None:
    """What AITER's data frame would answer, said the slow way: every row in order, cell by cell."""
    r = rules(version)

    def fits(cells: Row, token: object) -> bool:
        want = dict(zip(tuned.KEY_COLUMNS, (key[0], token, *key[2:]), strict=True))
        tag = cells.get("_tag", "")
        if (r.tag == "untagged" and tag) or (r.tag == "not-fallback" and tag == "flydsl_fallback"):
            return False
        arch = cells.get("gfx") or {"256": "gfx950", "80": "gfx942", "304": "gfx942"}.get(cells["cu_num"], gfx)
        if r.gfx_in_key and arch != gfx:
            return False
        return all(str(int(v)) == cells[c] if isinstance(v, int) else v == cells[c] for c, v in want.items())

    for token in (key[1], 32768) if r.tier and isinstance(key[1], int) and key[1] > 32768 else (key[1],):
        rows = [(f, line, cells) for f, line, cells in everything if fits(cells, token)]
        own = [x for x in rows if x[2]["act_type"] == act]
        lent = [] if r.act == "exact" else rows
        for f, line, _ in lent if r.act == "ignored" else [*own, *lent]:
            return f, line
    return None


@needs_corpus
@pytest.mark.parametrize("label", ["v0.1.13", "v0.1.16.post4", "v0.1.20.post1"])
@pytest.mark.parametrize("act_of", ["0.1.13", "0.1.18", "0.1.20.post1"])
def test_lookups_equal_a_scan(label: str, act_of: str) -> None:
    """Also with the activation handling of another release, so that every kind meets every table."""
    root = corpus("aiter-trees", label)
    version = str(Version.of(label))
    t = tuned.load(open_tree(str(root)), rules(version))
    everything = list(t)
    rng = random.Random(f"{label}{act_of}")
    r = rules(version)
    use = act_of if rules(act_of).gfx_in_key == r.gfx_in_key else version
    # A filled _tag is 0 and drops the row; the scan reads the cells as the file has them.
    if rules(use).tag == "untagged":
        everything = [(f, line, {"_tag": "0", **cells}) for f, line, cells in everything]
    alike: dict[tuple[str, ...], list[tuple[str, int, Row]]] = {}
    for x in everything:
        alike.setdefault((x[2]["cu_num"], x[2]["model_dim"], x[2]["expert"]), []).append(x)
    for _ in range(100):
        _, _, cells = rng.choice(everything)
        token = int(cells["token"]) if rng.random() < 0.7 else rng.choice((1, 64, 4096, 32768, 131072))
        key: LookupKey = (
            *(int(cells["cu_num"]), token, *(int(cells[c]) for c in ("model_dim", "inter_dim", "expert", "topk"))),
            *(cells[c] for c in ("dtype", "q_dtype_a", "q_dtype_w", "q_type")),
            *(cells["use_g1u1"] == "1", cells["doweight_stage1"] == "1"),
        )
        act, gfx = rng.choice((SILU, GELU, SWIGLU)), rng.choice(("gfx942", "gfx950"))
        row, _ = Lookup(t, rules(use), gfx).find(key, act)
        assert (None if row is None else t.where(row)) == scan(
            use, alike[cells["cu_num"], cells["model_dim"], cells["expert"]], key, act, gfx
        )


@needs_corpus
def test_a_hit_really_is_that_line_of_that_file() -> None:
    root = corpus("aiter-trees", "v0.1.20.post1")
    t = tuned.load(open_tree(str(root)), rules("0.1.20.post1"))
    files: dict[str, list[list[str]]] = {}
    for key, held in t.index.items():
        for r in held:
            name, line = t.where(r)
            if name not in files:
                with (Path(root) / name).open(newline="") as f:
                    files[name] = list(csv.reader(f))
            cells = dict(zip(files[name][0], files[name][line - 1], strict=False))
            want = [str(int(v)) if isinstance(v, int) else v for v in key]
            assert [cells[c] for c in tuned.KEY_COLUMNS] == want


def test_history_is_in_order_and_every_entry_changes_something() -> None:
    versions = [Version.of(v) for v, _ in HISTORY]
    assert versions == sorted(set(versions))
    for (_, changes), before in zip(HISTORY[1:], versions, strict=False):
        old = rules_for(before)
        assert all(getattr(old, k) != v for k, v in changes.items()), changes


def test_every_entry_of_the_history_says_where_it_was_read() -> None:
    assert list(SOURCES) == [v for v, _ in HISTORY]


def test_a_build_on_the_way_to_an_unread_release_is_taken_for_main() -> None:
    assert rules("0.1.21.dev37+ge4048607") == rules("0.1.20.post1-37-ge4048607") == rules(MAIN) != rules("0.1.21")
    assert rules("0.1.7.post2.dev18") == rules("0.1.7.post2"), "AMD's wheel carries the release's code"
