"""A gate as one frozen value, and how it is read from a parsed TOML file. Every refusal names the file, the key and what is allowed.

Nothing is guessed: an unknown key, a wrong type, a code no rule has, an ignore without a reason are errors before anything is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from moe_preflight.errors import SettingsError, Unavailable, UsageError
from moe_preflight.gate import keys as k
from moe_preflight.hardware import Gpu, by_hand, named
from moe_preflight.report.types import SEVERITIES
from moe_preflight.rules.catalogue import BY_CODE
from moe_preflight.settings import AITER_ENV, DEFAULT_ENGINE_VERSIONS, Request, Split, Tokens

FAIL_ON = ("error", "warning", "never")
OWN = "MP8"
"""How the codes of the gate's own findings start; MP80x are about the gate file itself and cannot be argued away."""
ABOUT_THE_FILE = "MP80"
MAX_TARGETS = 10_000


@dataclass(frozen=True, slots=True)
class Require:
    """What a deployment must reach; None and False ask for nothing.

    ``accepted`` is True (every judged bucket is known to be accepted), ``unless-unknown`` (none is known to be rejected) or False.
    ``no_advisories_from`` is the lowest severity of a known-bad combination that is not allowed. Percentages are 0 to 100."""

    accepted: bool | str = False
    on_aiter: bool = False
    min_tuned_decode_pct: float | None = None
    max_padding_pct: float | None = None
    router_kernel: bool = False
    no_advisories_from: str | None = None
    aiter_is_pin: bool = False
    dispatch_verified: bool = False
    engine_verified: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """One deployment to hold. ``model`` is as written in the file, ``request`` asks for it with every path made whole."""

    name: str
    model: str
    request: Request
    require: Require
    where: str


