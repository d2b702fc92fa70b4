"""compressed-tensors: groups of targets, each with weights and input_activations; ``ignore`` takes modules out.

Matching follows vLLM 0.33.0 (compressed_tensors.py:998, utils.py:58): names exactly or by ``re:``, first ignore, then the
groups' targets in order, last the class name ``Linear``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moe_preflight.model.fields import wrong
from moe_preflight.model.moe import Quantization
from moe_preflight.model.quantization.patterns import Matcher, Modules
from moe_preflight.model.quantization.words import Raw, excluded

METHOD = "compressed-tensors"
_CLASSES = ("linear", "routedexperts", "fusedmoe", "moerunner")
"""Targets that name a class rather than a module: ``Linear`` covers experts too (compressed_tensors.py:221)."""


@dataclass(frozen=True, slots=True)
class Group:
    targets: tuple[str, ...]
    scheme: Quantization


@dataclass(frozen=True, slots=True)
class CompressedTensors:
    groups: tuple[Group, ...]
    names: frozenset[str]
    patterns: tuple[str, ...]
    """``ignore``, as plain names and as ``re:`` patterns."""

    def of(self, modules: Modules, matcher: Matcher) -> Quantization:
        children = list(modules.children())
        if any(c in self.names or any(matcher.target(p, c) for p in self.patterns) for c in children):
            return self._none()
        for group in self.groups:
            if any(matcher.target(t, c) for t in group.targets for c in children):
                return group.scheme
        for group in self.groups:
            if any(t.lower() in _CLASSES for t in group.targets):
                return group.scheme
        return self._none() if self.groups else self.overall()

    def _none(self) -> Quantization:
        return excluded(METHOD, len(self.names) + len(self.patterns))

    def overall(self) -> Quantization:
        if not self.groups:
            return Quantization(method=METHOD, scheme="other", weight_dtype="unknown", detail={"reason": "no config_groups"})
        return next((g.scheme for g in self.groups if "Linear" in g.targets), self.groups[0].scheme)


def read(raw: Raw, _: str) -> CompressedTensors:
    ignore = raw.names("ignore")
    groups: list[Group] = []
    holder = raw.inner("config_groups")
    for key in holder.data if holder is not None else ():
        assert holder is not None
        group = holder.inner(key)
        if group is None:
            continue
        targets = tuple(group.names("targets"))
        if len(targets) == 1 and targets[0].endswith("Attention"):
            continue  # attention groups belong to the KV cache (compressed_tensors.py:235)
        scheme = replace(_scheme(group, raw.text("format")), excluded_modules_count=len(ignore))
        groups.append(Group(targets, scheme))
    patterns = tuple(x for x in ignore if x.startswith("re:"))
    return CompressedTensors(tuple(groups), frozenset(ignore).difference(patterns), patterns)


def _scheme(group: Raw, file_format: str | None) -> Quantization:
    weights, inputs = group.inner("weights"), group.inner("input_activations")
    if weights is None:
        raise wrong(f"{group.path}.weights", None, "an object with num_bits, type and strategy")
    kind, bits = weights.text("type", "int"), weights.number("num_bits", 1, 64)
    strategy = weights.text("strategy")
    group_size, block = weights.number("group_size", -1, 1 << 20), weights.pair("block_structure")
    if strategy is None and group_size is not None and group_size > 0:
        strategy = "group"  # the library's own inference when the field is absent
    input_kind = f"{inputs.text('type', 'int')}{inputs.number('num_bits', 1, 64)}" if inputs is not None else None
    fmt = group.text("format") or file_format
    detail = {**weights.keep("actorder", "scale_dtype"), **({"format": fmt} if fmt else {})}
    if kind == "float" and bits == 8 and strategy == "block" and block is None:
        raise wrong(f"{weights.path}.block_structure", None, "two whole numbers, such as [128, 128]")
    return Quantization(
        method=METHOD,
        scheme=_name(kind, bits, strategy, group_size, str(detail.get("scale_dtype")), fmt, input_kind),
        weight_dtype={("float", 8): "fp8", ("float", 4): "fp4", ("int", 4): "int4", ("int", 8): "int8"}.get(
            (kind or "", bits or 0), f"{kind}{bits}"
        ),
        activation_dtype={"float8": "fp8", "float4": "fp4", "int8": "int8", "int4": "int4"}.get(input_kind or "", input_kind),
        weight_strategy="group" if strategy == "tensor_group" else strategy,
        activation_strategy=_activation_strategy(inputs),
        activation_dynamic=_dynamic(inputs),
        block_shape=block,
        group_size=group_size if group_size and group_size > 0 else None,
        symmetric=weights.flag("symmetric") is not False,
        detail=detail,
    )


def _name(
    kind: str | None, bits: int | None, strategy: str | None, group: int | None, scale: str, fmt: str | None, inputs: str | None
) -> str:
    """Our scheme for a pair of weights and activations, in the order vLLM asks (compressed_tensors_moe.py:72)."""
    if kind == "float" and bits == 4:
        if strategy == "tensor_group" or group == 16 or fmt == "nvfp4-pack-quantized":
            return "nvfp4_a16" if inputs is None else "nvfp4"
        if group == 32:
            return {None: "mxfp4", "float8": "mxfp4_a8", "float4": "mxfp4_a4"}.get(inputs, "other")
        return "other"
    if kind == "float" and bits == 8:
        if strategy == "group" and group == 32:
            return "mxfp8" if "uint8" in scale or (fmt or "").startswith("mxfp8") else "other"
        return {"block": "fp8_block", "channel": "fp8_channel", "tensor": "fp8_tensor"}.get(strategy or "", "other")
    if kind == "int" and bits == 4:
        return {None: "int4", "float8": "int4_fp8"}.get(inputs, "other")
    if kind == "int" and bits == 8:
        return {None: "int8_w8a16", "int8": "int8"}.get(inputs, "other")
    return "other"


def _activation_strategy(inputs: Raw | None) -> str | None:
    if inputs is None:
        return None
    strategy = inputs.text("strategy", "tensor")
    return "group" if strategy == "tensor_group" else strategy


def _dynamic(inputs: Raw | None) -> bool | None:
    """``dynamic`` is true, false or "local" (NVFP4: the group scales are computed, the tensor scale is stored)."""
    if inputs is None:
        return None
    raw = inputs.data.get("dynamic", False)
    if raw == "local" or isinstance(raw, bool):
        return bool(raw)
    raise wrong(f"{inputs.path}.dynamic", raw, 'true, false or "local"')
