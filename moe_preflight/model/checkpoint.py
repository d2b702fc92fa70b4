"""``--checkpoint``: read the headers of a model's safetensors files, local or on the hub, and hand them to the comparison.

Headers only: a few kilobytes of each file, never the weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from moe_preflight.errors import InputError, ModelUnavailable
from moe_preflight.model import hub
from moe_preflight.model.checkpoint_check import CheckpointReport, compare
from moe_preflight.model.fields import shown as shown_value
from moe_preflight.model.moe import MoEModel
from moe_preflight.model.safetensors import Tensor, header_length, parse
from moe_preflight.model.source import read_file, shown
from moe_preflight.model.strict_json import load_object

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
MAX_FILES = 4096
AT_ONCE = 8
FIRST = 1 << 17
"""One request usually holds a whole header; nearly all are under 100 kB (huggingface_hub hf_api.py, 'first 100kb')."""

Progress = Callable[[int, int], None]
Read = Callable[[str], list[Tensor]]


def check_checkpoint(asked: str, model: MoEModel, *, progress: Progress | None = None) -> CheckpointReport:
    """The tensors of the checkpoint ``asked`` (a folder, a config file beside the weights, or a hub id) against ``model``.

    ``progress(done, all)`` is called after each file. Raises InputError for a file that is there and broken, ModelUnavailable
    when there is no checkpoint to look at.
    """
    if model.source == "hub":
        with hub.asking(hub.PATIENT) as ask:
            names, read = _on_hub(model, ask)
            return compare(model, _tensors(names, read, progress))
    if model.source == "local":
        names, read = _in_folder(os.path.expanduser(asked))
    else:
        raise ModelUnavailable(
            f"{shown(asked)}: --checkpoint needs the weights, and this config came from {model.source}.",
            hint="Give a folder with the safetensors files, or a hub id with a network.",
        )
    return compare(model, _tensors(names, read, progress))


def _tensors(names: Sequence[str], read: Read, progress: Progress | None) -> Iterator[Tensor]:
    """All tensors, file by file in order; several files are read at once, and the first error ends it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pending = [pool.submit(read, name) for name in names]
        try:
            for done, future in enumerate(pending, 1):
                yield from future.result()
                if progress is not None:
                    progress(done, len(names))
        finally:
            for future in pending:
                future.cancel()


def _in_folder(path: str) -> tuple[list[str], Read]:
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    index = os.path.join(folder, INDEX)
    if os.path.lexists(index):
        names = _shards(read_file(index), shown(index))
    else:
        try:
            names = sorted(x for x in os.listdir(folder) if x.endswith(".safetensors"))
        except OSError as e:
            raise InputError(f"{shown(folder)}: cannot be listed ({e.strerror or e}).") from None
    if not names:
        raise ModelUnavailable(
            f"{shown(folder)}: no safetensors files.", hint="--checkpoint reads their headers; other formats are not read."
        )
    return names, lambda name: _local_header(os.path.join(folder, name))


def _local_header(path: str) -> list[Tensor]:
    name = shown(path)
    try:
        if not os.path.isfile(path):
            raise InputError(f"{name}: not there, or not a regular file; the index names it.")
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            length = header_length(f.read(8), name, size)
            return parse(f.read(length), name, size)
    except OSError as e:
        raise InputError(f"{name}: cannot be read ({e.strerror or e}).") from None


def _on_hub(model: MoEModel, ask: hub.Asking) -> tuple[list[str], Read]:
    if hub.is_offline() or model.revision is None:
        raise ModelUnavailable(
            f"{model.id}: --checkpoint reads headers from the hub, which is switched off.", hint="Give a folder with the weights."
        )
    commit = model.revision

    def read(name: str) -> list[Tensor]:
        where = f"{model.id}/{name}"
        try:
            first = ask.read_start(model.id, name, commit, 0, FIRST)
            length = header_length(first, where)
            header = first[8 : 8 + length]
            if len(header) < length:
                header += ask.read_start(model.id, name, commit, 8 + len(header), length - len(header))
        except hub.Unreachable as e:
            raise ModelUnavailable(
                f"{where}: the hub could not be reached ({e.reason}).", hint="Try again, or give a folder."
            ) from None
        if len(header) < length:
            raise InputError(f"{where}: the file ends inside its header.")
        return parse(header, where)

    try:
        index = ask.fetch(model.id, INDEX, commit)
    except hub.Unreachable as e:
        raise ModelUnavailable(
            f"{model.id}: the hub could not be reached ({e.reason}).", hint="Give a folder with the weights."
        ) from None
    if index is None:
        return [SINGLE], read
    return _shards(read_file(index.path), f"{model.id}/{INDEX}"), read


def _shards(data: bytes, where: str) -> list[str]:
    """The files an index names. They lie beside it: a name that leads elsewhere is refused."""
    names = load_object(data, where).get("weight_map")
    if not isinstance(names, dict):
        raise InputError(f"{where}: weight_map {shown_value(names)} is not valid; expected an object of tensor and file names.")
    files: dict[str, None] = {}
    for name in names.values():
        if not isinstance(name, str) or not name.endswith(".safetensors") or any(x in name for x in ("/", "\\", "\0")):
            raise InputError(f"{where}: {shown_value(name)} is not valid; expected a .safetensors file beside the index.")
        files[name] = None
    if len(files) > MAX_FILES:
        raise InputError(f"{where}: {len(files):,} files; expected at most {MAX_FILES:,}.")
    return sorted(files)
