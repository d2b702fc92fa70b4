"""From what a child process reported, and what was predicted, to an observation. Pure."""

from __future__ import annotations

from typing import Any

from moe_preflight.aiter.version import Version
from moe_preflight.smoke import aiter_log
from moe_preflight.smoke.case import Prediction, SmokeCase, tolerance
from moe_preflight.smoke.memory import required
from moe_preflight.smoke.process import Ended, signal_name

STATUSES = (
    "ok", "confirmed", "contradicted", "not-observable", "failed", "timeout", "crashed", "out-of-memory", "refused", "error",
)  # fmt: skip
"""ok: the torch backend's arithmetic holds. confirmed / contradicted / not-observable: AITER ran (or refused) as predicted, did
not, or it cannot be told which kernels ran. failed: ran, and gave wrong numbers or wrong experts, or no kernel took the shape
and nothing was predicted. refused: not launched (memory, unsupported). error: the tool or the installation broke."""

Observation = dict[str, Any]
"""One JSON object; the keys are those of observe()."""


def observe(case: SmokeCase, backend: str, ended: Ended, timeout: float) -> Observation:
    """The observation of one child process.

    ``ran`` says whether an output was judged; ``rel_err``, ``median_us`` and the rest are None where no step got that far.
    """
    told = {name: _last(ended, name) for name in ("machine", "result", "log", "kernels", "poison", "native", "end")}
    result, end = told["result"], told["end"]
    lines = result.get("log") or told["log"].get("log") or []
    choice = aiter_log.read(str(line) for line in lines)
    status, detail = _status(backend, ended, told, timeout)
    verdict, why = _against(case.prediction, backend, told, choice, status, detail)
    if backend == "aiter" and status in ("ok", "rejected"):
        status = "failed" if status == "rejected" and verdict == "not-observable" else verdict
    elif status == "rejected":
        status = "failed"
    median, native = result.get("median_us"), told["native"].get("median_us")
    names = [str(k) for k in result.get("kernels") or []] + [k for k in (choice.kernels if choice else ()) if k]
    return {
        "target": case.target,
        "layer": case.layer,
        "layer_name": case.layer_name,
        "case": case.label,
        "tokens": case.tokens,
        "backend": backend,
        "status": status,
        "detail": detail,
        "ran": bool(result),
        "rel_err": result.get("rel_err"),
        "nonfinite_tokens": result.get("nonfinite"),
        "tolerance": tolerance(case, backend),
        "median_us": median,
        "native_us": native,
        "native_error": told["native"].get("error"),
        "padding_cost_pct": _padding_cost(median, native, told["machine"]),
        "bit_identical": result.get("bit_identical"),
        "router_kernel": result.get("router_kernel"),
        "experts_match": result.get("experts_match"),
        "router_weight_err": result.get("router_weight_err"),
        "tail_read": _tail_read(case, told["poison"]),
        "kernels": names,
        "device_kernels": [str(k) for k in told["kernels"].get("names") or []],
        "prediction": {"verdict": verdict, "why": why, **_expected(case.prediction), "observed": _observed(choice)},
        "memory_bytes": required(case, backend)["total"],
        "machine": {k: told["machine"].get(k) for k in ("gpu", "gfx", "cu_num", "torch", "hip", "cuda", "aiter")},
        "seed": case.seed,
        "weights": "random" if case.weights is None else "real",
        "notes": [str(n) for n in result.get("notes") or told["log"].get("notes") or []] + _notes(case, ended, end),
        "output_tail": [] if result and status in ("ok", "confirmed") else ended.tail,
    }


def refused(case: SmokeCase, backend: str, detail: str) -> Observation:
    """An observation of a case that was not launched at all."""
    ended = Ended(0, False, 0.0, events=[{"event": "end", "status": "refused", "text": detail}])
    return observe(case, backend, ended, 0.0)


