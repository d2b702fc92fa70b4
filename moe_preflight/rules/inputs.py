"""The inputs themselves: was the model read, was it a card, is it MoE at all?"""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.errors import Unavailable, UsageError
from moe_preflight.report.types import Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run

UNREACHED = Rule(
    code="MP501",
    name="model-not-reached",
    severity="warning",
    depends="--",
    what="The model's config could not be fetched: gated, not found, or no network and no bundled card.",
    why="Nothing was judged for it. The run is inconclusive, not green.",
    example="A gated repository without a token (HTTP 401 or 403).",
    remedy="Log in (hf auth login), check the id and revision, or pass a local config.json.",
    source="huggingface_hub's own answer",
)

MALFORMED = Rule(
    code="MP502",
    name="model-malformed",
    severity="error",
    depends="--",
    what="The config exists and cannot be read as a model: the message names field, value and what was expected.",
    why="The engine would fail on it too, or worse, read it differently.",
    example='num_experts: "many" is not a whole number.',
    remedy="Mend the config, or report a field shape this tool should know.",
    source="the config itself",
)

NO_MODEL = Rule(
    code="MP507",
    name="not-a-model",
    severity="error",
    depends="--",
    what="The argument names no model: a path that is not there, a shape or quantization that makes no sense, stdin that is empty.",
    why="Nothing was judged for it.",
    example="./confg.json where config.json stands.",
    remedy="Correct the argument.",
    source="the command line",
)

DENSE = Rule(
    code="MP503",
    name="dense-model",
    severity="warning",
    depends="the model could be read",
    what="The model has no MoE layer, so AITER's fused_moe is never asked.",
    why="There is nothing to judge; a gate on it would be green for no reason, so the run is inconclusive.",
    example="Llama-3.1-8B.",
    remedy="Leave it out of the MoE gate, or check that the right repository was named.",
    source="the config itself",
)

CARD = Rule(
    code="MP504",
    name="bundled-card-used",
    severity="info",
    depends="the model could be read",
    what="The config came from a card bundled with this tool, not from the hub.",
    why="The repository may have changed since the card was taken.",
    example="A build machine without network.",
    remedy="Run once with network access, or pass the real config.json.",
    source="configs/models/INDEX.toml",
)

GENERIC = Rule(
    code="MP505",
    name="family-unknown",
    severity="warning",
    depends="the model could be read",
    what="This architecture is not in our table; it was read by the field names engines share.",
    why="The sizes are likely right; routing and which layers are MoE may not be.",
    example="A new model_type whose config uses num_experts and moe_intermediate_size.",
    remedy="Compare the sizes in the report with the model card; tell us about the family.",
    source="vLLM 0.33.0 transformers_utils/config.py CONFIG_FIELD_ALIASES",
)

UNKNOWN_FIELD = Rule(
    code="MP506",
    name="field-unknown",
    severity="warning",
    depends="the model could be read",
    what="The config does not hold a field the judgement needs, and no sourced default supplies it.",
    why="A model whose sizes are not known is not judged, and the run is inconclusive; other fields are left out.",
    example="A trimmed config without num_hidden_layers.",
    remedy="Use the full config.json of the repository.",
    source="the config itself",
)


def unreached(run: Run) -> Iterator[Finding]:
    """MP501."""
    for i, m in enumerate(run.models):
        if isinstance(m.error, Unavailable):
            yield UNREACHED.finding(m.error.message, remedy=m.error.hint or None, confidence="read", model=i)


def malformed(run: Run) -> Iterator[Finding]:
    """MP502 and MP507."""
    for i, m in enumerate(run.models):
        if isinstance(m.error, UsageError):
            yield NO_MODEL.finding(m.error.message, remedy=m.error.hint or None, confidence="read", model=i)
        elif m.error is not None and not isinstance(m.error, Unavailable):
            yield MALFORMED.finding(m.error.message, remedy=m.error.hint or None, confidence="read", model=i)


def dense(run: Run) -> Iterator[Finding]:
    """MP503."""
    for i, m in enumerate(run.models):
        if m.model is not None and m.model.is_dense:
            words = f"{m.model.id} ({m.model.architecture or m.model.model_type or 'unknown architecture'})"
            yield DENSE.finding(f"{words} has no MoE layer.", confidence="read", model=i)


def card(run: Run) -> Iterator[Finding]:
    """MP504."""
    for i, m in enumerate(run.models):
        if m.model is not None and m.model.source == "bundled":
            yield CARD.finding(
                f"{m.model.id} was read from the bundled card: {'; '.join(m.model.notes) or 'no hub was asked'}.",
                confidence="read",
                model=i,
            )


def generic(run: Run) -> Iterator[Finding]:
    """MP505."""
    for i, m in enumerate(run.models):
        if m.model is not None and m.model.layers and m.model.confidence == "modelled" and m.model.source != "shape":
            used = ", ".join(dict.fromkeys(v for v in m.model.fields.values() if not v.startswith("default")))
            yield GENERIC.finding(
                f"{m.model.id}: {m.model.architecture or m.model.model_type} is not a family we know; read from: {used}.",
                confidence="modelled",
                model=i,
            )


def unknown_field(run: Run) -> Iterator[Finding]:
    """MP506."""
    for i, m in enumerate(run.models):
        if m.model is not None and m.model.unknown:
            yield UNKNOWN_FIELD.finding(
                f"{m.model.id}: not in the config: {', '.join(m.model.unknown)}.", confidence="read", model=i
            )


RULES = (UNREACHED, MALFORMED, NO_MODEL, DENSE, CARD, GENERIC, UNKNOWN_FIELD)
CHECKS = (unreached, malformed, dense, card, generic, unknown_field)
