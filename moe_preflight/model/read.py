"""From a parsed config.json to a MoEModel: find the decoder's part, the family's row, then read what the row names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moe_preflight.errors import ConfigError
from moe_preflight.model import consistency, families, quantization
from moe_preflight.model.family import Family, Spec
from moe_preflight.model.fields import MISSING, Fields, Value, as_bool, as_float, as_int, as_str, shown, wrong
from moe_preflight.model.layout import MAX_LAYERS, Layers, layer_count
from moe_preflight.model.moe import ExpertLayer, MoEModel, Quantization

MAX_EXPERTS = 1 << 16
MAX_SIZE = 1 << 22
"""No published model is within a factor of ten of these; a larger number is a slip, and nothing is allocated from it."""

TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config", "decoder_config")
"""Where wrappers (vision, audio) keep their decoder (transformers ``get_text_config``, vLLM's own configs)."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "float64": "fp64"}


def read_config(
    config: Mapping[str, object],
    *,
    id: str,
    source: str = "local",
    revision: str | None = None,
    hf_quant_config: Mapping[str, object] | None = None,
) -> MoEModel:
    """The model a config describes. ``hf_quant_config`` is ModelOpt's file beside it, used when the config has no
    quantization of its own (as vLLM does). Raises ConfigError for a field of the wrong shape; a field that is absent and
    has no sourced default is named in ``MoEModel.unknown`` instead, and its size is 0."""
    f = find_decoder(config)
    family, confidence = find_family(config, f)
    reader = _Reader(config, f, family)
    sizes = reader.sizes()
    quant = quantization.reader(config, f, family, hf_quant_config)
    layers = reader.layers(sizes, quant) if sizes is not None else ()
    return MoEModel(
        id=id,
        source=source,
        revision=revision,
        architecture=_architectures(config)[0] if _architectures(config) else None,
        model_type=_model_type(config),
        hidden_size=reader.hidden,
        num_layers=reader.num_layers,
        dtype=reader.dtype(),
        num_attention_heads=reader.heads(),
        layers=layers,
        quantization=quant.overall(),
        fields=reader.used,
        unknown=tuple(reader.unknown),
        confidence=confidence,
        notes=(
            *reader.notes,
            *consistency.told_twice(config, f, reader.used),
            *consistency.varied(f, reader.used),
            *quant.notes(),
        ),
        config=config,
    )


def find_decoder(config: Mapping[str, object]) -> Fields:
    """The part of the config that describes the decoder: the root, or the text section of a wrapper."""
    here: Mapping[str, object] = config
    path: list[str] = []
    for _ in range(3):
        for key in TEXT_SECTIONS:
            inner = here.get(key)
            if isinstance(inner, Mapping) and inner:
                here = inner
                path.append(key)
                break
        else:
            break
    model_type = here.get("model_type")
    if not isinstance(model_type, str):
        model_type = _default_text_type(config) if path else None
    return Fields(here, ".".join(path), model_type)


def _default_text_type(config: Mapping[str, object]) -> str | None:
    outer = config.get("model_type")
    return f"{outer}_text" if isinstance(outer, str) else None


def find_family(config: Mapping[str, object], f: Fields) -> tuple[Family, str]:
    """The row for this config and how sure it is. The engine picks its model class by architecture, so that comes first."""
    by_arch, by_type = families.by_architecture(), families.by_model_type()
    for name in _architectures(config) + (_architectures(f.config) if f.section else []):
        if name in by_arch:
            return by_arch[name], "read"
    for model_type in (f.model_type, _model_type(config)):
        if model_type is not None and model_type in by_type:
            return by_type[model_type], "read"
    return families.GENERIC, "modelled"


def _architectures(config: Mapping[str, object]) -> list[str]:
    """``architectures`` is a list; some hub files hold a bare string or null."""
    raw = config.get("architectures")
    if isinstance(raw, str) and raw:
        return [raw]
    if isinstance(raw, list) and all(isinstance(x, str) and x for x in raw):
        return [str(x) for x in raw]
    if raw is None:
        return []
    raise wrong("architectures", raw, 'an array of names, such as ["MixtralForCausalLM"]')


def _model_type(config: Mapping[str, object]) -> str | None:
    raw = config.get("model_type")
    if raw is not None and not isinstance(raw, str):
        raise wrong("model_type", raw, "a string")
    return raw


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The four numbers, each a number for all layers or a list with one per layer (or per population of experts)."""

    experts: int | list[int]
    topk: int | list[int]
    inter: int | list[int]
    model_dim: int


@dataclass(slots=True)
class _Reader:
    config: Mapping[str, object]
    f: Fields
    family: Family
    used: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hidden: int = 0
    num_layers: int = 0

    def sizes(self) -> _Sizes | None:
        """None for a dense model. Notes the fields used, and those nobody knows."""
        fam = self.family
        found = fam.hidden.read(self.f)
        hidden = self._sizes("hidden_size", found, 1, MAX_SIZE)
        self.hidden = hidden if isinstance(hidden, int) else as_int(found, 1, MAX_SIZE)
        count = layer_count(self.f, *fam.layer_counts)
        if count.missing or count.raw is None:
            self.unknown.append("num_layers")
        else:
            self.num_layers = as_int(count, 1, MAX_LAYERS)
            self.used["num_layers"] = count.path
        experts_value = fam.experts.read(self.f)
        absent = experts_value.missing or experts_value.raw is None or experts_value.origin == "class"
        if absent and self.hidden:
            if fam is families.GENERIC:
                self.notes.append("no field of the config names experts: a dense model")
                return None
            if self.num_layers and not (where := self._where()).indexes:
                self.notes.append(f"{where.path} names no expert layer: a dense model")
                return None
        experts = self._sizes("experts", experts_value, 0, MAX_EXPERTS)
        if experts == 0 or (isinstance(experts, list) and not any(experts)):
            if "experts" in self.unknown:
                return self._after_unknown(experts)
            self.notes.append(f"{experts_value.path} is 0: a dense model" if experts_value.origin == "file" else "a dense model")
            return None
        return self._after_unknown(experts)

    def _after_unknown(self, experts: int | list[int]) -> _Sizes:
        fam = self.family
        topk = self._sizes("topk", fam.topk.read(self.f), 1, MAX_EXPERTS)
        inter = self._sizes("moe_intermediate_size", fam.inter.read(self.f), 1, MAX_SIZE)
        model_dim = self.hidden
        latent = fam.latent.read(self.f) if fam.latent else Value(MISSING, "")
        if not latent.missing and latent.raw is not None:
            model_dim = as_int(latent, 1, MAX_SIZE)
            self.used["model_dim"] = latent.path
        if (fewest := _least(experts)) and fewest < (most := _most(topk)):
            where, other = self.used.get("topk", "topk"), self.used.get("experts", "experts")
            raise ConfigError(f"{where}: {most} experts per token of {fewest} experts ({other}); expected at most {fewest}.")
        return _Sizes(experts, topk, inter, model_dim)

    def layers(self, sizes: _Sizes, quant: quantization.Reader) -> tuple[ExpertLayer, ...]:
        """One ExpertLayer per distinct kind: ``main``, then ``hash``, ``kind1`` ... by first layer, then ``mtp``."""
        common = self._common(sizes)
        where = self._where()
        if not where.indexes and self.num_layers:
            self.notes.append(consistency.no_expert_layer(where, self.f, self.num_layers, _architectures(self.config)))
        hash_layers = self._number("hash_layers", self.family.hash_layers, 0)
        if self.family.hash_layers is not None and not hash_layers:
            kinds = self.f.given("mlp_layer_types")
            hash_layers = kinds.raw.count("hash_moe") if isinstance(kinds.raw, list) else 0
        found: dict[ExpertLayer, list[int]] = {}
        for i in where.indexes:
            for kind in self._at_layer(common, sizes, i, hashed=i < hash_layers):
                names = self._names(self.family.prefix, i, kind)
                found.setdefault(replace(kind, quantization=quant.of(names, self.family.parts)), []).append(i)
        named = _name(found)
        return (*named, *self._mtp(common, sizes, quant))

    def _common(self, sizes: _Sizes) -> ExpertLayer:
        fam = self.family
        activation = self._text("activation", fam.activation, "silu")
        activation = consistency.activation(activation, self.used.get("activation", ""), fam.name)
        if not fam.gated:
            activation += "_no_mul"
        shared, width = self._shared(sizes)
        scoring = self._text("scoring", fam.scoring, "")
        if scoring:
            consistency.scoring(scoring, self.used["scoring"])
        n_group, topk_group = self._group("n_group", fam.n_group), self._group("topk_group", fam.topk_group)
        consistency.groups(n_group, topk_group, sizes.experts, self.used)
        return ExpertLayer(
            name="main", count=0, first_layer=0, experts=_most(sizes.experts), topk=_most(sizes.topk),
            model_dim=sizes.model_dim, moe_intermediate_size=_most(sizes.inter), activation=activation, gated=fam.gated,
            n_shared=shared, shared_intermediate_size=width, scoring=scoring or "softmax",
            selection_bias=self._flag("selection_bias", fam.bias), renormalize=self._flag("renormalize", fam.renormalize),
            n_group=n_group, topk_group=topk_group, routed_scaling_factor=self._float("routed_scaling_factor", fam.scaling),
            expert_bias=fam.expert_bias, weight_on_input=self._flag("weight_on_input", fam.weight_on_input),
            zero_experts=self._number("zero_experts", fam.zero_experts, 0),
        )  # fmt: skip

    def _at_layer(self, common: ExpertLayer, sizes: _Sizes, layer: int, *, hashed: bool) -> list[ExpertLayer]:
        """The kinds of experts in one layer: one, or one per population (ERNIE VL: text, vision)."""
        if self.family.populations and isinstance(sizes.inter, list):
            experts = sizes.experts if isinstance(sizes.experts, list) else [sizes.experts] * len(sizes.inter)
            return [
                replace(common, name=str(p), experts=experts[min(p, len(experts) - 1)], moe_intermediate_size=width)
                for p, width in enumerate(sizes.inter)
            ]
        kind = replace(
            common,
            experts=self._pick("experts", sizes.experts, layer),
            topk=self._pick("topk", sizes.topk, layer),
            moe_intermediate_size=self._pick("moe_intermediate_size", sizes.inter, layer),
        )
        if hashed:
            kind = replace(kind, hash_routed=True, selection_bias=False)
        if self.family.variant is not None:
            kind = replace(kind, **self.family.variant(self.f, layer))  # type: ignore[arg-type]
        return [kind]

    def _mtp(self, common: ExpertLayer, sizes: _Sizes, quant: quantization.Reader) -> tuple[ExpertLayer, ...]:
        if self.family.mtp is None or self.family.mtp.read(self.f).origin != "file":
            return ()  # a class default would claim layers the checkpoint may not have
        depth = self._number("mtp_layers", self.family.mtp, 0)
        if not depth:
            return ()
        found: dict[ExpertLayer, list[int]] = {}
        last = self.num_layers - 1
        kind = replace(
            self._at_layer(common, sizes, last, hashed=False)[0],
            experts=self._number("mtp_experts", self.family.mtp_experts, 0) or self._pick("experts", sizes.experts, last),
            topk=self._number("mtp_topk", self.family.mtp_topk, 0) or self._pick("topk", sizes.topk, last),
        )
        for i in range(min(depth, MAX_LAYERS)):
            prefixes = tuple(p.replace("{n}", str(self.num_layers + i)) for p in self.family.mtp_prefix)
            names = self._names(prefixes, i, kind)
            found.setdefault(replace(kind, quantization=quant.of(names, self.family.parts)), []).append(self.num_layers + i)
        return tuple(
            replace(k, name="mtp" if j == 0 else f"mtp{j}", count=len(at), first_layer=at[0], layers=tuple(at))
            for j, (k, at) in enumerate(found.items())
        )

    def _names(self, prefixes: Sequence[str], layer: int, kind: ExpertLayer) -> tuple[str, ...]:
        """Every name a quantization config may use for this layer's experts, the engine's own first."""
        plain = [p.replace("{}", str(layer)) for p in prefixes]
        if not self.f.section:
            return tuple(plain)
        inner = [p.removeprefix("model.") for p in plain]
        return (
            *(f"language_model.{p}" for p in plain),
            *(f"model.language_model.{p}" for p in inner),
            *(f"language_model.{p}" for p in inner),
            *plain,
        )

    def _where(self) -> Layers:
        for rule in self.family.where:
            found = rule(self.f, self.num_layers)
            if found is not None:
                self.used["layers"] = found.path
                return found
        return Layers((), "no rule")

    def _shared(self, sizes: _Sizes) -> tuple[int, int]:
        """(how many shared experts, whole width of the shared MLP)."""
        fam, inter = self.family, _most(sizes.inter)
        if fam.shared_width is not None:
            width = self._value("shared_intermediate_size", fam.shared_width, optional=True)
            number = 0 if width is None else as_int(width, 0, MAX_SIZE)
            return (1 if number else 0), number
        value = self._value("n_shared", fam.shared_count, optional=True) if fam.shared_count is not None else None
        if value is None:
            return 0, 0
        raw = value.raw
        if isinstance(raw, list) and fam.shared_per_layer:
            numbers = [as_int(Value(x, f"{value.path}[{i}]"), 0, MAX_EXPERTS) for i, x in enumerate(raw[:MAX_LAYERS])]
            count = max(numbers, default=0)
        else:
            count = as_int(value, 0, MAX_EXPERTS)
        each = fam.shared_each.read(self.f) if fam.shared_each is not None else Value(MISSING, "")
        if count and not each.missing and each.raw is not None:
            self.used["shared_intermediate_size"] = each.path
            return count, count * as_int(each, 1, MAX_SIZE)
        return count, count * inter

    def _value(self, name: str, spec: Spec, *, optional: bool = False) -> Value | None:
        """The value a spec finds, noted; None when it is absent or null (then unknown, unless optional)."""
        value = spec.read(self.f)
        if value.missing or value.raw is None:
            if not optional:
                self.unknown.append(name)
            return None
        self.used[name] = value.path
        return value

    def _sizes(self, name: str, value: Value, low: int, high: int) -> int | list[int]:
        """A size, or one per layer; 0 and a line in ``unknown`` when the file has none.

        A class default never stands in for a size: a published config always holds its sizes, so one without was cut,
        and the default is another checkpoint's number.
        """
        if value.missing or value.raw is None or value.origin == "class":
            self.unknown.append(name)
            return 0
        self.used[name] = value.path
        if not isinstance(value.raw, list):
            return as_int(value, low, high)
        if not value.raw or len(value.raw) > MAX_LAYERS:
            raise wrong(value.path, value.raw, f"a whole number from {low} to {high}, or an array with one per layer")
        return [as_int(Value(x, f"{value.path}[{i}]"), low, high) for i, x in enumerate(value.raw)]

    def _pick(self, name: str, sizes: int | list[int], layer: int) -> int:
        if isinstance(sizes, int):
            return sizes
        if layer >= len(sizes):
            path = self.used.get(name, name)
            raise ConfigError(f"{path}: {len(sizes)} entries for {self.num_layers} layers; expected one entry per layer.")
        return sizes[layer]

    def _text(self, name: str, spec: Spec, otherwise: str) -> str:
        value = self._value(name, spec)
        return otherwise if value is None else as_str(value)

    def _flag(self, name: str, spec: Spec) -> bool:
        value = self._value(name, spec)
        return False if value is None else as_bool(value)

    def _float(self, name: str, spec: Spec) -> float:
        value = self._value(name, spec, optional=True)
        return 1.0 if value is None else as_float(value)

    def _group(self, name: str, spec: Spec | None) -> int | None:
        value = None if spec is None else self._value(name, spec, optional=True)
        return None if value is None else as_int(value, 1, MAX_EXPERTS)

    def _number(self, name: str, spec: Spec | None, otherwise: int) -> int:
        value = None if spec is None else self._value(name, spec, optional=True)
        return otherwise if value is None else as_int(value, 0, MAX_EXPERTS)

    def heads(self) -> int | None:
        value = self.f.find("num_attention_heads", "n_heads", "n_head")
        return None if value.missing or value.raw is None else as_int(value, 1, MAX_SIZE)

    def dtype(self) -> str:
        """The checkpoint's dtype, as vLLM looks for it: the root, then the decoder's section."""
        for holder, section in ((self.config, ""), (self.f.config, self.f.section)):
            for key in ("dtype", "torch_dtype"):
                raw = holder.get(key)
                if raw is None:
                    continue
                path = f"{section}.{key}" if section else key
                name = as_str(Value(raw, path)).removeprefix("torch.")
                if name not in _DTYPES:
                    raise wrong(path, raw, "one of " + ", ".join(_DTYPES))
                self.used["dtype"] = path
                return _DTYPES[name]
        self.used["dtype"] = "default (vLLM config/model.py:2441: no dtype in the config runs as bfloat16)"
        return "bf16"


def _name(found: Mapping[ExpertLayer, Sequence[int]]) -> list[ExpertLayer]:
    """Names and counts: the first kind that is not hash-routed is ``main``, the others ``kind1`` ... in order."""
    named: list[ExpertLayer] = []
    main = others = hashes = 0
    for kind, at in found.items():
        if kind.hash_routed:
            name = f"hash{hashes}" if hashes else "hash"
            hashes += 1
        elif not main:
            name, main = "main", 1
        else:
            others += 1
            name = f"kind{others}"
        named.append(replace(kind, name=name, count=len(at), first_layer=at[0], layers=tuple(at)))
    return sorted(named, key=lambda k: (k.name != "main", k.first_layer, k.name))


def _most(sizes: int | list[int]) -> int:
    return sizes if isinstance(sizes, int) else max(sizes)


def _least(sizes: int | list[int]) -> int:
    return sizes if isinstance(sizes, int) else min(sizes)


__all__ = ["MAX_EXPERTS", "MAX_SIZE", "Quantization", "find_decoder", "find_family", "read_config", "shown"]
