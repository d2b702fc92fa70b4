"""The command line's root: which commands there are, and nothing about what they do.

A command's module is imported when that command runs, or when its own help is asked for; the root's help reads the
summaries here. That keeps every start cheap.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from moe_preflight.errors import OutputError, PreflightError, UsageError

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("moe_preflight.cli.check", "Judge models on GPUs: acceptance, tuned rows, router, padding."),
    "gate": ("moe_preflight.cli.gate", "Hold deployments to a TOML file: what each must reach, and what is forgiven."),
    "lint": ("moe_preflight.cli.lint", "Check tuned tables: doubled, unreachable, shadowed rows, kernels that do not fit."),
    "audit": ("moe_preflight.cli.audit", "Tuned coverage of many models: a matrix, worst first."),
    "tune": ("moe_preflight.cli.tune", "Write the keys that have no tuned row, for AITER's tuner."),
    "compare": ("moe_preflight.cli.compare", "What an upgrade changes: coverage, kernels, acceptance, router, padding."),
    "observe": ("moe_preflight.cli.observe", "Match an engine's log against the prediction."),
    "smoke": ("moe_preflight.cli.smoke", "Launch the padded fused_moe for real and compare with the prediction."),
    "models": ("moe_preflight.cli.models", "List the bundled model cards."),
    "advise": ("moe_preflight.cli.advise", "Compare parallel splits of one model and recommend one."),
    "advisories": ("moe_preflight.cli.advisories", "List known-bad combinations, each with its public thread."),
    "rule": ("moe_preflight.cli.rule", "Explain a finding's code."),
    "dispatch": ("moe_preflight.cli.dispatch", "Answer raw AITER keys (JSONL in, JSONL out)."),
}
"""name -> (module with a function of that name, one-line summary)."""

EXIT_CODES = (
    "Exit codes: 0 nothing at or above --fail-on; 1 a finding at or above it; 2 usage, settings or malformed input; "
    "3 something asked for could not be looked at. The first of 2, 1, 3, 0 that applies."
)


@contextmanager
def _clean_refusals() -> Iterator[None]:
    """The parser's own refusals repeat the words they refuse, some of them raw: nothing in them may reach the terminal as a command."""
    try:
        yield
    except Exception as e:
        if hasattr(e, "format_message") and isinstance(said := getattr(e, "message", None), str):
            from moe_preflight.report.sanitise import clean

            e.message = clean(said)  # type: ignore[attr-defined]
        raise


class LazyGroup(TyperGroup):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        one = typer.Typer(add_completion=False, rich_markup_mode=None)
        one.command(cmd_name)(getattr(import_module(module), cmd_name.replace("-", "_")))
        return typer.main.get_command(one)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        with _clean_refusals():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _clean_refusals():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0].lower(), COMMANDS, n=1)
            guess = f"Did you mean {close[0]}? " if close else ""
            raise UsageError(f"{args[0]}: no such command.", hint=f"{guess}All of them: moe-preflight --help.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


app = typer.Typer(
    name="moe-preflight",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def _version(value: bool) -> None:
    if value:
        from moe_preflight import __version__

        print(f"moe-preflight {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version and exit."),
) -> None:
    """What will AMD's AITER do with this model's experts? Answered before a GPU node is booked.

    moe-preflight check IFM/K2-Horizon-375B-A23B --tp 8
    """


def run() -> None:
    """Run the command line; every refusal is one line on stderr and an exit code, never a traceback."""
    try:
        try:
            app(normalise(sys.argv[1:]), prog_name="moe-preflight")
        except SystemExit as e:
            if isinstance(e.__context__, BrokenPipeError):  # click's answer to it is exit 1, which is a finding here
                raise e.__context__ from None
            try:
                if sys.stdout is not None and not sys.stdout.closed:
                    sys.stdout.flush()  # here, where a full disk can still be told
            except BrokenPipeError:  # the exit code stays what it was
                _nowhere()
            raise
    except PreflightError as e:
        fail(e)
    except BrokenPipeError:
        _nowhere()
        sys.exit(0)
    except OSError as e:
        _nowhere()
        fail(OutputError(f"The output could not be written: {(e.strerror or str(e)).lower()}."))
    except Exception as e:
        if os.environ.get("MOE_PREFLIGHT_DEBUG"):
            raise
        fail(
            PreflightError(
                f"internal error: {type(e).__name__}: {e}.", hint="Please report it; MOE_PREFLIGHT_DEBUG=1 shows where."
            )
        )


def _nowhere() -> None:
    """Send what is still buffered for stdout nowhere, so that the interpreter's own last flush does not fail again."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def normalise(argv: list[str]) -> list[str]:
    """``--ep 8`` and ``--ep=8`` as ``--ep-size 8``: --ep is a switch for vLLM and takes a number for SGLang, as in the engines."""
    out: list[str] = []
    for word in argv:
        if word.startswith("--ep=") and word[5:].isdecimal():
            out += ["--ep-size", word[5:]]
        elif out and out[-1] == "--ep" and word.isdecimal():
            out[-1:] = ["--ep-size", word]
        else:
            out.append(word)
    return out


def fail(error: PreflightError) -> None:
    """One clear line: what, where, what to do; then the error's exit code."""
    from moe_preflight.report.output import say
    from moe_preflight.report.sanitise import clean

    say(f"moe-preflight: error: {clean(str(error))}")
    sys.exit(error.exit_code)
