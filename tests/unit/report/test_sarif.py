"""SARIF: where results point, and what makes a fingerprint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moe_preflight.report.fingerprint import fingerprints
from moe_preflight.report.sarif import FINGERPRINT, message, render
from moe_preflight.rules.rule import Rule
from tests.unit.report.documents import TABLE, clean_full

RULE = Rule("MP101", "ck-rejects", "error", "--", "What.", "Why.", "Example.", "Remedy.", "source")


def sarif(doc: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render(doc, {"MP101": RULE}))["runs"][0]
    return found


def result(run: dict[str, Any], code: str) -> dict[str, Any]:
    return next(r for r in run["results"] if r["ruleId"] == code)


def test_a_row_is_a_physical_location_below_the_tree() -> None:
    run = sarif(clean_full())
    r = result(run, "MP304")
    place = r["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": TABLE, "uriBaseId": "AITER"}
    assert place["region"]["startLine"] == 12
    assert r["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 40
    assert run["originalUriBaseIds"]["AITER"]["uri"] == "file:///opt/aiter/"


@pytest.mark.parametrize(
    ("root", "uri"),
    [(None, {"uri": TABLE}), ("vendor/a b", {"uri": f"vendor/a%20b/{TABLE}"})],
)
def test_a_row_without_an_absolute_tree_is_a_plain_path(root: str | None, uri: dict[str, str]) -> None:
    doc = clean_full()
    doc["aiter"]["root"] = root
    run = sarif(doc)
    assert result(run, "MP304")["locations"][0]["physicalLocation"]["artifactLocation"] == uri
    assert "originalUriBaseIds" not in run


def test_other_findings_name_the_target_and_the_config_that_was_judged() -> None:
    run = sarif(clean_full())
    place = result(run, "MP101")["locations"][0]
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "example/Big-MoE TP8 MI300X/main"
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "example/Big-MoE/config.json"}
    assert result(run, "MP502")["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "broken.json"}
    assert all("physicalLocation" in r["locations"][0] for r in run["results"])


def test_rules_come_from_the_catalogue_and_an_unknown_one_from_its_finding() -> None:
    rules = {r["id"]: r for r in sarif(clean_full())["tool"]["driver"]["rules"]}
    assert rules["MP101"]["shortDescription"]["text"] == "What."
    assert rules["MP101"]["properties"] == {"depends": "--", "source": "source"}
    assert rules["MP304"]["defaultConfiguration"]["level"] == "warning"
    assert list(rules) == sorted(rules)


def test_what_could_not_be_evaluated_is_no_success() -> None:
    doc = clean_full()
    assert sarif(doc)["invocations"][0]["executionSuccessful"] is False
    doc["not_evaluated"], doc["models"] = [], doc["models"][:1]
    assert sarif(doc)["invocations"][0]["executionSuccessful"] is True


def test_a_message_holds_no_placeholder_and_no_link() -> None:
    assert message("{0} [text](http://x) [128, 128]") == "{{0}} [text] (http://x) [128, 128]"


# --- fingerprints ----------------------------------------------------------------------------------------------------


def by_code(doc: dict[str, Any]) -> dict[str, str]:
    return {f["code"]: mark for f, mark in zip(doc["findings"], fingerprints(doc), strict=True)}


def test_fingerprints_do_not_see_order_figures_lines_or_versions() -> None:
    before, doc = by_code(clean_full()), clean_full()
    doc["findings"].reverse()
    doc["tool"]["version"] = "99"
    doc["aiter"] |= {"version": "0.1.99", "root": "/elsewhere"}
    for t in doc["targets"]:
        t["deployment"]["engine_version"] = "9.9"
    for f in doc["findings"]:
        f |= {"why": "other", "remedy": "other"}
        if f["target"] is not None:
            f["message"] = f["message"].replace("2, 16, 128", "4, v0.1.99, /elsewhere").replace("512-2048", "64, 128-256")
        for e in f["evidence"]:
            e["line"] += 7
    assert by_code(doc) == before
    marks = [r["partialFingerprints"][FINGERPRINT] for r in sarif(doc)["results"]]
    assert marks == fingerprints(doc)


def test_only_a_result_on_a_row_leaves_its_fingerprint_to_github() -> None:
    """The upload action makes it from the row's line; of a config it would make one for all findings."""
    for r in sarif(clean_full())["results"]:
        mine = r["partialFingerprints"].get("primaryLocationLineHash")
        assert mine == (None if r["ruleId"] == "MP304" else r["partialFingerprints"][FINGERPRINT][:16] + ":1")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["targets"][0]["deployment"].update(tp=2),
        lambda d: d["targets"][0]["deployment"].update(cu_num=80),
        lambda d: d["targets"][0].update(model="other/Model"),
        lambda d: d["targets"][0]["layers"][0].update(name="mtp"),
        lambda d: d["findings"][0].update(code="MP102"),
        lambda d: d["findings"][0].update(advisory="ADV-2026-009"),
        lambda d: d["findings"][0].update(severity="warning"),
        lambda d: d["findings"][0].update(message="TP8 mi300x: another thing."),
    ],
)
def test_fingerprints_see_what_was_judged(change: Any) -> None:
    before, doc = fingerprints(clean_full()), clean_full()
    change(doc)
    after = fingerprints(doc)
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_twins_get_fingerprints_of_their_own_whatever_their_order() -> None:
    doc = clean_full()
    doc["findings"] = [doc["findings"][0] | {"message": f"m{i}"} for i in (3, 1, 2)]
    marks = dict(zip("312", fingerprints(doc), strict=True))
    assert len(set(marks.values())) == 3
    doc["findings"].sort(key=lambda f: f["message"])
    assert dict(zip("123", fingerprints(doc), strict=True)) == marks
