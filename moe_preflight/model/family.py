"""How one family of models spells what we need: the words a row of the table in ``families.py`` is written in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from moe_preflight.model.fields import MISSING, Fields, Value
from moe_preflight.model.layout import Rule, every


@dataclass(frozen=True, slots=True)
class At:
    """Read from the config: the first of ``paths`` that is there. ``default`` is what the engine's own code uses when none
    is, with its ``source``; without one, the config class's default counts, and without that the field is unknown."""

    paths: tuple[str, ...]
    default: object = MISSING
    source: str = ""
    null: object = MISSING
    """What null in the file means, when not 'unknown'."""

    def read(self, f: Fields) -> Value:
        value = f.find(*self.paths)
        if value.missing and self.default is not MISSING:
            return Value(self.default, f"default ({self.source})", "engine")
        if value.raw is None and self.null is not MISSING:
            return Value(self.null, value.path, value.origin)
        return value


@dataclass(frozen=True, slots=True)
class Fixed:
    """Not in any config: the model's code has it."""

    value: object
    source: str = ""

    def read(self, f: Fields) -> Value:
        return Value(self.value, f"fixed ({self.source})" if self.source else "fixed by the family")


@dataclass(frozen=True, slots=True)
class Equals:
    """True when the field holds this very value (``topk_method == "noaux_tc"`` means a selection bias)."""

    paths: tuple[str, ...]
    wanted: object
    default: bool = False

    def read(self, f: Fields) -> Value:
        value = f.find(*self.paths)
        if value.missing:
            return Value(self.default, f"default (no {self.paths[0]})", "engine")
        return Value(value.raw == self.wanted, value.path, value.origin)


class Spec(Protocol):
    """Anything that can find a value: At, Fixed, Equals, or an odd family's own reader (``variants.py``)."""

    def read(self, f: Fields) -> Value: ...


def at(paths: str, default: object = MISSING, source: str = "", null: object = MISSING) -> At:
    """``at("a|b")``: field a, else b."""
    return At(tuple(paths.split("|")), default, source, null)


@dataclass(slots=True, eq=False, repr=False)
class Family:
    """One row. Everything a config can say about experts, by the words this family uses.

    ``shared_count`` is how many shared experts (each as wide as ``shared_each``, by default a routed one);
    ``shared_width`` the whole width of the shared MLP, where a family gives that instead.
    ``prefix`` are the names under which quantization configs may call the experts of layer ``{}``: the engine's first,
    then the checkpoint's own. ``mtp_prefix`` likewise, for MTP layer ``{}`` (counted from 0; ``{n}`` is its decoder index).
    ``parts`` are the checkpoint's names of one expert's matrices.
    """

    name: str
    architectures: tuple[str, ...]
    model_types: tuple[str, ...]
    experts: Spec
    topk: Spec
    inter: Spec
    source: str
    hidden: Spec = At(("hidden_size",))
    latent: Spec | None = None
    layer_counts: tuple[str, ...] = ("num_hidden_layers",)
    where: tuple[Rule, ...] = (every,)
    shared_count: Spec | None = None
    shared_each: Spec | None = None
    shared_width: Spec | None = None
    shared_per_layer: bool = False
    """``shared_count`` may be a list with one number per layer; elsewhere the engine takes a number alone."""
    n_group: Spec | None = None
    topk_group: Spec | None = None
    scoring: Spec = Fixed("softmax")
    bias: Spec = Fixed(False)
    renormalize: Spec = Fixed(True)
    scaling: Spec = Fixed(1.0)
    activation: Spec = At(("hidden_act",), "silu", "the engine's own default")
    gated: bool = True
    expert_bias: bool = False
    weight_on_input: Spec = Fixed(False)
    zero_experts: Spec | None = None
    hash_layers: Spec | None = None
    mtp: Spec | None = None
    mtp_experts: Spec | None = None
    mtp_topk: Spec | None = None
    populations: bool = False
    engine_class: bool = False
    """The engine brings its own config class, so transformers' defaults do not apply."""
    prefix: tuple[str, ...] = ("model.layers.{}.mlp.experts",)
    mtp_prefix: tuple[str, ...] = ("model.layers.{n}.mlp.experts", "mtp.layers.{}.mlp.experts")
    parts: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    variant: Callable[[Fields, int], dict[str, object]] | None = None
    """What differs in layer i (a named reader for the odd families): a dict of ExpertLayer attributes."""
