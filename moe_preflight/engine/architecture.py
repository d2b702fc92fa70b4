"""Which vLLM model file builds this checkpoint's MoE block in this release, or the error that says there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moe_preflight.engine.facts.vllm_blocks import (
    BLOCKS,
    GENERIC,
    HF_MOE_ARCHITECTURES,
    SHARED_FILES,
    TEXT_MODELS,
    TEXT_TYPES_WITHOUT_CAUSAL_LM,
    WRAPPERS_THAT_ASK,
    Block,
)
from moe_preflight.engine.facts.vllm_registry import ADDED, MODULES, MOVED, REMOVED, UNTIL
from moe_preflight.engine.facts.vllm_releases import Release, at_least
from moe_preflight.engine.plan import Refusal
from moe_preflight.model.moe import MoEModel

_FILES = {arch: file for file, archs in MODULES.items() for arch in archs.split()}
_REGISTRY = "vllm/model_executor/models/registry.py:1221"


class Found(NamedTuple):
    """``block`` is always there; ``refusal`` when the release does not start the model. ``transformers``: the generic
    backend of vLLM builds it. ``file`` is the model file by vLLM's name, None when it is not in the registry."""

    block: Block
    file: str | None
    transformers: bool = False
    refusal: Refusal | None = None


def file_of(architecture: str | None, release: Release) -> str | None:
    """The model file that ``release`` registers for ``architecture``, or None."""
    if architecture is None or architecture not in _FILES:
        return None
    if architecture in ADDED and not at_least(release, ADDED[architecture]):
        return None
    if architecture in REMOVED and at_least(release, REMOVED[architecture]):
        return None
    moved = MOVED.get(architecture)
    if moved and not at_least(release, moved[0]):
        return moved[1]
    return _FILES[architecture]


def find(model: MoEModel, release: Release) -> Found:
    """The block for ``model`` under ``release``. A model without an architecture is taken as its fields say."""
    architecture = model.architecture
    file = file_of(architecture, release)
    if file is not None:
        if file == "transformers":
            return Found(BLOCKS["transformers"], file, transformers=True)
        return Found(_block(file, model), file, refusal=_nameless_text(file, model))
    if architecture is None:
        return Found(_by_text(model) or GENERIC, None)
    if architecture in HF_MOE_ARCHITECTURES:
        return Found(BLOCKS["transformers"], None, transformers=True)
    return Found(
        _by_text(model) or _later(architecture, model) or GENERIC, None, refusal=_unsupported(architecture, model, release)
    )


def _nameless_text(file: str, model: MoEModel) -> Refusal | None:
    text = model.config.get("text_config")
    if file not in WRAPPERS_THAT_ASK or not isinstance(text, Mapping) or text.get("architectures"):
        return None
    if text.get("model_type") not in TEXT_TYPES_WITHOUT_CAUSAL_LM:
        return None
    return Refusal(
        "model",
        "No model architectures are specified",
        f"the config names no architecture for its text model ({text.get('model_type')}), and transformers has none to offer.",
        "Serve it from the repository's own params.json (--config-format mistral), or name the architecture in text_config.",
        "vllm/model_executor/models/registry.py:1428 (0.33.0)",
    )


def _block(file: str, model: MoEModel) -> Block:
    name = SHARED_FILES.get(file, file).removeprefix("vllm.models.").split(".")[0]
    return BLOCKS.get(name) or _by_text(model) or GENERIC


def _later(architecture: str, model: MoEModel) -> Block | None:
    """The block of a release that has the architecture, for a release that does not have it yet."""
    file = _FILES.get(architecture)
    return _block(file, model) if file else None


def _by_text(model: MoEModel) -> Block | None:
    text = model.config.get("text_config") or model.config.get("language_config") or model.config.get("llm_config")
    kind = text.get("model_type") if isinstance(text, Mapping) else model.model_type
    return BLOCKS.get(TEXT_MODELS.get(kind, "")) if isinstance(kind, str) else None


def _unsupported(architecture: str, model: MoEModel, release: Release) -> Refusal | None:
    """vLLM's own words for an architecture it does not have. A checkpoint with its own code (auto_map) may still start
    through the Transformers backend, so that one is not refused here."""
    if architecture in UNTIL:
        return Refusal(
            "config",
            f"Model architecture {architecture} was supported in vLLM until v{UNTIL[architecture]}, and is not supported "
            "anymore. Please use an older version of vLLM if you want to use this model architecture.",
            f"vLLM {release.version} dropped this model, and transformers has no class of that name to stand in.",
            f"Serve it with vLLM {UNTIL[architecture]}.",
            f"{_REGISTRY} ({release.version})",
        )
    first = ADDED.get(architecture)
    if first:
        return Refusal(
            "config",
            f"Model architectures ['{architecture}'] are not supported for now.",
            f"vLLM {release.version} has no model file for {architecture}: the first release that has one is {first}.",
            f"Use vLLM {first} or newer.",
            f"{_REGISTRY} ({release.version})",
        )
    if model.config.get("auto_map") or model.confidence != "read" or model.source == "shape":
        return None
    return Refusal(
        "config",
        f"Model architectures ['{architecture}'] are not supported for now.",
        f"vLLM {release.version} has no model file for {architecture}.",
        "Ask for a supported architecture, or serve it with another engine (--engine aiter judges the bare shape).",
        f"{_REGISTRY} ({release.version})",
    )
