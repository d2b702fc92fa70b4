"""Destinations: parsing, files whole or not at all, stdout that closes, fills up or speaks another encoding."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.errors import OutputError, UsageError
from moe_preflight.report import files
from moe_preflight.report.files import write_file, write_files
from moe_preflight.report.output import Sink, emit, sinks, use_colour, write_stdout
from tests.unit.report.documents import clean_full

ROOT = os.geteuid() == 0
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


# --- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formats", "output", "expected"),
    [
        (None, None, [Sink("text")]),
        ([], "-", [Sink("text")]),
        (["json"], None, [Sink("json")]),
        (["json"], "out", [Sink("json", "out")]),
        ([], "out", [Sink("text", "out")]),
        (["sarif=a.sarif"], None, [Sink("text"), Sink("sarif", "a.sarif")]),
        (["sarif=a=b", "json", "junit=c"], "d", [Sink("json", "d"), Sink("sarif", "a=b"), Sink("junit", "c")]),
        (["json=-"], None, [Sink("json")]),
        (["json=/dev/stdout"], "out", [Sink("text", "out"), Sink("json")]),
        (["json"], "/dev/fd/1", [Sink("json")]),
    ],
)
def test_sinks(formats: list[str] | None, output: str | None, expected: list[Sink]) -> None:
    assert list(sinks(formats, output)) == expected


@pytest.mark.parametrize(
    ("formats", "output", "words"),
    [
        (["json", "text"], None, "only one report can go to stdout or --output"),
        (["json", "json"], None, "only one report"),
        (["json=a", "sarif=./a"], None, "a: named as the destination of two reports"),
        (["json=a"], "a", "two reports"),
        (["json=a", "json=a"], None, "two reports"),
        (["json", "sarif=-"], None, "stdout: named as the destination of two"),
        (["json=/dev/fd/1", "text=/dev/stdout"], None, "stdout: named as"),
        (["jsno"], None, "--format jsno: unknown format. Did you mean json?"),
        (["JSON"], None, "Did you mean json?"),
        (["serif=x"], None, "Did you mean sarif?"),
        (["=x"], None, "unknown format"),
        ([""], None, "unknown format"),
        (["json="], None, "no file named"),
        ([], "", "--output: no file named"),
        (["json=a\0b"], None, "no zero byte"),
    ],
)
def test_sinks_that_make_no_sense(formats: list[str], output: str | None, words: str) -> None:
    with pytest.raises(UsageError) as e:
        sinks(formats, output)
    assert words in str(e.value)
    assert "\n" not in str(e.value)


def test_two_names_of_one_folder_are_one_destination(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(UsageError):
        sinks([f"json={tmp_path}/real/a", f"sarif={tmp_path}/link/../link/a"])


# --- colour ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "stream", "env", "expected"),
    [
        ("auto", Terminal(), {}, True),
        ("auto", Terminal(), {"NO_COLOR": ""}, True),
        ("auto", Terminal(), {"NO_COLOR": "1"}, False),
        ("auto", Terminal(), {"TERM": "dumb"}, False),
        ("auto", io.StringIO(), {}, False),
        ("auto", None, {}, False),
        ("always", io.StringIO(), {"NO_COLOR": "1", "TERM": "dumb"}, True),
        ("never", Terminal(), {}, False),
    ],
)
def test_colour(choice: str, stream: Any, env: dict[str, str], expected: bool) -> None:
    assert use_colour(choice, stream, env) is expected


def test_colour_of_a_closed_stream_and_an_unknown_choice() -> None:
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    assert use_colour("auto", closed, {}) is False
    with pytest.raises(UsageError, match="auto, always, never"):
        use_colour("yes", None, {})


# --- files -----------------------------------------------------------------------------------------------------------


def left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_a_file_is_written_with_the_umask_of_the_user(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_file(str(tmp_path / "a"), b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert left(tmp_path) == {"a"}


def test_a_file_that_is_there_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old and longer")
    path.chmod(0o600)
    write_file(str(path), b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_stays_and_its_file_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target"
    if there:
        target.write_text("old")
        target.chmod(0o600)
    (tmp_path / "middle").symlink_to("far/target")
    (tmp_path / "report").symlink_to("middle")
    write_file(str(tmp_path / "report"), b"new")
    assert target.read_text() == "new"
    assert (tmp_path / "report").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert not there or stat.S_IMODE(target.stat().st_mode) == 0o600
    assert left(tmp_path) == {"far", "middle", "report"}
    assert left(tmp_path / "far") == {"target"}


def test_a_symbolic_link_to_a_device_is_written_in_place(tmp_path: Path) -> None:
    (tmp_path / "report").symlink_to("/dev/null")
    write_file(str(tmp_path / "report"), b"new")
    assert stat.S_ISCHR((tmp_path / "report").stat().st_mode)


def test_symbolic_links_without_an_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="circle"):
        write_file(str(tmp_path / "loop"), b"new")
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_somebody_else_in_a_shared_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "report").symlink_to("victim")
    os.lchown(tmp_path / "report", 12345, 12345)
    with pytest.raises(OutputError, match="another user"):
        write_file(str(tmp_path / "report"), b"new")
    assert (tmp_path / "victim").read_text() == "untouched"


def test_a_link_and_its_file_are_one_destination(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(UsageError, match="two reports"):
        sinks([f"json={tmp_path}/real", f"sarif={tmp_path}/link"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: d / "no" / "a", "No such file or directory. Its folder does not exist; make it first."),
        (lambda d: d, "Is a directory. Name a file in it."),
        (lambda d: Path(__file__) / "a", "Not a directory"),
        (lambda d: d / ("x" * 300), "File name too long"),
        (lambda d: d / "\x1b[31m" / "a", "\\x1b[31m/a: the report could not be written"),
    ],
)
def test_a_place_that_takes_no_file(tmp_path: Path, make: Any, words: str) -> None:
    path = make(tmp_path)
    before = left(tmp_path)
    with pytest.raises(OutputError) as e:
        write_file(str(path), b"x")
    assert words in str(e.value)
    assert "\n" not in str(e.value)
    assert left(tmp_path) == before


def test_a_folder_one_may_not_write_to() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        if ROOT:  # who may write anywhere
            os.seteuid(65534)
        try:
            with pytest.raises(OutputError, match=r"Permission denied\. Choose a place you may write to\."):
                write_file(os.path.join(folder, "a"), b"x")
        finally:
            if ROOT:
                os.seteuid(0)
            os.chmod(folder, 0o755)
        assert os.listdir(folder) == []


def test_nothing_takes_its_place_when_one_of_many_fails(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(OutputError, match="no"):
        write_files([(str(tmp_path / "a"), b"new"), (str(tmp_path / "no" / "b"), b"x")])
    assert (tmp_path / "a").read_text() == "old"
    assert left(tmp_path) == {"a"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (tmp_path / "a").write_text("old")

    def half(fd: int, data: bytes) -> None:
        os.write(fd, data[: len(data) // 2])
        raise error

    monkeypatch.setattr(files, "write_all", half)
    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        write_file(str(tmp_path / "a"), b"new content")
    assert (tmp_path / "a").read_text() == "old"
    assert left(tmp_path) == {"a"}


def test_a_real_full_disk(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a small disk: the write fails half way."""
    code = (
        "import resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from moe_preflight.report.files import write_file\n"
        "from moe_preflight.errors import OutputError\n"
        "try:\n    write_file(sys.argv[1], b'x' * 5000)\nexcept OutputError as e:\n    print(e)\n"
    )
    (tmp_path / "a").write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, timeout=60, check=False
    )
    assert "File too large" in done.stdout, done.stderr
    assert (tmp_path / "a").read_text() == "old"
    assert left(tmp_path) == {"a"}


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_device_stays_a_device() -> None:
    write_file("/dev/null", b"x" * 100_000)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@needs_full
