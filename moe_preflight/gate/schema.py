"""The JSON Schema of a gate file, for editors (Even Better TOML, taplo): made from the very table of keys that reads the file.

It ships as report/schema/gate-toml-v1.schema.json. ``text()`` makes it anew, and a test fails when the file is stale. What a schema
cannot say is left to the reader: a date without quotes, a name that another key must hold, 8.0 for 8.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from moe_preflight.gate.keys import Schema, keys_schema
from moe_preflight.gate.spec import ABOUT_THE_FILE, OWN, ROOT
from moe_preflight.report.formats import dumps
from moe_preflight.report.types import SEVERITIES
from moe_preflight.rules.catalogue import BY_CODE

WORDS: dict[str, str] = {
    "fail_on": "Exit 1 from this severity on. Default: error. --fail-on outdoes it.",
    "select": "Only these rules of the check: codes, their starts, or names. Requirements always count.",
    "baseline": "The file of known findings, relative to this one; only what is new, or worse, fails. Write it with --write-baseline.",
    "severity": "Another severity for a code, the start of one, or a rule's name: error, warning, info or off.",
    "require": "What a deployment must reach; [require] says it for all, a deployment may say otherwise.",
    "defaults": "Keys of every deployment that does not say.",
    "deployment": "One deployment to hold.",
    "ignore": "Findings that are forgiven until a day.",
    "require.accepted": "true: every judged bucket is known to be accepted. unless-unknown: none is known to be rejected.",
    "require.on_aiter": "The engine takes AITER for the experts.",
    "require.min_tuned_decode_pct": "Least share of decode token buckets (up to 256) with a tuned row, in percent.",
    "require.max_padding_pct": "Most extra expert arithmetic that padding may cost, in percent.",
    "require.router_kernel": "The router's kernel exists.",
    "require.no_advisories_from": "No known-bad combination of this severity or above.",
    "require.aiter_is_pin": "The AITER judged is the one the engine's image pins.",
    "require.dispatch_verified": "The dispatch was compared with AITER's own code.",
    "require.engine_verified": "The engine release is one whose sources were read.",
    "deployment.name": "Its name in reports and baselines. Default: the model, or the shape.",
    "deployment.model": "Hub id, or a folder or config.json relative to this file.",
    "deployment.shape": "experts=..,topk=..,hidden=..,inter=..: a model that has no config yet.",
    "deployment.quant": "Quantization of the shape: none, fp8_tensor, fp8_block, mxfp4 ...",
    "deployment.revision": "Hub revision: branch, tag or commit.",
    "deployment.checkpoint": "Compare the safetensors headers with the config.",
    "deployment.gpus": 'Names such as "mi300x", auto, or { gfx = "gfx942", cu = 304 }.',
    "deployment.tp": "Tensor parallel degree, one or several.",
    "deployment.dp": "Data parallel degree, one or several.",
    "deployment.pcp": "Prefill context parallel degree, one or several.",
    "deployment.pp": "Pipeline parallel degree, one or several.",
    "deployment.ep": "Expert parallelism; a number for SGLang.",
    "deployment.redundant_experts": "EPLB redundant experts.",
    "deployment.engine": "Default: vllm. aiter: no engine, the raw shape.",
    "deployment.engine_version": "Engine release. Default: the newest one that is known.",
    "deployment.engine_env": "What the engine would see; AITER_* variables are AITER's.",
    "deployment.moe_backend": "The engine's --moe-backend.",
    "deployment.all2all_backend": "The engine's all2all backend.",
    "deployment.enable_lora": "LoRA is enabled.",
    "deployment.aiter": "Which AITER: auto, a folder or wheel relative to this file, or { tree, version }.",
    "deployment.tuned": "false: look at no tuned table.",
    "deployment.flydsl": "Is the FlyDSL package installed beside AITER? Default: true.",
    "deployment.multi_arch": "AITER was prebuilt for several architectures at once.",
    "deployment.tokens": 'Token buckets to judge: "all", "decode", "prefill", "1-256", or [1, 64, "512-4096"].',
    "deployment.max_num_batched_tokens": "Bounds which token buckets are reachable.",
    "deployment.offline": "Hub cache only, else the bundled card.",
    "deployment.require": "What this deployment must reach.",
    "ignore.code": "A code, the start of one, or a rule's name.",
    "ignore.reason": "Why it is forgiven.",
    "ignore.until": "The last day it holds (UTC), such as 2027-01-31, without quotes.",
    "ignore.deployment": "Only in deployments of these names.",
    "ignore.model": "Only for these models, as written in this file.",
    "ignore.gpu": "Only on these GPUs.",
    "ignore.tp": "Only at these degrees.",
    "ignore.dp": "Only at these degrees.",
    "ignore.pp": "Only at these degrees.",
    "ignore.ep": "Only with, or only without expert parallelism.",
    "ignore.layer": "Only in these kinds of layer: main, mtp ...",
    "ignore.advisory": "Only these known-bad combinations, MPA-0001 ...",
}
"""What an editor shows beside a key. Keys of [defaults] are those of a deployment."""


def document() -> Schema:
    """The schema (JSON Schema 2020-12) of a gate file."""
    root = deepcopy(keys_schema(ROOT))
    props = root["properties"]
    deployment = props["deployment"]["items"]
    deployment["oneOf"] = [{"required": ["model"]}, {"required": ["shape"]}]
    deployment["dependentRequired"] = {"quant": ["shape"]}
    props["ignore"]["items"]["required"] = ["code", "reason", "until"]
    props["severity"] = _severity()
    tables = {
        "require": props["require"],
        "deployment.require": deployment["properties"]["require"],
        "defaults": props["defaults"],
        "deployment": deployment,
        "ignore": props["ignore"]["items"],
        "": root,
    }
    for at, table in tables.items():
        table["properties"] = {key: _described(at, key, schema) for key, schema in table["properties"].items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:moe-preflight:schema:gate-toml:1",
        "title": "moe-preflight gate file",
        "description": "What `moe-preflight gate FILE.toml` reads. The reader is stricter in places a schema cannot see.",
    } | root


def text() -> str:
    """The file that ships: same table, same bytes."""
    return dumps(document())


def _described(at: str, key: str, schema: Schema) -> Schema:
    where = {"": key, "defaults": f"deployment.{key}", "deployment.require": f"require.{key}"}.get(at, f"{at}.{key}")
    return {"description": WORDS[where], **schema}


def _severity() -> Schema:
    """Codes and names of rules with the severities each may have; the start of a code is a word, too."""
    words: Schema = {}
    for rule in BY_CODE.values():
        levels = [*SEVERITIES, "off"] if not rule.code.startswith(OWN) else ["error", "warning"]
        allowed: Any = False if rule.code.startswith(ABOUT_THE_FILE) else {"enum": levels, "description": rule.what}
        words |= {rule.code: allowed, rule.name: allowed}
    return {"type": "object", "properties": words, "additionalProperties": {"enum": [*SEVERITIES, "off"]}}
