"""A log's keys against what we would have said: confirmed, contradicted, or never predicted. Pure.

What the log shows is what AITER looked up on that machine, so it is matched in two ways. Each key is put to the dispatch
model itself (same version, same tables): same row, same kernels, same number of stages? And, when models were named, to
the list of keys those models would ask for: a key on no such list was never predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.entry import QUANT_REMAP
from moe_preflight.aiter.key import Dispatch, Key
from moe_preflight.aiter.tuned import GFX_BY_CU
from moe_preflight.coverage.log import Fallback, Heuristic, Lines, LogKey, Message, Odd, Using, events
from moe_preflight.evaluate import TargetEvaluation, key_of
from moe_preflight.hardware import GPUS

MAX_KEYS = 100_000
"""Distinct keys kept. A process asks for a few dozen; a log that holds more is counted on, not kept."""
MAX_PROCESSES = 4096

CONFIRMED, CONTRADICTED, NOT_COMPARED = "confirmed", "contradicted", "not-compared"


@dataclass(slots=True)
class Seen:
    """One distinct answer of the log: a key, the stages and the kernels named (None: the heuristic, ``default``)."""

    key: LogKey
    stages: int
    xbf16: bool
    kernels: tuple[str, str] | None
    line: int
    count: int = 1
    heuristic: Heuristic | None = None
    fallback: tuple[str, str] | None = None


@dataclass(slots=True)
class Said:
    """A kind of message: how often, and where and how it was said first."""

    kind: str
    line: int
    text: str
    count: int = 1


@dataclass(slots=True)
class Reading:
    """A whole log, counted. ``dropped`` are answers beyond MAX_KEYS distinct ones."""

    seen: list[Seen] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    odd: int = 0
    first_odd: tuple[int, str] | None = None
    dropped: int = 0
    lines: int = 0

    @property
    def answers(self) -> int:
        """Lines that name a key, repetitions included."""
        return sum(s.count for s in self.seen) + self.dropped


def read(chunks: Iterable[bytes]) -> Reading:
    """Everything a log says about fused MoE. One pass over its bytes; memory grows with distinct keys, not with lines."""
    out = Reading()
    lines = Lines()
    seen: dict[tuple[object, ...], Seen] = {}
    said: dict[str, Said] = {}
    pending: dict[str, Heuristic] = {}
    for number, prefix, event in events(lines.of(chunks)):
        match event:
            case Using():
                slot = (event.key, event.stages, event.xbf16, event.kernels)
                held = seen.get(slot)
                if held is not None:
                    held.count += 1
                elif len(seen) >= MAX_KEYS:
                    out.dropped += 1
                else:
                    held = seen[slot] = Seen(event.key, event.stages, event.xbf16, event.kernels, number)
                heuristic = pending.pop(prefix, None)
                if held is not None and event.kernels is None and heuristic is not None and heuristic.q_type == event.key.q_type:
                    held.heuristic = heuristic
            case Fallback():
                held = seen.get((event.key, 2, False, None))
                if held is not None:
                    held.fallback = event.kernels
            case Heuristic():
                if len(pending) >= MAX_PROCESSES:
                    pending.clear()
                pending[prefix] = event
            case Message():
                first = said.setdefault(event.kind, Said(event.kind, number, event.text, 0))
                first.count += 1
            case Odd():
                out.odd += 1
                out.first_odd = out.first_odd or (number, event.text)
    out.seen, out.said, out.lines = list(seen.values()), list(said.values()), lines.total
    return out


def gfx_of(key: LogKey) -> str | None:
    """The architecture a key was asked on: its own word, or what its fp8 type and CU count leave (before v0.1.16)."""
    if key.gfx:
        return key.gfx
    if "fnuz" in key.fp8:
        return "gfx942"
    known = {g.gfx for g in GPUS.values() if g.cu_num == key.cu_num}
    return known.pop() if len(known) == 1 else GFX_BY_CU.get(key.cu_num)


def question(key: LogKey) -> Key:
    """The key as a direct question: q_dtype_a is given, so AITER's entry rules do not apply a second time."""
    return Key(
        token=key.token,
        model_dim=key.model_dim,
        inter_dim=key.inter_dim,
        expert=key.expert,
        topk=key.topk,
        act=key.act,
        dtype=key.dtype,
        q_dtype_a=key.q_dtype_a,
        q_dtype_w=key.q_dtype_w,
        q_type=key.q_type,
        use_g1u1=key.use_g1u1,
        doweight_stage1=key.doweight_stage1,
    )


@dataclass(frozen=True, slots=True)
class Match:
    """One answer of the log and ours. ``differences`` are plain statements; empty when confirmed. ``target`` is the index of
    the target that predicted the key, None when none did (or no model was named)."""

    seen: Seen
    gfx: str | None
    status: str
    predicted: Dispatch | None
    differences: tuple[str, ...] = ()
    target: int | None = None


