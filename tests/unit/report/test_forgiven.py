"""What a gate forgives is told by every format that CI shows, with the reason, and fails nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from moe_preflight.report import github, junit
from moe_preflight.report.sanitise import clean_document
from tests.unit.report.documents import full


def gated(*suppressed: tuple[int, str, str, str | None]) -> dict[str, Any]:
    """The full report with those findings (index, by, reason, until) taken out of it and forgiven."""
    doc = full()
    every = list(doc["findings"])
    taken = [i for i, *_ in suppressed]
    doc["findings"] = [f for i, f in enumerate(every) if i not in taken]
    said = [{"finding": every[i], "by": by, "reason": reason, "until": until} for i, by, reason, until in suppressed]
    doc["gate"] = {"deployments": [], "suppressed": said}
    return clean_document(doc)


BOTH = ((0, "baseline", "known since <May>", None), (1, "ignore", "a broken sample\n::error::x", "2027-01-31"))


def test_junit_skips_it_with_the_reason() -> None:
    root = ET.fromstring(junit.render(gated(*BOTH)))
    skipped = {c.get("name"): c.find("skipped").get("message") for c in root.iter("testcase") if c.find("skipped") is not None}  # type: ignore[union-attr]
    known, ignored = (f for f in full()["findings"][:2])
    assert skipped[f"{known['code']} {known['name']} (known)"] == "Known: known since <May>"
    assert skipped[f"{ignored['code']} {ignored['name']} (ignored)"].endswith(", until 2027-01-31")  # type: ignore[union-attr]
    assert not [c for c in root.iter("failure") if c.get("type") == known["code"]]
    count = sum(c.find("skipped") is not None for c in root.iter("testcase"))
    assert root.get("skipped") == str(count)


def test_github_says_it_in_one_notice_for_each_way() -> None:
    lines = github.render(gated(*BOTH)).splitlines()
    notices = [x for x in lines if x.startswith(("::notice title=Known", "::notice title=Ignored"))]
    assert [x.split("::")[1] for x in notices] == [
        "notice title=Known%3A 1 finding forgiven",
        "notice title=Ignored%3A 1 finding forgiven",
    ]
    assert "known since <May>" in notices[0]
    assert "until 2027-01-31" in notices[1]
    assert not any(x.startswith("::error::x") for x in lines)


def test_github_cuts_a_long_list_and_says_so() -> None:
    doc = gated(*((0, "ignore", f"reason {n}", None) for n in range(33)))
    (notice,) = [x for x in github.render(doc).splitlines() if "title=Ignored" in x]
    assert "33 findings forgiven" in notice
    assert notice.endswith("and 13 more; the JSON report has all of them")


@pytest.mark.parametrize("render", [junit.render, github.render])
def test_nothing_forgiven_nothing_said(render: Any) -> None:
    doc = gated()
    assert render(doc) == render(clean_document(full()))
