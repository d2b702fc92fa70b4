"""The command line as a person meets it: mistyped words, ids of all kinds, ctrl-C at any moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

from moe_preflight.advisories.data import ALL
from moe_preflight.cli.app import COMMANDS


def run(*args: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "moe_preflight", *args], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("typed", "meant"), [("chekc", "check"), ("advisory", "advisories"), ("DISPATCH", "dispatch")])
def test_a_mistyped_command_is_one_line_with_a_guess(typed: str, meant: str) -> None:
    code, out, err = run(typed, "x")
    assert (code, out) == (2, "")
    assert err.startswith(f"moe-preflight: error: {typed}: no such command. Did you mean {meant}?")
    assert err.count("\n") == 1


def test_a_word_like_no_command_gets_no_guess() -> None:
    assert "Did you mean" not in run("zzzzz")[2]


@pytest.mark.parametrize("word", [ALL[0].id, ALL[-1].id.lower()])
@pytest.mark.parametrize("format", ["text", "json"])
def test_rule_answers_for_an_advisory_too(word: str, format: str) -> None:
    assert run("rule", word, "--format", format) == run("advisories", word, "--format", format)


def test_rule_points_to_the_list_for_an_unknown_advisory() -> None:
    code, _, err = run("rule", "MPA-9999")
    assert code == 2
    assert "moe-preflight advisories" in err


INTERRUPTED = """
import sys
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
sys.argv = ["moe-preflight", *{argv!r}]
from moe_preflight.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["moe_preflight.cli.app", "typer", "moe_preflight.errors", "moe_preflight.cli.models", "json"])
def test_ctrl_c_while_modules_are_loaded_is_silent(name: str) -> None:
    code = INTERRUPTED.format(name=name, argv=["models", "--format", "json"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    if name == "json" and done.returncode == 0:
        pytest.skip("json was loaded before")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"moe-preflight {command}" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("word", ["\x1b]0;title\x07", "\u202e", "\x9b31m", "--\x1b[31m", "--dp=\x1b[2J", "a\u2066b"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_word_reaches_no_terminal_raw(command: str, word: str) -> None:
    """The parser itself repeats what it refuses: extra arguments, unknown options, wrong numbers."""
    from tests.hostile.fuzz import UNSAFE, invoke

    done = invoke(command, "one", "two", "three", word)
    assert done.code != 0
    assert not UNSAFE.search(done.err + done.out), done.err