def _last(ended: Ended, name: str) -> dict[str, Any]:
    return next((e for e in reversed(ended.events) if e["event"] == name), {})


def _phase(ended: Ended) -> str:
    return str(_last(ended, "phase").get("name", "start"))


def _status(backend: str, ended: Ended, told: dict[str, dict[str, Any]], timeout: float) -> tuple[str, str]:
    """(status before the prediction is looked at, one line). ``rejected`` stands for: no kernel takes this shape."""
    result, end = told["result"], told["end"]
    if result:
        return _judged(result)
    if ended.timed_out:
        return "timeout", f"no answer within {timeout:g} s, while: {_phase(ended)}{_building(ended)}"
    if ended.returncode is None:
        return "crashed", f"the process could not be ended, while: {_phase(ended)}"
    if ended.returncode < 0:
        number = -ended.returncode
        text = f"{signal_name(number)} while: {_phase(ended)}"
        if number == 9:
            return "out-of-memory", f"{text}; nobody here sent it, so most likely the system ran out of memory"
        rejected = any(aiter_log.is_rejection(line) for line in ended.tail)
        return ("rejected" if rejected else "crashed"), f"{text}: {_telling(ended)}".rstrip(": ")
    if not end:
        return "error", f"the worker ended with exit code {ended.returncode} and no answer, while: {_phase(ended)}"
    status, text = str(end.get("status")), str(end.get("text", ""))
    if status == "launch-failed":
        return ("rejected" if aiter_log.is_rejection(text) else "failed"), text
    return (status if status in STATUSES else "error"), text


def _judged(result: dict[str, Any]) -> tuple[str, str]:
    if result.get("router_error"):
        return "rejected" if aiter_log.is_rejection(str(result["router_error"])) else "failed", str(result["router_error"])
    if result.get("nonfinite"):
        return "failed", f"{result['nonfinite']} tokens have NaN or infinite outputs"
    if not result.get("within"):
        return "failed", f"relative error {_number(result.get('rel_err'))} at token {result.get('worst_token')}"
    if result.get("experts_match") is False:
        return "failed", f"the router chose other experts than torch for {result.get('wrong_tokens')} tokens"
    if result.get("router_right") is False:
        return "failed", f"the router's weights are off by up to {_number(result.get('router_weight_err'))} (relative)"
    return "ok", ""


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else "without bound"


def _building(ended: Ended) -> str:
    building = any("build [" in line or "ninja" in line for line in ended.tail)
    return "; AITER was still compiling: raise --timeout, or set AITER_JIT_DIR to keep what it builds" if building else ""


def _telling(ended: Ended) -> str:
    """The line of the output that most likely says why; the last one otherwise."""
    for line in ended.tail:
        if aiter_log.is_rejection(line) or "Memory access fault" in line or "HSA_STATUS" in line:
            return line.strip()
    return next((line.strip() for line in reversed(ended.tail) if line.strip() and not line.startswith("  File ")), "")


def _against(
    p: Prediction, backend: str, told: dict[str, dict[str, Any]], choice: aiter_log.Choice | None, status: str, detail: str
) -> tuple[str, str]:
    """confirmed, contradicted or not-observable, and why."""
    if backend != "aiter":
        return "not-observable", "the torch backend launches no AITER kernel"
    if p.path is None and p.accepted is None and p.error is None and p.router_compiled is None:
        return "not-observable", "nothing was predicted for this launch"
    if other := _elsewhere(p, told["machine"]):
        return "not-observable", other
    foreseen = p.accepted is False or p.error is not None or p.router_compiled is False
    if status == "rejected" or (status == "crashed" and foreseen):
        if foreseen:
            return "confirmed", f"predicted: {p.error or p.reason or 'no kernel takes this shape'}"
        return "contradicted", f"predicted to be accepted, but: {detail}"
    if not told["result"]:
        return "not-observable", f"the launch did not get that far: {detail}"
    if foreseen:
        return "contradicted", f"predicted to fail ({p.error or p.reason or 'no kernel'}), but it ran"
    if choice is None:
        return "not-observable", "AITER's log has no line on the kernels it took"
    return _same_kernels(p, choice)


