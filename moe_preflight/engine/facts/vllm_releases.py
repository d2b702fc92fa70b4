"""What changed between vLLM releases, as switches: one row a release, read from the release's own wheel.

The line numbers are of the 0.33.0 wheel unless a version stands beside them. ``aiter_pin`` is ``ARG AITER_BRANCH`` of
``docker/Dockerfile.rocm_base`` in that release's sdist; 0.29.0 and 0.30.0 were not read.
"""

from __future__ import annotations

from typing import NamedTuple

from moe_preflight.aiter.version import Version
from moe_preflight.errors import UsageError


class Release(NamedTuple):
    """One vLLM release. Every field but the first three is a behaviour some rule asks for."""

    version: str
    date: str
    aiter_pin: str | None
    unquantized_roundup: bool
    """PR #55368 part 1: inter_dim rounded to 64 or 128 (oracle/unquantized.py:334)."""
    group_count_rounding: bool
    """PR #55368 part 2: group count rounded to 1, 2, 4, 8, and a membership guard (router/fused_topk_bias_router.py:111)."""
    unquantized_fallback: bool
    """AITER asked for by environment but unsupported: warn and try the next (oracle/unquantized.py:270), earlier ValueError."""
    fp8_pad_tp_shard: bool
    """pad_tp_shard_to_weight_blocks with an explicit --moe-backend (oracle/fp8.py:307)."""
    w4a4_alignment: int
    """inter_dim unit of AITER_MXFP4_MXFP4 (PR #55104)."""
    w4a4_pad_doubled: bool
    """intermediate_pad doubled at tp 1 for W4A4 SiLU as well; fixed by aiter_moe_pads (experts/rocm_aiter_moe.py:252)."""
    topk_gating: bool
    """softmax routing through AITER's topk_gating on gfx942 / gfx950 (router/fused_topk_router.py:99)."""
    w4a16_under_ep: bool
    """AITER_TRITON_MXFP4_BF16 accepts expert parallelism (experts/aiter_mxfp4_w4a16_moe.py)."""
    scale_in_routing_method: bool
    """routed_scaling_factor is part of the advertised routing method (config.py get_routing_method_type, <= 0.30.0)."""
    marlin_falls_to_auto: bool
    """--moe-backend marlin on an unquantized layer means auto (oracle/unquantized.py:260)."""
    moonep: bool
    """all2all backend moonep exists."""


RELEASES: tuple[Release, ...] = (
    Release("0.29.0", "2026-09-09", None, False, False, False, False, 256, True, False, True, True, False, False),
    Release("0.30.0", "2026-09-22", None, False, False, False, False, 256, True, False, True, True, False, False),
    Release("0.31.0", "2026-10-03", "v0.1.23", False, False, True, True, 256, True, False, False, False, False, True),
    Release("0.32.0", "2026-10-17", "v0.1.24.post1", True, True, True, True, 128, True, False, False, False, False, True),
    Release("0.33.0", "2026-11-01", "v0.1.26", True, True, True, True, 128, False, True, True, False, True, True),
)

NEWEST = RELEASES[-1]


class Resolved(NamedTuple):
    """A version as asked and the release whose facts answer. ``exact``: we read that very release (or a patch of it)."""

    asked: str
    release: Release
    exact: bool
    why: str = ""
    older: bool = False
    """Older than every release read: what it passes to AITER is not known from ours."""


def resolve(asked: str) -> Resolved:
    """The facts for vLLM ``asked``: the nearest read release at or below it, the oldest when there is none.

    ``0.33.0rc1`` is read as 0.33.0 (a candidate of a release holds its code). Raises UsageError on nonsense.
    """
    parsed = Version.parse(asked)
    if parsed is None or len(parsed.release) < 2:
        raise UsageError(f"--engine-version {asked!r}: not a version of vLLM.", hint="Expected something like 0.33.0.")
    numbers = (*parsed.release, 0, 0, 0)[:3]
    oldest = RELEASES[0]
    best = oldest
    for release in RELEASES:
        if _numbers(release.version) <= numbers:
            best = release
    if numbers == _numbers(best.version):
        plain = parsed.text == best.version
        return Resolved(asked, best, True, "" if plain else f"vLLM {asked} is judged with the facts of {best.version}.")
    if numbers < _numbers(oldest.version):
        why = f"vLLM {asked} is older than the oldest release we read ({oldest.version}); its facts are used, unverified."
        return Resolved(asked, best, False, why, older=True)
    if best is NEWEST:
        why = f"vLLM {asked} is newer than the newest release we read ({best.version}); its facts are used, unverified."
    else:
        why = f"vLLM {asked} was not read; the facts of {best.version}, the nearest release below it, are used, unverified."
    return Resolved(asked, best, False, why)


def at_least(release: Release, version: str) -> bool:
    """Is ``release`` ``version`` or newer?"""
    return _numbers(release.version) >= _numbers(version)


def _numbers(version: str) -> tuple[int, ...]:
    return Version.of(version).release
