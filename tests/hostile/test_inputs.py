"""Hostile inputs of every sort, through the real command in a process of its own where the process is what is tested.

What must hold: no traceback, no hang, no green result by accident, one line that says what, where and what to do, the exit
code of the table in ``--help``, no raw control character, and nothing written but what was asked for.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.fuzz import BARE, LINE, SHAPE, TABLE_HEADER, TABLE_ROW, Done, hold, hold_report, invoke

CONFIGS = Path(__file__).parent / "corpus" / "configs"
COMMAND = [sys.executable, "-m", "moe_preflight"]
K2 = str(Path(__file__).resolve().parents[2] / "configs" / "models" / "IFM__K2-Horizon-375B-A23B.json")
V20 = ("--aiter-version", "v0.1.20.post1")
ROW = TABLE_ROW.format(token=64, us="10")


def run(*argv: str, stdin: bytes = b"", seconds: float = 30, env: dict[str, str] | None = None, memory: int = 0) -> Done:
    """The command in its own process, offline, for at most ``seconds`` by the clock. ``memory`` bounds its address space, in MiB."""

    def bound() -> None:
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory << 20, memory << 20))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*COMMAND, *argv],
        input=stdin,
        capture_output=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **(env or {})},
        preexec_fn=bound,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Done(argv, done.returncode, out, err, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def a_tree(folder: Path, **tables: str | bytes) -> Path:
    """A tree with these tables: ``default`` is tuned_fmoe.csv, any other name a model's."""
    configs = folder / "tree" / "aiter" / "configs"
    (configs / "model_configs").mkdir(parents=True)
    for name, content in tables.items():
        path = configs / "tuned_fmoe.csv" if name == "default" else configs / "model_configs" / f"{name}_tuned_fmoe.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "tree"


def report(*argv: str, **more: Any) -> tuple[Done, Any]:
    done = invoke(*argv, "--format", "json", **more)
    return done, hold_report(done, target="inputs")


# ---- configs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda p: p.stem)
def test_the_corpus_of_configs(path: Path) -> None:
    """A file's name starts with the exit code it must give."""
    done, doc = report("check", str(path), *BARE)
    assert done.code == int(path.name[0]), done.out
    if done.code == 2:
        errors = [f for f in doc["findings"] if f["severity"] == "error"]
        assert [f["code"] for f in errors] == ["MP502"]
        assert "\n" not in errors[0]["message"]
        assert errors[0]["remedy"]


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"\0" * 1000, b" " * 20_000_000])
def test_depth_and_length_are_bounded(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text)
    done, doc = report("check", str(tmp_path), *BARE)
    assert (done.code, doc["verdict"]) == (2, "fail")


