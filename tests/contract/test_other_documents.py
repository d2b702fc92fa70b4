"""lint, observe and compare print documents of the report's own schema; every format of theirs renders; same input, same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from moe_preflight.report import schema
from tests.unit.coverage.tables import row, table, tree

jsonschema = pytest.importorskip("jsonschema")
FORMATS = ("text", "json", "markdown", "html", "github", "junit", "sarif")
KEY = "4096, 192, 128, 8, <ActivationType.Silu: 0>, 'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)"
LOG = f"[aiter] [fused_moe] using 2stage default for ('gfx942', 304, 64, {KEY} \n[fused_moe] using \x1b[2J\n[aiter] ck kernel not found: x\n"


def commands(tmp_path: Path) -> dict[str, list[str]]:
    old = str(tree(tmp_path / "old", x_tuned_fmoe=table(row(), row(token="56"), row(token="128", block_m="64"))))
    new = str(tree(tmp_path / "new"))
    log = tmp_path / "engine.log"
    log.write_text(LOG)
    shape = ["--shape", "experts=128,topk=8,hidden=4096,inter=192", "--engine", "aiter", "--gpu", "mi300x"]
    version = ["--aiter-version", "0.1.20.post1"]
    return {
        "lint": ["lint", old, *version],
        "observe": ["observe", str(log), *shape, "--aiter", old, *version],
        "compare": ["compare", *shape, "--aiter", old, "--aiter", new, *version],
    }


def run(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "moe_preflight", *args], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", ["lint", "observe", "compare"])
def test_json_keeps_to_the_schema_and_repeats_itself(tmp_path: Path, command: str) -> None:
    args = [*commands(tmp_path)[command], "--format", "json"]
    first = run(*args)
    errors = jsonschema.Draft202012Validator(json.loads(schema.text())).iter_errors(json.loads(first))
    assert [e.message for e in errors] == []
    assert run(*args) == first


@pytest.mark.parametrize("command", ["lint", "observe", "compare"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_renders(tmp_path: Path, command: str, form: str) -> None:
    out = run(*commands(tmp_path)[command], "--format", form)
    assert out.strip()
    assert "\x1b" not in out
