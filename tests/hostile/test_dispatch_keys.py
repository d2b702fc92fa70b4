"""Keys from anywhere: each is answered in its place, one line says what is wrong, nothing is a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.aiter.tuned import DEFAULT
from tests.unit.aiter.tables import OLD, row, table

GOOD = {
    "token": 16,
    "model_dim": 4096,
    "inter_dim": 256,
    "expert": 64,
    "topk": 8,
    "act": "silu",
    "dtype": "bf16",
    "q_dtype_w": "bf16",
    "q_type": "No",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree" / DEFAULT
    path.parent.mkdir(parents=True)
    path.write_text(table(OLD, row(OLD)))
    return tmp_path / "tree"


def run(tree: Path, data: bytes, *more: str, version: str = "0.1.20") -> tuple[int, list[dict[str, Any]], list[str]]:
    command = [sys.executable, "-m", "moe_preflight", "dispatch", "--aiter", str(tree), "--aiter-version", version]
    done = subprocess.run([*command, "--gfx", "gfx942", "--cu", "304", *more, "-"], input=data, capture_output=True, check=False)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err
    return done.returncode, [json.loads(x) for x in out.splitlines()], err.splitlines()


BAD: list[bytes] = [
    b"{",
    b"[]",
    b"null",
    b'"token"',
    b"{}",
    b"\xff\xfe\x00",
    b'{"token": 1e400}',
    b'{"token": NaN}',
    b'{"token": ' + b"9" * 5000 + b"}",
    b"[" * 30000,
    b'{"token": "' + b"x" * 70000 + b'"}',
    json.dumps({**GOOD, "token": -5}).encode(),
    json.dumps({**GOOD, "act": "\x1b[31m\u202e"}).encode(),
    json.dumps({**GOOD, "\ud800": 1}).encode(),
]


def test_bad_keys_are_answered_in_their_place(tree: Path) -> None:
    good = json.dumps(GOOD).encode()
    lines = [x for bad in BAD for x in (bad, good)]
    code, out, err = run(tree, b"\n".join(lines) + b"\n")
    assert code == 2
    assert len(out) == len(lines)
    assert all("error" in o for o in out[::2])
    assert all(o["row"] == f"{DEFAULT}:2" for o in out[1::2])
    assert [e.split(":")[1].strip() for e in err] == [f"key {n}" for n in range(1, len(lines), 2)]
    assert all(e.isprintable() and len(e) < 600 for e in err)


def test_blank_lines_are_no_keys_and_an_empty_file_is_fine(tree: Path) -> None:
    assert run(tree, b"\n  \n") == (0, [], [])
    code, out, _ = run(tree, b"\n" + json.dumps(GOOD).encode())
    assert (code, len(out)) == (0, 1)


def test_what_aiter_raises_is_no_bad_key(tree: Path) -> None:
    code, out, err = run(tree, json.dumps({**GOOD, "expert": 0}).encode())
    assert (code, out[0]["raised_by"], err) == (0, "aiter", [])


@pytest.mark.parametrize("label", ["HEAD", "main", "e4048607", "HEAD-e4048607", "main-2026-08-22"])
def test_a_branch_or_commit_is_main_and_unverified(tree: Path, label: str) -> None:
    code, out, err = run(tree, json.dumps(GOOD).encode(), version=label)
    assert (code, out[0]["confidence"], len(err)) == (0, "unverified", 1)
    assert "taken for main" in err[0]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--aiter-version", "banana"], "not a version"),
        (["--gfx", "mi300"], "not a gfx architecture"),
        (["--aiter-env", "AITER_KSPLIT"], "no NAME=VALUE"),
        (["--aiter", "/nowhere/at/all"], "no such file"),
    ],
)
def test_a_flag_that_makes_no_sense_is_one_line(tree: Path, more: list[str], text: str) -> None:
    code, out, err = run(tree, b"", *more)
    assert code in (2, 3)
    assert (out, len(err)) == ([], 1)
    assert text in err[0]


def test_answers_come_as_keys_come(tree: Path) -> None:
    """A reader at the other end of a pipe gets an answer before it sends the next key."""
    command = [sys.executable, "-m", "moe_preflight", "dispatch", "--aiter", str(tree), "--aiter-version", "0.1.20"]
    process = subprocess.Popen(
        [*command, "--gfx", "gfx942", "--cu", "304", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for token in (1, 2, 3):
        process.stdin.write(json.dumps({**GOOD, "token": token}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["key"]["token"] == token
    process.stdin.close()
    assert process.wait(timeout=30) == 0
