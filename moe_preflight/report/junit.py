"""JUnit XML: a suite per target and one for the run, a test case per rule that has something to say.

An error is a failure, what could not be evaluated is skipped, warnings and notes are the output of a case that passes. A target that
has no error of its own also has the case ``verdict``: passed, skipped when it is inconclusive, failed when an error of the whole run
fails it. What a gate forgives (its baseline, an ignore) is skipped, with the reason. No times, no host: same document, same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from moe_preflight.report import view
from moe_preflight.report.view import cited, layer_name, target_title, targets

Document = dict[str, Any]
Case = tuple[str, str]
"""(kind: failure | skipped | passed, the element)"""

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "#": "&#35;"})


def escape(text: str) -> str:
    """``text`` for an element; what XML 1.0 has no place for at all (section 2.2) is shown as ``\\uXXXX``.

    ``#`` is written as an entity too: ``##[...]`` printed in a build log would be a command.
    """
    return _INVALID.sub(lambda m: f"\\u{ord(m[0]):04x}", text).translate(_ENTITIES)


def attribute(text: str) -> str:
    """``text`` for a quoted attribute, which a parser would otherwise hand over with blanks for its line ends."""
    return escape(text).replace("\t", "&#9;").replace("\n", "&#10;").replace("\r", "&#13;")


def render(doc: Document) -> str:
    """The whole file. ``doc`` must be clean (report/sanitise.py)."""
    run = list(_run_cases(doc)) or ([] if targets(doc) else [_verdict("moe-preflight", doc["verdict"])])
    suites = [_suite("moe-preflight", [], run)] if run else []
    for i, t in enumerate(targets(doc)):
        title, d = target_title(doc, i), t["deployment"]
        cases = [*_rule_cases(doc, title, [f for f in doc["findings"] if f["target"] == i]), *_forgiven(doc, title, i)]
        if not any(kind == "failure" for kind, _ in cases):
            cases.insert(0, _verdict(title, t["verdict"]))
        facts = [(k, str(d[k])) for k in ("engine", "engine_version", "gpu", "gfx", "cu_num") if d[k] not in (None, "")]
        suites.append(_suite(title, facts, cases))
    body = "".join(text for text, _ in suites)
    totals = {k: sum(n[k] for _, n in suites) for k in ("tests", "failures", "skipped")}
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="moe-preflight"{_counts(totals)}>\n{body}</testsuites>\n'


_KIND = {"pass": "passed", "warn": "passed", "inconclusive": "skipped", "fail": "failure"}


def _verdict(suite: str, verdict: str) -> Case:
    words = {"inconclusive": "something asked for could not be evaluated", "fail": "an error of the whole run"}.get(verdict, "")
    return _case(suite, "verdict", _KIND[verdict], f"{verdict}: {words}", [], type_="verdict")


def _suite(name: str, facts: list[tuple[str, str]], cases: list[Case]) -> tuple[str, dict[str, int]]:
    n = {
        "tests": len(cases),
        "failures": sum(kind == "failure" for kind, _ in cases),
        "skipped": sum(kind == "skipped" for kind, _ in cases),
    }
    properties = "".join(f'      <property name="{attribute(k)}" value="{attribute(v)}"/>\n' for k, v in facts)
    properties = f"    <properties>\n{properties}    </properties>\n" if properties else ""
    body = "".join(element for _, element in cases)
    return f'  <testsuite name="{attribute(name)}"{_counts(n)}>\n{properties}{body}  </testsuite>\n', n


def _counts(n: dict[str, int]) -> str:
    return f' tests="{n["tests"]}" failures="{n["failures"]}" errors="0" skipped="{n["skipped"]}"'


def _run_cases(doc: Document) -> Iterator[Case]:
    yield from _rule_cases(doc, "moe-preflight", [f for f in doc["findings"] if f["target"] is None])
    yield from _forgiven(doc, "moe-preflight", None)
    for n in doc.get("not_evaluated", ()):
        message = f"{view.sentence(n['why'])} To get it: {n['how_to_get_it']}"
        yield _case("moe-preflight", f"not evaluated: {n['what']}", "skipped", message, [])


def _rule_cases(doc: Document, suite: str, findings: list[Document]) -> Iterator[Case]:
    by_code: dict[str, list[Document]] = {}
    for f in findings:
        by_code.setdefault(f["code"], []).append(f)
    for code, group in sorted(by_code.items()):
        errors = [f for f in group if f["severity"] == "error"]
        milder = [f"{f['severity']}: {_words(doc, f)}" for f in group if f["severity"] != "error"]
        kind = "failure" if errors else "passed"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        message = errors[0]["message"] + more if errors else ""
        detail = "\n\n".join(_words(doc, f) for f in errors)
        yield _case(suite, f"{code} {group[0]['name']}", kind, message, milder, type_=code, detail=detail)


def _forgiven(doc: Document, suite: str, target: int | None) -> Iterator[Case]:
    """A skipped case for each rule, way and reason by which the gate forgives findings of ``target``."""
    alike: dict[tuple[str, ...], list[Document]] = {}
    for s in doc.get("gate", {}).get("suppressed", ()):
        f = s["finding"]
        if f["target"] == target:
            until = f", until {s['until']}" if s["until"] else ""
            alike.setdefault((f["code"], f["name"], view.FORGIVEN[s["by"]], s["reason"] + until), []).append(f)
    for (code, name, how, reason), group in sorted(alike.items()):
        said = [f"{f['severity']}: {_words(doc, f)}" for f in group]
        yield _case(suite, f"{code} {name} ({how.lower()})", "skipped", f"{how}: {reason}", said)


def _words(doc: Document, f: Document) -> str:
    layer = layer_name(doc, f)
    lines = [f["message"], *([f"Layer: {layer}"] if layer else []), f"Why: {f['why']}", f"Do: {f['remedy']}"]
    return "\n".join(lines + [f"Read: {cited(e)} {e['text']}" for e in f["evidence"]])


def _case(suite: str, name: str, kind: str, message: str, output: list[str], *, type_: str = "", detail: str = "") -> Case:
    inside = ""
    if kind == "failure":
        inside += f'      <failure message="{attribute(message)}" type="{attribute(type_)}">{escape(detail)}</failure>\n'
    elif kind == "skipped":
        inside += f'      <skipped message="{attribute(message)}"/>\n'
    if output:
        inside += f"      <system-out>{escape((chr(10) * 2).join(output))}</system-out>\n"
    head = f'    <testcase classname="{attribute(suite)}" name="{attribute(name)}"'
    return kind, f"{head}>\n{inside}    </testcase>\n" if inside else f"{head}/>\n"
