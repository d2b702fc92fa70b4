"""What AITER writes to an engine's log about its fused MoE, line by line. Pure: bytes in, events out.

The texts are those of aiter/fused_moe.py (``get_2stage_cfgs``) and aiter/jit/core.py (``AITER_CONFIG``) from v0.1.7.post2 to
main at e4048607; only the key changed: its activation is a quoted word up to v0.1.13 and an enum's repr from v0.1.14, its
first element is the architecture from v0.1.16, and the FHMoE branch of main appends four more. A line may carry any prefix
(``[aiter]``, a worker's name, a time) and ANSI colours.

Time is linear in the log, and memory does not grow with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moe_preflight.aiter.dtypes import ACTS, QUANTS, SHORT

MAX_LINE = 1 << 16
"""Bytes of a line that are looked at. AITER's longest line, the list of merged files, has about 6,000."""

_ANSI = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")


@dataclass(frozen=True, slots=True)
class LogKey:
    """The key of a log line. Short names as in aiter/key.py; ``gfx`` is None before v0.1.16. ``token`` is the bucket."""

    gfx: str | None
    cu_num: int
    token: int
    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    act: str
    dtype: str
    q_dtype_a: str
    q_dtype_w: str
    q_type: str
    use_g1u1: bool
    doweight_stage1: bool
    fp8: str = ""
    """The fp8 type's full name where the key has one: it tells gfx942 (fnuz) from the rest."""


@dataclass(frozen=True, slots=True)
class Using:
    """``[fused_moe] using ...``: printed once per process and distinct question. ``kernels`` is None for ``default``."""

    key: LogKey
    stages: int
    xbf16: bool
    kernels: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Fallback:
    """The FlyDSL heuristic's own kernels for a key that has no row."""

    key: LogKey
    kernels: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Heuristic:
    """``run_1stage = ...``: the untuned settings, printed just before the ``using`` line of the same process."""

    run_1stage: bool
    ksplit: int
    q_type: str
    block_m: int


@dataclass(frozen=True, slots=True)
class Message:
    """Any other line about tuned tables or a kernel that failed. ``kind`` is a key of MESSAGES, ``text`` the part that says it."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Odd:
    """A line that starts like one of AITER's and cannot be read."""

    text: str


Event = Using | Fallback | Heuristic | Message | Odd

_NAME = r"([^,()]{0,400})"
_TUPLE = r"\(([^()]{1,800})\)"
_USING = re.compile(
    rf"\[fused_moe\] using ([12])stage( xbf16)? (?:default|\(kernelName1={_NAME}, kernelName2={_NAME}\)) for {_TUPLE}"
)
_FALLBACK = re.compile(
    rf"\[fused_moe\] no tuned FlyDSL config for {_TUPLE}, using (?:heuristic FlyDSL|untuned a16wi4) fallback \(kn1={_NAME}, kn2={_NAME}\)"
)
_HEURISTIC = re.compile(
    r"run_1stage = (True|False),(?: xbf16 = (?:True|False),)? ksplit = (-?[0-9]{1,6}) q_type = QuantType\.(\w{1,20}) block_m = ([0-9]{1,6})"
)

MESSAGES: dict[str, str] = {
    "merged-files": "merge tuned file under model_configs/ and configs/ ",
    "path-missing": " (not exist)",
    "duplicate-rows": "[fused_moe] duplicate tuned rows",
    "duplicate-rows-fallback": "[fused_moe] duplicate fallback rows",
    "flydsl-fallback-row": "[fused_moe] flydsl unavailable, using fallback config for ",
    "flydsl-unavailable": "[fused_moe] flydsl unavailable and no fallback for ",
    "not-shuffled": "but is_shuffled=False",
    "opus-discarded": "[fused_moe] discarding Opus tuned config",
    "opus-unsupported": "[fused_moe] Opus stage2 config unsupported",
    "one-stage-discarded": "[fused_moe] discarding 1-stage tuned config",
    "blockscale-bypass": "bypass tuned results for fp8 blockscale",
    "unshuffled-cktile": "[fused_moe] SwiGLU MXFP4 with unshuffled weights not supported",
    "tile-changed": "FlyDSL MoE: tile",
    "tuning": "Start tuning fmoe",
    "tuning-saved": "[Hint] tuned configs are saved in ",
    "tuning-failed": "Fmoe tuning not support for ",
    "kernel-missing": "ck kernel not found: ",
    "merge-refused": "duplicate shape entries during merge of",
    "columns-refused": "Column mismatch between ",
    "index-refused": "DataFrame index must be unique for orient=",
    "shape-rejected": "does not support this GEMM problem",
    "no-block-m": "Unsupported block_m value for moe heuristic dispatch",
    "no-config": "Unsupported kernel config for moe heuristic dispatch",
    "asm-missing": " not find kernel ",
    "asm-none": "No suitable kernel found for inter_dim",
    "asm-shape": "is not supported for inter_dim=",
    "flydsl-invalid": "Invalid FlyDSL kernel name",
    "no-groups": "Unsupported num_expert_group",
}
"""kind -> the words that tell it. Sources: aiter/fused_moe.py, aiter/jit/core.py, csrc/ck_gemm_moe_2stages_codegen,
csrc/py_itfs_cu/asm_fmoe.cu and asm_moe_2stage.cu, csrc/kernels/topk_softmax_kernels_group.cu (v0.1.7.post2 to v0.1.20.post1)."""