def special(folder: Path, kind: str) -> Path:
    path = folder / "config.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link loop":
        path.symlink_to(path)
    elif kind == "dangling link":
        path.symlink_to(folder / "nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "sparse":
        with path.open("wb") as f:
            f.truncate(1 << 32)
    else:
        path.symlink_to(kind)
    return path


@pytest.mark.parametrize(
    "kind", ["fifo", "link loop", "dangling link", "folder", "sparse", "/dev/zero", "/dev/random", "/dev/null"]
)
def test_what_is_no_plain_file_is_named_and_not_waited_for(kind: str, tmp_path: Path) -> None:
    path = special(tmp_path, kind)
    done = hold(run("check", str(path), *BARE, memory=400), target="inputs")
    assert done.code == 2
    assert "config.json" in "".join(done.out.split()), "a long path may be broken over lines"


def test_the_same_stdin_twice_and_a_flood(tmp_path: Path) -> None:
    config = Path(K2).read_bytes()
    twice, doc = report("check", "-", "-", *BARE, stdin=config)
    assert twice.code == 2
    assert len(doc["targets"]) == 1
    flood = hold(run("check", "-", *BARE, stdin=b" " * 40_000_000, memory=600), target="inputs")
    assert flood.code == 2


def test_names_are_shown_escaped() -> None:
    for name in ("\x1b[31mred/x", "a\u202eb/c", "a/b\nc", "..", "x" * 4000):
        done = hold(invoke("check", name, *BARE), target="inputs")
        assert done.code in (2, 3), name


def test_the_order_of_models_decides_nothing_but_their_order() -> None:
    models = [K2, str(CONFIGS / "0-plain.json"), str(CONFIGS / "2-nan.json"), str(CONFIGS / "3-dense.json")]
    seen = set()
    for order in permutations(models):
        done, doc = report("check", *order, *BARE, "--tp", "8")
        verdicts = tuple(sorted((t["model"], t["verdict"]) for t in doc["targets"]))
        seen.add((done.code, doc["verdict"], verdicts, tuple(sorted((f["code"], f["severity"]) for f in doc["findings"]))))
    assert len(seen) == 1


# ---- tables and trees ------------------------------------------------------------------------------------------------

TABLES: dict[str, bytes] = {
    "empty": b"",
    "ragged": f"{TABLE_HEADER}\n{ROW}\n{ROW},x,y,z\n".encode(),
    "short": f"{TABLE_HEADER}\ngfx942,304,64\n".encode(),
    "quote": f'{TABLE_HEADER}\n"gfx942,304\n{ROW}\n'.encode(),
    "nul": f"{TABLE_HEADER}\n{ROW}\0\n".encode(),
    "utf-16": f"{TABLE_HEADER}\n{ROW}\n".encode("utf-16"),
    "latin-1": f"{TABLE_HEADER}\n{ROW}\xff\n".encode("latin-1"),
    "cr": f"{TABLE_HEADER}\r{ROW}\r".encode(),
    "no topk": f"{TABLE_HEADER.replace('topk', 'tpk')}\n{ROW}\n".encode(),
    "long cell": f"{TABLE_HEADER}\n{ROW}{'x' * 5_000_000}\n".encode(),
    "wide row": f"{TABLE_HEADER}\n{ROW}\n{',' * 300_000}\n".encode(),
}


@pytest.mark.parametrize("name", TABLES)
def test_any_table_beside_a_good_one(name: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n", other=TABLES[name])
    done, _ = report("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi300x")
    assert done.code in (0, 1)
    hold(invoke("lint", str(tree), *V20), target="inputs")


@pytest.mark.parametrize("name", ["ragged", "nul", "utf-16", "latin-1"])
def test_an_unreadable_table_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n", other=TABLES[name])
    _, doc = report("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi300x")
    named = [e for f in doc["findings"] if f["code"] == "MP303" for e in f["evidence"]]
    assert [Path(e["file"]).name for e in named] == ["other_tuned_fmoe.csv"]
    assert named[0]["line"] is not None


@pytest.mark.parametrize("kind", ["fifo", "link loop", "dangling link", "folder", "sparse", "/dev/zero", "/etc/passwd"])
def test_special_files_among_the_tables_are_not_opened(kind: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n")
    special(tmp_path, kind).rename(tree / "aiter" / "configs" / "model_configs" / "z_tuned_fmoe.csv")
    argv = ("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi300x")
    done = hold(run(*argv, memory=400), target="inputs")
    assert "root:" not in done.out


def test_a_tree_of_links_is_the_tree(tmp_path: Path) -> None:
    """uv's symlink mode and ``cp -rs`` link every file to a store elsewhere."""
    store = a_tree(tmp_path / "store", default=f"{TABLE_HEADER}\n{ROW}\n", other=f"{TABLE_HEADER}\n".encode())
    linked = tmp_path / "linked"
    for path in sorted(store.rglob("*")):
        if path.is_file():
            (linked / path.relative_to(store)).parent.mkdir(parents=True, exist_ok=True)
            (linked / path.relative_to(store)).symlink_to(path)
    docs = [report("check", "--shape", SHAPE, "--aiter", str(t), *V20, "--gpu", "mi300x")[1] for t in (store, linked)]
    for doc in docs:
        doc["aiter"].pop("root")
    assert docs[0]["aiter"]["moe_csv_files"] > 0
    assert docs[0]["aiter"] == docs[1]["aiter"]
    assert [f["code"] for f in docs[0]["findings"]] == [f["code"] for f in docs[1]["findings"]]


@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "/etc/passwd"])
def test_many_links_of_one_kind_are_one_finding(kind: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n")
    models = tree / "aiter" / "configs" / "model_configs"
    for i in range(5):
        special(tmp_path, kind).rename(models / f"z{i}_tuned_fmoe.csv")
    done, doc = report("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi300x")
    found = [f for f in doc["findings"] if f["code"] == "MP303"]
    assert len(found) == 1
    assert "z0_tuned_fmoe.csv" in found[0]["message"]
    assert "5 such files" in found[0]["message"]
    assert done.code == 3
    assert len([n for n in doc["not_evaluated"] if "z0_tuned_fmoe.csv" in n["what"]]) == len(doc["not_evaluated"]) == 1


@pytest.mark.parametrize("name", ["ragged", "nul", "utf-16", "latin-1", "no topk", "empty"])
def test_the_only_table_is_named_when_aiter_raises_on_it(name: str, tmp_path: Path) -> None:
    """A table that holds no readable row is still a table: its file and line, and a remedy about the table."""
    tree = a_tree(tmp_path, default=TABLES[name])
    _, doc = report("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi300x")
    raised = {f["code"]: f for f in doc["findings"] if f["code"] in ("MP102", "MP304")}
    assert set(raised) == {"MP102", "MP304"}
    for f in raised.values():
        assert "tuned_fmoe.csv" in f["message"] + f["remedy"]
        assert "split" not in f["remedy"]
        assert "duplicate" not in f["remedy"]
    if name not in ("no topk", "empty"):
        lines = [e["line"] for f in doc["findings"] if f["code"] in ("MP102", "MP303", "MP304") for e in f["evidence"]]
        assert len(lines) == 3
        assert None not in lines


FLOODS = {
    "columns": lambda: ",".join([TABLE_HEADER, *(f"c{i}" for i in range(10**6))]) + "\n",
    "columns of one name": lambda: ",".join(["a"] * 10**5) + "\n" + "," * 99_999 + "\n",
    "columns after an empty line": lambda: "\n" + ",".join(f"c{i}" for i in range(10**6)) + "\n",
    "quoted columns": lambda: ",".join(f'"c{i}"' for i in range(10**6)) + "\n",
    "one line": lambda: TABLE_HEADER + "\n" + "x" * 15_000_000 + "\n",
    "empty lines": lambda: TABLE_HEADER + "\n" * 1_000_000,
    "one key": lambda: TABLE_HEADER + "\n" + f"{ROW}\n" * 20_000,
    "one key, kernels all different": lambda: (
        TABLE_HEADER + "\n" + "".join(f"{ROW.replace('gemm1_x', f'gemm1_{i}')}\n" for i in range(20_000))
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_are_linear(name: str, tmp_path: Path) -> None:
    """check, and lint, of two tables of one sort: columns by the million, a key by the ten thousand."""
    text = FLOODS[name]()[: 15 << 20]
    tree = a_tree(tmp_path, default=text, other=text)
    for argv in (("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi300x"), ("lint", str(tree), *V20)):
        done = hold(run(*argv, seconds=25), target="inputs")
        assert done.code in (0, 1, 3)
        if "columns" in name:
            assert done.code != 0
            assert "more than the 1,000 this tool reads" in " ".join(done.out.split())


@pytest.mark.parametrize("value", ["x", "", "1.5", "true", "0x10"])
@pytest.mark.parametrize(
    ("name", "since"), [("AITER_KSPLIT", "0.1.9"), ("AITER_USE_NT", "0.1.10"), ("AITER_BYPASS_TUNE_CONFIG", "0.1.9")]
)
def test_a_variable_aiter_gives_to_int_is_a_whole_number(name: str, since: str, value: str, tmp_path: Path) -> None:
    """AITER raises ValueError where it reads it; a release before that does not look at it."""
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n")
    argv = ("check", "--shape", SHAPE, "--aiter", str(tree), "--gpu", "mi300x", "--engine-env", f"{name}={value}")
    done = hold(invoke(*argv, "--aiter-version", since), target="inputs")
    assert done.code == 2
    assert f"{name}={value!r}" in " ".join((done.out + done.err).split())
    assert invoke(*argv, "--aiter-version", "0.1.8").code in (0, 1)


def test_a_miss_says_which_tables_were_looked_up(tmp_path: Path) -> None:
    """With AITER_CONFIG_FMOE the shipped tables are not what was searched."""
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n{ROW}\n")
    mine = tmp_path / "mine.csv"
    mine.write_text(f"{TABLE_HEADER}\n{ROW}\n")
    argv = ("check", "--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi355x")
    _, doc = report(*argv, "--engine-env", f"AITER_CONFIG_FMOE={mine}")
    (evidence,) = next(f for f in doc["findings"] if f["code"] == "MP301")["evidence"]
    assert (evidence["file"], evidence["text"]) == (str(mine), "1 row in 1 table of AITER_CONFIG_FMOE")
    assert doc["aiter"]["looked_up"] == evidence["text"]
    _, doc = report(*argv)
    assert "looked_up" not in doc["aiter"]


@pytest.mark.parametrize(
    ("command", "format"),
    [*(("check", f) for f in ("text", "markdown", "html")), *(("audit", f) for f in ("text", "markdown", "html"))],
)
def test_the_count_of_tables_says_when_others_were_looked_up(command: str, format: str, tmp_path: Path) -> None:
    tree = a_tree(tmp_path, default=f"{TABLE_HEADER}\n{ROW}\n{ROW}\n")
    mine = tmp_path / "mine.csv"
    mine.write_text(f"{TABLE_HEADER}\n{ROW}\n")
    argv = ("--shape", SHAPE, "--aiter", str(tree), *V20, "--gpu", "mi355x", "--format", format)
    said = "looked up instead: 1 row in 1 table of AITER_CONFIG_FMOE"
    for env, expected in ({}, False), ({"AITER_CONFIG_FMOE": str(mine)}, True):
        done = run(command, *argv, env=env)
        assert (said in " ".join(done.out.replace("\\_", "_").split())) == expected


WHEELS: dict[str, bytes | list[tuple[str, bytes]]] = {
    "not a zip": b"PK is not enough",
    "empty": b"",
    "no aiter": [("a.txt", b"x")],
}


@pytest.mark.parametrize("name", WHEELS)
def test_what_is_no_wheel_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    wheel, content = tmp_path / "x.whl", WHEELS[name]
    if isinstance(content, bytes):
        wheel.write_bytes(content)
    else:
        with zipfile.ZipFile(wheel, "w") as z:
            for member, data in content:
                z.writestr(member, data)
    done = hold(invoke("check", K2, "--aiter", str(wheel), "--gpu", "mi300x"), target="inputs")
    assert done.code in (2, 3)
    assert len(done.err.splitlines()) == 1
    assert "x.whl" in done.err


def test_a_wheel_is_read_in_place_and_writes_nothing(tmp_path: Path) -> None:
    """Member names that climb, repeat or hold escapes; a member that unpacks to more than a table may hold."""
    good = f"{TABLE_HEADER}\n{ROW}\n".encode()
    wheel = tmp_path / "amd_aiter-0.1.20.post1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("aiter/configs/tuned_fmoe.csv", good)
        z.writestr("aiter/configs/../../../climbed_tuned_fmoe.csv", good)
        z.writestr("/abs/x_tuned_fmoe.csv", good)
        z.writestr("aiter/configs/model_configs/\x1b[31m_tuned_fmoe.csv", good)
        z.writestr("aiter/configs/big_gemm.csv", b"0" * 80_000_000)
    done = hold(run("check", K2, "--aiter", str(wheel), "--gpu", "mi300x", memory=600), target="inputs")
    assert done.code in (0, 1)
    assert [p.name for p in tmp_path.iterdir()] == [wheel.name]


def test_the_unrelated_aiter_of_pypi_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("from .aiter import *\n")
    done = hold(invoke("check", K2, "--aiter", str(tmp_path), "--gpu", "mi300x"), target="inputs")
    assert done.code == 3
    assert "unrelated" in done.err


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["main", "latest", "", "v", "-1", "1e9", "0.1.20; rm", "\x1b[31m", "9" * 300])
def test_a_version_that_is_none_is_refused(text: str) -> None:
    for option in ("--aiter-version", "--engine-version"):
        if option == "--engine-version" and not text:
            continue  # an empty variable of the environment means the default
        done = hold(invoke("check", K2, "--no-tuned", "--gpu", "mi300x", option, text), target="inputs")
        assert done.code == 2, option


@pytest.mark.parametrize("text", ["0.0.1", "99.9", "v0.1.20.post1-3-gabc", "0.1.20rc1", "0.1.20+rocm7"])
def test_an_unfamiliar_version_is_judged_and_marked(text: str) -> None:
    done, doc = report("check", K2, "--no-tuned", "--gpu", "mi300x", "--aiter-version", text)
    assert done.code in (0, 1)
    assert doc["aiter"]["dispatch_confidence"] in ("verified", "unverified")
    assert doc["aiter"]["dispatch_confidence"] == "verified" or any(f["code"] == "MP601" for f in doc["findings"])


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("--tp", t) for t in ("1e3", "8.0", "", "8,,4", "abc", "true", "0x8", "99999999", "9" * 400, "\uff18")),
        *(("--tokens", t) for t in ("0", "-5", "", "abc", "1e3", "decode,64", "9" * 50)),
        *(("--max-num-batched-tokens", t) for t in ("0", "-1", "abc", "1e9")),
        *(("--gpu", t) for t in ("", "mi300", "h100", "mi300x,", "\x1b[31m")),
        *(("--format", t) for t in ("xml", "", "JSON", "json=", "text,json")),
        *(("--fail-on", t) for t in ("x", "", "Error")),
        *(("--select", t) for t in ("", "XX", "MP999")),
        *(("--engine", t) for t in ("trt", "")),
        *(("--engine-env", t) for t in ("X", "=1")),
        *(("--dp", t) for t in ("abc", "1e3")),
        *(("--moe-backend", t) for t in ("x", "AITER")),
    ],
)
def test_nonsense_is_a_usage_error_that_names_the_option(option: str, text: str) -> None:
    done = hold(invoke("check", K2, *BARE, option, text), target="inputs")
    assert done.code == 2
    assert option in done.err
    assert not done.out


