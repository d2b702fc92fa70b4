"""One merged tuned table of our own, so that AITER neither merges into a file shared by every process of the machine nor
rewrites its installed tables.

AITER given several tables writes the merge to a fixed path under the temporary folder, and on duplicate keys rewrites the
source files in place (aiter/jit/core.py update_config_files, v0.1.12 and later). Given one table it reads just that. So the
worker merges by AITER's rules into its own folder and names that file in AITER_CONFIG_FMOE. Pure but for reading and writing.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

MAX_BYTES = 64 << 20
"""Per table; AITER's largest is 0.4 MB."""

_GFX_OF_CU = {"256": "gfx950", "80": "gfx942", "304": "gfx942"}
"""aiter/jit/utils/chip_info.py gfx_from_cu_num; another count gets the live GPU's name."""

_KEY = (
    "gfx", "cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type",
    "use_g1u1", "doweight_stage1", "_tag",
)  # fmt: skip


def tables_of(package: Path, env: str | None) -> list[Path]:
    """The tables AITER would read: those of ``env`` (AITER_CONFIG_FMOE), else tuned_fmoe.csv and then model_configs in
    directory order, as its own glob gives them."""
    if env:
        return [Path(p) for p in env.split(os.pathsep) if p]
    configs = package / "configs"
    models = [p for p in (configs / "model_configs").glob("*tuned_fmoe*.csv") if p.is_file() and "untuned" not in p.name]
    return [configs / "tuned_fmoe.csv", *models]


def merge(tables: Sequence[Path], target: Path, live_gfx: str) -> list[str]:
    """Write the merge of ``tables`` to ``target``. The answer is what is worth telling: missing tables, duplicates.

    Columns of every table, in order of appearance; a column a table lacks is filled with 0, ``gfx`` from its cu_num
    (v0.1.16 and later). Of rows with the same key the fastest stays, as in AITER's rewritten files.
    """
    notes: list[str] = []
    columns: list[str] = []
    rows: list[dict[str, str]] = []
    for path in tables:
        try:
            if path.stat().st_size > MAX_BYTES:
                notes.append(f"{path.name}: larger than {MAX_BYTES >> 20} MiB, left out")
                continue
            with open(path, encoding="utf-8", errors="replace", newline="") as f:
                reader = csv.DictReader(f)
                new = [c for c in reader.fieldnames or [] if c not in columns]
                columns += new
                rows += [{k: v or "" for k, v in row.items() if isinstance(k, str)} for row in reader]
        except OSError as e:
            notes.append(f"{path.name}: {e.strerror}")
    for row in rows:
        for column in columns:
            if column not in row:
                row[column] = _GFX_OF_CU.get(row.get("cu_num", ""), live_gfx) if column == "gfx" else "0"
    kept, dropped = _fastest(rows, [c for c in _KEY if c in columns])
    if dropped:
        notes.append(f"{dropped} rows of the tuned tables have the key of a faster row; AITER itself may refuse to merge them")
    with open(target, "w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, columns)
        writer.writeheader()
        writer.writerows(kept)
    return notes


def _fastest(rows: list[dict[str, str]], key: Sequence[str]) -> tuple[list[dict[str, str]], int]:
    best: dict[tuple[str, ...], int] = {}
    for n, row in enumerate(rows):
        k = tuple(row[c] for c in key)
        if k not in best or _us(row) < _us(rows[best[k]]):
            best[k] = n
    keep = set(best.values())
    return [row for n, row in enumerate(rows) if n in keep], len(rows) - len(keep)


def _us(row: dict[str, str]) -> float:
    try:
        return float(row.get("us", ""))
    except ValueError:
        return float("inf")
