"""SARIF 2.1.0 (OASIS), one run.

A finding about a row of a table has that row as its physical location, and the other rows as related ones. Any other
finding has the model's config as its physical location, because that is what was judged, and the target as its logical one: GitHub
code scanning refuses a whole file for one result with no physical location ("expected a physical location").
What a gate forgives (its baseline, an ignore with a reason) is a result with a ``suppressions`` entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moe_preflight.report import view
from moe_preflight.report.fingerprint import fingerprints
from moe_preflight.report.formats import dumps

Document = dict[str, Any]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "moePreflight/v1"
GITHUB_FINGERPRINT = "primaryLocationLineHash"
"""The one GitHub matches alerts by. Its upload action makes it from the line that a result points at, which is right for a row; findings about a
model all point at line 1 of its config and would become one alert, so they bring their own."""
TREE = "AITER"
"""The uriBaseId of files below the AITER tree."""

_LEVEL = {"error": "error", "warning": "warning", "info": "note"}


def render(doc: Document, rules: Mapping[str, Any] | None = None) -> str:
    """The whole log. ``doc`` must be clean; ``rules`` maps codes to Rule (rules/rule.py), all known ones when not given."""
    if rules is None:
        from moe_preflight.rules.catalogue import BY_CODE

        rules = BY_CODE
    forgiven = doc.get("gate", {}).get("suppressed", [])
    every = [*doc["findings"], *(s["finding"] for s in forgiven)]
    codes = sorted({f["code"] for f in every})
    index = {code: i for i, code in enumerate(codes)}
    first = {f["code"]: f for f in reversed(every)}
    prints = fingerprints(doc | {"findings": every})
    results = [_result(doc, f, index[f["code"]], mark) for f, mark in zip(every, prints, strict=True)]
    for result, s in zip(results[len(doc["findings"]) :], forgiven, strict=True):
        result["suppressions"] = [_suppression(s)]
    run: Document = {
        "tool": {
            "driver": {
                "name": doc["tool"]["name"],
                "version": doc["tool"]["version"],
                "rules": [_rule(first[code], rules.get(code)) for code in codes],
            }
        },
        "invocations": [_invocation(doc)],
        "results": results,
        "properties": {"verdict": doc["verdict"]},
    }
    root = _tree_uri(doc)
    if root:
        run["originalUriBaseIds"] = {TREE: {"uri": root, "description": {"text": "The AITER tree that was read"}}}
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(finding: Document, rule: Any) -> Document:
    if rule is None:
        return {
            "id": finding["code"],
            "name": finding["name"],
            "shortDescription": {"text": finding["name"]},
            "help": {"text": f"{finding['why']}\n\n{finding['remedy']}"},
            "defaultConfiguration": {"level": _LEVEL[finding["severity"]]},
        }
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": f"{rule.what}\n\n{rule.why}\n\nExample: {rule.example}\n\nWhat to do: {rule.remedy}"},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
        "properties": {"depends": rule.depends, "source": rule.source},
    }


def _invocation(doc: Document) -> Document:
    missing = doc.get("not_evaluated", ())
    unread = any(m["error"] for m in doc.get("models", ()))
    return {
        "executionSuccessful": not missing and not unread,
        "toolExecutionNotifications": [
            {
                "level": "warning",
                "message": {"text": message(f"{n['what']}: {view.sentence(n['why'])} To get it: {n['how_to_get_it']}")},
            }
            for n in missing
        ],
    }


def _suppression(s: Document) -> Document:
    until = f", until {s['until']}" if s["until"] else ""
    return {"kind": "external", "status": "accepted", "justification": s["reason"] + until}


def _result(doc: Document, f: Document, index: int, fingerprint: str) -> Document:
    rows = view.rows(f)
    location: Document = {}
    if rows:
        location["physicalLocation"] = _row(doc, rows[0])
    elif (config := _config(doc, f)) is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": config}, "region": {"startLine": 1}}
    if f["target"] is not None:
        location["logicalLocations"] = [_logical(doc, f)]
    elif not rows:
        location["logicalLocations"] = [{"name": "run", "fullyQualifiedName": "run", "kind": "resource"}]
    out: Document = {
        "ruleId": f["code"],
        "ruleIndex": index,
        "level": _LEVEL[f["severity"]],
        "message": {"text": message(" ".join(x for x in (f["message"], f["remedy"]) if x))},
        "locations": [location],
        "partialFingerprints": {FINGERPRINT: fingerprint} | ({} if rows else {GITHUB_FINGERPRINT: f"{fingerprint[:16]}:1"}),
        "properties": {"confidence": f["confidence"], "why": f["why"]} | ({"advisory": f["advisory"]} if f["advisory"] else {}),
    }
    if rows[1:]:
        out["relatedLocations"] = [{"physicalLocation": _row(doc, e), "message": {"text": message(e["text"])}} for e in rows[1:]]
    return out


def message(text: str) -> str:
    """``text`` as a plain SARIF message: braces doubled (3.11.5), and no ``](`` that would make an embedded link (3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _logical(doc: Document, f: Document) -> Document:
    title, layer = view.target_title(doc, f["target"]), view.layer_name(doc, f)
    return {
        "name": layer or title,
        "fullyQualifiedName": title if layer is None else f"{title}/{layer}",
        "kind": "resource",
    }


def _row(doc: Document, e: Document) -> Document:
    region: Document = {"startLine": max(1, e["line"]), "snippet": {"text": e["text"]}}
    if e["file"].startswith("/"):
        return {"artifactLocation": {"uri": f"file://{_quoted(e['file'])}"}, "region": region}
    if _tree_uri(doc):
        return {"artifactLocation": {"uri": _quoted(e["file"]), "uriBaseId": TREE}, "region": region}
    return {"artifactLocation": {"uri": _quoted(view.path_of(doc, e["file"]))}, "region": region}


def _tree_uri(doc: Document) -> str | None:
    """The tree as an absolute URI; None when there is none, or it was given as a relative path (then paths are joined instead)."""
    root = (doc.get("aiter") or {}).get("root") or ""
    return f"file://{_quoted(root.rstrip('/'))}/" if root.startswith("/") else None


def _config(doc: Document, f: Document) -> str | None:
    """The config that was judged, as a URI: the finding's model, or the run's first. Hub ids as the path they have on the hub."""
    models = doc.get("models", ())
    if f["target"] is not None:
        asked = view.targets(doc)[f["target"]]["model"]
    elif models:
        asked = next((m["id"] for m in models if m["id"] in f["message"]), models[0]["id"])
    else:
        return None
    path = asked if asked.endswith(".json") else f"{asked.rstrip('/')}/config.json"
    return f"file://{_quoted(path)}" if path.startswith("/") else _quoted(path)


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/")
