"""``moe-preflight gate``: hold deployments to what a TOML file says they must reach."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from moe_preflight.cli import options as o

if TYPE_CHECKING:
    from moe_preflight.gate.spec import Gate

File = Annotated[str, typer.Argument(help="The gate file (TOML). Paths in it are relative to it.")]
Today = Annotated[
    str | None,
    typer.Option("--today", help="Judge ignores as of this day, YYYY-MM-DD. [default: today, UTC]", show_default=False),
]
WriteBaseline = Annotated[
    str | None,
    typer.Option(
        "--write-baseline",
        help="Write what is found now to FILE, as known; the run then fails on what cannot be.",
        show_default=False,
    ),
]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only the deployment of this name; repeat.", show_default=False)]
Aiter = Annotated[
    str,
    typer.Option(
        "--aiter", help="The AITER of deployments that name none: auto, a folder, or a .whl.", envvar="MOE_PREFLIGHT_AITER"
    ),
]
FailOn = Annotated[
    str | None,
    typer.Option("--fail-on", help="error, warning or never. [default: the gate's fail_on, else error]", show_default=False),
]


def gate(
    file: File,
    only: Only = None,
    write_baseline: WriteBaseline = None,
    today: Today = None,
    aiter: Aiter = "auto",
    offline: o.Offline = False,
    format: o.FormatOption = None,
    output: o.Output = None,
    fail_on: FailOn = None,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Hold deployments to a gate file: what each must reach, which findings are forgiven and until when, and a baseline.

    Example: moe-preflight gate gate.toml --format github --format markdown="$GITHUB_STEP_SUMMARY"

    With a baseline only what is new fails. A gate that matches nothing, or could not look, is not green.

    Exit codes: 0 nothing new at or above fail_on; 1 a finding at or above it, a requirement not met, or an ignore past its day;
    2 usage, a malformed gate file, baseline or model; 3 something asked for could not be looked at.
    """
    from moe_preflight.cli.progress import Progress
    from moe_preflight.errors import UsageError
    from moe_preflight.gate.load import baseline_path, load_baseline, load_gate
    from moe_preflight.gate.run import run_gate
    from moe_preflight.gate.spec import only_of
    from moe_preflight.report.files import write_file
    from moe_preflight.report.gate_text import render
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.sanitise import clean_document
    from moe_preflight.report.text import summary

    if fail_on is not None:
        o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    day = _day(today)
    destinations = sinks(format, output)
    if only and write_baseline is not None:
        raise UsageError("--only and --write-baseline: a baseline holds every deployment.", hint="Leave out one of them.")
    _separate(write_baseline, [s.path for s in destinations], file)
    colour = use_colour(color, sys.stdout)
    loaded = only_of(load_gate(file, aiter=aiter, offline=offline), only or ())
    loaded = replace(loaded, fail_on=fail_on or loaded.fail_on)
    known = None if write_baseline is not None else load_baseline(loaded)
    with Progress("reading safetensors headers") as bar:
        checks = any(h.request.checkpoint for h in loaded.held)
        report = run_gate(loaded, day, known=known, accept_all=write_baseline is not None, progress=bar.at if checks else None)
    doc = clean_document(report.document)
    reads = (file, baseline_path(loaded), *(name for h in loaded.held for name in h.request.reads()))
    emit(doc, destinations, colour=colour, quiet=quiet, verbose=verbose, text=render, reads=reads)
    if write_baseline is not None:
        from moe_preflight.gate.baseline import render as baseline_text

        if not report.unseen:
            write_file(write_baseline, baseline_text(report.entries).encode())
        say(_about(write_baseline, loaded, report.unseen))
    say(summary(doc))
    raise typer.Exit(report.exit_code())


def _day(asked: str | None) -> str:
    """The day ignores are judged by. The one place of this command that reads a clock."""
    from datetime import UTC, datetime

    from moe_preflight.errors import UsageError
    from moe_preflight.gate.keys import day_of

    day = datetime.now(UTC).date().isoformat() if asked is None else day_of(asked)
    if day is None:
        raise UsageError(f"--today {asked}: not a day.", hint="Expected YYYY-MM-DD, such as 2027-01-31.")
    return day


def _about(written: str, gate: Gate, unseen: tuple[str, ...]) -> str:
    """What became of the baseline, as one line."""
    import os

    from moe_preflight.gate.load import baseline_path
    from moe_preflight.report.sanitise import clean

    if unseen:
        return clean(
            f"moe-preflight: {written}: not written: {', '.join(unseen)[:200]} could not be looked at, and would be missing in it."
        )
    named = baseline_path(gate)
    if named is not None and os.path.realpath(named) == os.path.realpath(written):
        return clean(f"moe-preflight: {written}: written.")
    holds = "names no baseline" if named is None else f"holds to {named}, not to this file"
    return clean(f"moe-preflight: {written}: written. {gate.file} {holds}: set its baseline key, which is relative to it.")


def _separate(baseline: str | None, outputs: list[str | None], gate_file: str) -> None:
    """The baseline gets a file of its own."""
    import os

    from moe_preflight.errors import UsageError

    if baseline is None:
        return
    if baseline in ("", "-") or "\0" in baseline:
        raise UsageError("--write-baseline: no file named.", hint="For example --write-baseline baseline.json.")
    taken = {os.path.realpath(p) for p in (*outputs, gate_file) if p is not None}
    if os.path.realpath(baseline) in taken:
        raise UsageError(f"--write-baseline {baseline}: named as another file of this run.", hint="Give it a FILE of its own.")
