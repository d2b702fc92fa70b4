"""The odd families' own small readers: what a table row cannot say in field names."""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.model.family import At, Fixed, at
from moe_preflight.model.fields import MISSING, Fields, Value, as_float, as_int, as_list, wrong
from moe_preflight.model.layout import MAX_LAYERS, Layers, after_dense, every


def first_layer_dense(f: Fields, n: int) -> Layers | None:
    """The class default of several families: layer 0 is dense, the rest hold experts."""
    return Layers(tuple(range(1, n)), f"default (transformers {f.model_type}: first layer dense)")


_FIRST_ALONE, _WITH_STEP, _FROM_FIRST = after_dense(step=""), after_dense(), after_dense(counted_from_first=True)


def glm4_dense(f: Fields, n: int) -> Layers | None:
    """GLM-4 MoE looks at ``first_k_dense_replace`` alone (glm4_moe.py:355), its Lite at ``moe_layer_freq`` too (glm4_moe_lite.py:171)."""
    return (_WITH_STEP if f.model_type == "glm4_moe_lite" else _FIRST_ALONE)(f, n)


def sarvam_dense(f: Fields, n: int) -> Layers | None:
    """Sarvam's MLA models count ``moe_layer_freq`` from the first sparse layer (sarvam.py:411); the others are Bailing's."""
    return (_FROM_FIRST if f.model_type == "sarvam_mla" else _FIRST_ALONE)(f, n)


def all_of_qwen3_5(f: Fields, n: int) -> Layers | None:
    """Qwen3.5 has experts in every layer, whatever ``mlp_only_layers`` says (qwen3_5.py:142)."""
    return every(f, n) if f.model_type in ("qwen3_5_moe", "qwen3_5_moe_text") else None


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
class BackendRenorm:
    """vLLM's Transformers backend: ``norm_topk_prob``, and where that is absent or null, whether more than one expert is taken
    (model_executor/models/transformers/moe.py:332)."""

    topk: At

    def read(self, f: Fields) -> Value:
        said = f.find("norm_topk_prob")
        if not said.missing and said.raw is not None:
            return said
        taken = self.topk.read(f)
        one = isinstance(taken.raw, int) and taken.raw == 1
        return Value(not one, "default (model_executor/models/transformers/moe.py:332: top-k above 1)", "engine")


BACKEND_RENORM = BackendRenorm(at("num_experts_per_tok|num_experts_per_token|top_k_experts|moe_topk|moe_top_k|top_k|moe_k"))


@dataclass(frozen=True, slots=True)
class AfmoeRenorm:
    """AFMoE renormalizes sigmoid scores only (model_executor/models/afmoe.py:127)."""

    def read(self, f: Fields) -> Value:
        scoring = f.find("score_func")
        if not scoring.missing and scoring.raw not in (None, "sigmoid"):
            return Value(False, scoring.path, scoring.origin)
        return at("route_norm", True, "transformers models/afmoe").read(f)


AFMOE_RENORM = AfmoeRenorm()


@dataclass(frozen=True, slots=True)
class Param2Each:
    """Param2's ``moe_shared_expert_intermediate_size`` is the width of all shared experts together (param2moe.py:311)."""

    def read(self, f: Fields) -> Value:
        whole = f.find("moe_shared_expert_intermediate_size")
        if whole.missing or whole.raw is None:
            return f.find("moe_intermediate_size")
        count, width = at("num_shared_experts", 1, null=0).read(f), as_int(whole, 1, 1 << 22)
        number = as_int(count, 0, 1 << 16) or 1
        if width % number:
            raise wrong(whole.path, width, f"a multiple of the {number} shared experts")
        return Value(width // number, whole.path)


PARAM2_EACH = Param2Each()


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


def shared_banks(f: Fields, n: int) -> Layers | None:
    """InternS2 Mobius: ``num_blocks`` banks of experts, which the decoder layers take turns to use. A bank counts as a layer."""
    value = f.given("num_blocks")
    if value.missing or value.raw is None:
        return None
    return Layers(tuple(range(as_int(value, 1, MAX_LAYERS))), value.path)
