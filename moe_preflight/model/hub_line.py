"""The other end of ``hub_child.py``: start it, ask it, and end it, the moment an answer is overdue."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any

from moe_preflight.errors import ConfigError, ModelUnavailable
from moe_preflight.model.hub import Patience, Unreachable

START = 20.0
"""Seconds the library may take to load: no part of a deadline for the network, and on a busy machine not nothing."""

_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from moe_preflight.model.hub_child import main; main()"
_ERRORS = {"ConfigError": ConfigError}

Answer = dict[str, Any]


class Line:
    """One child at a time. ``hang_up`` leaves neither process, thread nor pipe behind; a later question starts a new child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._loading: SimpleQueue[Answer] | None = None
        self._waiting: dict[int, SimpleQueue[Answer]] = {}
        self._number = 0

    def dial(self) -> None:
        """Start the child and do not wait for it: the library loads while the caller does something else. Raises Unreachable."""
        with self._lock:
            if self._child is None:
                self._start()

    def ask(self, question: Answer, patience: Patience) -> Answer:
        """The answer. Raises Unreachable when there is none in time, and what the child raised."""
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._end()
            if self._child is None:
                self._start()
            self._await_library()
            self._number += 1
            number = self._number
            box: SimpleQueue[Answer] = SimpleQueue()
            self._waiting[number] = box
            self._say({"number": number, **question})
        try:
            answer = box.get(timeout=patience.left())
        except Empty:
            self.hang_up()
            raise patience.gone() from None
        if "unreachable" in answer:
            raise Unreachable(str(answer["unreachable"]))
        if "error" in answer:
            raise _ERRORS.get(str(answer["error"]), ModelUnavailable)(str(answer["message"]), hint=str(answer["hint"]))
        return answer

    def hang_up(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        child, reader = self._child, self._reader
        self._child = self._reader = self._loading = None
        if child is None or reader is None:
            return
        child.kill()
        child.wait()
        reader.join()  # the pipe's other end is closed, so it ends
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a question nobody took
                    pipe.close()

    def _start(self) -> None:
        env = {"HF_HUB_DISABLE_XET": "1", **os.environ}  # a config is small, and plain HTTP keeps to our bounds
        try:
            child = subprocess.Popen(
                [sys.executable or "python3", "-P", "-c", _CODE, json.dumps(sys.path)], env=env,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as e:
            raise Unreachable(f"no process could be started to ask it: {e.strerror or e}") from None
        self._loading = self._waiting[0] = SimpleQueue()
        self._child, self._reader = child, threading.Thread(target=self._listen, args=(child,), daemon=True)
        self._reader.start()

    def _await_library(self) -> None:
        if self._loading is None:
            return
        try:
            failed = self._loading.get(timeout=START)
        except Empty:
            failed = {"unreachable": f"huggingface_hub did not load within {START:g} s"}
        self._loading = None
        if "unreachable" in failed:
            self._end()
            raise Unreachable(str(failed["unreachable"]))

    def _say(self, question: Answer) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: _listen says so to whoever waits
            self._child.stdin.write(json.dumps(question) + "\n")
            self._child.stdin.flush()

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            try:
                answer = json.loads(line)
            except ValueError:  # cut off in the middle, or no answer at all
                break
            box = self._waiting.pop(answer["number"], None)
            if box is not None:
                box.put(answer)
        left, self._waiting = self._waiting, {}
        for box in left.values():
            box.put({"unreachable": "the process that asks it has ended"})
