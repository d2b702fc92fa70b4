"""The odd families' own small readers: what a table row cannot say in field names."""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.model.family import At, Fixed, at
from moe_preflight.model.fields import MISSING, Fields, Value, as_float, as_int, as_list, wrong
from moe_preflight.model.layout import MAX_LAYERS, Layers


def first_layer_dense(f: Fields, n: int) -> Layers | None:
    """The class default of several families: layer 0 is dense, the rest hold experts."""
    return Layers(tuple(range(1, n)), f"default (transformers {f.model_type}: first layer dense)")


def no_layer(f: Fields, n: int) -> Layers | None:
    """A hybrid model that names no expert layer has none."""
    return Layers((), "no layer list")


@dataclass(frozen=True, slots=True)
class ByType:
    """One spec for the model types named, another for the rest."""

    types: tuple[str, ...]
    then: At | Fixed
    otherwise: At | Fixed

    def read(self, f: Fields) -> Value:
        return (self.then if f.model_type in self.types else self.otherwise).read(f)


OLMOE_RENORM = ByType(("flex_olmo",), at("norm_topk_prob"), Fixed(False, "model_executor/models/olmoe.py:100"))
"""vLLM's OLMoE never renormalizes, whatever the config says; FlexOlmo runs on the Transformers backend, which asks it."""


@dataclass(frozen=True, slots=True)
class InklingInter:
    """Inkling files that give ``dense_intermediate_size`` mean the expert width by ``intermediate_size``."""

    def read(self, f: Fields) -> Value:
        dense = f.given("dense_intermediate_size")
        if not dense.missing and dense.raw is not None:
            return f.given("intermediate_size")
        return f.find("moe_intermediate_size")


INKLING_INTER = InklingInter()


@dataclass(frozen=True, slots=True)
class NemotronMtp:
    """Nemotron-H counts MTP depths, and says per depth which blocks it has; experts are there only if one is a moe block."""

    def read(self, f: Fields) -> Value:
        depth = f.given("num_nextn_predict_layers")
        if depth.missing or depth.raw is None:
            return Value(MISSING, depth.path)
        blocks = f.given("mtp_layers_block_type")
        letters = f.given("mtp_hybrid_override_pattern")
        if isinstance(blocks.raw, list) and "moe" not in blocks.raw:
            return Value(0, blocks.path)
        if isinstance(letters.raw, str) and "E" not in letters.raw:
            return Value(0, letters.path)
        return depth


NEMOTRON_MTP = NemotronMtp()


def block_configs(f: Fields, layer: int) -> dict[str, object]:
    """Nemotron-H Puzzle: ``block_configs`` has one object per layer with its own expert count, top-k and width.

    vLLM allocates the largest expert count for every layer (model_arch_config_convertor.py:161).
    """
    value = f.given("block_configs")
    if value.missing or value.raw is None:
        return {}
    blocks = as_list(value, MAX_LAYERS)
    if layer >= len(blocks) or not isinstance(blocks[layer], dict):
        return {}
    block = blocks[layer]
    assert isinstance(block, dict)
    found: dict[str, object] = {}
    for attribute, key in (
        ("experts", "n_routed_experts"),
        ("topk", "num_experts_per_tok"),
        ("moe_intermediate_size", "moe_intermediate_size"),
    ):
        if block.get(key) is not None:
            found[attribute] = as_int(Value(block[key], f"{value.path}[{layer}].{key}"), 1, 1 << 22)
    return found


def swiglu_limits(f: Fields, layer: int) -> dict[str, object]:
    """Step 3.5: a layer with a limit runs swiglustep instead of silu; vLLM asserts that the limit is 7 (step3p5.py:366)."""
    value = f.given("swiglu_limits")
    if value.missing or value.raw is None:
        return {}
    limits = as_list(value, MAX_LAYERS)
    if layer >= len(limits) or limits[layer] in (None, 0, 0.0):
        return {}
    limit = as_float(Value(limits[layer], f"{value.path}[{layer}]"))
    if limit < 0:
        raise wrong(f"{value.path}[{layer}]", limits[layer], "a limit above 0, or 0 for none")
    return {"activation": "swiglustep"}
