"""Every format parses back, whatever the strings of a report hold."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moe_preflight.report.formats import FORMATS
from moe_preflight.report.github import groups
from moe_preflight.report.sanitise import MAX_CHARS, clean_document
from moe_preflight.report.view import alike, body
from tests.contract.sarif import against_official, against_rules, official_schema
from tests.unit.report.documents import full

# Words of the contract: a report never holds a stranger's text here.
OWN = {"code", "verdict", "severity", "confidence", "dispatch_confidence", "tuned", "source"}

NASTY = (
    "", " ", "\x00", "\x07\x1b[2J\x1b]0;title\x07", "\x9b31m", "\x7f", "\r\n::error file=a::b", "::error::x",
    "  ::stop-commands::t", "##[group]", "##vso[task.setvariable variable=a]b", "%0A::warning::x", "%25", "a|b", "|", "\\|",
    "`", "``", "```\n# h\n```", "<script>alert(1)</script>", "</script><script>1</script>", "<!--", "-->", "<![CDATA[", "]]>",
    "&lt;", "&#0;", "&", '"', "'", '" onmouseover="x', "' onload='x", "</td></tr></table>", "</details>", "[a](http://x)",
    "![a](http://x)", "<img src=x onerror=1>", "{0}", "{{1}}", "$x$", "~~x~~", "**b**", "_i_", "* x", "- [ ] x", "1. x",
    "# head", "> q", "    code", "\\", "\\n", "\t", "\u2028\u2029", "\u202e\u2066", "\u200b\ufeff", "\ud800", "\udfff\ud800",
    "\ufffe\uffff", "\U000e0001", "\U0010ffff", "\u0300" * 40, "../../etc/passwd", "/etc/passwd", "//evil/x.csv",
    "file:///x.csv", "a:b.csv", "https://x/y.csv", "x.csv", "é.csv", "javascript:alert(1)", "x" * (MAX_CHARS + 5),
    "\x01" * MAX_CHARS, "%s %d {x}", "@everyone", "#1", "www.x.com", "ﷺ", "a" * 300 + ".csv",
)  # fmt: skip

text = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(codec=None), max_size=30),
    st.lists(st.sampled_from(NASTY), max_size=3).map("".join),
)


def spoiled(value: Any, draw: Any, key: str = "") -> Any:
    """The value with every string that is not a word of the contract replaced, keys of free objects too."""
    if isinstance(value, str):
        return value if key in OWN else draw(key) or "-" * (key == "error")  # an error always says something
    if isinstance(value, dict):
        return {draw(k) if key in ("environment", "engine_env") else k: spoiled(v, draw, k) for k, v in value.items()}
    if isinstance(value, list):
        return [spoiled(v, draw, key) for v in value]
    return value


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A whole report with a few hostile strings in all its places, and one that keeps its CSV rows."""
    pool = draw(st.lists(text, min_size=1, max_size=6))
    count = iter(range(1_000_000))
    doc = spoiled(full(), lambda _: pool[next(count) % len(pool)])
    for f in doc["findings"]:
        for e in f["evidence"]:
            e["file"] = draw(st.sampled_from([e["file"], e["file"] + ".csv", "aiter/configs/x.csv"]))
    cleaned: dict[str, Any] = clean_document(doc)
    return cleaned


def whole(word: str) -> dict[str, Any]:
    """The report with one hostile string everywhere."""
    cleaned: dict[str, Any] = clean_document(spoiled(full(), lambda _: word))
    return cleaned


hostile = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
every_word = pytest.mark.parametrize("word", NASTY, ids=lambda w: ascii(w[:16]))


def assert_no_control(out: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069\u200b\ufeff]", out)


def assert_no_command(out: str) -> None:
    """No line that GitHub Actions or Azure Pipelines would take for a command."""
    assert not re.search(r"(?m)^\s*::|##\w*\[", out)


# --- text, json ------------------------------------------------------------------------------------------------------


def check_text(doc: dict[str, Any]) -> None:
    out = FORMATS["text"](doc)
    assert_no_control(out)
    assert_no_command(out)
    assert out.split(maxsplit=1)[0] == "FAIL"


def check_json(doc: dict[str, Any]) -> None:
    out = FORMATS["json"](doc)
    assert out.isascii()
    assert_no_control(out)
    assert_no_command(out)
    assert json.loads(out) == doc


# --- github ----------------------------------------------------------------------------------------------------------

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)\Z")
PROPERTY = re.compile(r"(file|line|title)=([^,:\r\n]*)\Z")


def unescape(value: str, *, prop: bool) -> str:
    for code, char in (("%3A", ":"), ("%2C", ",")) if prop else ():
        value = value.replace(code, char)
    return value.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def check_github(doc: dict[str, Any]) -> None:
    """Read back as the runner reads: one command a line, and what it unescapes is what the report said."""
    out = FORMATS["github"](doc)
    assert_no_control(out)
    *commands, last = out.removesuffix("\n").split("\n")
    found = groups(doc)
    assert sum(map(len, found)) == len(doc["findings"])
    assert len(commands) == len(found) + len(doc["not_evaluated"])
    assert last.startswith("moe-preflight: FAIL: ")
    for line, group in zip(commands, found, strict=False):
        f = group[0]
        m = COMMAND.match(line)
        assert m, line
        assert m[1] == {"error": "error", "warning": "warning", "info": "notice"}[f["severity"]]
        for part in m[2].split(","):
            assert PROPERTY.match(part), part
        assert unescape(m[3], prop=False).split("\n")[0].endswith(body(doc, f))


