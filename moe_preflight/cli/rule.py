"""``moe-preflight rule CODE``: what a finding means, why it matters, an example, what to do, where it was read."""

from __future__ import annotations

from typing import Annotated

import typer


def rule(
    code: Annotated[str | None, typer.Argument(help="A finding's code, such as MP101, its name, or an advisory's id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every rule.")] = False,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Explain a finding's code.

    Example: moe-preflight rule MP101
    """
    from moe_preflight.cli.rules import every_rule
    from moe_preflight.errors import UsageError

    known = every_rule()
    if format not in ("text", "json"):
        raise UsageError(f"--format {format}: unknown format.", hint="Expected text or json.")
    if every == (code is not None):
        raise UsageError("rule: give one code, or --all.", hint="For example moe-preflight rule MP101.")
    if every:
        rules = known
    else:
        assert code is not None
        if code.upper().startswith("MPA-"):  # an advisory: what findings cite beside their code
            from moe_preflight.cli.advisories import advisories

            advisories([code], format)
            return
        rules = [r for r in known if code.lower() in (r.code.lower(), r.name)]
        if not rules:
            from difflib import get_close_matches

            names = [r.code for r in known] + [r.name for r in known]
            close = get_close_matches(code, names, n=1)
            guess = f"Did you mean {close[0]}? " if close else ""
            raise UsageError(f"rule {code}: no such rule.", hint=f"{guess}All of them: moe-preflight rule --all.")
    from moe_preflight.report.output import write_stdout
    from moe_preflight.report.rule_text import as_json, as_text

    write_stdout(as_json(rules) if format == "json" else as_text(rules), utf8=format == "json")
