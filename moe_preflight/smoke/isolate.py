"""What the worker does to its own process before it imports AITER, so that the import and the launch leave no trace: no online
tuning, no merged tables outside the run's folder, no file written into the AITER tree. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import sys
from collections.abc import MutableMapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moe_preflight.smoke.tables import merge, tables_of

TABLE = "tuned_fmoe.csv"
"""The merged table, in the run's folder."""

_PLAIN_TABLES = {
    "AITER_CONFIG_GEMM_A4W4": "a4w4_blockscale_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8": "a8w8_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE": "a8w8_bpreshuffle_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE": "a8w8_blockscale_tuned_gemm.csv",
    "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE": "a8w8_blockscale_bpreshuffle_tuned_gemm.csv",
    "AITER_CONFIG_A8W8_BATCHED_GEMM": "a8w8_tuned_batched_gemm.csv",
    "AITER_CONFIG_BF16_BATCHED_GEMM": "bf16_tuned_batched_gemm.csv",
    "AITER_CONFIG_GEMM_BF16": "bf16_tuned_gemm.csv",
}
"""Dense GEMM tables: v0.1.7 merges them into the shared temporary folder while it is imported (aiter/jit/core.py). One file
each keeps it from doing so; a MoE launch reads none of them."""


_VERSION = re.compile(r"^(?:__version__|version)\b[^'\"\n]{0,80}['\"]([^'\"\n]{1,60})['\"]", re.MULTILINE)


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, and leave no core file behind."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def aiter_package() -> Path | None:
    """The folder of the ``aiter`` that an import would take, without importing it. A package of that name which is not AMD's
    (PyPI's ``aiter``) has no fused_moe.py and does not count."""
    spec = find_spec("aiter")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "fused_moe.py").is_file() or (Path(place) / "fused_moe").is_dir():
            return Path(place)
    return None


def aiter_version(package: Path) -> str | None:
    """From aiter/_version.py, else the distribution amd-aiter; None when neither says."""
    with contextlib.suppress(OSError):
        text = (package / "_version.py").read_text(encoding="utf-8", errors="replace")[:4096]
        if found := _VERSION.search(text):
            return found.group(1)
    try:
        return version("amd-aiter")
    except PackageNotFoundError:
        return None


def prepare(package: Path, folder: Path, live_gfx: str, env: MutableMapping[str, str] = os.environ) -> list[str]:
    """Point AITER at the run's ``folder`` for everything it would write. Returns what is worth telling."""
    notes: list[str] = []
    # AITER's code generators are scripts that import their neighbours: the safe path this worker started with would stop them.
    env.pop("PYTHONSAFEPATH", None)
    env["AITER_ONLINE_TUNE"] = "0"
    env["AITER_LOG_LEVEL"] = "INFO"
    table = folder / TABLE
    if not table.exists():
        notes = merge(tables_of(package, env.get("AITER_CONFIG_FMOE")), table, live_gfx)
    env["AITER_CONFIG_FMOE"] = str(table)
    for name, file in _PLAIN_TABLES.items():
        path = package / "configs" / file
        if name not in env and path.is_file():
            env[name] = str(path)
    if "AITER_JIT_DIR" not in env:
        jit = folder / "jit"
        jit.mkdir(parents=True, exist_ok=True)
        for built in _jit_folders(package):
            _mirror(built, jit, "*.so")
        env["AITER_JIT_DIR"] = str(jit)
        cache = package / "jit" / "flydsl_cache"
        if "FLYDSL_RUNTIME_CACHE_DIR" not in env and cache.is_dir():
            _mirror(cache, folder / "flydsl_cache", "**/*")
            env["FLYDSL_RUNTIME_CACHE_DIR"] = str(folder / "flydsl_cache")
        shutil.copy = _copy_over_links(shutil.copy)
    return notes


def _jit_folders(package: Path) -> list[Path]:
    """Where the engine's own AITER would find built modules: its tree, or, where that cannot be written, first the copy it keeps
    under the home folder (aiter/jit/core.py get_user_jit_dir)."""
    own = package / "jit"
    if os.access(own, os.W_OK):
        return [own]
    return [Path(os.path.expanduser("~")) / ".aiter" / "jit", own]


def _mirror(source: Path, target: Path, pattern: str) -> None:
    """Links in ``target`` to the files of ``source``: prebuilt modules are the ones the engine would run."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob(pattern):
        link = target / path.relative_to(source)
        if path.is_file() and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(path)


def _copy_over_links(copy: Any) -> Any:
    """AITER installs a module it built with shutil.copy(built, jit folder). Where our folder holds a link into the tree, that
    would write through it; the link is dropped first."""

    def safe(src: Any, dst: Any, **how: Any) -> Any:
        target = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
        if os.path.islink(target):
            os.unlink(target)
        return copy(src, dst, **how)

    return safe


def drop_locks(folder: Path) -> None:
    """Remove build locks that a killed worker left in the run's own jit folder; the next worker would wait for them for ever."""
    for lock in (folder / "jit" / "build").glob("lock_*"):
        with contextlib.suppress(OSError):
            lock.unlink()


def own_stdout() -> int:
    """A private descriptor for the protocol; everything else that writes to stdout from now on, C++ included, goes to stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return private
