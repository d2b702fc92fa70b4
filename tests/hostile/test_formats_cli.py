"""The command line's output under hostile names, configs, readers and company: one report, one exit code, whatever happens to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from moe_preflight.report.formats import FORMATS

CHECK = [sys.executable, "-m", "moe_preflight", "check", "--no-tuned", "--gpu", "mi300x", "--aiter-version", "v0.1.20.post1"]
NAME = "\x1b[31m::error::\u202ex%0A|`<b>##[error]"


def run(*args: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, "check": False} | more
    return subprocess.run([*CHECK, *args], **given)  # type: ignore[call-overload,no-any-return]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose file and strings are hostile; it can be judged all the same."""
    folder = tmp_path_factory.mktemp("hostile") / NAME
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["MixtralForCausalLM" + NAME],
                "model_type": NAME,
                "hidden_size": 4096,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "torch_dtype": "bfloat16",
            }
        )
    )
    return str(folder)


@pytest.fixture(scope="module")
def exit_code(config: str) -> int:
    done = run(config)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode


@pytest.mark.parametrize("name", FORMATS)
def test_a_hostile_config_gives_a_report_that_parses_and_the_same_exit_code(name: str, config: str, exit_code: int) -> None:
    done = run(config, "--format", name, "--color", "auto")
    assert done.returncode == exit_code
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    out = done.stdout.decode()
    assert "\u202e" not in out
    lines = out.splitlines()
    if name != "github":
        assert not [x for x in lines if x.lstrip().startswith("::") or re.search(r"##\w*\[", x)]
    else:
        assert all(re.match(r"::(error|warning|notice) [^:]*::", x) for x in lines[:-1])
    if name in ("json", "sarif"):
        json.loads(out)
    if name == "junit":
        ET.fromstring(done.stdout)


@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_that_left_changes_nothing(name: str, config: str, exit_code: int) -> None:
    read, write = os.pipe()
    os.close(read)
    done = run(config, "--format", name, stdout=write)
    os.close(write)
    assert done.returncode == exit_code
    assert done.stderr.count(b"\n") <= 1
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_files_are_the_same_bytes_as_stdout(config: str, exit_code: int, tmp_path: Path) -> None:
    wanted = [x for name in FORMATS for x in ("--format", f"{name}={tmp_path / name}")]
    done = run(config, *wanted, "--output", str(tmp_path / "main"))
    assert done.returncode == exit_code
    assert done.stdout == b""
    assert {p.name for p in tmp_path.iterdir()} == {*FORMATS, "main"}
    for name in ("json", "html"):
        assert (tmp_path / name).read_bytes() == run(config, "--format", name).stdout


def test_a_report_that_cannot_be_written_is_exit_2_and_the_text_is_still_there(config: str, tmp_path: Path) -> None:
    done = run(config, "--format", f"json={tmp_path / 'no' / 'a'}")
    assert done.returncode == 2
    assert done.stdout
    assert done.stderr.count(b"\n") == 1
    assert b"make it first" in done.stderr


def test_runs_at_once_leave_one_whole_report(config: str, exit_code: int, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    command = [*CHECK, config, "--format", "json", "--output", str(out)]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(4)]
    assert {p.wait(timeout=60) for p in runs} == {exit_code}
    assert json.loads(out.read_bytes())["schema_version"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("value", ["jsno", "json=", "=", "json\x1b=x", "\x1b[31m", "x" * 5000, "\udcff", "::error::"])
def test_a_format_that_is_none_is_one_clean_line(value: str, config: str) -> None:
    done = run(config, f"--format={value}")
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"moe-preflight: error: --format")
    assert done.stderr.count(b"\n") == 1
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.stderr)