FAILURES = frozenset((
    "merge-refused", "columns-refused", "index-refused", "shape-rejected", "no-block-m", "no-config", "asm-missing", "asm-none",
    "asm-shape", "flydsl-invalid", "no-groups",
))  # fmt: skip
"""Kinds that mean a request, or the start, failed."""

_STARTS = ("[fused_moe] using ", "[fused_moe] no tuned FlyDSL config for ")
_NEEDLES = tuple(t.encode() for t in (*_STARTS, "run_1stage = ", *MESSAGES.values()))


@dataclass(slots=True)
class Lines:
    """Cuts chunks of a log into lines and yields those that may speak of fused MoE, with their 1-based numbers.

    ``total`` counts every line seen so far. A block without any of AITER's words costs one byte search per word and is
    never cut up. A line longer than MAX_LINE is cut there.
    """

    total: int = 0

    def of(self, chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """(number, line without its end) of the interesting lines of ``chunks``, in order. Memory: one chunk and one line."""
        carry, overlong = b"", False
        for chunk in chunks:
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                # Still the same line: what is beyond MAX_LINE of it is never looked at.
                overlong = overlong or len(carry) + len(chunk) > MAX_LINE
                carry = carry if overlong and carry else (carry + chunk)[:MAX_LINE]
                continue
            if overlong:
                end = chunk.find(b"\n") + 1
                yield from self._block(carry + b"\n")
                yield from self._block(chunk[end:cut])
                overlong = False
            else:
                yield from self._block(carry + chunk[:cut])
            carry = chunk[cut:]
        if carry:
            yield from self._block(carry)

    def _block(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Interesting lines of a block that ends with a line (with or without its newline)."""
        first = self.total + 1
        self.total += block.count(b"\n") + (1 if block and not block.endswith(b"\n") else 0)
        starts: set[int] = set()
        for needle in _NEEDLES:
            at = block.find(needle)
            while at >= 0:
                starts.add(block.rfind(b"\n", 0, at) + 1)
                end = block.find(b"\n", at)
                at = block.find(needle, end) if end >= 0 else -1
        number, seen = first, 0
        for start in sorted(starts):
            number += block.count(b"\n", seen, start)
            seen = start
            end = block.find(b"\n", start)
            yield number, block[start : min(end if end >= 0 else len(block), start + MAX_LINE)]


def events(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str, Event]]:
    """(line number, prefix, event) for every line of Lines.of() that is one of AITER's.

    The prefix is what stands before AITER's words: lines of one process share it.
    """
    for number, raw in lines:
        text = _ANSI.sub(b"", raw).decode("utf-8", "replace").rstrip("\r\n")
        event = _read(text)
        if event is not None:
            yield number, text[: min(100, max(0, text.find("[fused_moe]"), text.find("run_1stage = ")))], event


def _read(text: str) -> Event | None:
    if _STARTS[0] in text:
        m = _USING.search(text)
        key = _key(m[5]) if m else None
        if m is None or key is None:
            return Odd(_short(text))
        names = None if m[3] is None else (_bare(m[3]), _bare(m[4]))
        return Using(key, int(m[1]), m[2] is not None, names)
    if _STARTS[1] in text:
        m = _FALLBACK.search(text)
        key = _key(m[1]) if m else None
        return Odd(_short(text)) if m is None or key is None else Fallback(key, (_bare(m[2]), _bare(m[3])))
    if m := _HEURISTIC.search(text):
        return Heuristic(m[1] == "True", int(m[2]), m[3], int(m[4]))
    for kind, words in MESSAGES.items():
        at = text.find(words)
        if at >= 0:
            return Message(kind, text[at:] if kind == "merged-files" else _short(text[max(0, at - 100) :]))
    return Odd(_short(text)) if "run_1stage = " in text else None


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."


def _bare(name: str) -> str:
    """A kernel name as printed by ``{kernelName1=}``: quotes go, and nan, None, 0 or Null (no second stage) are no name."""
    bare = name.strip().strip("'\"")
    return "" if bare.lower() in ("nan", "none", "null", "0") else bare


_INT = re.compile(r"[0-9]{1,10}\Z")
_GFX = re.compile(r"gfx[0-9a-f]{3,5}\Z")
_ACT = re.compile(r"<?ActivationType\.(\w{1,20})(?:: [0-9]{1,3}>)?\Z")
_ACT_OF = {full.partition(".")[2]: short for short, full in ACTS.items()}
_FLAG = {"True": True, "False": False, "1": True, "0": False}
_EXTRA = 4
"""FHMoE's key ends with shared_expert_id, hidden_pad, intermediate_pad, gate_mode (main at e4048607)."""


def _key(text: str) -> LogKey | None:
    parts = [p.strip().strip("'\"") for p in text.split(",")]
    gfx = parts.pop(0) if _GFX.match(parts[0]) else None
    if len(parts) not in (13, 13 + _EXTRA) or not all(map(_INT.match, parts[:6])):
        return None
    act, flags = _ACT.match(parts[6]), (_FLAG.get(parts[11]), _FLAG.get(parts[12]))
    dtypes = [SHORT.get(p) for p in parts[7:10]]
    q_type = parts[10].removeprefix("QuantType.")
    if act is None or act[1] not in _ACT_OF or None in dtypes or q_type not in QUANTS or None in flags:
        return None
    fp8 = next((p for p in parts[8:10] if "float8" in p), "")
    numbers = [int(p) for p in parts[:6]]
    return LogKey(gfx, *numbers, _ACT_OF[act[1]], *dtypes, q_type, *flags, fp8)  # type: ignore[arg-type, call-arg]
