"""How much memory a launch takes, from its sizes alone, so that it can be refused before anything is allocated. Pure,
except for reading this machine's free memory.
"""

from __future__ import annotations

from moe_preflight.smoke.case import BLOCK, MX_GROUP, SmokeCase

CHUNK = 4096
"""Rows the reference and the combine step work on at once: what keeps them bounded."""

_BITS = {"none": 16, "fp8_tensor": 8, "fp8_channel": 8, "fp8_block": 8, "mxfp4": 4, "mxfp4_a4": 4}


def _up(a: int, b: int) -> int:
    return -(-a // b)


def weight_bytes(case: SmokeCase, *, padded: bool) -> tuple[int, int]:
    """Bytes of (w13, w2) with their scales."""
    h = case.model_dim_padded if padded else case.model_dim
    i = case.inter_dim_padded if padded else case.inter_dim
    bits = _BITS.get(case.scheme, 16)
    scales = {
        "fp8_tensor": (4, 4),
        "fp8_channel": (2 * i * 4, h * 4),
        "fp8_block": (2 * _up(i, BLOCK) * _up(h, BLOCK) * 4, _up(h, BLOCK) * _up(i, BLOCK) * 4),
        "mxfp4": (2 * i * h // MX_GROUP, h * i // MX_GROUP),
        "mxfp4_a4": (2 * i * h // MX_GROUP, h * i // MX_GROUP),
    }.get(case.scheme, (0, 0))
    return case.experts * (2 * i * h * bits // 8 + scales[0]), case.experts * (h * i * bits // 8 + scales[1])


def required(case: SmokeCase, backend: str) -> dict[str, int]:
    """Bytes by use, and their peak under ``total``.

    AITER's shuffle keeps the plain and the shuffled form of one weight at a time; the torch backend gathers one row per
    token and expert. The reference walks expert by expert over at most CHUNK rows.
    """
    h, i, t, k = case.model_dim_padded, case.inter_dim_padded, case.tokens, case.topk
    w13, w2 = weight_bytes(case, padded=True)
    weights = w13 + w2
    copies = max(w13, w2) if backend == "aiter" else 3 * h * i * 4
    rows = t * k
    activations = t * h * 2 * 3 + t * case.router.experts * 8 + rows * 16
    if backend == "aiter":
        activations += rows * i * 4 + t * h * 4
    else:
        activations += rows * (2 * h + 2 * i + 2 * i + i + h) * 2
    reference = t * h * 4 * 2 + min(t, CHUNK) * (2 * h + 4 * i) * 4 + 6 * h * i * 4
    total = (weights + copies + activations + reference) * 21 // 20
    return {"weights": weights, "copies": copies, "activations": activations, "reference": reference, "total": total}


def gib(n: int) -> str:
    """``12.3 GiB``, or MiB below one."""
    return f"{n / (1 << 30):.1f} GiB" if n >= 1 << 30 else f"{n / (1 << 20):.1f} MiB"


def refusal(case: SmokeCase, backend: str, free: int | None, where: str) -> str:
    """Why this launch is refused for memory, with the numbers, or an empty string. ``free`` None means: not known."""
    need = required(case, backend)
    if free is None or need["total"] <= free:
        return ""
    return (
        f"needs {gib(need['total'])} (weights {gib(need['weights'])}, copies {gib(need['copies'])}, "
        f"activations {gib(need['activations'])}, reference {gib(need['reference'])}); {where}: {gib(max(free, 0))}"
    )


def free_ram(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> int | None:
    """Bytes of memory this process may still take: MemAvailable, or what its cgroup (v2) leaves, whichever is less."""
    available = _field(meminfo, "MemAvailable:")
    limit, used = _number(f"{cgroup}/memory.max"), _number(f"{cgroup}/memory.current")
    left = None if limit is None or used is None else max(limit - used, 0)
    known = [n for n in (available, left) if n is not None]
    return min(known) if known else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            return f.read(1 << 16)
    except OSError:
        return ""


def _field(path: str, name: str) -> int | None:
    for line in _read(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdecimal():
            return int(words[1]) * 1024
    return None


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None
