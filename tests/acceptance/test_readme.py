"""The README is a product: its report is what the tool prints, its commands exist, and no placeholder is left in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moe_preflight.cli.app import COMMANDS
from tests.corpus import corpus, needs_corpus

README = Path(__file__).resolve().parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")
SHOWN_ROOT = "/opt/aiter"


def block(name: str) -> str:
    """The fenced block after the marker ``<!-- name -->``."""
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)\n?```", TEXT, re.S)
    assert found, name
    return found.group(1)


def test_every_command_is_named_and_every_named_command_exists() -> None:
    table = TEXT[TEXT.index("| command | question |") : TEXT.index("Every command's `--help`")]
    named = set(re.findall(r"^\| `([a-z]+)|, `([a-z]+)", table, re.M))
    assert {a or b for a, b in named} == set(COMMANDS)


def test_no_placeholder_and_no_private_path() -> None:
    assert not re.findall(r"\b[A-Z]+_TABLE\b|TODO|FIXME|/work/|/tmp/|/root/", TEXT)


@pytest.mark.parametrize("name", ["set-up", "tests"])
def test_set_up_commands_are_one_line(name: str) -> None:
    assert len(block(name).splitlines()) == 1


@needs_corpus
def test_the_report_is_what_the_tool_prints() -> None:
    tree = str(corpus("aiter-trees", "v0.1.20.post1").resolve())
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "check", "IFM/K2-Horizon-375B-A23B", "--tp", "8", "--gpu", "mi300x", "--offline",
         "--aiter", tree, "--aiter-version", "0.1.20.post1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The path is another one and longer, so lines break elsewhere: the words are compared.
    printed = done.stdout.replace(tree, SHOWN_ROOT).split()
    assert printed == block("report").split()
