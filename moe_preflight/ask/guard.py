"""The child writes into its own folder and nowhere else, whatever the code it imports tries. Standard library only.

AITER given several tables writes their merge to a fixed folder shared by the whole machine, rewrites its own CSVs on
duplicate keys, and appends to a table when it tunes online (aiter/jit/core.py, aiter/fused_moe.py). The child is set up so
that it has no reason to; this hook is what makes that a fact. It sees what Python does, not what a C++ library does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FIRST = frozenset((
    "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "os.mkfifo", "os.mknod",
))  # fmt: skip
"""Events whose first argument is what changes."""
_SECOND = frozenset(("os.symlink", "os.link"))
_BOTH = frozenset(("os.rename",))
_HARMLESS = ("/dev/", "/proc/self/")


class Refused(PermissionError):
    """A write outside the allowed folders."""


def confine(refused: list[str], *folders: str, shell: bool = True) -> None:
    """From now on a write outside ``folders`` raises Refused, a shell command too unless ``shell``. There is no way back.

    What was refused is appended to ``refused`` as it comes: code that swallows the exception is found out all the same.
    """
    roots = tuple(os.path.realpath(f).rstrip("/") + "/" for f in folders) + _HARMLESS

    def check(path: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        real = os.path.realpath(os.fsdecode(path))
        if not (real + "/").startswith(roots):
            refused.append(real)
            raise Refused(13, "moe-preflight: the child may not write here", real)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            if (isinstance(flags, int) and flags & _WRITES) or (isinstance(mode, str) and set(mode) & set("wax+")):
                check(path)
        elif event in _FIRST:
            check(args[0])
        elif event in _SECOND:
            check(args[1])
        elif event in _BOTH:
            check(args[0])
            check(args[1])
        elif event == "os.system" and not shell:
            refused.append(f"os.system({args[0]!r})"[:200])
            raise Refused(1, "moe-preflight: the child runs no shell command")

    sys.addaudithook(hook)