def _elsewhere(p: Prediction, machine: dict[str, Any]) -> str:
    """Why the prediction was for another machine or another AITER; empty when it was for this one or that is not known."""
    ran = (machine.get("gfx"), machine.get("cu_num"))
    if p.gfx and ran[0] and (p.gfx, p.cu_num or ran[1]) != ran:
        return f"predicted for {p.gfx} with {p.cu_num} CUs, ran on {ran[0]} with {ran[1]}"
    asked, found = (Version.parse(str(v)) if v else None for v in (p.aiter_version, machine.get("aiter")))
    if asked and found and asked != found:
        return f"predicted for AITER {asked}, ran {found}"
    return ""


def _same_kernels(p: Prediction, choice: aiter_log.Choice) -> tuple[str, str]:
    ran = f"{choice.stages}-stage {'heuristic' if choice.default else ' + '.join(k for k in choice.kernels if k) or 'tuned'}"
    if p.stages is not None and p.stages != choice.stages:
        return "contradicted", f"predicted {p.stages} stages, AITER took {ran}"
    if p.tuned in ("hit", "tier"):
        wanted = (aiter_log.clean(p.kernels[0]), aiter_log.clean(p.kernels[1]))
        if choice.default or wanted != choice.kernels:
            return "contradicted", f"predicted the tuned {' + '.join(k for k in wanted if k)}, AITER took {ran}"
    elif p.tuned == "miss" and not choice.default:
        return "contradicted", f"predicted no tuned row, AITER took {ran}"
    elif p.tuned == "unknown":
        return "not-observable", f"no tuned table was looked at; AITER took {ran}"
    if choice.missing and "kernel-not-in-instance-list" not in p.notes:
        return "contradicted", f"AITER's compiled module lacks {', '.join(choice.missing)}; it took its heuristic instead"
    return "confirmed", f"AITER took {ran}"


def _expected(p: Prediction) -> dict[str, Any]:
    return {
        "path": p.path,
        "stages": p.stages,
        "tuned": p.tuned,
        "kernels": [k for k in p.kernels if k],
        "row": p.row,
        "accepted": p.accepted,
        "native_accepted": p.native_accepted,
        "aiter_version": p.aiter_version,
    }


def _observed(choice: aiter_log.Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "stages": choice.stages,
        "heuristic": choice.default,
        "kernels": [k for k in choice.kernels if k],
        "missing": list(choice.missing),
    }


def _tail_read(case: SmokeCase, poison: dict[str, Any]) -> bool | None:
    if not case.poison or "nonfinite" not in poison:
        return None
    return bool(poison["nonfinite"])


def _padding_cost(median: float | None, native: float | None, machine: dict[str, Any]) -> float | None:
    """Percent, from device events only: a CPU's clock tells who else was running, not what padding costs."""
    if not median or not native or not machine.get("gpu"):
        return None
    return round(100 * (median - native) / native, 2)


def _notes(case: SmokeCase, ended: Ended, end: dict[str, Any]) -> list[str]:
    """What happened after the result was in hand, and what was asked for and does not apply."""
    notes = []
    if ended.garbage:
        notes.append(f"{ended.garbage} lines on the worker's stdout were not its own")
    if case.poison and not case.padded:
        notes.append("nothing is padded, so there is no tail to poison")
    if _last(ended, "result") and end.get("status") != "done":
        ending = "ran out of time" if ended.timed_out else str(end.get("text") or "died")
        if ended.returncode is not None and ended.returncode < 0 and not ended.timed_out:
            ending = f"died of {signal_name(-ended.returncode)}"
        notes.append(f"after its result the worker {ending}, while: {_phase(ended)}")
    return notes
