from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from moe_preflight.smoke.process import MAX_EVENT, TAIL_LINES, TAIL_WIDTH, Ended, run, signal_name


def child(code: str, tmp_path: Path, timeout: float = 20.0) -> Ended:
    return run([sys.executable, "-I", "-S", "-c", code], {"x": 1}, timeout=timeout, env=os.environ, cwd=str(tmp_path))


def test_events_and_everything_else_are_kept_apart(tmp_path: Path) -> None:
    ended = child(
        "import sys, json\n"
        "assert json.load(sys.stdin) == {'x': 1}\n"
        "print('hello'); print('{\"event\": \"a\"}'); print('{\"event\": 3}'); print('[1]'); print('{broken')\n"
        "print('on stderr', file=sys.stderr)\n"
        'sys.stdout.write(\'{"event": "last"}\')',
        tmp_path,
    )
    assert [e["event"] for e in ended.events] == ["a", "last"]
    assert ended.garbage == 4
    assert {"hello", "on stderr", "{broken"} <= set(ended.tail)
    assert (ended.returncode, ended.timed_out) == (0, False)


def test_output_is_bounded(tmp_path: Path) -> None:
    ended = child(
        "import os\n"
        f"os.write(1, b'x' * {4 * MAX_EVENT}); os.write(1, b'\\n')\n"
        "for n in range(5000): os.write(2, b'line %d ' % n + b'y' * 2000 + b'\\n')\n"
        'print(\'{"event": "after"}\')',
        tmp_path,
    )
    assert [e["event"] for e in ended.events] == ["after"]
    assert len(ended.tail) <= TAIL_LINES
    assert max(map(len, ended.tail)) <= TAIL_WIDTH


def test_a_hang_is_cut_off_with_all_its_children(tmp_path: Path) -> None:
    begun = time.monotonic()
    ended = child(
        "import os, time\npid = os.fork()\nif pid: os.write(2, b'grandchild %d\\n' % pid)\ntime.sleep(60)",
        tmp_path,
        timeout=1.5,
    )
    assert ended.timed_out
    assert ended.returncode == -9
    assert time.monotonic() - begun < 10
    assert _gone(int(ended.tail[0].split()[1]))


def test_a_grandchild_that_keeps_the_pipe_open_does_not_keep_us(tmp_path: Path) -> None:
    ended = child(
        "import os, time\npid = os.fork()\nif not pid: time.sleep(60)\nos.write(2, b'grandchild %d\\n' % pid)",
        tmp_path,
    )
    assert not ended.timed_out
    assert ended.returncode == 0
    assert ended.seconds < 10
    assert _gone(int(ended.tail[0].split()[1]))


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().split()[2] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_signals_by_name(tmp_path: Path) -> None:
    assert child("import os; os.abort()", tmp_path).returncode == -6
    assert signal_name(6) == "SIGABRT (6)"
    assert signal_name(11) == "SIGSEGV (11)"
    assert signal_name(63) == "signal 63"


def test_a_child_that_reads_nothing_is_no_trouble(tmp_path: Path) -> None:
    ended = child('import os; os.close(0); print(\'{"event": "a"}\')', tmp_path)
    assert [e["event"] for e in ended.events] == ["a"]


def test_a_payload_that_does_not_fit_a_pipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pipe"):
        run([sys.executable], {"x": "y" * 100_000}, timeout=1, env=os.environ, cwd=str(tmp_path))


def test_deeply_nested_garbage(tmp_path: Path) -> None:
    ended = child("print('{\"event\":' + '[' * 100000)", tmp_path)
    assert ended.events == []
    assert ended.garbage == 1
