"""The advisory data is sound, each predicate can match and can fail to, and the matcher takes no unknown for a yes."""

from __future__ import annotations

import json
import re

import pytest

from moe_preflight.advisories.advisory import OPERATORS, Advisory, Condition, match, releases
from moe_preflight.advisories.data import ALL
from moe_preflight.advisories.listing import WIDTH, as_json, as_text
from moe_preflight.advisories.vocabulary import FACTS
from tests.corpus import corpus, needs_corpus
from tests.unit.advisories.examples import EXAMPLES, V

BY_ID = {a.id: a for a in ALL}
each = pytest.mark.parametrize("a", ALL, ids=lambda a: a.id)


def hits(a: Advisory, facts: dict[str, object]) -> bool:
    return bool(match([a], facts))


def test_ids_are_unique_and_every_advisory_has_an_example() -> None:
    assert len(BY_ID) == len(ALL)
    assert set(EXAMPLES) == set(BY_ID)


@each
def test_data_is_complete(a: Advisory) -> None:
    assert re.fullmatch(r"MPA-\d{4}", a.id)
    for url in (a.url, *a.see_also):
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", url)
    assert a.severity in ("error", "warning", "info")
    assert a.confidence in ("read", "unverified")
    assert a.where
    for text in (a.title, a.symptom, a.cause, a.remedy):
        assert text.strip() == text != ""
    assert len(a.title) <= 110
    assert a.remedy.endswith(".")
    for c in a.where:
        assert c.fact in FACTS
        assert c.op in OPERATORS
    assert {e for e, _ in a.engines} <= {"vllm", "sglang", "aiter"}
    for span in (*(s for _, s in a.engines), *a.aiter):
        assert span.since is None or span.until is None or span.since < span.until
    for code in a.explains:
        assert re.fullmatch(r"MP\d{3}|[a-z]+(-[a-z0-9]+)+", code)
    assert not a.annotates or a.explains, "one that only annotates needs something to annotate"


@each
def test_it_matches_the_deployment_it_is_about(a: Advisory) -> None:
    (found,) = match([a], EXAMPLES[a.id])
    assert found.advisory is a
    assert len(found.because) == len(a.where)


def spoiled(c: Condition) -> object:
    """A value of the same kind for which ``c`` does not hold."""
    if c.op == "eq":
        return (not c.value) if isinstance(c.value, bool) else f"not {c.value}" if isinstance(c.value, str) else c.value + 1  # type: ignore[operator]
    if c.op in ("ne",):
        return c.value
    if c.op == "in":
        return "something else"
    if c.op == "not_in":
        return c.value[0]  # type: ignore[index]
    if c.op in ("lt", "gt", "not_multiple_of"):
        return c.value
    if c.op in ("le", "ge", "multiple_of"):
        return c.value + (-1 if c.op == "ge" else 1)  # type: ignore[operator]
    return frozenset({"other"} if c.op == "has" else {c.value})


@each
def test_every_condition_is_needed(a: Advisory) -> None:
    """Spoil one condition, or forget the fact: no match."""
    for c in a.where:
        assert not hits(a, {**EXAMPLES[a.id], c.fact: spoiled(c)}), c
        assert not hits(a, {**EXAMPLES[a.id], c.fact: None}), c
        assert not hits(a, {k: v for k, v in EXAMPLES[a.id].items() if k != c.fact}), c


@each
def test_releases_bound_it(a: Advisory) -> None:
    facts = EXAMPLES[a.id]
    for fact, spans in (("engine_version", tuple(s for _, s in a.engines)), ("aiter_version", a.aiter)):
        for span in spans:
            if span.until is not None:
                assert not hits(a, {**facts, fact: span.until}) or any(s.covers(span.until) for s in spans)
        if spans:
            assert not hits(a, {**facts, fact: None})
    if a.engines:
        assert not hits(a, {**facts, "engine": "another"})


@each
def test_batch_sizes_bound_it(a: Advisory) -> None:
    first, last = a.tokens
    assert hits(a, {**EXAMPLES[a.id], "max_tokens": max(first, 1)})
    if first > 1:
        assert not hits(a, {**EXAMPLES[a.id], "max_tokens": first - 1})
    if last is not None:
        assert not hits(a, {**EXAMPLES[a.id], "buckets": (last + 1,)})


def test_nothing_matches_nothing() -> None:
    assert match(ALL, {}) == []


def test_a_wrong_type_is_no_match() -> None:
    a = BY_ID["MPA-0002"]
    for value in ("224", True, 224.0, [224]):
        assert not hits(a, {**EXAMPLES[a.id], "inter_dim_padded": value})
    assert not hits(BY_ID["MPA-0043"], {**EXAMPLES["MPA-0043"], "ep": 1})