@pytest.mark.parametrize("more", [("--tp", "0"), ("--tp", "-1"), ("--tp", "193"), ("--tp", "5"), ("--dp", "0"), ("--pp", "-3")])
def test_a_split_no_engine_starts_is_a_failure(more: tuple[str, str]) -> None:
    done, doc = report("check", K2, *BARE, *more)
    assert (done.code, doc["verdict"]) == (1, "fail")


@pytest.mark.parametrize(
    ("limit", "last"), [(1, 1), (16, 16), (17, 32), (256, 256), (257, 512), (32768, 32768), (32769, 32768), (131072, 131072)]
)
def test_the_last_reachable_bucket(limit: int, last: int) -> None:
    _, doc = report("check", K2, *BARE, "--max-num-batched-tokens", str(limit))
    assert doc["targets"][0]["layers"][0]["buckets"][-1]["token"] == last


@pytest.mark.parametrize(("more", "code"), [(("--ignore", "MP501"), 3), (("--select", "MP111"), 3), (("--fail-on", "never"), 3)])
def test_a_model_that_was_not_reached_is_never_green(more: tuple[str, str], code: int) -> None:
    done, doc = report("check", "no/such", *BARE, *more)
    assert (done.code, doc["verdict"]) == (code, "inconclusive")


@pytest.mark.parametrize("more", [("--ignore", "MP"), ("--select", "MP111"), ("--fail-on", "never")])
def test_a_malformed_config_is_exit_2_whatever_is_ignored(more: tuple[str, str]) -> None:
    assert hold(invoke("check", str(CONFIGS / "2-nan.json"), *BARE, *more), target="inputs").code == 2