def test_a_full_device() -> None:
    with pytest.raises(OutputError, match="/dev/full: the report could not be written: No space left on device"):
        write_file("/dev/full", b"x")


def test_a_fifo_with_a_reader_gets_everything(tmp_path: Path) -> None:
    fifo, got = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write_file(str(fifo), b"x" * 300_000)
    reader.join(timeout=30)
    assert got == [b"x" * 300_000]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_fifo_nobody_reads_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FIFO_WAIT", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OutputError, match="start its reader first"):
        write_file(str(tmp_path / "fifo"), b"x")


def test_a_reader_of_a_fifo_that_leaves_is_no_error(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def one_byte() -> None:
        with open(fifo, "rb", buffering=0) as f:
            f.read(1)

    reader = threading.Thread(target=one_byte)
    reader.start()
    write_file(str(fifo), b"x" * 1_000_000)
    reader.join(timeout=30)


def test_a_file_descriptor_is_written_in_place(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as f:
        f.write(b"before,")
        f.flush()
        write_file(f"/dev/fd/{f.fileno()}", b"after")
    assert (tmp_path / "a").read_bytes() == b"before,after"
    with pytest.raises(OutputError, match="not open"):
        write_file("/proc/self/fd/987654", b"x")


# --- emit ------------------------------------------------------------------------------------------------------------


def test_emit_writes_every_destination(tmp_path: Path) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    wanted = sinks(["json", f"sarif={tmp_path / 's'}", f"junit={tmp_path / 'j'}", f"text={tmp_path / 't'}"])
    emit(clean_full(), wanted, colour=True, quiet=False, verbose=False, stdout=out)
    assert json.loads(out.buffer.getvalue())["verdict"] == "fail"  # type: ignore[attr-defined]
    assert json.loads((tmp_path / "s").read_text())["version"] == "2.1.0"
    assert (tmp_path / "j").read_text().startswith("<?xml")
    assert "\x1b" not in (tmp_path / "t").read_text()
    assert left(tmp_path) == {"s", "j", "t"}


def test_colour_and_length_are_for_text(tmp_path: Path) -> None:
    def text(**flags: bool) -> str:
        out = io.StringIO()
        emit(clean_full(), sinks([]), stdout=out, **flags)
        return out.getvalue()

    assert "\x1b[31;1mFAIL" in text(colour=True)
    plain, short, long = text(), text(quiet=True), text(verbose=True)
    assert len(short) < len(plain) < len(long)


def test_stdout_is_written_even_when_a_file_cannot_be(tmp_path: Path) -> None:
    out = io.StringIO()
    with pytest.raises(OutputError):
        emit(clean_full(), sinks([f"json={tmp_path / 'no' / 'a'}"]), stdout=out)
    assert out.getvalue().startswith("FAIL")


# --- stdout ----------------------------------------------------------------------------------------------------------

EMIT = (
    "import sys\nfrom moe_preflight.report.output import emit, sinks\nfrom moe_preflight.errors import OutputError\n"
    "from tests.unit.report.documents import clean_full\n"
    "d = clean_full()\nd['findings'] = d['findings'] * int(sys.argv[2])\nd['models'][0]['id'] = '模型/é'\n"
    "try:\n    [emit(d, sinks([f])) for f in sys.argv[1].split()]\nexcept OutputError as e:\n"
    "    print(e, file=sys.stderr)\n    sys.exit(2)\nsys.exit(7)\n"
)


def run(format: str, times: int = 1, **more: Any) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], **more.pop("env", {})}
    return subprocess.run([sys.executable, "-c", EMIT, format, str(times)], timeout=60, check=False, env=env, **more)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_pipe_whose_reader_left_is_quiet(format: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = run(format, 200, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 7, done.stderr
    assert done.stderr == b""


@needs_full
@pytest.mark.parametrize("format", ["text", "json"])
def test_a_full_stdout_is_one_line(format: str) -> None:
    with FULL.open("wb") as f:
        done = run(format, stdout=f, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.startswith(b"stdout: the report could not be written: No space left on device.")
    assert done.stderr.count(b"\n") == 1


def test_a_closed_stdout_is_one_line() -> None:
    done = run("json", stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    assert done.returncode == 2
    assert done.stderr == b"stdout is closed: the report has nowhere to go. Use --output FILE.\n"


def test_a_pipe_that_does_not_block_gets_everything() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    got: list[bytes] = []

    def drain() -> None:
        with os.fdopen(read, "rb") as f:
            got.append(f.read())

    reader = threading.Thread(target=drain)
    reader.start()
    done = run("json", 500, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    reader.join(timeout=30)
    assert done.returncode == 7, done.stderr
    assert len(json.loads(got[0])["findings"]) == 500 * 5


LOCALES = [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONUTF8": "1"}]


def test_machine_formats_are_the_same_bytes_in_every_locale_and_hash_seed() -> None:
    every = "json markdown html junit sarif github"
    found = {run(every, env=e | {"PYTHONHASHSEED": str(i)}, capture_output=True).stdout for i, e in enumerate(LOCALES)}
    (data,) = found
    assert b"\r" not in data
    assert "模型/é".encode() in data


def test_text_shows_what_an_encoding_cannot_hold() -> None:
    done = run("text", env=LOCALES[0], capture_output=True)
    assert done.returncode == 7, done.stderr
    assert b"\\u6a21\\u578b/\\xe9" in done.stdout
    assert "模型/é".encode() in run("text", env=LOCALES[3], capture_output=True).stdout


def test_a_stream_without_bytes_under_it() -> None:
    out = io.StringIO()
    write_stdout("a\nb\u2028", out)
    assert out.getvalue() == "a\nb\u2028"
