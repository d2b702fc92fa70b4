"""Write files whole or not at all.

A file is written beside its destination under a name of its own and then moved over it, so a reader sees the old content or the new. A
symbolic link stays and the file it points at is the destination, as with the shell's ``>``; a link that somebody else put into a
folder all may write to (/tmp) is refused, as Linux does (fs.protected_symlinks). What already is a stream (``/dev/stderr``, ``/dev/fd/N``, a FIFO, a
character device) is written to in place.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress

from moe_preflight.errors import OutputError
from moe_preflight.report.sanitise import clean

FIFO_WAIT = 5.0
"""Seconds to wait for somebody to open the other end of a FIFO."""

_STREAM = re.compile(r"/dev/(?:(stdin|stdout|stderr)|fd/(\d{1,6}))\Z|/proc/self/fd/(\d{1,6})\Z")
_STD = {"stdin": 0, "stdout": 1, "stderr": 2}


def stream_of(path: str) -> int | None:
    """The open file descriptor that ``path`` stands for (/dev/stdout, /dev/fd/N); None when it is a file like any other."""
    m = _STREAM.match(path)
    return None if m is None else _STD[m[1]] if m[1] else int(m[2] or m[3])


def write_all(fd: int, data: bytes) -> None:
    """Every byte, also to a pipe that somebody set to non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            from select import select

            select([], [fd], [])


def write_files(files: Iterable[tuple[str, bytes]]) -> None:
    """Each (path, content), whole or not at all: no file takes its place before every one has been written beside its own.

    Streams (FIFO, device, /dev/fd/N) are written last and in place. Raises OutputError; nothing temporary is left behind.
    """
    staged: list[tuple[str, str]] = []
    streams: list[tuple[str, bytes]] = []
    try:
        for path, data in files:
            place = destination(path)
            if _is_stream(place):
                streams.append((place, data))
            else:
                staged.append((_stage(place, data), place))
        while staged:
            _move(*staged[0])
            staged.pop(0)
    finally:
        for temporary, _ in staged:
            with suppress(OSError):
                os.unlink(temporary)
    for path, data in streams:
        _write_stream(path, data)


def write_file(path: str, data: bytes) -> None:
    """One file, whole or not at all."""
    write_files([(path, data)])


def destination(path: str) -> str:
    """Where a file named ``path`` lies: the end of its symbolic links, present or not. Raises OutputError for links without an end."""
    if stream_of(path) is not None or not os.path.islink(path):
        return path
    link, folder = os.lstat(path), os.stat(os.path.dirname(path) or ".")
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and link.st_uid not in (os.geteuid(), folder.st_uid):
        raise OutputError(
            f"{clean(path)}: a symbolic link of another user in a folder all may write to; nothing was written.",
            hint="Name the file itself.",
        )
    place = os.path.realpath(path)
    if os.path.islink(place):
        raise refused(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
    return place


def _is_stream(path: str) -> bool:
    if stream_of(path) is not None:
        return True
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False  # absent, or staging will say why
    if stat.S_ISDIR(mode):
        raise refused(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if stat.S_ISBLK(mode):
        raise OutputError(f"{clean(path)}: a block device, not a file; nothing was written.", hint="Name a file.")
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def _stage(path: str, data: bytes) -> str:
    """``data`` in a new file in the folder of ``path``; its name. Gone again when anything fails."""
    temporary = os.path.join(os.path.dirname(path), f".moe-preflight-{os.urandom(8).hex()}.tmp")
    try:
        # 0o666 is cut by the umask; O_EXCL follows no link.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as e:
        raise refused(path, e) from None
    try:
        try:
            _keep_mode(fd, path)
            write_all(fd, data)
        finally:
            os.close(fd)  # some file systems notice a full disk only here
    except BaseException as e:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(e, OSError):
            raise refused(path, e) from None
        raise
    return temporary


def _keep_mode(fd: int, path: str) -> None:
    """A file that is there keeps its permissions: a private report stays private."""
    with suppress(OSError):
        old = os.lstat(path)
        if stat.S_ISREG(old.st_mode):
            os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def _move(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except OSError as e:
        raise refused(path, e) from None


def _write_stream(path: str, data: bytes) -> None:
    """In place: whole when the reader takes all of it. A reader that leaves early has what it wanted."""
    try:
        number = stream_of(path)
        fd = os.dup(number) if number is not None else _open_stream(path)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
    except BrokenPipeError:
        return
    except OSError as e:
        raise refused(path, e) from None


def _open_stream(path: str) -> int:
    """Open without waiting for ever: a FIFO nobody reads is refused after FIFO_WAIT seconds."""
    from time import monotonic, sleep

    end = monotonic() + FIFO_WAIT
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as e:
            if e.errno != errno.ENXIO or monotonic() >= end or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
        sleep(0.02)


_HINTS = {
    errno.ENOENT: "Its folder does not exist; make it first.",
    errno.ENOTDIR: "A part of the path is not a folder.",
    errno.EISDIR: "Name a file in it.",
    errno.EACCES: "Choose a place you may write to.",
    errno.EPERM: "Choose a place you may write to.",
    errno.EROFS: "Choose a place that is not read-only.",
    errno.ENOSPC: "Make room, or choose another place.",
    errno.EDQUOT: "Make room, or choose another place.",
    errno.EFBIG: "Choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ELOOP: "Its symbolic links go round in a circle; name a file.",
    errno.ENXIO: "Nobody reads this FIFO; start its reader first.",
    errno.EBADF: "That file descriptor is not open for writing.",
}


def refused(where: str, e: OSError) -> OutputError:
    """``e`` as one clear line: where, why, what to do."""
    reason = e.strerror or str(e)
    return OutputError(f"{clean(where)}: the report could not be written: {reason}.", hint=_HINTS.get(e.errno or 0, ""))
