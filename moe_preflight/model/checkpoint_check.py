"""Do the tensors of a checkpoint say the same of the experts as its config? Pure: headers in, statements out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from moe_preflight.model.expert_tensors import INTERLEAVED_FAMILIES, TRANSPOSED_FAMILIES, ExpertTensor, recognise
from moe_preflight.model.moe import ExpertLayer, MoEModel, Quantization
from moe_preflight.model.read import find_decoder, find_family
from moe_preflight.model.safetensors import Tensor

FEW = 20
"""Mismatches reported one by one; the rest are counted."""

_FLOATS, _FP8, _FP4 = ("BF16", "F16", "F32"), ("F8_E4M3", "F8_E4M3FNUZ"), ("U8", "I8", "F4")
_SCALE = ("weight_scale_inv", "weight_scale", "scale", "scales")

# scheme: dtypes of the weight, values per stored element along K, names one of which must stand beside it
_STORED: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "none": (_FLOATS, 1, ()),
    "fp8_tensor": (_FP8, 1, ("weight_scale", "scale", "weight_scale_inv")),
    "fp8_channel": (_FP8, 1, ("weight_scale", "scale")),
    "fp8_block": (_FP8, 1, _SCALE),
    "mxfp8": ((*_FP8, "U8"), 1, _SCALE),
    "mxfp4": (_FP4, 2, _SCALE),
    "mxfp4_a4": (_FP4, 2, _SCALE),
    "mxfp4_a8": (_FP4, 2, _SCALE),
    "nvfp4": (_FP4, 2, ("weight_scale",)),
    "nvfp4_a16": (_FP4, 2, ("weight_scale",)),
    "int4": (("I32", "U8", "I8"), 8, ("weight_scale", "scales")),
    "int8_w8a16": (("I32", "I8", "U8"), 4, ("weight_scale", "scales")),
    "int8": (("I8",), 1, ("weight_scale",)),
    "int4_fp8": (("I32", "U8", "I8"), 8, ("weight_scale", "scales")),
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """``kind``: missing, shape, dtype, scale, extra or unread. ``tensor`` is the name at fault; ``message`` says what and what
    was expected."""

    kind: str
    tensor: str
    message: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How one kind of layer keeps its experts. ``stored``: per expert, stacked or concatenated. ``orientation``: linear
    ([out, in]), transposed ([in, out]) or ambiguous. ``gate_up``: separate, halves, interleaved or none."""

    layer: str
    layers_found: int
    experts: int
    stored: str
    orientation: str
    gate_up: str
    dtypes: tuple[str, ...]
    scales: tuple[str, ...]


@dataclass(slots=True)
class CheckpointReport:
    """What the headers say. ``mismatches`` holds the first FEW, ``mismatch_count`` all."""

    files: int
    tensors: int
    expert_tensors: int
    layouts: list[Layout] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    mismatch_count: int = 0

    def add(self, kind: str, tensor: str, message: str) -> None:
        self.mismatch_count += 1
        if len(self.mismatches) < FEW:
            self.mismatches.append(Mismatch(kind, tensor, message))


def compare(model: MoEModel, tensors: Iterable[Tensor]) -> CheckpointReport:
    """Judge the experts found against the model's kinds of layer."""
    by_layer: dict[int, list[ExpertTensor]] = {}
    files: set[str] = set()
    count = 0
    for tensor in tensors:
        count += 1
        files.add(tensor.file)
        found = recognise(tensor)
        if found is not None:
            by_layer.setdefault(found.layer + (model.num_layers if found.mtp else 0), []).append(found)
    report = CheckpointReport(len(files), count, sum(map(len, by_layer.values())))
    if not by_layer:
        report.add("unread", "", f"none of {count:,} tensors has a name that is known for routed experts")
        return report
    family = find_family(model.config, find_decoder(model.config))[0].name if model.config else ""
    claimed: set[int] = set()
    offset: dict[int, int] = {}
    for kind in model.layers:
        _kind(report, kind, by_layer, offset, family)
        claimed.update(kind.layers)
    for layer in sorted(claimed & set(by_layer)):
        allowed = offset[layer]
        beyond = [x for x in by_layer[layer] if x.expert is not None and x.expert >= allowed]
        if beyond:
            report.add("extra", beyond[0].tensor.name, f"layer {layer} holds more experts than the {allowed} the config says")
    for layer in sorted(set(by_layer) - claimed):
        name = by_layer[layer][0].tensor.name
        report.add("extra", name, f"layer {layer} holds experts, which the config says it does not")
    return report


