"""What the worker tells its parent: JSON lines on a descriptor of their own. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any

TEXT = 2000
"""Characters of any one text that crosses."""


class Stop(Exception):
    """End of this case with ``status`` and a text for the reader."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Wire:
    """``send`` writes one event, ``enter`` announces the next step: whatever kills the process, the parent knows where it was."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.phase = ""

    def send(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, **data}, allow_nan=False) + "\n"
        view = memoryview(line.encode())
        while view:
            view = view[os.write(self._descriptor, view) :]

    def enter(self, name: str) -> None:
        self.phase = name
        self.send("phase", name=name)


def is_out_of_memory(e: BaseException) -> bool:
    """torch's own class on a GPU, a RuntimeError of its allocator on a CPU."""
    return type(e).__name__ == "OutOfMemoryError" or "out of memory" in str(e) or "can't allocate memory" in str(e)
