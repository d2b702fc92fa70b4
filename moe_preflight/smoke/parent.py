"""Runs cases, each in a child process of its own, and turns what happened into observations. No torch here.

``run_smoke(cases, options)`` is the whole of it; ``outcome()`` says what its observations mean for the exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moe_preflight.errors import DeviceUnavailable, UsageError
from moe_preflight.smoke import isolate
from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.judge import Observation, observe, refused
from moe_preflight.smoke.memory import refusal
from moe_preflight.smoke.process import Ended, run
from moe_preflight.smoke.sandbox import Folder, environment

BACKENDS = ("auto", "aiter", "torch")
PROBE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class SmokeOptions:
    """``device`` is a GPU index, ``cpu``, or ``auto`` (GPU 0, else the CPU). ``timeout`` is seconds per case;
    ``memory_limit`` bytes per case, beyond what the device has free. ``env`` is laid over the environment of the child."""

    backend: str = "auto"
    device: str = "auto"
    timeout: float = 300.0
    memory_limit: int | None = None
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"--backend {self.backend}: unknown.", hint=f"Known: {', '.join(BACKENDS)}.")
        if self.device not in ("auto", "cpu") and not (
            self.device.isascii() and self.device.isdecimal() and len(self.device) < 4
        ):
            raise UsageError(f"--device {self.device}: not a device.", hint="Expected a GPU index such as 0, or cpu, or auto.")
        if not 1 <= self.timeout <= 86400:
            raise UsageError(f"--timeout {self.timeout:g}: out of range.", hint="Expected 1 to 86400 seconds per case.")


def probe(options: SmokeOptions) -> dict[str, Any]:
    """What torch and AITER this Python has and which GPU, asked of a child process. Raises DeviceUnavailable without torch."""
    with Folder("smoke") as folder:
        ended = _spawn({"op": "probe", "device": options.device}, options, folder, PROBE_TIMEOUT_S, None)
    found = next((e for e in ended.events if e["event"] == "machine"), None)
    if found is not None:
        return found
    end = next((str(e.get("text")) for e in ended.events if e["event"] == "end"), "")
    if "No module named 'torch'" in end:
        raise DeviceUnavailable(
            "smoke: torch is not installed.", hint="pip install 'moe-preflight[smoke]', or torch for your GPU."
        )
    why = end or (ended.tail[-1] if ended.tail else f"exit code {ended.returncode}")
    raise DeviceUnavailable(f"smoke: torch cannot be used here: {why}", hint="Try: python -c 'import torch'.")


def choose(options: SmokeOptions, machine: Mapping[str, Any]) -> str:
    """``aiter`` or ``torch``. Raises DeviceUnavailable, naming what is missing, when AITER was wanted and cannot run."""
    if options.backend == "torch":
        return "torch"
    missing = []
    if not machine.get("hip"):
        missing.append(f"a ROCm build of torch (this one, {machine.get('torch')}, is not)")
    elif not machine.get("gpus"):
        missing.append("an AMD GPU that torch can see")
    if not machine.get("aiter_found"):
        missing.append("AITER (the distribution amd-aiter)")
    if missing:
        raise DeviceUnavailable(
            f"smoke: AITER cannot be launched here; missing: {'; '.join(missing)}.",
            hint="--backend torch checks the padding arithmetic on any machine, but says nothing about AITER.",
        )
    return "aiter"


def run_smoke(
    cases: Sequence[SmokeCase], options: SmokeOptions, progress: Callable[[str], None] | None = None
) -> list[Observation]:
    """One observation per case, in order. Raises DeviceUnavailable when the backend asked for cannot run at all.

    ``progress`` gets a short line whenever something starts; it is for a terminal.
    """
    backend = "torch" if options.backend == "torch" and _has_torch(options) else choose(options, probe(options))
    with Folder("smoke") as folder:
        return [run_case(case, backend, options, folder, _counted(progress, n, len(cases))) for n, case in enumerate(cases)]


def _has_torch(options: SmokeOptions) -> bool:
    """Known without a probe when the child is this Python."""
    from importlib.util import find_spec

    return options.python == sys.executable and find_spec("torch") is not None


def run_case(
    case: SmokeCase, backend: str, options: SmokeOptions, folder: Path, progress: Callable[[str], None] | None = None
) -> Observation:
    """One case in one child process. ``folder`` is the run's own; cases of one run share its merged table and built kernels."""
    if problem := case.unsupported or (case.off_aiter if backend == "aiter" else "") or case.problem():
        return refused(case, backend, problem)
    if problem := refusal(case, backend, options.memory_limit, "--memory-limit"):
        return refused(case, backend, problem)

    def on_event(event: dict[str, Any]) -> None:
        if progress is not None and event["event"] == "phase":
            progress(f"{case.label} tokens {case.tokens}: {event.get('name')}")

    order = {"op": "launch", "case": case.to_json(), "backend": backend, "device": options.device, "folder": str(folder)}
    try:
        ended = _spawn(order, options, folder, options.timeout, on_event)
    except OSError as e:
        return refused(case, backend, f"the worker could not be started: {e}")
    isolate.drop_locks(folder)
    return observe(case, backend, ended, options.timeout)