def _kind(
    report: CheckpointReport, kind: ExpertLayer, by_layer: dict[int, list[ExpertTensor]], offset: dict[int, int], family: str
) -> None:
    """One kind of layer. Populations share layers: their experts follow each other in one list (``offset``)."""
    seen = _Seen()
    for layer in kind.layers:
        first = offset.get(layer, 0)
        offset[layer] = first + kind.experts
        own = by_layer.get(layer)
        if own is None:
            report.add(
                "missing", f"layer {layer}", f"layer {layer} has no expert tensors; the config says {kind.experts} experts"
            )
            continue
        seen.layers += 1
        _layer(report, kind, layer, own, range(first, first + kind.experts), seen, family)
    if seen.layers:
        report.layouts.append(seen.layout(kind))


@dataclass(slots=True)
class _Seen:
    layers: int = 0
    stored: set[str] = field(default_factory=set)
    orientation: set[str] = field(default_factory=set)
    gate_up: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    scales: set[str] = field(default_factory=set)

    def layout(self, kind: ExpertLayer) -> Layout:
        def one(words: set[str]) -> str:
            return "/".join(sorted(words)) or "unknown"

        return Layout(
            kind.name, self.layers, kind.experts, one(self.stored), one(self.orientation), one(self.gate_up),
            tuple(sorted(self.dtypes)), tuple(sorted(self.scales)),
        )  # fmt: skip


def _layer(
    report: CheckpointReport, kind: ExpertLayer, layer: int, own: Sequence[ExpertTensor], ids: range, seen: _Seen, family: str
) -> None:
    single = [x for x in own if x.expert is not None]
    mine = [x for x in single if x.expert in ids]
    weights = {(x.expert, x.role): x for x in mine if x.is_weight}
    beside = {(x.expert, x.role, x.suffix) for x in own if not x.is_weight}
    seen.scales.update(x.suffix for x in own if not x.is_weight and x.suffix != "bias")
    roles = ("gate", "up", "down") if kind.gated else ("up", "down")
    if single:
        seen.stored.add("per expert")
        fused = any(role == "gate_up" for _, role in weights)
        seen.gate_up.add("halves" if fused else "separate" if kind.gated else "none")
        wanted = ("gate_up", "down") if fused else roles
        _missing(report, kind, layer, weights, wanted, ids, mine)
        for x in weights.values():
            _weight(report, kind.quantization, x, _logical(kind, x.role), beside, seen)
    for x in own:
        if x.expert is None and x.is_weight:
            _stacked(report, kind, x, beside, seen, family)


def _missing(
    report: CheckpointReport, kind: ExpertLayer, layer: int, weights: dict[tuple[int | None, str], ExpertTensor],
    roles: Sequence[str], ids: range, mine: Sequence[ExpertTensor],
) -> None:  # fmt: skip
    absent = [(e, role) for e in ids for role in roles if (e, role) not in weights]
    if not absent:
        return
    expert, role = absent[0]
    example = next((x.tensor.name for x in mine if x.role == role and x.is_weight), f"layer {layer}, expert {expert}, {role}")
    at = example.rfind("experts.")
    name = f"{example[:at]}experts.{expert}.{example[at:].split('.', 2)[2]}" if at >= 0 else example
    present = len({e for e, _ in weights})
    report.add(
        "missing",
        name,
        f"not in the checkpoint; layer {layer} has {present} of {kind.experts} experts, {len(absent):,} tensors absent",
    )


def _logical(kind: ExpertLayer, role: str) -> tuple[int, int]:
    """(rows out, columns in) of one expert's matrix in Linear's layout."""
    inter, hidden = kind.moe_intermediate_size, kind.model_dim
    return {"gate": (inter, hidden), "up": (inter, hidden), "gate_up": (2 * inter, hidden), "down": (hidden, inter)}[role]


