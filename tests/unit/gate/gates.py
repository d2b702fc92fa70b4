"""Gates for tests, read from text; no file and no model is touched."""

from __future__ import annotations

import tomllib
from typing import Any

from moe_preflight.gate.spec import Gate, read

SHAPE = 'shape = "experts=8,topk=2,hidden=4096,inter=14336"\ngpus = "mi300x"\n'
DEPLOYMENT = f"[[deployment]]\n{SHAPE}"


def gate(text: str, **more: Any) -> Gate:
    """The gate of ``text``, called ``g.toml``; paths in it are below ``dir``."""
    return read(tomllib.loads(text), "g.toml", path=lambda p: f"dir/{p}", model=lambda m: m, **more)
