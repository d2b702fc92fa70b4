"""``[tool.moe-preflight]``: defaults of check, below the environment and the flags, strict, and no way to write a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SHAPE = ("--shape", "experts=128,topk=8,hidden=4096,inter=1536", "--no-tuned")


def run(cwd: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MOE_PREFLIGHT_")}
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", *SHAPE, *args],
        capture_output=True, text=True, timeout=60, check=False, cwd=cwd, env=clean | env,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def deployments(cwd: Path, *args: str, **env: str) -> list[dict[str, Any]]:
    done = run(cwd, "--format", "json", *args, **env)
    return [t["deployment"] for t in json.loads(done.stdout)["targets"]]


def table(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    file = folder / name
    file.write_text(f"[project]\nname = 'x'\n\n[tool.moe-preflight]\n{text}\n")
    return file


def test_flag_then_environment_then_table(tmp_path: Path) -> None:
    table(tmp_path, 'gpu = "mi300x"\ntp = [8, 4]\nengine_version = "0.31.0"\nep = true')
    found = deployments(tmp_path)
    assert [(d["tp"], d["gpu"], d["engine_version"], d["ep"]) for d in found] == [
        (8, "mi300x", "0.31.0", True),
        (4, "mi300x", "0.31.0", True),
    ]
    assert {d["engine_version"] for d in deployments(tmp_path, MOE_PREFLIGHT_ENGINE_VERSION="0.30.0")} == {"0.30.0"}
    (flagged,) = deployments(
        tmp_path, "--tp", "2", "--no-ep", "--gpu", "mi355x", "--engine-version", "0.32.0", MOE_PREFLIGHT_ENGINE_VERSION="0.30.0"
    )
    assert (flagged["tp"], flagged["gpu"], flagged["engine_version"], flagged["ep"]) == (2, "mi355x", "0.32.0", False)
    (by_hand,) = deployments(tmp_path, "--tp", "8", "--gfx", "gfx942", "--cu", "80")
    assert by_hand["cu_num"] == 80


def test_it_is_said_which_defaults_hold(tmp_path: Path) -> None:
    table(tmp_path, 'fail-on = "never"\ngpu = "mi300x"')
    assert "moe-preflight: defaults from pyproject.toml: fail_on, gpu\n" in run(tmp_path).stderr


def test_policy_keys_work(tmp_path: Path) -> None:
    table(tmp_path, 'fail_on = "warning"\nselect = ["MP6"]\ngpu = "mi300x"\naiter_version = "0.1.20.post1"')
    assert run(tmp_path).returncode == 1
    assert run(tmp_path, "--fail-on", "error").returncode == 0
    table(tmp_path, 'fail_on = "warning"\nignore = "MP6"\nselect = ["MP6"]\ngpu = "mi300x"\nformat = "json"')
    done = run(tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["findings"] == []


def test_config_names_another_file(tmp_path: Path) -> None:
    other = table(tmp_path, 'gpu = "mi300x"', "other.toml")
    table(tmp_path, 'gpu = "mi355x"')
    assert [d["gpu"] for d in deployments(tmp_path, "--config", str(other))] == ["mi300x"]
    assert [d["gpu"] for d in deployments(tmp_path)] == ["mi355x"]
    (tmp_path / "none.toml").write_text("[tool.other]\na = 1\n")
    done = run(tmp_path, "--config", "none.toml")
    assert done.returncode == 2
    assert "holds no [tool.moe-preflight] table" in done.stderr
    assert run(tmp_path, "--config", "no-such.toml").returncode == 2


@pytest.mark.parametrize(
    "text",
    ["[tool.'moe-preflight']\ngpu = 'mi300x'", '[ tool . "moe-preflight" ]\ngpu = "mi300x"', '[tool]\nmoe-preflight = { gpu = "mi300x" }',
     'tool.moe-preflight.gpu = "mi300x"', 'tool = { moe-preflight = { gpu = "mi300x" } }'],
)  # fmt: skip
def test_every_spelling_of_the_table_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert [d["gpu"] for d in deployments(tmp_path)] == ["mi300x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpuu = 'mi300x'", "tool.moe-preflight.gpuu: unknown key. Did you mean gpu?"),
        ("tp = 8.0", "tp: 8.0 (a float)"),
        ("tp = true", "tp: true (a boolean)"),
        ("tp = '8'", "tp: '8' (a string)"),
        ("ep = 1", "ep: 1 (an integer)"),
        ("fail_on = 'warn'", "Did you mean warning?"),
        ("offline = 'yes'", "offline: 'yes' (a string)"),
        ("engine_env = ['A=1']", "engine_env: an array"),
        ("output = 'x'", "output: unknown key"),
        ("format = 'json=x'", "names a file"),
        ("ask_aiter = true", "ask_aiter: unknown key"),
        ("smoke = true", "smoke: unknown key"),
        ("tp = 8\ntp = 4", "not TOML"),
        ("tp = ", "not TOML"),
    ],
)
def test_a_wrong_table_is_2_and_one_line(text: str, said: str, tmp_path: Path) -> None:
    table(tmp_path, text)
    done = run(tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["pyproject.toml"]


def test_a_file_without_the_table_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\ndependencies = ['moe-preflight']\n[tool.ruff]\n")
    code = (
        "import sys\nfrom moe_preflight.cli.app import run\n"
        f"sys.argv = ['moe-preflight', 'check', *{SHAPE!r}, '--fail-on', 'never', '--output', 'out']\n"
        "try:\n    run()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "assert 'tomllib' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "pyproject.toml").write_text("this is = not [ TOML")
    assert run(tmp_path).returncode == 0


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pyproject.toml")
    done = run(tmp_path)
    assert done.returncode == 2
    assert "pyproject.toml: not a regular file" in done.stderr


def test_help_does_not_read_it(tmp_path: Path) -> None:
    table(tmp_path, "nonsense = 1")
    done = run(tmp_path, "--help")
    assert done.returncode == 0
