"""Is this the name of a FlyDSL kernel the release has? (aiter/ops/flydsl/moe_kernels.py get_flydsl_kernel_params.)"""

from __future__ import annotations

import re
from functools import lru_cache

from moe_preflight.aiter.facts.flydsl_names import NAMES, STATES, SUFFIXES
from moe_preflight.aiter.version import Version

_NAME = re.compile(r"flydsl_moe([12])_(a[a-z0-9]{1,8}_w[a-z0-9]{1,8}_[a-z0-9]{1,8})_t([0-9x]{1,20})(?:_([a-z0-9_]{1,80}))?\Z")


@lru_cache(maxsize=4096)
def is_listed(version: Version, name: str) -> bool | None:
    """Whether the registry of ``version`` has ``name``, a suffix aside. None for releases before FlyDSL and for the kernels whose
    names are not listed but taken apart."""
    if version < Version.of(STATES[0][0]) or name.startswith(("flydsl_mxmoe_", "flydsl_moe2_layout_")):
        return None
    state = _at(STATES, version)
    suffix = re.search(_at(SUFFIXES, version), name)
    return _holds(state, name) or (suffix is not None and _holds(state, name[: suffix.start()]))


def _at(history: tuple[tuple[str, str], ...], version: Version) -> str:
    return next(value for since, value in reversed(history) if version >= Version.of(since))


def _holds(state: str, name: str) -> bool:
    m = _NAME.match(name)
    if m is None:
        return False
    stage, operands, tile, words = int(m[1]), m[2], m[3], m[4].split("_") if m[4] else []
    return any(
        state in states
        and stage == of
        and operands in dtypes.split()
        and tile in tiles.split()
        and _follows(words, slots.split())
        for states, of, dtypes, tiles, slots in NAMES
    )


def _follows(words: list[str], slots: list[str]) -> bool:
    """Whether ``words`` fill the slots in their order."""
    at = 0
    for slot in slots:
        if at < len(words) and words[at] in slot.strip("[]").split("|"):
            at += 1
        elif not slot.startswith("["):
            return False
    return at == len(words)
