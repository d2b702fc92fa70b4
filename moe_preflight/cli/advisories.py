"""``moe-preflight advisories``: the known-bad combinations this release knows, each with its public thread."""

from __future__ import annotations

from typing import Annotated

import typer


def advisories(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids such as MPA-0002, for all that is known of them.", show_default=False)
    ] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """List known-bad combinations of model, engine, AITER and GPU.

    Example: moe-preflight advisories MPA-0002
    """
    from moe_preflight.advisories.data import ALL
    from moe_preflight.advisories.listing import as_json, as_text
    from moe_preflight.errors import UsageError
    from moe_preflight.report.output import write_stdout

    if format not in ("text", "json"):
        raise UsageError(f"--format {format}: unknown format.", hint="Expected text or json.")
    by_id = {a.id: a for a in ALL}
    asked = [i.strip().upper() for i in ids or []]
    for i in asked:
        if i not in by_id:
            raise UsageError(f"advisories {i}: no such advisory.", hint="All of them: moe-preflight advisories.")
    chosen = [by_id[i] for i in dict.fromkeys(asked)] or list(ALL)
    write_stdout(as_json(chosen) if format == "json" else as_text(chosen, details=bool(asked)), utf8=format == "json")