def test_when_unknown_matches_unverified() -> None:
    a = BY_ID["MPA-0001"]._replace(when_unknown=frozenset({"inter_dim_padded", "aiter_version"}))
    facts = {k: v for k, v in EXAMPLES[a.id].items() if k not in ("inter_dim_padded", "aiter_version")}
    (found,) = match([a], facts)
    assert found.confidence == "unverified"
    assert "inter_dim_padded is unknown" in found.because
    assert not hits(a, {**facts, "inter_dim_padded": 256})


def test_an_open_advisory_is_unverified_for_releases_nobody_read() -> None:
    a, facts = BY_ID["MPA-0033"], EXAMPLES["MPA-0033"]
    for version, confidence in (("0.1.20.post1", "read"), ("0.1.26", "unverified")):
        assert match([a], {**facts, "aiter_version": V(version)})[0].confidence == confidence


def test_backported_rows_match_in_both_lines() -> None:
    a, facts = BY_ID["MPA-0020"], EXAMPLES["MPA-0020"]
    versions = ["0.1.16.post3", "0.1.16.post4", "0.1.16.post6", "0.1.17", "0.1.18", "0.1.19.post2", "0.1.20"]
    assert [hits(a, {**facts, "aiter_version": V(v)}) for v in versions] == [False, True, True, False, True, True, False]


def test_releases_in_words() -> None:
    assert [str(releases(*b)) for b in ((None, None), ("1.0", None), (None, "1.0"), ("1.0", "2.0"))] == [
        "all releases",
        "1.0 and newer",
        "before 1.0",
        "1.0 to before 2.0",
    ]
    with pytest.raises(ValueError, match="not a version"):
        releases("newest")


def test_text_fits_80_columns_and_json_is_stable() -> None:
    for details in (False, True):
        text = as_text(ALL, details=details)
        assert max(len(line) for line in text.splitlines()) <= WIDTH
        assert all(a.id in text and a.url in text for a in ALL)
    document = json.loads(as_json(ALL))
    assert [d["id"] for d in document["advisories"]] == [a.id for a in ALL]
    assert as_json(ALL) == as_json(list(ALL))
    assert document["advisories"][0]["where"][0] == {"fact": "on_aiter", "op": "eq", "value": True}


READ_BESIDE_THE_FACTS = frozenset(
    f"https://github.com/{thread}"
    for thread in (
        "ROCm/aiter/issues/3471", "ROCm/aiter/issues/5049", "ROCm/aiter/pull/3208",
        "vllm-project/vllm/pull/49758", "vllm-project/vllm/issues/43605",
    )
)  # fmt: skip
"""Threads read for an advisory that the shared notes do not mention: as far as a search of public threads shows them, with the
repair looked up in the tags."""


@pytest.mark.corpus
@needs_corpus
def test_urls_are_those_of_the_facts() -> None:
    """Every URL stands in the shared reports or facts, or was read beside them: none is made up."""
    text = corpus("cases", "public_reports.json").read_text()
    text += "".join(p.read_text() for p in sorted(corpus("facts").glob("*.md")))
    for a in ALL:
        for url in (a.url, *a.see_also):
            owner, name, _, number = url.removeprefix("https://github.com/").split("/")
            said = (
                url in READ_BESIDE_THE_FACTS
                or url in text
                or re.search(rf"{re.escape(owner)}/{re.escape(name)}/(issues|pull)/{number}\b", text)
                or re.search(rf"(?i)\b{re.escape(name)}[ ]?(PR |issue |issues )?#{number}\b", text)
                or re.search(rf"(?i)vllm-project/{re.escape(name)}/(issues|pull)/\d+[^\n]*/{number}\b", text)
            )
            assert said, url
    assert {url for a in ALL for url in (a.url, *a.see_also)} >= READ_BESIDE_THE_FACTS


def test_command_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    from moe_preflight.cli.advisories import advisories
    from moe_preflight.errors import UsageError

    advisories(None, "text")
    assert capsys.readouterr().out == as_text(ALL)
    advisories(["mpa-0002"], "json")
    assert [d["id"] for d in json.loads(capsys.readouterr().out)["advisories"]] == ["MPA-0002"]
    for bad in (["MPA-9999"], ["x"]):
        with pytest.raises(UsageError, match="no such advisory"):
            advisories(bad, "text")
    with pytest.raises(UsageError, match="unknown format"):
        advisories(None, "yaml")
