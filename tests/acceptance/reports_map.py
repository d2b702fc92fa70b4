"""How a public report is put to the tool: from its fields, by rule, never by its id.

A report speaks as people do ("MXFP4 w4a4 (Quark, per_1x32)", "8x MI325X", "v0.25.1 image"). Each rule below reads one field.
What the fields do not say (the activation, how a model routes) comes from the model's family, by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moe_preflight.aiter.version import Version
from moe_preflight.hardware import GPUS
from tests.acceptance.releases import RELEASES, newest_before

Report = Mapping[str, object]


@dataclass(frozen=True)
class Ask:
    """One `check`. ``tree`` is the tag of the AITER tables to read, None: none as old as that (`--no-tuned`)."""

    engine: str
    engine_version: str | None
    aiter_version: str
    tree: str | None
    gpus: tuple[tuple[str, int], ...]
    shape: tuple[tuple[str, int | str], ...]
    quant: str
    tp: int = 1
    dp: int = 1
    ep: int = 1
    max_tokens: int | None = None

    def args(self, trees: Path) -> list[list[str]]:
        """The command lines after ``check``, one per GPU; ``trees`` holds a folder per AITER tag."""
        common = ["--shape", ",".join(f"{k}={v}" for k, v in self.shape), "--quant", self.quant, "--engine", self.engine]
        if self.engine_version:
            common += ["--engine-version", self.engine_version]
        common += ["--aiter-version", self.aiter_version, "--tp", str(self.tp)]
        common += ["--aiter", str(trees / self.tree)] if self.tree else ["--no-tuned"]
        if self.dp > 1:
            common += ["--dp", str(self.dp)]
        if self.ep > 1:
            common += ["--ep", str(self.ep)] if self.engine == "sglang" else ["--ep"]
        if self.max_tokens:
            common += ["--max-num-batched-tokens", str(self.max_tokens)]
        return [[*common, "--gfx", gfx, "--cu", str(cu)] for gfx, cu in self.gpus]


@dataclass(frozen=True)
class CannotAsk:
    """A report whose fields do not make a question."""

    reason: str


def ask(report: Report) -> Ask | CannotAsk:
    """The question ``report`` stands for."""
    shape = _shape(report)
    if isinstance(shape, CannotAsk):
        return shape
    gpus = _gpus(report)
    engine = _engine(_text(report, "engine"))
    date = _date(_text(report, "date"))
    aiter = _named_version("aiter", _text(report, "aiter_version")) or newest_before("aiter", date)
    version = None
    if engine != "aiter":
        version = str(_named_version(engine, _text(report, "engine_version")) or newest_before(engine, date))
    return Ask(
        engine=engine,
        engine_version=version,
        aiter_version=str(aiter),
        tree=_tree(aiter),
        gpus=gpus,
        shape=shape,
        quant=_quant(report, engine),
        tp=_number(report, "tp") or 1,
        dp=_number(report, "dp") or 1,
        ep=_number(report, "ep") or 1,
        max_tokens=_max_tokens(_text(report, "tokens")),
    )


# one field at a time --------------------------------------------------------------------------------------------------


def _text(report: Report, field: str) -> str:
    value = report.get(field)
    return value if isinstance(value, str) else ""


def _number(report: Report, field: str) -> int | None:
    value = report.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _date(text: str) -> str:
    """An ISO date that compares: ``2026-05 (approx.)`` is the first of May."""
    m = re.match(r"(\d{4}-\d{2})(-\d{2})?", text)
    return f"{m.group(1)}{m.group(2) or '-01'}" if m else "9999-12-31"


def _engine(text: str) -> str:
    """The first named one that we model or that is AITER itself; a report that names none of them (ATOM, a benchmark) is no engine."""
    found = re.search(r"vllm|sglang|aiter", text.lower())
    return found.group() if found else "aiter"


_VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+(?:rc\d+)?(?:\.post\d+)?)(?![\d])")


def _named_version(project: str, text: str) -> Version | None:
    """The release ``text`` names. A development build (0.1.dev19253) is none; of a list of engine releases the newest counts, of
    AITER's ("v0.1.19 vs v0.1.20", "0.1.21.post2, main") the first."""
    known = {v.release[:2] for v, _ in RELEASES[project]}
    parsed = [Version.of(m.group(1)) for m in re.finditer(_VERSION, re.sub(r"([a-z-])v(?=\d)|omni(?=\d)", r"\1 ", text))]
    named = [v for v in parsed if v.release[:2] in known and not (project != "aiter" and v.release[:2] < (0, 4))]
    if not named:
        return None
    return named[0] if project == "aiter" else max(named)


TREES = ("v0.1.13", "v0.1.16.post4", "v0.1.20.post1")
"""AITER tables the corpus has."""


def _tree(aiter: Version) -> str | None:
    """The newest tables that are not newer than the release asked about."""
    older = [t for t in TREES if Version.of(t) <= aiter]
    return older[-1] if older else None


_DEFAULT_CU = {"gfx942": 304, "gfx950": 256, "gfx90a": 104, "gfx1151": 40, "gfx1201": 64, "gfx1250": 256}


def _gpus(report: Report) -> tuple[tuple[str, int], ...]:
    """(gfx, compute units) of each architecture the report lists, by the GPUs it names; a report without one: both defaults."""
    listed = report.get("gfx_list")
    archs = [g for g in listed if isinstance(g, str)] if isinstance(listed, list) else []
    words = f"{_text(report, 'gpu')} {_text(report, 'gfx')}".lower()
    named = [g for name, g in GPUS.items() if re.search(rf"\b(\d+x)?{name}\b", words)]
    units = re.search(r"(\d+) ?cu\b", words)
    found = []
    for gfx in archs or ["gfx942", "gfx950"]:
        cu = next((g.cu_num for g in named if g.gfx == gfx), None) or _DEFAULT_CU.get(gfx, 64)
        found.append((gfx, int(units.group(1)) if units and len(archs) == 1 else cu))
    return tuple(found)