@dataclass(frozen=True, slots=True)
class Ignore:
    """Findings to forgive: all of ``code`` (a code or the start of one) that every filter fits. An empty filter fits all.

    ``until`` is the last day it holds, YYYY-MM-DD."""

    code: str
    reason: str
    until: str
    where: str
    deployment: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    tp: tuple[int, ...] = ()
    dp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    ep: tuple[bool, ...] = ()
    layer: tuple[str, ...] = ()
    advisory: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate file. ``severity`` maps every code that has another severity than its own (or ``off``); ``select`` are code prefixes,
    None: all. ``baseline`` is the file as written. ``only``: ``held`` is a part of what the file holds, so that what an ignore or the
    baseline says of the rest is no news."""

    file: str
    held: tuple[Held, ...] = ()
    severity: Mapping[str, str] | None = None
    select: tuple[str, ...] | None = None
    ignores: tuple[Ignore, ...] = ()
    baseline: str | None = None
    fail_on: str = "error"
    only: bool = False


def only_of(gate: Gate, names: Collection[str]) -> Gate:
    """The gate with the named deployments alone, all without names. One it does not hold is a UsageError."""
    known = [h.name for h in gate.held]
    for name in names:
        if name not in known:
            raise UsageError(
                f"--only {name}: no deployment of {gate.file} has this name.",
                hint=k.guess(name, known).strip() or "See its name keys.",
            )
    return gate if not names else replace(gate, held=tuple(h for h in gate.held if h.name in names), only=True)


# --- keys ------------------------------------------------------------------------------------------------------------

_DEGREES = k.many(k.integer(1, 65536))
_COUNTS = k.many(k.either("a count or a range", (str, k.text), (int, k.integer(1))))
_TOKENS = k.either(
    '"all", "decode", "prefill", a range such as "1-256", or an array of counts and ranges',
    (str, k.text),
    (int, k.Shaped(lambda v, w: str(k.integer(1)(v, w)), k.integer(1).schema)),
    (list, k.Shaped(lambda v, w: ",".join(map(str, _COUNTS(v, w))), _COUNTS.schema)),
)  # fmt: skip

_BY_HAND = k.table({"gfx": k.text, "cu": k.integer(1, 4096)})

REQUIRE: dict[str, k.Shaped] = {
    "accepted": k.either('true, false or "unless-unknown"', (bool, k.boolean), (str, k.choice("unless-unknown"))),
    "on_aiter": k.boolean,
    "min_tuned_decode_pct": k.percent(100),
    "max_padding_pct": k.percent(10_000),
    "router_kernel": k.boolean,
    "no_advisories_from": k.choice(*SEVERITIES),
    "aiter_is_pin": k.boolean,
    "dispatch_verified": k.boolean,
    "engine_verified": k.boolean,
}

_SHARED: dict[str, k.Shaped] = {
    "gpus": k.many(
        k.either('a name such as "mi300x", or { gfx = "gfx942", cu = 304 }', (str, k.text),
                 (dict, k.Shaped(lambda v, w: tuple(sorted(_BY_HAND(v, w).items())), _BY_HAND.schema | {"required": ["gfx", "cu"]}))),
    ),
    "tp": _DEGREES,
    "dp": _DEGREES,
    "pcp": _DEGREES,
    "pp": _DEGREES,
    "ep": k.many(k.either("true, false, or SGLang's number", (bool, k.boolean), (int, k.integer(1, 65536)))),
    "redundant_experts": k.integer(0, 65536),
    "engine": k.choice(*DEFAULT_ENGINE_VERSIONS),
    "engine_version": k.text,
    "engine_env": k.strings,
    "moe_backend": k.text,
    "all2all_backend": k.text,
    "enable_lora": k.boolean,
    "aiter": k.either('"auto", a folder or wheel, or { tree = ..., version = ... }',
                      (str, k.Shaped(lambda v, w: {"tree": k.text(v, w)}, k.text.schema)),
                      (dict, k.table({"tree": k.text, "version": k.text}))),
    "tuned": k.boolean,
    "flydsl": k.boolean,
    "multi_arch": k.boolean,
    "tokens": _TOKENS,
    "max_num_batched_tokens": k.integer(1),
    "offline": k.boolean,
    "require": k.table(REQUIRE),
}  # fmt: skip
"""Keys of [defaults] and of [[deployment]]."""

DEPLOYMENT: dict[str, k.Shaped] = {
    "name": k.text, "model": k.text, "shape": k.text, "quant": k.text, "revision": k.text, "checkpoint": k.boolean, **_SHARED,
}  # fmt: skip

IGNORE: dict[str, k.Shaped] = {
    "code": k.text,
    "reason": k.text,
    "until": k.day,
    "deployment": k.many(k.text),
    "model": k.many(k.text),
    "gpu": k.many(k.text),
    "tp": _DEGREES,
    "dp": _DEGREES,
    "pp": _DEGREES,
    "ep": k.many(k.boolean),
    "layer": k.many(k.text),
    "advisory": k.many(k.text),
}

_WORDS = k.many(k.text)

ROOT: dict[str, k.Shaped] = {
    "fail_on": k.choice(*FAIL_ON),
    "select": k.Shaped(
        lambda v, w: k.many(k.text)(v, w) if v != [] else (),
        {"anyOf": [*_WORDS.schema["anyOf"], {"type": "array", "maxItems": 0}]},
    ),
    "baseline": k.text,
    "severity": k.Shaped(lambda v, w: v, {"type": "object"}),  # its keys are codes: see _severities
    "require": k.table(REQUIRE),
    "defaults": k.table(_SHARED),
    "deployment": k.tables(DEPLOYMENT),
    "ignore": k.tables(IGNORE),
}


# --- reading ---------------------------------------------------------------------------------------------------------


def read(
    data: Mapping[str, Any],
    file: str,
    *,
    path: Callable[[str], str],
    model: Callable[[str], str],
    aiter: str = "auto",
    offline: bool = False,
) -> Gate:
    """The gate of a parsed TOML file. ``path`` makes a path in it whole, ``model`` a model that may be one; ``aiter`` and ``offline``
    are for deployments that say nothing themselves. Raises SettingsError, or Unavailable where a GPU is ``auto`` and there is none."""
    given = k.read(data, f"{file}:", ROOT)
    held = tuple(
        _held(d, given, f"{file}: deployment[{i}]", path, model, aiter, offline)
        for i, d in enumerate(given.get("deployment", []))
    )
    _names_differ(held)
    if sum(len(h.request.splits) * len(h.request.gpus) for h in held) > MAX_TARGETS:
        raise SettingsError(f"{file}: more than {MAX_TARGETS:,} splits and GPUs to judge.", hint="Split the gate.")
    select = given.get("select")
    return Gate(
        file,
        held,
        _severities(given.get("severity", {}), f"{file}: severity"),
        None if select is None else tuple(code_of(w, f"{file}: select[{i}]") for i, w in enumerate(select)),
        tuple(_ignore(x, held, f"{file}: ignore[{i}]") for i, x in enumerate(given.get("ignore", []))),
        given.get("baseline"),
        given.get("fail_on", "error"),
    )


def code_of(word: str, where: str) -> str:
    """A rule's code, the start of codes, or a rule's name, as a code or the start of one."""
    code = word.strip().upper()
    if len(code) > 2 and any(c.startswith(code) for c in BY_CODE):
        return code
    for rule in BY_CODE.values():
        if rule.name == word.strip().lower():
            return rule.code
    names = [*BY_CODE, *(r.name for r in BY_CODE.values())]
    close = k.guess(code, BY_CODE) or k.guess(word, names)
    raise SettingsError(f"{where}: no rule has the code or name {k.shown(word)}.", hint=f"{close}All: moe-preflight rule --all.")


def _severities(value: object, where: str) -> dict[str, str]:
    """The severity of every code that is named; a longer word outdoes a shorter one."""
    if not isinstance(value, dict):
        raise k.wrong(value, where, 'a table such as MP301 = "error"')
    level = k.choice(*SEVERITIES, "off")
    asked = {}
    for word, v in value.items():
        at = f"{where}.{word if word.isalnum() else k.shown(word)}"
        code, asked_level = code_of(word, at), level(v, at)
        if code.startswith(ABOUT_THE_FILE):
            raise SettingsError(f"{at}: findings about the gate file keep their severity.")
        if asked_level in ("off", "info") and code.startswith(OWN):
            raise SettingsError(
                f"{at}: a requirement cannot be switched off, and is no mere info.",
                hint='Remove it from [require], or make it a "warning".',
            )
        if code in asked:
            raise SettingsError(f"{at}: {code} is given twice.")
        asked[code] = asked_level
    codes = [c for c in BY_CODE if not c.startswith(ABOUT_THE_FILE)]
    return {c: asked[prefix] for prefix in sorted(asked, key=len) for c in codes if c.startswith(prefix)}


def _ignore(given: dict[str, Any], held: tuple[Held, ...], where: str) -> Ignore:
    for key, what in (
        ("code", "which finding"),
        ("reason", "why it is forgiven"),
        ("until", "until which day, such as 2027-01-31"),
    ):
        if key not in given:
            raise SettingsError(f"{where}.{key}: missing.", hint=f"An ignore says {what}.")
    code = code_of(given["code"], f"{where}.code")
    if code.startswith(ABOUT_THE_FILE):
        raise SettingsError(f"{where}.code: findings about the gate file cannot be ignored.", hint="Mend the file.")
    for key, known in (("deployment", [h.name for h in held]), ("model", [h.model for h in held])):
        for word in given.get(key, ()):
            if word not in known:
                raise SettingsError(
                    f"{where}.{key}: {k.shown(word)} is no {key} of this gate.",
                    hint=k.guess(word, known).strip() or "Check the name.",
                )
    filters = {key: v for key, v in given.items() if key not in ("code", "reason", "until")}
    if "gpu" in filters:
        here = {g.name for h in held for g in h.request.gpus}
        filters["gpu"] = tuple(g if g in here else named_here(g, f"{where}.gpu").name for g in filters["gpu"])
    return Ignore(code, given["reason"].strip(), given["until"], where, **filters)


def _names_differ(held: tuple[Held, ...]) -> None:
    seen: set[str] = set()
    for h in held:
        if h.name in seen:
            raise SettingsError(
                f"{h.where}: a second deployment called {k.shown(h.name)}.", hint='Give each its own name = "...".'
            )
        seen.add(h.name)


def _held(
    own: dict[str, Any],
    root: Mapping[str, Any],
    where: str,
    path: Callable[[str], str],
    model: Callable[[str], str],
    aiter: str,
    offline: bool,
) -> Held:
    defaults = root.get("defaults", {})
    d = {**defaults, **own}
    if ("model" in d) == ("shape" in d):
        raise SettingsError(f"{where}: needs a model or a shape, one of them.", hint='For example model = "openai/gpt-oss-120b".')
    if d.get("model") == "-":
        raise SettingsError(f"{where}.model: a gate does not read stdin.", hint="Name a hub id, a folder or a config.json.")
    if "shape" in d and (alone := next((x for x in ("revision", "checkpoint") if d.get(x)), None)):
        raise SettingsError(f"{where}.{alone}: a shape has no {alone}.")
    if "quant" in d and "shape" not in d:
        raise SettingsError(f"{where}.quant: goes with shape.", hint="A model's config says itself how it is quantized.")
    if "gpus" not in d:
        raise SettingsError(f"{where}.gpus: missing.", hint='For example gpus = ["mi300x", "mi355x"], here or in [defaults].')
    engine = d.get("engine", "vllm")
    named_tree = d.get("aiter", {})
    env = d.get("engine_env", {})
    tokens = d.get("tokens", "all")
    try:
        Tokens.parse(tokens)
    except UsageError as e:
        raise SettingsError(f"{where}.tokens: {e.message.partition(': ')[2]}", hint=e.hint) from None
    require = Require(**{**root.get("require", {}), **defaults.get("require", {}), **own.get("require", {})})
    if require.min_tuned_decode_pct is not None and d.get("tuned") is False:
        raise SettingsError(f"{where}.require.min_tuned_decode_pct: tuned = false looks at no table.", hint="Remove one of them.")
    written = d.get("model") or d["shape"]
    request = Request(
        models=(model(d["model"]),) if "model" in d else (),
        shapes=(d["shape"],) if "shape" in d else (),
        quant=d.get("quant"),
        splits=_splits(d, engine, where),
        gpus=tuple(dict.fromkeys(named_here(g, f"{where}.gpus") for g in d["gpus"])),
        engine=engine,
        engine_version=d.get("engine_version") or DEFAULT_ENGINE_VERSIONS[engine],
        engine_env={name: v for name, v in env.items() if not name.startswith(AITER_ENV)},
        moe_backend=d.get("moe_backend", "auto"),
        all2all=d.get("all2all_backend"),
        lora=d.get("enable_lora", False),
        aiter=aiter if "tree" not in named_tree else path(named_tree["tree"]) if named_tree["tree"] != "auto" else "auto",
        aiter_version=named_tree.get("version"),
        aiter_env={name: v for name, v in env.items() if name.startswith(AITER_ENV)},
        flydsl=d.get("flydsl", True),
        multi_arch=d.get("multi_arch", False),
        tuned=d.get("tuned", True),
        tokens=tokens,
        max_num_batched_tokens=d.get("max_num_batched_tokens"),
        revision=d.get("revision"),
        offline=offline or d.get("offline", False),
        checkpoint=d.get("checkpoint", False),
    )
    return Held(d.get("name", written), written, request, require, where)


def _splits(d: Mapping[str, Any], engine: str, where: str) -> tuple[Split, ...]:
    degrees = [d.get(key, (1,)) for key in ("tp", "dp", "pcp", "pp", "ep")]
    count = 1
    for values in degrees:
        count *= len(values)
    if count > MAX_TARGETS:
        raise SettingsError(f"{where}: {count:,} splits; at most {MAX_TARGETS:,} are judged.")
    numbers = [e for e in d.get("ep", ()) if not isinstance(e, bool)]
    if numbers and engine != "sglang":
        raise SettingsError(f"{where}.ep: {engine} takes no number.", hint="vLLM's EP size is tp x dp x pcp: say ep = true.")
    make = partial(Split, redundant_experts=d.get("redundant_experts", 0))
    return tuple(
        make(tp, dp, pcp, pp, ep if isinstance(ep, bool) else ep > 1, None if isinstance(ep, bool) else ep)
        for tp, dp, pcp, pp, ep in product(*degrees)
    )


def named_here(given: object, where: str) -> Gpu:
    """A GPU by name, or by hand."""
    try:
        if isinstance(given, str):
            return named(given)
        pair = dict(given)  # type: ignore[call-overload]
        if len(pair) < 2:
            raise UsageError("gfx and cu go together.", hint='For example { gfx = "gfx942", cu = 304 }.')
        return by_hand(pair["gfx"], pair["cu"])
    except Unavailable as e:
        raise type(e)(f"{where}: {e.message}", hint=e.hint) from None
    except UsageError as e:
        words = e.message.partition(" ")[2] if e.message.startswith("--") else e.message
        raise SettingsError(f"{where}: {words}", hint=e.hint) from None
