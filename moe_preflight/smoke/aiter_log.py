"""What AITER's own log says about the kernels it took. Pure.

The line is ``[fused_moe] using {1stage|2stage}{ xbf16} {default|(kernelName1='..', kernelName2='..')} for (key)`` in every
release from v0.1.7 to v0.1.20 (aiter/fused_moe.py get_2stage_cfgs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_LINE = 4000
_USING = re.compile(r"\[fused_moe\] using ([12])stage( xbf16)? (default|\(kernelName1=([^,)]*), kernelName2=([^,)]*)\)) for ")
_MISSING = re.compile(r"(?:ck )?kernel not found: ([\w.-]+)")
_REJECTED = (
    "does not support this GEMM problem",
    "Unsupported block_m value for moe heuristic dispatch",
    "Unsupported kernel config for moe heuristic dispatch",
    "Unsupported num_expert_group",
    "cannot get heuristic kernel",
    "not find kernel",
)
"""Texts by which AITER or CK says that no kernel takes this shape (facts: gemm_moe_ck2stages, topk_softmax_kernels_group)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """``kernels`` are the tuned row's names, both empty for the heuristic (``default``). ``missing`` are names AITER could not
    find in its compiled module, whereupon it took the heuristic."""

    stages: int
    default: bool
    kernels: tuple[str, str]
    missing: tuple[str, ...] = ()


def clean(name: str) -> str:
    """A kernel name out of a log or a table; quotes go, and ``nan``, ``None`` or ``Null`` (a one-stage row's second) are none."""
    bare = name.strip().strip("'\"")
    return "" if bare.lower() in ("nan", "none", "null") else bare


def read(lines: Iterable[str]) -> Choice | None:
    """The choice the log speaks of; the last one when it speaks of several. None when no line is understood."""
    found: Choice | None = None
    missing: list[str] = []
    for line in lines:
        text = line[:MAX_LINE]
        if m := _USING.search(text):
            default = m.group(3) == "default"
            names = ("", "") if default else (clean(m.group(4)), clean(m.group(5)))
            found = Choice(int(m.group(1)), default, names)
        elif m := _MISSING.search(text):
            missing.append(m.group(1))
    if found is None:
        return None
    return Choice(found.stages, found.default, found.kernels, tuple(dict.fromkeys(missing)))


def is_rejection(text: str) -> bool:
    """Does this error say that no kernel takes the shape (rather than that something broke)?"""
    return any(part in text for part in _REJECTED)