def _weight(
    report: CheckpointReport, quant: Quantization, x: ExpertTensor, logical: tuple[int, int],
    beside: set[tuple[int | None, str, str]], seen: _Seen,
) -> None:  # fmt: skip
    """One expert's own matrix: dtype, shape, and the scale beside it."""
    t = x.tensor
    seen.dtypes.add(t.dtype)
    stored = _STORED.get(quant.scheme)
    if stored is None:
        return
    dtypes, pack, scales = stored
    if t.dtype not in dtypes:
        report.add("dtype", t.name, f"{t.dtype}; expected {' or '.join(dtypes)} for {_said(quant)}")
        return
    out, inner = logical
    pack = {"I32": pack, "U8": min(pack, 2), "I8": min(pack, 2)}.get(t.dtype, 1) if pack > 1 else 1
    if quant.scheme == "int8_w8a16" and t.dtype != "I32":
        pack = 1
    accepted = [(out, inner // pack)]
    if x.suffix == "qweight":  # GPTQ packs K, AWQ packs N; both keep [in, out]
        accepted = [(inner // pack, out), (inner, out // pack)]
    if t.shape in accepted:
        seen.orientation.add("linear" if x.suffix != "qweight" else "transposed")
    else:
        report.add("shape", t.name, f"{_shape(t.shape)}; expected {' or '.join(map(_shape, accepted))} for {_said(quant)}")
    if scales and not any((x.expert, x.role, s) in beside for s in scales):
        report.add("scale", t.name, f"no scale beside it; expected {' or '.join(scales)} for {_said(quant)}")


def _stacked(
    report: CheckpointReport,
    kind: ExpertLayer,
    x: ExpertTensor,
    beside: set[tuple[int | None, str, str]],
    seen: _Seen,
    family: str,
) -> None:
    """One tensor for all experts of the layer."""
    t, quant = x.tensor, kind.quantization
    out, inner = _logical(kind, x.role)
    seen.dtypes.add(t.dtype)
    if x.role == "gate_up":
        seen.gate_up.add("interleaved" if family in INTERLEAVED_FAMILIES else "halves")
    elif x.role in ("gate", "up"):
        seen.gate_up.add("separate" if kind.gated else "none")
    if len(t.shape) == 2:  # DBRX: experts one after another on the first axis, all as [E * I, H]
        seen.stored.add("concatenated")
        wanted = (kind.experts * kind.moe_intermediate_size, kind.model_dim)
        if t.shape != wanted:
            report.add("shape", t.name, f"{_shape(t.shape)}; expected {_shape(wanted)}: experts joined on the first axis")
        return
    seen.stored.add("stacked")
    if x.suffix == "blocks":
        wanted4 = (kind.experts, out, inner // 32, 16)
        if t.shape != wanted4:
            report.add("shape", t.name, f"{_shape(t.shape)}; expected {_shape(wanted4)}: MXFP4 blocks of 32 values in 16 bytes")
        seen.orientation.add("linear")
        if (None, x.role, "scales") not in beside:
            report.add("scale", t.name, "no scales beside it; expected one byte per block")
        return
    dtypes, pack, scales = _STORED.get(quant.scheme, ((), 1, ()))
    if dtypes and t.dtype not in dtypes:
        report.add("dtype", t.name, f"{t.dtype}; expected {' or '.join(dtypes)} for {_said(quant)}")
        return
    pack = pack if t.dtype in ("U8", "I8", "I32") else 1
    linear, transposed = (kind.experts, out, inner // pack), (kind.experts, inner // pack, out)
    if linear == transposed and t.shape == linear:
        seen.orientation.add("transposed" if family in TRANSPOSED_FAMILIES else "ambiguous")
    elif t.shape == linear:
        seen.orientation.add("linear")
    elif t.shape == transposed:
        seen.orientation.add("transposed")
    else:
        report.add("shape", t.name, f"{_shape(t.shape)}; expected {_shape(linear)} or {_shape(transposed)} for {_said(quant)}")
        return
    if scales and not any((None, x.role, s) in beside for s in scales):
        report.add("scale", t.name, f"no scale beside it; expected {' or '.join(scales)} for {_said(quant)}")


def _said(quant: Quantization) -> str:
    return "unquantized experts" if quant.scheme == "none" else f"{quant.scheme} experts ({quant.method})"


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
