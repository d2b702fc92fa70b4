"""A check of one layer against the stand-in AITER, and AITER's answers to it. Neither torch nor AITER has to be installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from moe_preflight.ask.attach import ask_aiter
from moe_preflight.ask.parent import AskOptions
from moe_preflight.hardware import named
from moe_preflight.preflight import Report, check
from moe_preflight.settings import Request

STANDIN = Path(__file__).parent / "standin"
TOKENS = "1,64,256,4096"


def tree(folder: Path) -> Path:
    """A copy of the stand-in tree, so that a write into it would show."""
    root = folder / "tree"
    shutil.copytree(STANDIN / "tree", root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def request(root: Path, **changes: object) -> Request:
    """One layer, bf16 silu, at four token counts on an MI300X."""
    fields: dict[str, object] = {
        "shapes": ("experts=128,topk=8,hidden=4096,inter=1536",),
        "engine": "aiter",
        "engine_version": "",
        "gpus": (named("mi300x"),),
        "aiter": str(root),
        "aiter_version": "0.1.20.post1",
        "tokens": TOKENS,
    }
    return Request(**(fields | changes))  # type: ignore[arg-type]


def asked(root: Path, mode: str = "", *, timeout: float = 60.0, env: dict[str, str] | None = None, **changes: object) -> Report:
    """The report with what the stand-in said in ``mode``."""
    variables = {"STANDIN": mode, "PYTHONPATH": package_path(), **(env or {})}
    return ask_aiter(check(request(root, **changes)), AskOptions(timeout=timeout, env=variables))


def package_path() -> str:
    """PYTHONPATH of a child: the false modules first, then this package."""
    return os.pathsep.join((str(STANDIN / "modules"), str(Path(__file__).resolve().parents[3])))