# --- junit -----------------------------------------------------------------------------------------------------------


def check_junit(doc: dict[str, Any]) -> None:
    out = FORMATS["junit"](doc)
    assert_no_control(out)
    assert_no_command(out.replace("\n", " "))
    root = ET.fromstring(out.encode())
    assert {e.tag for e in root.iter()} <= {
        "testsuites", "testsuite", "testcase", "failure", "skipped", "system-out", "properties", "property",
    }  # fmt: skip
    failures = [e.attrib["message"] for e in root.iter("failure")]
    for f in doc["findings"]:
        if f["severity"] == "error":
            assert any(m.startswith(f["message"]) for m in failures)


# --- sarif -----------------------------------------------------------------------------------------------------------


def check_sarif(doc: dict[str, Any]) -> None:
    out = FORMATS["sarif"](doc)
    assert out.isascii()
    assert_no_command(out)
    log = json.loads(out)
    if all(f["message"] or f["remedy"] for f in doc["findings"]):
        assert against_rules(log) == []
    if official_schema() is not None:
        assert against_official(log) == []


# --- html ------------------------------------------------------------------------------------------------------------

VOID = {"meta", "br", "input", "rect"}
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "script", "footer", "header", "h1", "h2", "h3", "p", "ul", "li",
    "code", "span", "section", "article", "div", "details", "summary", "dl", "dt", "dd", "svg", "rect", "label", "input",
    "table", "thead", "tbody", "tr", "th", "td", "button", "b", "br", "a",
}  # fmt: skip


class Page(HTMLParser):
    """Tags that open and close as they should, scripts, and all attribute names."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.comments = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {k for k, _ in attrs}
        self.links |= {v or "" for k, v in attrs if k in ("href", "src")}
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {k for k, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts[-1] += data
        elif self.open[-1:] != ["style"]:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments += 1


def check_html(doc: dict[str, Any]) -> None:
    from moe_preflight.report.html_assets import JS

    out = FORMATS["html"](doc)
    assert_no_control(out)
    page = Page()
    page.feed(out)
    page.close()
    assert page.open == []
    assert page.scripts == [JS]
    assert page.tags <= ALLOWED
    assert page.comments == 0
    assert not {a for a in page.attributes if a.startswith("on") or a in ("style", "src", "srcdoc", "action")}
    assert all(re.fullmatch(r"#target-\d+", x) for x in page.links)
    words = "".join(page.words)
    assert all(f["remedy"] in words for f in doc["findings"])


# --- markdown --------------------------------------------------------------------------------------------------------


def check_markdown(doc: dict[str, Any]) -> None:
    """Parsed by a CommonMark parser with GitHub's tables: the tables have their rows and columns, and no link, picture or tag is a stranger's."""
    markdown_it = pytest.importorskip("markdown_it")
    out = FORMATS["markdown"](doc)
    assert_no_control(out)
    assert_no_command(out)
    tokens = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(out)
    rows: list[int] = []
    for t in tokens:
        if t.type == "tr_open":
            rows.append(0)
        elif t.type in ("td_open", "th_open"):
            rows[-1] += 1
        elif t.type == "html_block":
            assert re.fullmatch(r"<details><summary>[^<]*</summary>\n?|</details>\n?", t.content), t.content
        for child in t.children or ():
            assert child.type not in ("link_open", "image", "em_open", "s_open"), child
            if child.type == "html_inline":
                assert child.content in ("<br>", "<code>", "</code>"), child.content
    kinds = [t.type for t in tokens]
    assert kinds.count("heading_open") == 3
    assert "fence" not in kinds
    assert "code_block" not in kinds
    assert "blockquote_open" not in kinds
    assert kinds.count("bullet_list_open") == 3
    assert rows[:4] == [8] * 4
    if "longer than a job summary may be" in out:
        assert kinds.count("table_open") == 1
        return
    assert kinds.count("table_open") == 3
    assert set(rows[4:]) == {7}
    engines = {(t["deployment"]["engine"], t["deployment"]["engine_version"]) for t in doc["targets"]}
    unread = [m for m in doc["models"] if m["error"]]
    assert kinds.count("list_item_open") == 1 + len(engines) + len(unread) + len(alike(doc)) + len(doc["not_evaluated"])


# --- the tests -------------------------------------------------------------------------------------------------------

CHECKS = {
    "text": check_text, "json": check_json, "github": check_github, "junit": check_junit, "sarif": check_sarif, "html": check_html,
    "markdown": check_markdown,
}  # fmt: skip


def test_every_format_is_checked() -> None:
    assert set(CHECKS) == set(FORMATS)


@every_word
@pytest.mark.parametrize("name", CHECKS)
def test_one_hostile_string_everywhere(name: str, word: str) -> None:
    CHECKS[name](whole(word))


@pytest.mark.parametrize("name", CHECKS)
@hostile
@given(doc=documents())
def test_hostile_strings_anywhere(name: str, doc: dict[str, Any]) -> None:
    CHECKS[name](doc)