def match(
    reading: Reading,
    dispatcher_of: Callable[[str, int], Dispatcher],
    planned: Mapping[tuple[object, ...], int] | None = None,
    *,
    default: tuple[str, int] | None = None,
) -> list[Match]:
    """Every answer of the log against the dispatch model; ``planned`` as from planned_keys(), None when no model was named.

    ``default`` is the (gfx, cu_num) of keys that do not say their architecture.
    """
    out = []
    for s in reading.seen:
        gfx = gfx_of(s.key)
        if gfx is None and default is not None and default[1] == s.key.cu_num:
            gfx = default[0]
        target = None if planned is None else planned.get(slot_of(s.key, gfx))
        if gfx is None:
            why = f"the log does not say the architecture, and {s.key.cu_num} compute units leave it open"
            out.append(Match(s, None, NOT_COMPARED, None, (why,), target))
            continue
        predicted = dispatcher_of(gfx, s.key.cu_num).dispatch(question(s.key))
        status, differences = _compare(s, predicted)
        out.append(Match(s, gfx, status, predicted, differences, target))
    return out


def _compare(s: Seen, d: Dispatch) -> tuple[str, tuple[str, ...]]:
    if d.tuned == "unknown" and s.kernels is not None:
        return NOT_COMPARED, ("the log shows a tuned row, and no tables were read to compare it with",)
    wrong = tuple(_differences(s, d))
    return (CONTRADICTED if wrong else CONFIRMED), wrong


def _differences(s: Seen, d: Dispatch) -> Iterator[str]:
    if d.error:
        yield f'predicted that AITER raises "{d.error}"; the log shows a choice'
        return
    stages = 1 if d.run_1stage else 2
    if stages != s.stages:
        yield f"predicted {stages} stage{'s' * (stages > 1)}, the log shows {s.stages}"
    row = d.row
    expected = None if row is None else (_bare(row.kernel1), _bare(row.kernel2))
    if s.kernels == ("", "") and expected is None and "bypassed" in d.notes:
        return
    if s.kernels == ("", "") and row is not None:
        yield f"predicted the row {row.file}:{row.line}; the log shows empty names (AITER_BYPASS_TUNE_CONFIG=1 was set)"
    elif s.kernels is None and row is not None:
        yield f"predicted the row {row.file}:{row.line}; the log shows the heuristic"
    elif s.kernels is not None and expected is None:
        yield f"predicted no tuned row; the log shows one with {_names(s.kernels)}"
    elif s.kernels is not None and s.kernels != expected and row is not None:
        yield f"predicted {_names(expected or ())} ({row.file}:{row.line}); the log shows {_names(s.kernels)}"
    if s.kernels is not None or stages != s.stages or row is not None:
        return
    h = s.heuristic
    if h is not None and d.path == "ck2stages" and (h.block_m, h.ksplit) != (d.block_m, d.ksplit):
        yield f"predicted block_m {d.block_m} ksplit {d.ksplit}; the log shows block_m {h.block_m} ksplit {h.ksplit}"
    if s.fallback is not None and d.stage2 is not None:
        own = (d.stage1.kernel, d.stage2.kernel)
        if own != s.fallback:
            yield f"predicted the FlyDSL heuristic {_names(own)}; the log shows {_names(s.fallback)}"


def _bare(name: str) -> str:
    return "" if name.strip().lower() in ("nan", "none", "null", "0") else name.strip()


def _names(kernels: Sequence[str]) -> str:
    return " + ".join(k for k in kernels if k) or "no kernel name"


# --- which keys the named models would ask ---------------------------------------------------------------------------


def slot_of(key: LogKey, gfx: str | None) -> tuple[object, ...]:
    """What two keys must share to be the same question."""
    q_type = QUANT_REMAP.get(key.q_type, key.q_type)
    head = (gfx, key.cu_num, key.token, key.model_dim, key.inter_dim, key.expert, key.topk, key.act, key.dtype)
    return (*head, key.q_dtype_a, key.q_dtype_w, q_type, key.use_g1u1, key.doweight_stage1)


def planned_keys(
    targets: Iterable[TargetEvaluation], dispatcher_of: Callable[[str, int], Dispatcher]
) -> dict[tuple[object, ...], int]:
    """Every key the targets would ask AITER for -> the index of the first target that asks it.

    AITER chooses q_dtype_a by the raw token count and looks up by the bucket, so both ends of a bucket are asked.
    """
    out: dict[tuple[object, ...], int] = {}
    for t in targets:
        gpu = t.plan.deployment.gpu
        dispatcher = dispatcher_of(gpu.gfx, gpu.cu_num)
        for layer in t.layers:
            if not layer.dispatches:
                continue
            p = layer.plan.problem
            below = 0
            for d in layer.dispatches:
                ends = {d} if below == 0 else {d, dispatcher.dispatch(replace(key_of(p, dispatcher.rules), token=below + 1))}
                below = d.lookup_token
                for end in ends:
                    head = (
                        gpu.gfx,
                        gpu.cu_num,
                        end.lookup_token,
                        p.model_dim_padded,
                        p.inter_dim_padded,
                        p.expert,
                        layer.lookup_topk,
                    )
                    q_type = QUANT_REMAP.get(p.q_type or "", p.q_type)
                    slot = (*head, p.act_type, p.dtype, end.q_dtype_a, p.q_dtype_w, q_type, p.use_g1u1, p.doweight_stage1)
                    out.setdefault(slot, t.index)
    return out
