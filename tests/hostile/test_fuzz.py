"""The fuzzer's properties, over a fixed few inputs each; ``python -m tests.hostile.fuzz --minutes 10`` runs them for longer."""

from __future__ import annotations

import pytest

from tests.hostile.fuzz import PROPERTIES, UNSAFE, Done, as_test, hold, main

EXAMPLES = 25


@pytest.mark.parametrize("name", PROPERTIES)
def test_any_input_gives_a_report_or_a_line(name: str) -> None:
    as_test(name, EXAMPLES)()


def test_a_campaign_runs_and_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "0.02", "--seed", "1", "--only", "keys"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("seed 1\n")
    assert "0 properties failed" in out


@pytest.mark.parametrize(
    "done",
    [
        Done(("check",), 0, "", "", 0.1, raised="Traceback ..."),
        Done(("check",), 0, "\x1b[31m", "", 0.1),
        Done(("check",), 0, "", "\u202e", 0.1),
        Done(("check",), 70, "", "x", 0.1),
        Done(("check",), 2, "", "", 0.1),
        Done(("check",), 0, "", "", 60.0),
    ],
    ids=["raised", "escape", "bidi", "exit", "silent", "slow"],
)
def test_the_fuzzer_can_fail(done: Done) -> None:
    with pytest.raises(AssertionError):
        hold(done, target="self")


def test_plain_text_is_safe() -> None:
    assert not UNSAFE.search("a line\nand another: ~ é 漢\n")
