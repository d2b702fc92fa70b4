"""A short, miscased or misspelt name of a model we have a card of gets the right one, in one line, from every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moe_preflight.errors import PreflightError
from moe_preflight.model import cards
from moe_preflight.model.source import resolve

HORIZON = "IFM/K2-Horizon-375B-A23B"


@pytest.mark.parametrize(
    "name",
    [
        "k2-horizon", "K2_HORIZON", "k2horizon", "K2-Horizon-375B-A23B", "ifm/k2-horizon", "IFM/K2-Horizn-375B-A23B", "k2-horzon",
        "other/K2-Horizon-375B-A23B", "k2 horizon",
    ],
)  # fmt: skip
def test_what_may_be_meant(name: str) -> None:
    assert cards.close_to(name) == [HORIZON]
    with pytest.raises(PreflightError) as caught:
        resolve(name, offline=True)
    assert f"Did you mean {HORIZON}? " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nosuchthing", "bert-base", "k2", "x", "", "org/m", "\u202e\u202e\u202e", "a" * 5000])
def test_what_means_nothing_gets_no_guess(name: str) -> None:
    assert cards.close_to(name) == []


def test_several_are_named_and_no_more_than_three() -> None:
    assert cards.close_to("gpt-oss") == ["openai/gpt-oss-20b", "openai/gpt-oss-120b"]
    assert len(cards.close_to("qwen3")) == 3
    with pytest.raises(PreflightError, match=r"Did you mean openai/gpt-oss-20b or openai/gpt-oss-120b\?"):
        resolve("gpt-oss", offline=True)


def test_every_card_is_found_by_its_bare_name_in_small_letters() -> None:
    for card in cards.ids():
        assert cards.close_to(card.rpartition("/")[2].lower())[0] == card


def test_the_card_of_another_revision_is_no_misspelling() -> None:
    with pytest.raises(PreflightError) as caught:
        resolve(HORIZON, revision="v9", offline=True)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("command", ["check", "audit", "advise", "tune"])
def test_every_command_that_takes_a_model_asks(command: str, tmp_path: Path) -> None:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "COLUMNS": "1000"}
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", command, "k2-horizon", "--no-tuned"] if command not in ("tune", "audit")
        else [sys.executable, "-m", "moe_preflight", command, "k2-horizon"],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = " ".join((done.stdout + done.stderr).split())
    assert f"Did you mean {HORIZON}?" in said
    assert "Traceback" not in said
