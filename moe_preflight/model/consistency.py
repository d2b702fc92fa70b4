"""Do the values of a config agree with each other and with the code that would read them? What the engine refuses is a ConfigError
with field and value; what it runs in an unexpected way is a note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moe_preflight.errors import ConfigError
from moe_preflight.model.families.refusals import ACTIVATIONS, NEEDS_EXPERTS, SCORINGS, SILU_ONLY
from moe_preflight.model.fields import MISSING, Fields, shown, wrong
from moe_preflight.model.layout import Layers

_SPELLINGS = {
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu", "swiglu": "silu",
    "squared_relu": "relu2",
}  # fmt: skip


def activation(word: str, path: str, family: str) -> str:
    """The engine's word for an activation. Raises for one that nobody knows, and for one the family's model file does not take."""
    name = _SPELLINGS.get(word, word)
    if family in SILU_ONLY and name != "silu":
        raise wrong(path, word, f"silu, the only one this architecture's model file takes (vLLM {SILU_ONLY[family]})")
    if name not in ACTIVATIONS:
        raise wrong(path, word, "an activation such as silu, gelu_pytorch_tanh or relu2")
    return name


def scoring(word: str, path: str) -> str:
    if word not in SCORINGS:
        raise wrong(path, word, "one of " + ", ".join(SCORINGS))
    return word


def groups(n_group: int | None, topk_group: int | None, experts: int | list[int], used: Mapping[str, str]) -> None:
    """Scores are cut into groups of one size (vLLM fused_moe/router/grouped_topk_router.py: a view that must come out even)."""
    if n_group is None:
        return
    if topk_group is not None and topk_group > n_group:
        where = used.get("topk_group", "topk_group")
        raise ConfigError(f"{where}: {topk_group} is more than the {n_group} groups; expected at most {n_group}.")
    for count in [experts] if isinstance(experts, int) else experts:
        if count % n_group:
            where, other = used.get("n_group", "n_group"), used.get("experts", "experts")
            raise ConfigError(f"{where}: {n_group} groups of {count} experts ({other}); expected a number that divides them.")


def no_expert_layer(where: Layers, f: Fields, num_layers: int, architectures: Sequence[str]) -> str:
    """What to note when no layer holds experts. Raises when the model file does not start without one."""
    raw = f.given(where.path.removeprefix(f"{f.section}.") if f.section else where.path).raw
    said = where.path if raw is MISSING else f"{where.path} is {shown(raw)}"
    what = f"{said}: none of the {num_layers} layers holds experts"
    for name in architectures:
        if name in NEEDS_EXPERTS:
            raise ConfigError(f"{what}; {name} does not start without one (vLLM {NEEDS_EXPERTS[name]}).")
    return f"{what}: a dense model"


def told_twice(config: Mapping[str, object], f: Fields, used: Mapping[str, str]) -> Iterator[str]:
    """A wrapper that repeats a field of its text section with another value: the engine reads the section."""
    for path in dict.fromkeys(used.values()) if f.section else ():
        name = path.removeprefix(f"{f.section}.")
        if name == path or "." in name or name not in config or name not in f.config:
            continue
        outer, inner = config[name], f.config[name]
        if isinstance(outer, (int, str)) and isinstance(inner, (int, str)) and outer != inner:
            yield f"{name}: {shown(outer)} at the root, {shown(inner)} in {f.section}, which is what counts"


def varied(f: Fields, used: Mapping[str, str]) -> Iterator[str]:
    """transformers 5.24.0's ``per_layer_config`` ({"25": {"num_experts": 4}}) lets one layer differ. No MoE model file of vLLM 0.33.0 asks it
    for the experts, so what is used is the value for all layers, and the reader is told."""
    layers = f.given("per_layer_config").raw
    if not isinstance(layers, Mapping):
        return
    for path in dict.fromkeys(used.values()):
        name = path.removeprefix(f"{f.section}.") if f.section else path
        count = sum(
            1
            for layer in layers.values()
            if isinstance(layer, Mapping) and layer.get(name, f.config.get(name)) != f.config.get(name)
        )
        if count:
            where = f.where("per_layer_config")
            yield f"{path}: {where} gives another value for {count} layer{'s' if count > 1 else ''}, which is not taken into account (unverified)"
