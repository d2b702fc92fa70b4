"""Where a report goes: which format to which destination, and stdout. Files are the business of files.py.

A reader of stdout that goes away (``| head``) is not an error; the exit code stays the gate's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from moe_preflight.errors import OutputError, UsageError
from moe_preflight.report.files import refused, stream_of, write_all, write_files
from moe_preflight.report.formats import FORMATS, Renderer, inert

Document = dict[str, Any]

DEFAULT_FORMAT = "text"


@dataclass(frozen=True, slots=True)
class Sink:
    """One format and where it goes; ``path`` None is stdout."""

    format: str
    path: str | None = None


def sinks(
    formats: Iterable[str] | None, output: str | None = None, *, known: Mapping[str, Renderer] = FORMATS
) -> tuple[Sink, ...]:
    """The destinations of ``--format X`` / ``--format X=FILE`` (repeatable) and ``--output FILE``.

    ``known`` are the formats the command has. One report has no FILE of its own: it goes to ``output``, or to stdout (``-``),
    and is text unless a bare ``--format`` says otherwise. Raises
    UsageError: an unknown format, two bare ones, a destination named twice.
    """
    bare: str | None = None
    found: list[Sink] = []
    for value in formats or ():
        name, given, file = value.partition("=")
        _known(name, value, known)
        if given:
            found.append(Sink(name, _destination(file, f"--format {value}")))
        elif bare is not None:
            raise UsageError(
                f"--format {bare} --format {name}: only one report can go to stdout or --output.",
                hint=f"Write --format {name}=FILE.",
            )
        else:
            bare = name
    main = _destination(output, "--output") if output is not None else None
    if not (bare is None and output is None and any(s.path is None for s in found)):
        found.insert(0, Sink(bare or DEFAULT_FORMAT, main))
    seen: set[str] = set()
    for s in found:
        place = "stdout" if s.path is None else _same_file(s.path)
        if place in seen:
            raise UsageError(
                f"{s.path or 'stdout'}: named as the destination of two reports.", hint="Give each --format its own FILE."
            )
        seen.add(place)
    return tuple(found)


def _known(name: str, value: str, known: Mapping[str, Renderer]) -> None:
    if name in known:
        return
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), known, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(f"--format {value}: unknown format.", hint=f"{guess}Known: {', '.join(known)}; each may be FORMAT=FILE.")


def _destination(file: str, flag: str) -> str | None:
    if not file:
        raise UsageError(f"{flag}: no file named.", hint="Give a file name, or - for stdout.")
    if "\0" in file:
        raise UsageError(f"{flag}: a file name holds no zero byte.")
    return None if file == "-" or stream_of(file) == 1 else file


def _same_file(path: str) -> str:
    """Equal for two spellings of one destination, symbolic links among them: they are written through."""
    number = stream_of(path)
    return f"file descriptor {number}" if number is not None else os.path.realpath(path)


def use_colour(choice: str, stream: TextIO | None, env: Mapping[str, str] | None = None) -> bool:
    """Whether to colour what goes to ``stream``: ``always``, ``never``, or ``auto`` (a terminal, NO_COLOR empty or unset, TERM not dumb)."""
    env = os.environ if env is None else env
    if choice not in ("auto", "always", "never"):
        raise UsageError(f"--color {choice}: unknown.", hint="Expected auto, always, never.")
    if choice != "auto":
        return choice == "always"
    if env.get("NO_COLOR") or env.get("TERM") == "dumb" or stream is None:
        return False
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


def emit(
    doc: Document,
    destinations: Iterable[Sink],
    *,
    colour: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    stdout: TextIO | None = None,
    formats: Mapping[str, Renderer] = FORMATS,
    text: Callable[..., str] | None = None,
    reads: Iterable[str | None] = (),
) -> None:
    """Write the clean document to every destination. ``colour`` is for text on stdout only; ``quiet`` and ``verbose`` for text anywhere.
    ``formats`` are the command's own; ``text`` renders its text, as report/text.py render() does the check's. ``reads`` is what the run
    looked at: no destination may be among it, or in its AITER tree.

    Everything is rendered before anything is written, all files are written before any takes its place, and stdout is written
    in any case. Raises UsageError for a destination that was read, and OutputError for the first that failed.
    """
    destinations = tuple(destinations)
    if any(s.path is not None for s in destinations):
        from moe_preflight.report.apart import keep_apart

        keep_apart((s.path for s in destinations), (*reads, (doc.get("aiter") or {}).get("root")))
    reports = [
        (s, _render(doc, s, formats, text, colour=colour and s.path is None, quiet=quiet, verbose=verbose)) for s in destinations
    ]
    failure: OutputError | None = None
    try:
        write_files([(s.path, body.encode("utf-8", "backslashreplace")) for s, body in reports if s.path is not None])
    except OutputError as e:
        failure = e
    for s, body in reports:
        if s.path is None:
            write_stdout(body, stdout, utf8=s.format != "text")
    if failure is not None:
        raise failure


def _render(
    doc: Document,
    sink: Sink,
    formats: Mapping[str, Renderer],
    text: Callable[..., str] | None,
    *,
    colour: bool,
    quiet: bool,
    verbose: bool,
) -> str:
    if sink.format != "text" or (text is None and not (colour or quiet or verbose)):
        return formats[sink.format](doc)
    from moe_preflight.report.style import Style

    if text is not None:
        return inert(text(doc, Style(colour), quiet=quiet, verbose=verbose))
    from moe_preflight.report.text import render

    return inert(render(doc, Style(colour), quiet=quiet, verbose=verbose))


# --- stdout ----------------------------------------------------------------------------------------------------------


def write_stdout(text: str, stdout: TextIO | None = None, *, utf8: bool = False) -> None:
    """All of ``text`` to stdout, newlines as they are, in stdout's encoding (or UTF-8), what that cannot hold escaped.

    Returns quietly when the reader has gone. Raises OutputError for anything else, a closed stdout among it.
    """
    stream = sys.stdout if stdout is None else stdout
    if stream is None or stream.closed:
        raise OutputError("stdout is closed: the report has nowhere to go.", hint="Use --output FILE.")
    encoding = "utf-8" if utf8 else stream.encoding or "utf-8"
    data = text.encode(encoding, "backslashreplace")
    try:
        fd: int | None = stream.fileno()
    except (OSError, ValueError):  # not a real file: a test's or a notebook's
        fd = None
    try:
        stream.flush()
        if fd is not None:
            write_all(fd, data)
        elif hasattr(stream, "buffer"):
            stream.buffer.write(data)
            stream.flush()
        else:
            stream.write(data.decode(encoding))
    except BrokenPipeError:
        _silence(fd)
    except OSError as e:
        _silence(fd)
        raise refused("stdout", e) from None


def _silence(fd: int | None) -> None:
    """Let the interpreter flush into nothing at its end: it would complain about the pipe once more."""
    if fd is not None:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, fd)
            os.close(null)


def say(line: str) -> None:
    """A line, or several, to stderr. A reader that has gone does not matter: the exit code stays the report's."""
    with suppress(OSError, ValueError, AttributeError):
        print(line, file=sys.stderr, flush=True)
