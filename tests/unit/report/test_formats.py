"""What each format says about a small report, and that the table of formats stays cheap."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moe_preflight.report import formats, github, html_assets, markdown
from moe_preflight.report.formats import FORMATS, dumps, inert
from moe_preflight.report.sanitise import clean_document
from tests.unit.report.documents import FINDINGS, TABLE, clean_full, empty, finding, quiet


@pytest.fixture
def doc() -> dict[str, Any]:
    return clean_full()


# --- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("build", [clean_full, quiet, empty])
def test_every_format_renders_every_report(name: str, build: Any) -> None:
    text = FORMATS[name](clean_document(build()))
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "moe-preflight" in text or name == "text"


@pytest.mark.parametrize("name", FORMATS)
def test_every_error_and_warning_is_in_every_format(name: str, doc: dict[str, Any]) -> None:
    text = FORMATS[name](doc)
    for f in FINDINGS:
        assert f.code in text
        assert f.name in text or name == "sarif"  # which takes the name from the rule catalogue
    assert "CK rejects N = 192 at 2, 16, 128 tokens." in text
    assert "the tree has no sources" in text


@pytest.mark.parametrize("name", ["json", "markdown", "html", "github", "junit", "sarif"])
def test_a_document_of_findings_alone_renders(name: str) -> None:
    """Other commands hand over findings without targets."""
    full = clean_full()
    rows_only = [f for f in full["findings"] if f["target"] is None]
    doc = {
        "schema_version": 1,
        "tool": full["tool"],
        "verdict": "fail",
        "findings": rows_only,
        "targets": [],
        "not_evaluated": [],
    }
    assert "MP304" in FORMATS[name](doc)


def test_text_and_json_import_no_other_format() -> None:
    code = (
        "import sys\nfrom moe_preflight.report.formats import FORMATS\nfrom tests.unit.report.documents import clean_full\n"
        "before = set(sys.modules)\nd = clean_full()\nFORMATS['json'](d); FORMATS['text'](d)\n"
        "new = {m for m in sys.modules if m.startswith(('html', 'xml', 'urllib', 'hashlib', 'moe_preflight.report.'))} - before\n"
        "assert new <= {f'moe_preflight.report.{m}' for m in ('text', 'style', 'view')}, new\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


# --- json, text ------------------------------------------------------------------------------------------------------


def test_json_is_the_document_with_sorted_keys(doc: dict[str, Any]) -> None:
    text = FORMATS["json"](doc)
    assert json.loads(text) == doc
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert text.isascii()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x, max_size=4),
        max_leaves=20,
    )
)
def test_json_is_what_the_json_module_writes(value: Any) -> None:
    expected = json.dumps(value, indent=2, sort_keys=True).replace("##", "\\u0023\\u0023") + "\n"
    assert dumps(value) == expected
    assert json.loads(dumps(value)) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_json_has_no_word_for_infinity(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(value)


@pytest.mark.parametrize("word", ["##[error]x", "###vso[task.x]", "\\##[x]", "####", '"##"'])
def test_json_holds_no_command_for_a_build_machine_and_the_same_value(word: str) -> None:
    text = dumps({"a": word})
    assert "##" not in text
    assert json.loads(text) == {"a": word}


def test_a_text_line_is_no_command_for_a_build_machine() -> None:
    text = "ok\n::error::x\n   ::add-mask::y\na ck::Tensor\n##[error] z ##vso[task.setvariable]\n### head\n"
    assert (
        inert(text)
        == "ok\n\\x3a:error::x\n   \\x3a:add-mask::y\na ck::Tensor\n\\x23#[error] z \\x23#vso[task.setvariable]\n### head\n"
    )


# --- github ----------------------------------------------------------------------------------------------------------


def test_a_finding_on_a_row_points_at_file_and_line(doc: dict[str, Any]) -> None:
    line = next(x for x in FORMATS["github"](doc).splitlines() if "MP304" in x)
    assert line.startswith(f"::warning file=/opt/aiter/{TABLE},line=12,title=MP304 row-duplicate::One key, two rows.%0A")


def test_severities_become_levels_and_the_last_line_is_plain(doc: dict[str, Any]) -> None:
    lines = FORMATS["github"](doc).splitlines()
    assert [x.split()[0] for x in lines[:-1]] == ["::error", "::error", "::warning", "::warning", "::notice", "::warning"]
    assert lines[-1] == "moe-preflight: FAIL: 3 targets, 2 errors, 2 warnings, 1 info, 1 not evaluated"


def test_findings_that_differ_in_target_or_layer_share_an_annotation(doc: dict[str, Any]) -> None:
    twin = doc["findings"][3] | {"target": 2, "message": "TP8 mi355x: rows are missing: 512-2048."}
    doc["findings"].append(twin)
    (line,) = [x for x in FORMATS["github"](doc).splitlines() if "MP301" in x]
    assert "::example/Big-MoE TP4 EP4 MI355X, example/Big-MoE TP8 MI355X: rows are missing: 512-2048.%0A" in line
    twin["evidence"] = [{"file": TABLE, "line": 9, "text": ""}]
    assert len([x for x in FORMATS["github"](doc).splitlines() if "MP301" in x]) == 2


def test_layers_are_named_where_a_finding_is_not_about_all(doc: dict[str, Any]) -> None:
    layers = doc["targets"][1]["layers"]
    layers.append(layers[0] | {"name": "mtp"})
    line = next(x for x in FORMATS["github"](doc).splitlines() if "MP301" in x)
    assert "MI355X (main): rows" in line
    doc["findings"].append(doc["findings"][3] | {"layer": 1})
    assert "MI355X: rows" in next(x for x in FORMATS["github"](doc).splitlines() if "MP301" in x)


def test_a_relative_tree_gives_paths_in_the_repository(doc: dict[str, Any]) -> None:
    doc["aiter"]["root"] = "third_party/aiter/"
    assert f"file=third_party/aiter/{TABLE},line=12," in FORMATS["github"](doc)


def test_properties_and_data_are_escaped_as_the_runner_unescapes() -> None:
    line = github._command("error", {"file": "a,b:c%\n.csv", "title": "t::x"}, ["50% done", "::next"])
    assert line == "::error file=a%2Cb%3Ac%25%0A.csv,title=t%3A%3Ax::50%25 done%0A::next"


# --- junit -----------------------------------------------------------------------------------------------------------


def test_junit_counts_what_it_holds(doc: dict[str, Any]) -> None:
    root = ET.fromstring(FORMATS["junit"](doc))
    for element in [root, *root.findall("testsuite")]:
        assert int(element.attrib["tests"]) == len(list(element.iter("testcase")))
        assert int(element.attrib["failures"]) == len(list(element.iter("failure")))
        assert int(element.attrib["skipped"]) == len(list(element.iter("skipped")))


def test_junit_failures_are_errors_and_warnings_are_output(doc: dict[str, Any]) -> None:
    root = ET.fromstring(FORMATS["junit"](doc))
    cases = {(c.attrib["classname"], c.attrib["name"]): c for c in root.iter("testcase")}
    rejected = cases["example/Big-MoE TP8 MI300X", "MP101 ck-rejects"].find("failure")
    assert rejected is not None
    assert rejected.attrib["message"].startswith("TP8 mi300x: CK rejects")
    assert "Why: It matters.\nDo: Mend it." in (rejected.text or "")
    warned = cases["example/Big-MoE TP4 EP4 MI355X", "MP301 made-up"]
    assert warned.find("failure") is None
    assert "rows are missing" in (warned.findtext("system-out") or "")
    skipped = cases["moe-preflight", "not evaluated: router kernels"].find("skipped")
    assert skipped is not None


@pytest.mark.parametrize(("verdict", "child"), [("pass", None), ("warn", None), ("inconclusive", "skipped"), ("fail", "failure")])
def test_a_target_without_errors_of_its_own_says_its_verdict(verdict: str, child: str | None) -> None:
    doc = clean_document(quiet())
    doc["targets"][0]["verdict"] = verdict
    (case,) = ET.fromstring(FORMATS["junit"](doc)).iter("testcase")
    assert case.attrib["name"] == "verdict"
    assert [x.tag for x in case] == ([child] if child else [])


def test_a_run_of_nothing_has_no_green_case() -> None:
    root = ET.fromstring(FORMATS["junit"](clean_document(empty())))
    assert root.attrib["tests"] == root.attrib["skipped"] == "1"


# --- markdown --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("num_expert_group", "num_expert_group"),
        ("_x_ a|b", "&#95;x&#95; a&#124;b"),
        ("<b>&`", "&#60;b>&#38;&#96;"),
        ("[a](b) ![c](d)", "&#91;a&#93;(b) &#33;&#91;c&#93;(d)"),
    ],
)
def test_prose_is_literal(text: str, shown: str) -> None:
    assert markdown.prose(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"), [("a_b*c", "`a_b*c`"), ("a`b", "<code>a&#96;b</code>"), ("a|b", "<code>a&#124;b</code>"), ("", "")]
)
def test_code_spans_hold_in_tables(text: str, shown: str) -> None:
    assert markdown.code(text) == shown


def test_buckets_fold_only_neighbours(doc: dict[str, Any]) -> None:
    """Rejected are 2, 16, 128 and 1024: nothing folds over them."""
    text = FORMATS["markdown"](doc)
    first = text.split("<details>")[1]
    assert [line.split("|")[1].strip() for line in first.splitlines() if line.startswith("| ")][2:] == [
        "1", "2", "4-8", "16", "32-64", "128", "256-512", "1,024", "2,048",
    ]  # fmt: skip


def test_alike_findings_of_several_targets_stand_together(doc: dict[str, Any]) -> None:
    f = finding("MP301", message="TP8 mi355x: rows are missing: 512-2048.", target=2)
    doc["findings"].append(doc["findings"][3] | {"target": 2, "message": f.message})
    text = FORMATS["markdown"](doc)
    assert text.count("`MP301`") == 1
    assert "example/Big-MoE TP4 EP4 MI355X, example/Big-MoE TP8 MI355X: rows are missing: 512-2048." in text


def test_a_summary_stays_below_what_github_shows(doc: dict[str, Any]) -> None:
    doc["findings"] = [doc["findings"][0] | {"message": f"{i} " + "x" * 5000} for i in range(400)]
    text = FORMATS["markdown"](doc)
    assert len(text.encode()) <= markdown.MAX_BYTES
    assert "longer than a job summary may be" in text
    assert "### Not evaluated" in text
    assert "400 errors" in text


# --- html ------------------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing(doc: dict[str, Any]) -> None:
    text = FORMATS["html"](doc)
    for word in ("http:", "https:", "src=", "@import", "url(", "<link", "<iframe", "<img"):
        assert word not in text
    assert html_assets.policy() in text
    assert "unsafe" not in html_assets.policy()
    assert "style=" not in text
    assert text.count("<script>") == text.count("<style>") == 1


def test_every_bucket_is_in_the_page(doc: dict[str, Any]) -> None:
    text = FORMATS["html"](doc)
    assert text.count('<details class="buckets" open>') == 2
    for token in ("1", "2", "2,048"):
        assert f'<span class="one">{token}</span>' in text
    assert text.count(' data-n="2048"') == 2
    assert '<span class="range">256-512</span>' in text


def test_formats_lists_the_seven() -> None:
    assert list(formats.FORMATS) == ["text", "json", "markdown", "html", "github", "junit", "sarif"]