# ---- logs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\0" * 1_000_000,
        LINE.replace(b"4096", b"9" * 5000),
        LINE.replace(b"4096", b"(" * 50_000),
        LINE.replace(b"4096", b"__import__('os').abort()"),
        b"[fused_moe] using " + b"(kernelName1='" * 20_000,
        b"[fused_moe] using 2stage " + b" " * 200_000,
        LINE.decode().encode("utf-16"),
        LINE.replace(b"Silu", b"\x1b[31m\xe2\x80\xaeSilu"),
    ],
    ids=["empty", "nul", "digits", "brackets", "code", "again", "spaces", "utf-16", "escape"],
)
def test_a_log_without_a_readable_line_is_inconclusive(log: bytes, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_bytes(log)
    done = hold(invoke("observe", str(tmp_path / "engine.log"), "--gpu", "mi300x", "--no-tuned", *V20), target="inputs")
    assert done.code == 3


def test_the_log_line_these_are_made_of_is_readable(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_bytes(LINE)
    done = hold(invoke("observe", str(tmp_path / "engine.log"), "--gpu", "mi300x", "--no-tuned", *V20), target="inputs")
    assert "1 of them name a key" in done.out


# ---- the process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "abc"},
        {"PYTHONHASHSEED": "1", "TZ": "Asia/Kathmandu", "NO_COLOR": "1"},
        {"PYTHONHASHSEED": "2", "PYTHONOPTIMIZE": "2", "TMPDIR": "/nonexistent"},
        {"COLUMNS": "99999999", "PYTHONWARNINGS": "error"},
    ],
    ids=lambda e: "-".join(e),
)
def test_the_environment_changes_no_byte(env: dict[str, str]) -> None:
    argv = ("check", K2, *BARE, "--tp", "8,4", "--format", "json")
    assert run(*argv, env=env).out == run(*argv).out


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("argv", [("check", "-"), ("observe", "-"), ("dispatch", "-", "--gfx", "gfx942", "--cu", "304")])
def test_ctrl_c_ends_it_quietly(argv: tuple[str, ...]) -> None:
    if argv[0] == "dispatch" and find_spec("aiter") is None:
        pytest.skip("dispatch waits for keys only where an AITER tree is installed")
    with subprocess.Popen([*COMMAND, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        time.sleep(1.5)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=10)
    assert p.returncode == 130
    assert b"Traceback" not in err


def test_runs_at_once_leave_one_whole_report(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    argv = [*COMMAND, "check", K2, *BARE, "--format", "json", "--output", str(target)]
    together = [subprocess.Popen(argv, stderr=subprocess.DEVNULL) for _ in range(4)]
    assert {p.wait(timeout=60) for p in together} <= {0, 1}
    assert json.loads(target.read_text())["targets"]
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_the_corpus_itself_is_hostile() -> None:
    escapes = (b"\\u001b", b"\\u202e", b"\\ud800")
    texts = [p.read_bytes() for p in CONFIGS.glob("*.json")]
    assert all(any(e in t for t in texts) for e in escapes)


def test_a_wheel_that_unpacks_to_nothing_but_line_ends_is_soon_over(tmp_path: Path) -> None:
    wheel = tmp_path / "amd_aiter-0.1.20-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("aiter/configs/tuned_fmoe.csv", TABLE_HEADER + "\n")
        for i in range(4):
            z.writestr(f"aiter/configs/model_configs/m{i}_tuned_fmoe.csv", b"\n" * (4 << 20))
    done = hold(run("check", K2, "--gpu", "mi300x", "--aiter", str(wheel), memory=400))
    assert done.code != 0
