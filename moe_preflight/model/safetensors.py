"""The header of a safetensors file: names, dtypes, shapes and where the data lies. Never the data.

Format: 8 bytes little-endian length, that many bytes of JSON, then the data; every tensor gives ``data_offsets`` into it
(github huggingface/safetensors, README, "Format"). Headers come from strangers: the length is checked against the file before
a byte more is read, sizes are computed and compared, nothing is allocated from them, and ranges may not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moe_preflight.errors import InputError
from moe_preflight.model.fields import shown
from moe_preflight.model.strict_json import load_object

MAX_HEADER = 32 << 20
"""The format allows 100 MB; the largest real header is under 5."""
MAX_RANK = 8

BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U16": 16,
    "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as its header tells it, and the file it is in."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str


def header_length(first: bytes, where: str, file_size: int | None = None) -> int:
    """The JSON's length from the first eight bytes. Raises InputError when the file cannot hold that much."""
    if len(first) < 8:
        raise InputError(f"{where}: {len(first)} bytes; a safetensors file starts with an 8-byte length.")
    length = int.from_bytes(first[:8], "little")
    if length < 2 or length > MAX_HEADER:
        raise InputError(
            f"{where}: a header of {length:,} bytes; expected 2 to {MAX_HEADER:,}.", hint="Is it a safetensors file?"
        )
    if file_size is not None and 8 + length > file_size:
        raise InputError(f"{where}: a header of {length:,} bytes in a file of {file_size:,}; the file is cut.")
    return length


def parse(header: bytes, where: str, file_size: int | None = None) -> list[Tensor]:
    """The tensors of one header (without its eight length bytes). ``file_size`` is the whole file's, when known."""
    entries = load_object(header, where, max_bytes=MAX_HEADER)
    found: list[Tensor] = []
    spans: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        tensor, span = _entry(name, entry, where)
        found.append(tensor)
        spans.append((*span, name))
    _check_spans(spans, where, None if file_size is None else file_size - 8 - len(header))
    return found


def _entry(name: str, entry: object, where: str) -> tuple[Tensor, tuple[int, int]]:
    at = f"{where}: {shown(name, 120)}"
    if not isinstance(entry, Mapping):
        raise InputError(f"{at}: {shown(entry)} is not valid; expected an object with dtype, shape and data_offsets.")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise InputError(f"{at}: dtype {shown(dtype)} is not valid; expected one of {', '.join(sorted(BITS))}.")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(_count(x) for x in shape):
        raise InputError(f"{at}: shape {shown(shape)} is not valid; expected up to {MAX_RANK} whole numbers.")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_count(x) for x in offsets) or offsets[0] > offsets[1]:
        raise InputError(f"{at}: data_offsets {shown(offsets)} is not valid; expected [begin, end].")
    elements = 1
    for size in shape:
        elements *= size
    if (elements * BITS[dtype] + 7) // 8 != offsets[1] - offsets[0]:
        raise InputError(f"{at}: {dtype} {shown(shape)} does not take the {offsets[1] - offsets[0]:,} bytes of its data_offsets.")
    return Tensor(name, dtype, tuple(shape), where), (offsets[0], offsets[1])


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _check_spans(spans: list[tuple[int, int, str]], where: str, data_size: int | None) -> None:
    """The data is one run without gaps or overlaps, and ends where the file ends."""
    at = 0
    for begin, end, name in sorted(spans):
        if begin < at:
            raise InputError(f"{where}: {shown(name, 120)} overlaps the tensor before it (from byte {begin:,}, taken to {at:,}).")
        if begin > at:
            raise InputError(f"{where}: {begin - at:,} bytes before {shown(name, 120)} belong to no tensor.")
        at = end
    if data_size is not None and at > data_size:
        raise InputError(f"{where}: the tensors end at byte {at:,} of {data_size:,}; the file is cut.")
