"""`check --smoke`: what the torch backend says is appended, and no verdict about AITER rests on it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="check --smoke launches with torch")

SHAPE = (
    "--shape",
    "experts=8,topk=2,hidden=256,inter=448",
    "--tp",
    "2",
    "--engine-version",
    "0.32.0",
    "--no-tuned",
    "--gpu",
    "mi300x",
)


def check(*args: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", *SHAPE, "--aiter-version", "0.1.20.post1", "--format", "json", *args],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_torch_appends_observations_and_leaves_the_verdict() -> None:
    plain_code, plain = check()
    code, report = check("--smoke", "--smoke-backend", "torch", "--smoke-tokens", "1,8")
    assert (code, report["verdict"]) == (plain_code, plain["verdict"])
    assert [o["status"] for o in report["observations"]] == ["ok", "ok"]
    assert all(o["rel_err"] < o["tolerance"] for o in report["observations"])
    assert any("AITER" in n["what"] for n in report["not_evaluated"])
    assert report["findings"] == plain["findings"]


def test_auto_without_rocm_is_inconclusive_and_says_what_is_missing() -> None:
    import torch

    if torch.version.hip:
        pytest.skip("this machine has a ROCm build of torch")
    code, report = check("--smoke")
    assert (code, report["verdict"]) == (3, "inconclusive")
    assert any("ROCm" in n["why"] for n in report["not_evaluated"])
