"""What people reported in public, put to the tool: it gives the verdict each thread established, or says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from moe_preflight.cli.app import app, normalise
from tests.acceptance.reports_map import Ask, ask
from tests.corpus import CORPUS, corpus, needs_corpus

Report = Mapping[str, Any]

ALLOWED = {"FAIL": {"fail"}, "WARN": {"warn"}, "OK": {"pass", "warn"}, "INFO": {"pass", "warn"}}
"""Verdict of the thread -> verdicts of ours. A run that is right may still warn (an engine older than our tables does)."""

RANK = ("pass", "warn", "inconclusive", "fail")

DISAGREE = {
    "https://github.com/vllm-project/vllm/pull/38166": (
        "warn",
        "The CI of that thread ran with AITER's MoE not switched on, which vLLM 0.18's guard takes for 'no CK kernel'. We judge with it "
        "switched on, where 0.18 falls back to emulation: slow, not broken. The thread expects FAIL or WARN.",
    ),
    "https://github.com/ROCm/ATOM/pull/887": (
        "warn",
        "The bug was ATOM's own: it passed an index map where AITER wants a 0/1 mask. ATOM is no engine of ours, so the shape is judged "
        "as it goes to AITER, and there it is accepted (untuned).",
    ),
}
"""Thread -> (our verdict, why it differs)."""


def reports() -> list[Report]:
    if CORPUS is None:
        return []
    return [r for r in json.loads(corpus("cases", "public_reports.json").read_text()) if r["concrete"]]


def judge(question: Ask) -> tuple[str, list[Report]]:
    """The worst verdict over the report's GPUs, and all findings."""
    verdicts, findings = [], []
    for line in question.args(corpus("aiter-trees")):
        result = CliRunner().invoke(app, normalise(["check", "--format", "json", *line]))
        assert result.exit_code in (0, 1, 3), result.output
        document = json.loads(result.stdout)
        verdicts.append(document["verdict"])
        findings += document["findings"]
    return max(verdicts, key=RANK.index), findings


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("report", reports(), ids=lambda r: r["id"])
def test_verdict_of_the_thread(report: Report) -> None:
    question = ask(report)
    assert isinstance(question, Ask)
    verdict, findings = judge(question)
    expected = {DISAGREE[report["url"]][0]} if report["url"] in DISAGREE else ALLOWED[report["verdict"]]
    assert verdict in expected, [f"{f['severity']} {f['code']} {f['message']}" for f in findings if f["severity"] != "info"]


@pytest.mark.corpus
@needs_corpus
def test_disagreements_are_about_reports_that_exist_and_do_differ() -> None:
    by_url = {r["url"]: r for r in reports()}
    for url, (verdict, why) in DISAGREE.items():
        assert verdict not in ALLOWED[by_url[url]["verdict"]]
        assert len(why) > 40
