"""The files of a gate: the TOML itself, its baseline, and where the paths in it lead. The only I/O of this room."""

from __future__ import annotations

import os

from moe_preflight.aiter.tree import read_regular
from moe_preflight.errors import FileUnreadable, InputError, SettingsError
from moe_preflight.gate import baseline
from moe_preflight.gate.baseline import Entry
from moe_preflight.gate.spec import Gate, read
from moe_preflight.gate.toml import MAX_BYTES, parse


def load_gate(file: str, *, aiter: str = "auto", offline: bool = False) -> Gate:
    """The gate in ``file``. Paths in it are relative to its folder; ``aiter`` and ``offline`` are for deployments that say nothing
    themselves. Raises SettingsError (exit 2), or Unavailable where the machine's own GPU is asked for and there is none."""
    try:
        data = read_regular(file, MAX_BYTES)
    except FileUnreadable as e:
        raise SettingsError(f"{file}: {e.reason}.", hint="Name a gate file; the README has examples.") from None
    folder = os.path.dirname(file)
    return read(
        parse(data, file),
        file,
        path=lambda p: _inside(folder, p),
        model=lambda m: _model(folder, m),
        aiter=aiter,
        offline=offline,
    )


def load_baseline(gate: Gate) -> dict[str, Entry] | None:
    """The baseline the gate names, None when it names none. One that is not there or cannot be read is an InputError."""
    path = baseline_path(gate)
    if path is None:
        return None
    try:
        data = read_regular(path, baseline.MAX_BYTES)
    except FileUnreadable as e:
        raise InputError(
            f"{gate.file}: baseline {path}: {e.reason}.", hint="Write it with --write-baseline FILE, or remove the key."
        ) from None
    return baseline.parse(data, path)


def baseline_path(gate: Gate) -> str | None:
    """Where the baseline lies that the gate names; None when it names none."""
    return None if gate.baseline is None else _inside(os.path.dirname(gate.file), gate.baseline)


def _inside(folder: str, path: str) -> str:
    return os.path.join(folder, os.path.expanduser(path))


def _model(folder: str, model: str) -> str:
    """A model that is there beside the gate file, or looks like a path, is a path; any other is a hub id."""
    path = _inside(folder, model)
    there = os.path.lexists(path)
    return path if there or model.startswith((".", "/", "~")) or model.endswith((".json", "/")) else model