def _max_tokens(text: str) -> int | None:
    """``>64448`` asks about batches above a limit; a list of sizes bounds nothing."""
    m = re.match(r"> ?(\d+)", text)
    return int(m.group(1)) + 1 if m else None


# quantization ---------------------------------------------------------------------------------------------------------

_WEIGHT_ONLY = re.compile(r"bf16 act|a16w4|w4a16", re.I)
_QUANT: tuple[tuple[str, str], ...] = (
    (r"draft bf16", "none"),
    (r"w4a4|a4w4", "mxfp4_a4"),
    (r"a8w4|w4a8", "mxfp4_a8"),
    (r"per_tensor|per-tensor", "fp8_tensor"),
    (r"per_token|per-token|ptpc", "fp8_channel"),
    (r"block|per_1x128|per_128x128", "fp8_block"),
    (r"^mxfp8", "mxfp8"),
    (r"mxfp4|fp4", "mxfp4"),
    (r"nvfp4", "nvfp4"),
    (r"^fp8", "fp8_tensor"),
    (r"int4", "int4"),
)


def _quant(report: Report, engine: str) -> str:
    """Our scheme for the report's words. "MXFP4" alone is W4A4 where the checkpoint is Quark's, else weight only; an engine is
    handed DeepSeek-V4's "a8w4" as weight-only MXFP4 and leaves the activations to AITER."""
    text = _text(report, "quant").lower()
    scheme = next((s for pattern, s in _QUANT if re.search(pattern, text)), "none")
    if (
        scheme == "mxfp4"
        and not _WEIGHT_ONLY.search(text)
        and re.search(r"quark|amd/", f"{text} {_text(report, 'model').lower()}")
    ):
        return "mxfp4_a4"
    if scheme == "mxfp4_a8" and engine != "aiter":
        return "mxfp4"
    return scheme


# shape and family -----------------------------------------------------------------------------------------------------

_NEUTRAL = {"hidden": 4096, "inter": 1024}
"""Sizes every release accepts, for a report about routing that gives none."""

_BIASED = (("scoring", "sigmoid"), ("bias", 1))
_ONE_GROUP = (("n_group", 1), ("topk_group", 1), *_BIASED)
_FAMILIES: tuple[tuple[str, int, tuple[tuple[str, int | str], ...]], ...] = (
    (r"gpt-?oss", 4, (("act", "swigluoai"),)),
    (r"kimi-?k3", 16, (("act", "situ"), *_ONE_GROUP)),
    (r"kimi", 8, _ONE_GROUP),
    (r"minimax-?m3", 4, (("act", "swigluoai_uninterleave"), *_BIASED)),
    (r"minimax", 8, _BIASED),
    (r"deepseek-?v4", 6, (("scoring", "sqrtsoftplus"), ("bias", 1))),
    (r"deepseek", 8, (("n_group", 8), ("topk_group", 4), *_BIASED)),
    (r"glm", 8, _ONE_GROUP),
    (r"hy3|hunyuan", 8, _ONE_GROUP),
    (r"k2-?horizon", 8, _BIASED),
    (r"gemma-?4", 8, (("act", "gelu_tanh"),)),
)
"""(name, usual top-k, what --shape says of activation and routing), first match wins. Source: the models' own configs."""
_ACTIVATIONS = ((r"gelu_tanh", "gelu_tanh"), (r"situ", "situ"), (r"swiglu\b", "swigluoai_uninterleave"))


def _shape(report: Report) -> tuple[tuple[str, int | str], ...] | CannotAsk:
    """experts, topk, hidden, inter and routing. E and inter_dim are one rank's; the shape is the whole model's."""
    tp, dp, ep = (_number(report, f) or 1 for f in ("tp", "dp", "ep"))
    experts, topk = _number(report, "E"), _number(report, "topk")
    name = _text(report, "model").lower()
    usual, family = next(((k, words) for pattern, k, words in _FAMILIES if re.search(pattern, name)), (8, ()))
    if experts is None:
        return CannotAsk("no expert count")
    hidden, inter = _number(report, "model_dim"), _number(report, "moe_intermediate_size")
    rank = _number(report, "inter_dim")
    if inter is None and rank is not None:
        inter = rank * (1 if ep > 1 else tp * dp)
    if not _text(report, "cls").endswith("ROUTER") and (hidden is None or inter is None):
        return CannotAsk("no sizes")
    experts *= ep
    words = dict(family)
    quant = _text(report, "quant").lower()
    act = next((word for pattern, word in _ACTIVATIONS if re.search(pattern, quant)), None)
    if act is not None:
        words.setdefault("act", act)
    groups = re.search(r"n_group (\d+)", f"{name} {_text(report, 'cause')}")
    if groups:
        words["n_group"] = int(groups.group(1))
        words["topk_group"] = min(int(words.get("topk_group", 1)), words["n_group"])
    # With a fused shared expert E is not what the router groups.
    if experts % int(words.get("n_group", 1)) or re.search(r"shared.expert", name):
        words.pop("n_group", None)
        words.pop("topk_group", None)
    return (
        ("experts", experts),
        ("topk", min(topk or usual, experts)),
        ("hidden", hidden or _NEUTRAL["hidden"]),
        ("inter", inter or _NEUTRAL["inter"] * tp),
        *sorted(words.items()),
    )
