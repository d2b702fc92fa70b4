"""The main command as a user runs it: exit codes and the numbers that must be right, from the installed tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MODEL = "IFM/K2-Horizon-375B-A23B"
SHARED = Path(os.environ["MOE_PREFLIGHT_CORPUS"])
V20 = ["--aiter", str(SHARED / "aiter-trees" / "v0.1.20.post1"), "--aiter-version", "0.1.20.post1"]


def check(*args: str, want: int) -> dict[str, Any]:
    """Run ``moe-preflight check MODEL ...`` and insist on its exit code."""
    command = ["moe-preflight", "check", MODEL, "--offline", "--format", "json", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == want, (
        f"{' '.join(command)}: exit {done.returncode}, wanted {want}\n{done.stderr}{done.stdout[:2000]}"
    )
    print(f"exit {done.returncode}: {' '.join(args) or '(defaults)'}: {done.stderr.strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def problem(report: dict[str, Any], target: int = 0) -> dict[str, Any]:
    layer: dict[str, Any] = report["targets"][target]["layers"][0]
    return layer


def main() -> None:
    wheel = check("--tp", "8", want=0)
    assert wheel["verdict"] == "warn"
    assert wheel["aiter"]["version"].startswith("0.1.7.post2")
    said = " ".join(f["message"] for f in wheel["findings"])
    assert "older than" in said
    assert "power of 2" in said
    if not SHARED.is_dir():
        print("no shared tables: the v0.1.20.post1 numbers are not checked here")
        return
    report = check("--tp", "8,4,2,1", *V20, want=0)
    assert report["verdict"] == "warn"
    assert (report["aiter"]["csv_files"], report["aiter"]["csv_rows"]) == (151, 63527)
    assert (report["aiter"]["moe_csv_files"], report["aiter"]["moe_csv_rows"]) == (63, 3690)
    sizes = [(p["inter_dim"], p["inter_dim_padded"]) for p in (problem(report, 2 * i)["problem"] for i in range(4))]
    assert sizes == [(224, 256), (448, 512), (896, 896), (1792, 1792)], sizes
    padding = problem(report)["padding"]
    assert round(padding["extra_compute_pct"], 1) == 14.3
    assert padding["extra_weight_bytes_per_rank"] == 58 * 192 * 3 * 6144 * 32 * 2
    router = problem(report)["router"]
    assert (router["num_expert_group_naive"], router["num_expert_group"], router["kernel"]) == (6, 8, "biased_grouped_topk")
    assert router["compiled"] is True
    old = check("--tp", "8", "--engine-version", "0.31.0", *V20, want=1)
    errors = {f["code"] for f in old["findings"] if f["severity"] == "error"}
    assert {"MP101", "MP201"} <= errors, errors
    print("key numbers hold")


sys.exit(main())
