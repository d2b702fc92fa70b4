"""The child process: imports AITER, asks it every question of a file, answers in JSON lines. ``python -m moe_preflight.ask.child``.

The order comes as JSON on stdin: ``root`` (the folder that holds aiter/), ``folder`` (the run's own, with the merged table in
it), ``keys`` (a file of JSON lines), ``gfx``, ``cu_num``, ``flydsl``, and ``machine``, the GPU of this machine or null. Lines out
are ``{"event": "phase" | "aiter" | "answers" | "end", ...}``; the last one is ``end`` unless the process died.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from moe_preflight.ask import guard, standins
from moe_preflight.smoke import isolate
from moe_preflight.smoke.wire import TEXT, Wire

NEEDED = ("torch", "pandas", "numpy", "einops", "psutil", "packaging", "setuptools")
"""What AITER's Python imports and its wheel does not always bring."""

MOST_EVENTS = 500
"""Answers travel in so many lines at most."""


class _Missing(Exception):
    """Modules that AITER needs and this Python lacks."""

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__(", ".join(modules))
        self.modules = list(modules)


def main() -> NoReturn:
    wire = Wire(isolate.own_stdout())
    isolate.die_with_parent()
    refused: list[str] = []
    end: dict[str, Any] = {"status": "done", "text": ""}
    try:
        _run(json.load(sys.stdin), wire, refused)
    except _Missing as missing:
        end = {"status": "missing", "text": str(missing), "modules": missing.modules}
    except BaseException as e:
        end = {"status": "error", "text": f"{wire.phase}: {type(e).__name__}: {e}"[:TEXT]}
    wire.send("end", **end, refused=refused[:20])
    # torch 2.13 trips over the names AITER before v0.1.20 gives its operators when the interpreter ends in an orderly way.
    os._exit(0)


def _run(order: Mapping[str, Any], wire: Wire, refused: list[str]) -> None:
    from importlib.util import find_spec

    if missing := [m for m in NEEDED if find_spec(m) is None]:
        raise _Missing(missing)
    wire.enter("import torch")
    torch = importlib.import_module("torch")
    importlib.import_module("pandas")
    folder, root = Path(order["folder"]), Path(order["root"])
    gpu = (order["gfx"], order["cu_num"])
    real = bool(torch.version.hip) and order["machine"] is not None and tuple(order["machine"]) == gpu
    wire.enter("import aiter")
    sys.meta_path.insert(0, OneFrom("aiter", root))
    if not real:
        os.environ.pop("AITER_JIT_DIR", None)
    isolate.prepare(root / "aiter", folder, gpu[0])
    if not real:
        standins.install(folder, root, *gpu, flydsl=order["flydsl"])
    guard.confine(refused, str(folder), os.environ["AITER_JIT_DIR"], shell=real)
    try:
        aiter, fused_moe = importlib.import_module("aiter"), importlib.import_module("aiter.fused_moe")
    except ModuleNotFoundError as e:
        module = (e.name or "").partition(".")[0]
        if module in ("", "aiter", "csrc", "flydsl"):
            raise
        raise _Missing([module]) from None
    available = getattr(fused_moe, "is_flydsl_available", None)
    wire.send(
        "aiter",
        standins=not real,
        flydsl=None if available is None else bool(available()),
    )
    from moe_preflight.ask.listen import Listener

    wire.enter("ask")
    _answer_all(Listener(torch, aiter, fused_moe), Path(order["keys"]), wire)


def _answer_all(listener: Any, keys: Path, wire: Wire) -> None:
    questions = list(_questions(keys))
    size = len(questions) // MOST_EVENTS + 1
    for start in range(0, len(questions), size):
        wire.send("answers", first=start, answers=[listener.ask(q) for q in questions[start : start + size]])


def _questions(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="ascii") as f:
        yield from map(json.loads, f)


class OneFrom(importlib.abc.MetaPathFinder):
    """Package ``name`` comes from folder ``root`` and nothing else does: an AITER may lie among the packages of another Python."""

    def __init__(self, name: str, root: Path) -> None:
        self._name, self._root = name, str(root)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(fullname, [self._root]) if fullname == self._name else None


if __name__ == "__main__":
    main()
