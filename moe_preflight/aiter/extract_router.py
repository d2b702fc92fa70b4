"""Compiled group counts read out of the routing kernel's source (csrc/kernels/topk_softmax_kernels_group.cu).

The kernel is a template over the number of expert groups; one switch over ``num_expert_group`` says which are compiled.
"""

from __future__ import annotations

import re
from itertools import islice

from moe_preflight.aiter.cpp import without_comments
from moe_preflight.aiter.sources import Refused

MAX_SWITCHES = 8

_SWITCH = re.compile(r"\bswitch\s*\(\s*num_expert_group\s*\)[\s\\]*\{")
_PART = re.compile(r"[{}]|\bcase\s+([^:{}]{1,40}?)\s*:(?!:)|\b(default)\s*:(?!:)")


def group_counts(source: str) -> tuple[frozenset[int], int]:
    """The group counts the kernel is compiled for, and the line of the switch. Raises Refused."""
    text = without_comments(source)
    switches = list(islice(_SWITCH.finditer(text), MAX_SWITCHES + 1))
    if len(switches) > MAX_SWITCHES:
        raise Refused(f"the routing kernel has more than {MAX_SWITCHES} switches over num_expert_group")
    found: dict[frozenset[int], int] = {}
    for switch in switches:
        cases = frozenset(_cases(text, switch.end()))
        found.setdefault(cases, text.count("\n", 0, switch.start()) + 1)
    if len(found) != 1:
        raise Refused(f"the routing kernel has {len(found)} different switches over num_expert_group")
    return next(iter(found.items()))


def _cases(text: str, at: int) -> list[int]:
    """The numbers of the cases of the switch whose body starts at ``at``."""
    depth, out = 1, []
    for m in _PART.finditer(text, at):
        if m[0] in "{}":
            depth += 1 if m[0] == "{" else -1
            if depth == 0:
                break
        elif depth == 1 and m[1] is not None:
            if not m[1].isdecimal():
                raise Refused(f"the switch over num_expert_group has a case {m[1]}")
            out.append(int(m[1]))
    if depth or not out:
        raise Refused("the switch over num_expert_group does not end, or is empty")
    return out
