"""Asks AITER in child processes, one per GPU, and collects its answers. No torch, no AITER here.

A child that crashes, hangs or prints nonsense is an Ending with a reason; nothing of it is raised.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.tree import Tree
from moe_preflight.aiter.tuned import TunedTable
from moe_preflight.ask.compare import Answer
from moe_preflight.ask.questions import Sheet
from moe_preflight.ask.table import merged
from moe_preflight.errors import DeviceUnavailable, FileUnreadable
from moe_preflight.smoke.isolate import TABLE
from moe_preflight.smoke.process import Ended, run, signal_name
from moe_preflight.smoke.sandbox import Folder, environment

_AITERS = ("AITER_", "GPTOSS_SWIGLU_", "GPU_ARCHS", "CU_NUM", "FLYDSL_GPU_ARCH")
"""Variables AITER reads. The child sees those the engine would run under, not those that happen to be set here."""

_KEPT = ("AITER_JIT_DIR",)
"""Save where AITER's modules are already built."""

_SET_BY_CHILD = ("AITER_CONFIG_", "AITER_REBUILD", "AITER_ONLINE_TUNE", "AITER_META_DIR")
"""Variables that would make AITER read or merge other tables, build, tune or look elsewhere."""


@dataclass(frozen=True, slots=True)
class AskOptions:
    """``timeout`` is seconds per GPU, AITER's import included (minutes where it has to compile first). ``env`` is laid over
    the child's environment, ``python`` the interpreter it runs in."""

    timeout: float = 600.0
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heard:
    """What one child said. ``ended`` is None when it got to its end, else (error | timeout | missing, why); ``missing`` are
    modules its Python lacks. ``told`` holds refused (writes), and standins (bool) when it got as far as importing AITER."""

    answers: dict[int, Answer]
    told: dict[str, Any]
    ended: tuple[str, str] | None = None
    missing: tuple[str, ...] = ()


def ask(
    sheet: Sheet, tree: Tree, table: TunedTable | None, rules: Rules, *, flydsl: bool, env: Mapping[str, str], options: AskOptions
) -> Heard:
    """AITER's answers to one sheet. ``env`` are the AITER variables the engine would run under."""
    with Folder("ask") as folder:
        try:
            root = folder / "wheel" if tree.kind == "wheel" else Path(tree.root)
            if tree.kind == "wheel":
                unpack(tree, root)
            gpu = sheet.gpu
            (folder / TABLE).write_text(merged(table, rules, gpu.gfx), encoding="utf-8")
            (folder / "questions.jsonl").write_text("".join(sheet.lines()), encoding="ascii")
            order = {
                "root": str(root),
                "folder": str(folder),
                "keys": str(folder / "questions.jsonl"),
                "gfx": gpu.gfx,
                "cu_num": gpu.cu_num,
                "flydsl": flydsl,
                "machine": None if tree.kind == "wheel" else machine(),
            }
            ended = run(
                [options.python, "-m", "moe_preflight.ask.child"],
                order,
                timeout=options.timeout,
                env=_environment(folder, env, options),
                cwd=str(folder),
            )
        except (OSError, FileUnreadable) as e:
            return Heard({}, {}, ("error", f"the child could not be started: {e}"))
    return hear(ended, len(sheet), options.timeout, flydsl)


def machine() -> tuple[str, int] | None:
    """(gfx, cu_num) of this machine's AMD GPU; None when it has none."""
    from moe_preflight.hardware import detect

    try:
        gpu = detect()
    except DeviceUnavailable:
        return None
    return gpu.gfx, gpu.cu_num


def _environment(folder: Path, env: Mapping[str, str], options: AskOptions) -> dict[str, str]:
    out = {k: v for k, v in environment(folder, {}).items() if k in _KEPT or not k.startswith(_AITERS)}
    out |= {k: v for k, v in env.items() if not k.startswith(_SET_BY_CHILD)}
    # Caches of torch and triton, which would be written below the home folder.
    out["TRITON_CACHE_DIR"] = out["TORCHINDUCTOR_CACHE_DIR"] = out["XDG_CACHE_HOME"] = str(folder / "cache")
    return {**out, **options.env}


_BELOW = ("aiter", "aiter_meta/csrc")
_COMPILED = (".so", ".a", ".o", ".co", ".hsaco", ".bin", ".pyc")
_MOST_UNPACKED = 512 << 20
"""Bytes. An AITER wheel's sources have about 30 MiB."""


def unpack(tree: Tree, target: Path) -> None:
    """What a dispatch may import or read of a wheel: everything but what is compiled. Raises FileUnreadable or OSError."""
    total = 0
    for under in _BELOW:
        for name in tree.names(under):
            if name.endswith(_COMPILED) or ".." in name.split("/"):
                continue
            path, data = target / name, tree.read_bytes(name)
            total += len(data)
            if total > _MOST_UNPACKED:
                raise FileUnreadable(name, f"the wheel's sources have more than {_MOST_UNPACKED >> 20} MiB")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def hear(ended: Ended, count: int, timeout: float, flydsl: bool) -> Heard:
    """What a child's output means. Nothing in it is trusted to have the right type."""
    answers: dict[int, Answer] = {}
    for event in ended.events:
        if event["event"] == "answers" and type(event.get("first")) is int and isinstance(event.get("answers"), list):
            for n, a in enumerate(event["answers"], event["first"]):
                if isinstance(a, dict) and 0 <= n < count:
                    answers[n] = {str(k): _short(v) for k, v in a.items() if v is None or isinstance(v, (str, int))}
    aiter, end = _last(ended, "aiter"), _last(ended, "end")
    told: dict[str, Any] = {"refused": _texts(end.get("refused"))}
    if aiter:
        told["standins"] = bool(aiter.get("standins"))
        if isinstance(aiter.get("flydsl"), bool) and aiter["flydsl"] != flydsl:
            told["flydsl_differs"] = f"FlyDSL is {'' if aiter['flydsl'] else 'not '}installed here, against what was assumed."
    if end.get("status") == "done" and len(answers) == count:
        return Heard(answers, told)
    modules = tuple(_texts(end.get("modules"))) if end.get("status") == "missing" else ()
    return Heard(answers, told, _ending(ended, end, timeout), modules)


_LONGEST = 1000


def _short(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else value


def _texts(value: Any) -> list[str]:
    return [str(v)[:_LONGEST] for v in value[:20]] if isinstance(value, list) else []


def _last(ended: Ended, name: str) -> dict[str, Any]:
    return next((e for e in reversed(ended.events) if e["event"] == name), {})


def _ending(ended: Ended, end: Mapping[str, Any], timeout: float) -> tuple[str, str]:
    phase = str(_last(ended, "phase").get("name", "start"))
    last = next((line.strip() for line in reversed(ended.tail) if line.strip() and not line.startswith("  File ")), "")
    if ended.timed_out:
        return "timeout", f"it did not answer within {timeout:g} s, while: {phase}"
    if ended.returncode is None or ended.returncode < 0:
        how = "could not be ended" if ended.returncode is None else f"died of {signal_name(-ended.returncode)}"
        return "error", f"the child {how} while: {phase}" + (f" ({last})" if last else "")
    if end.get("status") in ("error", "missing"):
        return str(end["status"]), str(end.get("text") or "no reason given")
    return "error", f"the child ended with exit code {ended.returncode} and no answer, while: {phase}" + (
        f" ({last})" if last else ""
    )
