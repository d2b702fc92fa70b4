"""Real experts of one layer out of a checkpoint's safetensors: only that layer's tensors, only this rank's rows and columns, one
expert at a time. Imported by the worker only.

Names and layouts are those of public checkpoints: one tensor per expert and projection, or one per layer with gate and up
fused. Where a shape fits two layouts and the model type is not in a table, it is refused rather than guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moe_preflight.smoke.case import BLOCK, MX_GROUP, SmokeCase
from moe_preflight.smoke.quantize import Matrix, dequantize
from moe_preflight.smoke.weights import DTYPES, Expert

MAX_INDEX_BYTES = 64 << 20
MAX_FILES = 4096

_ROLES = {
    "gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down",
    "gate_up_proj": "gate_up", "input_linear": "gate_up", "output_linear": "down",
}  # fmt: skip
"""Mixtral's line: w1 gate, w3 up, w2 down. Granite: input_linear is gate and up, output_linear down."""

_KINDS = {
    "weight": "data", "weight_packed": "data", "blocks": "data", "": "data",
    "weight_scale": "scale", "weight_scale_inv": "scale", "scale": "scale", "scales": "scale", "bias": "bias",
}  # fmt: skip

_TRANSPOSED = ("llama4", "llama4_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "gpt_oss")
"""Stacked bf16 tensors as [experts, in, out]; every other stacked family stores [experts, out, in]."""

_INTERLEAVED = ("gpt_oss",)
"""Gate and up in alternating rows; the other fused families have gate first, then up."""

_SUFFIX = re.compile(r"(gate_up_proj|gate_proj|up_proj|down_proj)(?:_(blocks|scales|bias))?\Z")

_STORED = {
    "none": ("BF16", "F16", "F32"),
    "fp8_tensor": ("F8_E4M3",),
    "fp8_channel": ("F8_E4M3",),
    "fp8_block": ("F8_E4M3",),
    "mxfp4": ("U8", "I8"),
    "mxfp4_a4": ("U8", "I8"),
}


class CheckpointProblem(Exception):
    """The checkpoint cannot be read for this case; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Found:
    """One tensor of the layer. ``expert`` is None when it holds all of them."""

    name: str
    file: str
    expert: int | None
    role: str
    kind: str


def parse(name: str, layer: int) -> tuple[int | None, str, str] | None:
    """(expert or None, role, kind) when ``name`` is a routed expert's tensor of ``layer``, else None."""
    parts = name.split(".")
    if any(p.startswith("shared") for p in parts):
        return None
    at = next((i for i, p in enumerate(parts) if p in ("layers", "blocks") and parts[i + 1 : i + 2] == [str(layer)]), None)
    if at is None:
        return None
    rest = parts[at + 2 :]
    if "experts" in rest:
        rest = rest[rest.index("experts") + 1 :]
        if len(rest) == 3 and rest[0].isdecimal() and rest[1] in _ROLES and rest[2] in _KINDS:
            return int(rest[0]), _ROLES[rest[1]], _KINDS[rest[2]]
        if len(rest) == 1 and (m := _SUFFIX.match(rest[0])):
            return None, _ROLES[m.group(1)], _KINDS[m.group(2) or ""]
        return None
    if len(rest) == 3 and rest[0] in ("moe", "block_sparse_moe") and rest[1] in _ROLES and rest[2] in _KINDS:
        return None, _ROLES[rest[1]], _KINDS[rest[2]]
    return None


@dataclass(slots=True)
class _Layer:
    tensors: dict[tuple[int | None, str, str], Found] = field(default_factory=dict)

    def get(self, expert: int, role: str, kind: str) -> Found | None:
        return self.tensors.get((expert, role, kind)) or self.tensors.get((None, role, kind))


def find(folder: Path, layer: int) -> _Layer:
    """The routed experts' tensors of ``layer``, by the index file or by the headers of the files."""
    out = _Layer()
    for name, file in _names(folder):
        if key := parse(name, layer):
            out.tensors[key] = Found(name, file, *key)
    if not out.tensors:
        raise CheckpointProblem(f"{folder.name}: no routed expert tensors of layer {layer} in the safetensors files")
    return out


def _names(folder: Path) -> Iterable[tuple[str, str]]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise CheckpointProblem(f"{index.name}: larger than {MAX_INDEX_BYTES >> 20} MiB")
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            pairs = [(str(n), str(f)) for n, f in weight_map.items()]
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise CheckpointProblem(f"{index.name}: not a safetensors index ({e})") from None
        bad = next((f for _, f in pairs if Path(f).name != f or not f.endswith(".safetensors")), None)
        if bad is not None:
            raise CheckpointProblem(f"{index.name}: names {bad!r}, which is not a file of the same folder")
        return pairs
    files = sorted(folder.glob("*.safetensors"))[:MAX_FILES]
    if not files:
        raise CheckpointProblem(f"{folder.name}: no safetensors files")
    pairs = []
    for path in files:
        with _open(path) as f:
            pairs += [(n, path.name) for n in f.keys()]  # noqa: SIM118 - not a dict
    return pairs


def _open(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (OSError, SafetensorError) as e:
        raise CheckpointProblem(f"{path.name}: {e}") from None


class RealSource:
    """Experts of ``case.weights``. Raises CheckpointProblem when what is stored is not what the plan says."""

    def __init__(self, case: SmokeCase, device: torch.device) -> None:
        assert case.weights is not None
        self._case, self._device, self._real = case, device, case.weights
        self._folder = Path(self._real.folder)
        self._layer = find(self._folder, self._real.layer)
        self._files: dict[str, Any] = {}
        if case.num_shared_fused:
            raise CheckpointProblem("fused shared experts cannot be read from a checkpoint by smoke; use random weights")
        unit = {"fp8_block": BLOCK, "mxfp4": MX_GROUP, "mxfp4_a4": MX_GROUP}.get(case.scheme, 1)
        if self._real.start % unit:
            raise CheckpointProblem(
                f"this rank starts at row {self._real.start}, which is inside a group of {unit} with one scale"
            )

    def expert(self, index: int) -> Expert:
        number = index + self._real.first_expert
        gate, up = self._gate_up(number, "data")
        down = self._down(number, "data")
        first, second = self._matrix(number, "gate", gate), self._matrix(number, "up", up)
        if self._case.scheme == "fp8_tensor":
            first, second = _one_scale(first, second)
        expert = Expert(first, second, self._matrix(number, "down", down))
        if self._case.expert_bias:
            gate_bias, up_bias = self._gate_up(number, "bias")
            expert.gate_bias, expert.up_bias = gate_bias.float(), up_bias.float()
            expert.down_bias = self._slice(number, "down", "bias", None).float()
        return expert

    @property
    def _rows(self) -> slice:
        return slice(self._real.start, self._real.start + self._case.inter_dim)

    def _matrix(self, number: int, role: str, data: Tensor) -> Matrix:
        case = self._case
        if case.scheme == "none":
            return Matrix(data.to(DTYPES[case.dtype]))
        scale = self._scale(number, role)
        if case.scheme.startswith("mxfp4"):
            return Matrix(data.view(torch.uint8), scale.view(torch.uint8), "mx")
        kind = {"fp8_tensor": "tensor", "fp8_channel": "channel", "fp8_block": "block"}[case.scheme]
        return Matrix(data, scale.float(), kind)

    def _gate_up(self, number: int, kind: str) -> tuple[Tensor, Tensor]:
        if self._layer.get(number, "gate_up", kind) is None:
            return self._slice(number, "gate", kind, self._rows), self._slice(number, "up", kind, self._rows)
        total, rows = self._real.moe_intermediate_size, self._rows
        if self._real.model_type in _INTERLEAVED:
            both = self._slice(number, "gate_up", kind, slice(2 * rows.start, 2 * rows.stop))
            return both[0::2], both[1::2]
        up_rows = slice(total + rows.start, total + rows.stop)
        return self._slice(number, "gate_up", kind, rows), self._slice(number, "gate_up", kind, up_rows)

    def _down(self, number: int, kind: str) -> Tensor:
        return self._slice(number, "down", kind, self._rows)

    def _scale(self, number: int, role: str) -> Tensor:
        """Scales of this rank's part: rows of gate and up, columns of down, in units of what one scale covers."""
        case, rows = self._case, self._rows
        if case.scheme == "fp8_tensor":
            return self._whole(number, role).reshape(())
        if case.scheme == "fp8_channel":
            whole = self._whole(number, role).reshape(-1, 1)
            return whole if role == "down" else whole[rows]
        if case.scheme.startswith("mxfp4"):
            if role != "down":
                return self._gate_up(number, "scale")[0 if role == "gate" else 1]
            unit = MX_GROUP
        else:
            unit = BLOCK
        part = slice(rows.start // unit, -(-rows.stop // unit))
        whole = self._whole(number, role)
        return whole[:, part] if role == "down" else whole[part]

    def _whole(self, number: int, role: str) -> Tensor:
        """The scales of one expert's matrix, all of them: they are small."""
        found, view = self._found(number, role, "scale"), self._read(number, role, "scale")
        whole: Tensor = view[...] if found.expert is not None else view[number].reshape(view.get_shape()[1:])
        return whole.to(self._device)

    def _slice(self, number: int, role: str, kind: str, part: slice | None) -> Tensor:
        """This rank's ``part`` of a tensor: rows of gate and up, columns of down (packed pairs or groups counted for MXFP4)."""
        found, view = self._found(number, role, kind), self._read(number, role, kind)
        shape = list(view.get_shape())
        stacked = found.expert is None
        lead: tuple[Any, ...] = (number,) if stacked else ()
        own = shape[1:] if stacked else shape
        tensor: Tensor
        if kind == "bias":
            tensor = view[(*lead, part)] if part is not None else view[(*lead, slice(None))]
            return tensor.reshape(-1).to(self._device)
        if kind == "data":
            self._check_dtype(found, view)
        across = role == "down"
        if len(own) == 3:  # MXFP4 blocks [rows, groups, 16]
            assert part is not None
            groups = slice(part.start // MX_GROUP, part.stop // MX_GROUP)
            tensor = view[(*lead, slice(None), groups)] if across else view[(*lead, part)]
            return tensor.reshape(tensor.shape[-3], -1).to(self._device)
        turned = stacked and self._turned(found, own, role)
        columns = part
        if across and part is not None and self._case.scheme.startswith("mxfp4"):
            columns = slice(part.start // 2, part.stop // 2)
        first: Any = slice(None) if across != turned else part
        second: Any = columns if across != turned else slice(None)
        tensor = view[(*lead, first, second)]
        tensor = tensor.reshape(tensor.shape[-2:])
        return (tensor.T if turned else tensor).contiguous().to(self._device)

    def _turned(self, found: Found, own: list[int], role: str) -> bool:
        """Is this stacked tensor [in, out]? Told by its shape, and by the model type where both fit."""
        total, h = self._real.moe_intermediate_size, self._case.model_dim
        out_in = [h, total] if role == "down" else [2 * total if role == "gate_up" else total, h]
        if self._case.scheme != "none":
            return False
        if own not in (out_in, out_in[::-1]):
            raise CheckpointProblem(f"{found.name}: shape {own}, expected {out_in} or its transpose")
        if out_in != out_in[::-1]:
            return own != out_in
        if self._real.model_type is None:
            raise CheckpointProblem(f"{found.name}: shape {own} fits both layouts and the model type is not known")
        return self._real.model_type in _TRANSPOSED

    def _check_dtype(self, found: Found, view: Any) -> None:
        stored = view.get_dtype()
        if stored not in _STORED[self._case.scheme]:
            raise CheckpointProblem(f"{found.name} is stored as {stored}, but the plan says {self._case.scheme}")
        shape = view.get_shape()
        sizes = (self._real.moe_intermediate_size, self._case.model_dim)
        pack = 2 if self._case.scheme.startswith("mxfp4") else 1
        if found.expert is not None:
            want = [sizes[1], sizes[0] // pack] if found.role == "down" else [sizes[0], sizes[1] // pack]
            if list(shape) != want:
                raise CheckpointProblem(f"{found.name}: shape {list(shape)}, expected {want}")

    def _found(self, number: int, role: str, kind: str) -> Found:
        found = self._layer.get(number, role, kind)
        if found is None:
            raise CheckpointProblem(f"layer {self._real.layer}: expert {number} has no {role} {kind} tensor in the checkpoint")
        return found

    def _read(self, number: int, role: str, kind: str) -> Any:
        found = self._found(number, role, kind)
        if found.file not in self._files:
            self._files[found.file] = _open(self._folder / found.file)
        return self._files[found.file].get_slice(found.name)


def _one_scale(gate: Matrix, up: Matrix) -> tuple[Matrix, Matrix]:
    """Per-tensor fp8: the kernel takes one scale for gate and up, so engines keep the larger and quantize both by it."""
    assert gate.scale is not None
    assert up.scale is not None
    scale = torch.maximum(gate.scale, up.scale)
    return tuple(  # type: ignore[return-value]
        Matrix((dequantize(m) / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale, "tensor") for m in (gate, up)
    )
