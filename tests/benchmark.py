"""Whole-process times and peak memory, as ratios within one run: `python -m tests.benchmark --aiter TREE`.

No pass or fail: machines differ and are noisy. Each command runs in turn with the others (A B C A B C ...), so that a slow
moment hits all of them; medians are shown. The yardstick is AITER's own way, pandas reading and merging the same tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

PANDAS_MERGE = """
import sys, pathlib, pandas as pd
frames = [pd.read_csv(p) for p in sorted(pathlib.Path(sys.argv[1]).rglob("*tuned_fmoe*.csv")) if "untuned" not in p.name]
merged = pd.concat(frames, ignore_index=True)
keys = [c for c in ("gfx cu_num token model_dim inter_dim expert topk act_type dtype q_dtype_a q_dtype_w q_type use_g1u1 "
        "doweight_stage1 _tag").split() if c in merged]
merged.duplicated(subset=keys).sum()
merged.set_index(keys, drop=True).to_dict("index") if not merged.duplicated(subset=keys).any() else None
"""

SCAN = """
import sys
from moe_preflight.aiter.tree import open_tree
from moe_preflight.aiter.tuned import load
from moe_preflight.aiter.facts.dispatch_rules import rules_for
from moe_preflight.aiter.version import Version
load(open_tree(sys.argv[1]), rules_for(Version.of(sys.argv[2])))
"""

LOOKUPS = """
import json, sys, time
from moe_preflight.aiter.basis import open_basis
from moe_preflight.aiter.rawkey import reader
from moe_preflight.hardware import by_hand
dispatcher = open_basis(sys.argv[1], asked_version=sys.argv[2], pin=None, tuned=True).dispatcher(by_hand("gfx950", 256))
read = reader("gfx950")
keys = [read(json.loads(line))[0] for line in open(sys.argv[3])]
start = time.perf_counter()
for k in keys:
    dispatcher.dispatch(k)
print(len(keys) / (time.perf_counter() - start) * 60)
"""


@dataclass
class Row:
    """One command and what its runs took: seconds of wall time, KiB of peak memory."""

    name: str
    command: list[str]
    stdin: bytes = b""
    wall: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)


def run_once(row: Row) -> None:
    """Run the command once and add its figures; its output is thrown away, its exit code is not looked at."""
    start = time.perf_counter()
    p = subprocess.Popen(row.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert p.stdin is not None
    try:
        p.stdin.write(row.stdin)
    except BrokenPipeError:
        pass
    finally:
        p.stdin.close()
    _, _, usage = os.wait4(p.pid, 0)
    row.wall.append(time.perf_counter() - start)
    row.peak.append(usage.ru_maxrss)


def rows(tree: str, version: str, folder: Path) -> list[Row]:
    """The commands to time; the config judged is the bundled K2-Horizon card."""
    py = sys.executable
    tool = [py, "-m", "moe_preflight"]
    keys = folder / "keys.jsonl"
    keys.write_text("".join(json.dumps(key(i)) + "\n" for i in range(KEYS)), encoding="utf-8")
    out = [
        Row("bare interpreter", [py, "-c", "pass"]),
        Row("--version", [*tool, "--version"]),
        Row("--help", [*tool, "--help"]),
        Row(
            "check, two GPUs, all buckets",
            [*tool, "check", "IFM/K2-Horizon-375B-A23B", "--offline", "--tp", "8", "--aiter", tree, "--aiter-version", version],
        ),
        Row("table scan alone", [py, "-c", SCAN, tree, version]),
        Row(
            f"dispatch, {KEYS:,} keys",
            [*tool, "dispatch", "--aiter", tree, "--aiter-version", version, "--gfx", "gfx950", "--cu", "256", str(keys)],
        ),
    ]
    if find_spec("pandas") is None:  # not imported: this process stays small, so that its children's peak is their own
        print("pandas is not installed: no yardstick row", file=sys.stderr)
    else:
        out.append(Row("pandas reads and merges the MoE tables", [py, "-c", PANDAS_MERGE, str(Path(tree) / "aiter" / "configs")]))
    return out


KEYS = 20_000


def key(i: int) -> dict[str, object]:
    """The i-th of a deterministic stream of different keys."""
    return {
        "token": 1 << (i % 15), "model_dim": 1024 * (1 + i % 9), "inter_dim": 128 * (1 + i % 23), "expert": 8 * (1 + i % 48), "topk": 1 + i % 9,
        "act": "silu", "dtype": "bf16", "q_dtype_w": ("bf16", "fp8", "fp4x2")[i % 3], "q_type": ("No", "per_Token", "per_1x32")[i % 3],
        "use_g1u1": 1, "doweight_stage1": 0,
    }  # fmt: skip


def show(table: list[Row]) -> None:
    """Medians, and every time as a multiple of the bare interpreter and of the pandas row."""
    wall = {r.name: statistics.median(r.wall) for r in table}
    bare, pandas = wall["bare interpreter"], wall.get("pandas reads and merges the MoE tables")
    print(f"{'':42}{'ms':>8}{'x bare':>8}{'x pandas':>10}{'MiB':>7}   (median of {len(table[0].wall)})")
    for r in table:
        vs = f"{wall[r.name] / pandas:.2f}" if pandas else "-"
        print(f"{r.name:42}{wall[r.name] * 1000:8.0f}{wall[r.name] / bare:8.1f}{vs:>10}{statistics.median(r.peak) / 1024:7.0f}")
    print(f"\n{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--aiter", required=True, help="a folder that holds aiter/configs")
    ap.add_argument("--aiter-version", default="0.1.20.post1")
    ap.add_argument("-n", "--runs", type=int, default=7)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = rows(a.aiter, a.aiter_version, Path(folder))
        for i in range(a.runs + 1):
            for r in table:
                run_once(r)
            if i == 0:  # warm-up: byte code and page cache
                for r in table:
                    r.wall.clear()
                    r.peak.clear()
        rates = [
            float(subprocess.check_output([sys.executable, "-c", LOOKUPS, a.aiter, a.aiter_version, f"{folder}/keys.jsonl"]))
            for _ in range(3)
        ]
    show(table)
    print(
        f"in one process: {statistics.median(rates) / 1e6:.1f} million different keys looked up a minute, tiles and acceptance included"
    )


if __name__ == "__main__":
    main()
