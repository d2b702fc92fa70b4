"""The exit code is the report's, whatever becomes of stdout and stderr; and no report takes the place of what was read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.test_inputs import ROW, TABLE_HEADER, a_tree

HERE = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "moe_preflight")
CARD = HERE / "configs" / "models" / "IFM__K2-Horizon-375B-A23B.json"
GATE = '[[deployment]]\nmodel = "config.json"\ntp = 8\ngpus = "mi300x"\naiter = { tree = "tree", version = "0.1.20" }\n'
KEY = '{"token": 64, "model_dim": 6144, "inter_dim": 256, "expert": 192, "topk": 8}\n'


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder with one of everything a command reads."""
    a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n")
    shutil.copy(CARD, tmp_path / "config.json")
    (tmp_path / "gate.toml").write_text(GATE)
    (tmp_path / "keys.jsonl").write_text(KEY)
    (tmp_path / "log").write_text("nothing of AITER's\n")
    return tmp_path


V20 = ("--aiter-version", "0.1.20")
AT = ("--aiter", "tree", *V20, "--gpu", "mi300x")
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check", "config.json", "--tp", "8", *AT),
    "advise": ("advise", "config.json", *AT),
    "gate": ("gate", "gate.toml"),
    "audit": ("audit", "config.json", "--tp", "8", *AT),
    "tune": ("tune", "config.json", "--tp", "8", *AT),
    "compare": (
        "compare", "config.json", "--tp", "8", "--gpu", "mi300x", "--aiter", "tree", *V20, "--aiter", "tree", "--aiter-version", "0.1.19",
    ),
    "lint": ("lint", "tree", *V20),
    "observe": ("observe", "log", "config.json", "--tp", "8", *AT),
    "dispatch": ("dispatch", "keys.jsonl", "--gfx", "gfx942", "--cu", "304", "--aiter", "tree", *V20),
    "smoke": ("smoke", "config.json", "--tp", "8", "--backend", "aiter", "--tokens", "1", *AT),
}  # fmt: skip
LISTS = {
    "models": ("models",),
    "advisories": ("advisories",),
    "rule": ("rule", "--all"),
    "help": ("--help",),
    "version": ("--version",),
}


def started(argv: tuple[str, ...], room: Path, redirections: str = "") -> tuple[int, str, str]:
    words = " ".join(f"'{w}'" for w in (*COMMAND, *argv))
    done = subprocess.run(
        ["bash", "-c", f"{words} {redirections}"],
        cwd=room, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_exit_code_is_the_reports(name: str, room: Path) -> None:
    """stderr full or without a reader, stdout without a reader."""
    argv = COMMANDS[name]
    expected, out, _ = started(argv, room)
    for redirections in ("2>/dev/full", "2> >(true)"):
        assert started(argv, room, redirections)[:2] == (expected, out), redirections
    assert started(argv, room, "> >(true)")[0] == expected


@pytest.mark.parametrize("name", LISTS)
def test_a_list_whose_reader_went_away_is_no_finding(name: str, room: Path) -> None:
    assert started(LISTS[name], room, "> >(true)")[0] == 0
    assert started(LISTS[name], room, "> /dev/full")[0] == 2


TABLE = "tree/aiter/configs/tuned_fmoe.csv"
READS = [
    ("check", "config.json"), ("check", TABLE), ("check", "tree/aiter/new.txt"), ("advise", "config.json"), ("advise", TABLE),
    ("gate", "gate.toml"), ("gate", "config.json"), ("gate", TABLE), ("audit", TABLE), ("tune", TABLE), ("tune", "config.json"),
    ("tune", "tree/aiter/configs/untuned_fmoe.csv"), ("compare", TABLE), ("lint", TABLE), ("observe", "log"), ("observe", TABLE),
    ("smoke", "config.json"), ("smoke", TABLE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "linked"), [(*r, False) for r in READS] + [(*READS[0], True), ("tune", TABLE, True)])
def test_no_report_takes_the_place_of_what_was_read(name: str, place: str, linked: bool, room: Path) -> None:
    there = room / place
    before = there.read_bytes() if there.exists() else None
    named = place
    if linked:
        (room / "link").symlink_to(there)
        named = "link"
    code, _, err = started((*COMMANDS[name], "--output", named), room)
    assert code == 2
    assert named in err
    assert (there.read_bytes() if there.exists() else None) == before
    assert not (set(os.listdir(room)) - {"tree", "config.json", "gate.toml", "keys.jsonl", "log", "link"})


@pytest.mark.parametrize("place", ["report.txt", "tree/report.txt", "tree/coverage.csv"])
def test_beside_what_was_read_there_is_room(place: str, room: Path) -> None:
    for _ in range(2):  # the second one replaces the first
        assert started((*COMMANDS["check"], "--output", place), room)[0] == 0
    assert (room / place).read_text()


def test_tables_named_by_a_variable_and_a_models_folder_are_read_too(room: Path) -> None:
    shutil.copy(room / TABLE, room / "mine.csv")
    argv = (*COMMANDS["check"], "--engine-env", "AITER_CONFIG_FMOE=mine.csv", "--output", "mine.csv")
    assert started(argv, room)[0] == 2
    (room / "model").mkdir()
    shutil.copy(CARD, room / "model" / "config.json")
    for name, code in (("config.json", 2), ("report.json", 0)):
        assert started(("check", "model", "--tp", "8", *AT, "--output", f"model/{name}"), room)[0] == code


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [(("--tp", "7"), 1, "FAIL"), (("--tp", "0"), 1, "FAIL"), (("--tp", "8", "--engine-env", "VLLM_ROCM_USE_AITER=0"), 0, "WARN")],
)
def test_nothing_to_tune_is_no_pass_when_nothing_reaches_aiter(more: tuple[str, ...], code: int, word: str, room: Path) -> None:
    """A split the engine refuses fails, as in check; experts that run elsewhere are said, not passed over."""
    for fail_on, expected in (("error", code), ("never", 0)):
        got, _, err = started(("tune", "config.json", *more, *AT, "--fail-on", fail_on), room)
        assert got == expected
        assert f"moe-preflight: {word}: 0 keys to tune" in err


def test_a_row_that_makes_aiter_raise_is_named_and_the_shape_is_not_blamed(room: Path) -> None:
    nameless = ROW.replace("moe_ck2stages_gemm1_x", "").replace("moe_ck2stages_gemm2_x", "")
    (room / TABLE).write_text(f"{TABLE_HEADER}\n{nameless}\n")
    shape = ("--shape", "experts=64,topk=8,hidden=4096,inter=256")
    code, out, _ = started(("tune", *shape, *AT, "--engine", "aiter", "--format", "json"), room)
    assert code == 1
    (lost,) = json.loads(out)["hopeless"]
    assert lost["tokens"] == [64]
    assert "tuned_fmoe.csv:2 makes AITER raise" in lost["reason"]