def _counted(progress: Callable[[str], None] | None, n: int, total: int) -> Callable[[str], None] | None:
    return None if progress is None else lambda text: progress(f"[{n + 1}/{total}] {text}")


def _spawn(
    order: Mapping[str, Any],
    options: SmokeOptions,
    folder: Path,
    timeout: float,
    on_event: Callable[[dict[str, Any]], None] | None,
) -> Ended:
    command = [options.python, "-m", "moe_preflight.smoke.worker"]
    return run(command, order, timeout=timeout, env=_environment(options, folder), cwd=str(folder), on_event=on_event)


def _environment(options: SmokeOptions, folder: Path) -> dict[str, str]:
    return environment(folder, options.env)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``exit_code`` 1: a launch failed, gave wrong numbers or contradicted the prediction. 3: something could not be looked
    at. 0: all held. ``not_evaluated`` are (what, why, how to get it)."""

    exit_code: int
    not_evaluated: tuple[tuple[str, str, str], ...]


AITER_UNTOUCHED = "AITER's kernels"
"""What the torch backend never looks at: always named, never what makes a run inconclusive."""

_COULD_NOT_LOOK = ("refused", "not-observable")


def outcome(observations: Iterable[Observation]) -> Outcome:
    """What the observations mean. The torch backend's own gap (it says nothing about AITER) is always named, and alone it does
    not make the run inconclusive: the arithmetic is what was asked for."""
    seen = list(observations)
    gaps: list[tuple[str, str, str]] = []
    for o in seen:
        if o["status"] in _COULD_NOT_LOOK:
            why = o["detail"] or o["prediction"]["why"]
            gaps.append((f"smoke launch of {o['case']} at {o['tokens']} tokens", why, _remedy(o)))
    failed = any(o["status"] not in ("ok", "confirmed", *_COULD_NOT_LOOK) or _broke(o) for o in seen)
    code = 1 if failed else 3 if gaps or not seen else 0
    if any(o["backend"] == "torch" for o in seen):
        gaps.append((
            AITER_UNTOUCHED,
            "the torch backend proves padding and loading arithmetic and launches no AITER kernel",
            "moe-preflight smoke --backend aiter on a machine with ROCm and amd-aiter",
        ))  # fmt: skip
    return Outcome(code, tuple(gaps))


def _broke(o: Observation) -> bool:
    """A predicted rejection that came true is still a deployment that does not run."""
    return o["status"] == "confirmed" and not o["ran"]


def _remedy(o: Observation) -> str:
    if o["status"] == "refused":
        return "use fewer tokens, a larger GPU or another layer"
    return "run it with the AITER version and GPU the prediction is for, or predict for the ones installed here"
