"""The table of ``moe-preflight advise``: 80 columns, one block per GPU, the recommended row marked."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from moe_preflight.advise import Row
from moe_preflight.arithmetic import USABLE_MEMORY
from moe_preflight.report.style import PLAIN, Style
from moe_preflight.units import bytes_text

WIDTH = 80
_COLUMNS = (("split", 12), ("decode", 8), ("prefill", 9), ("weights/GPU", 13), ("outcome", 36))


Block = tuple[str, list[Row], Row | None, str]
"""(GPU title, rows, recommended row or None, reason)"""


def as_text(model: str, blocks: list[Block], style: Style = PLAIN, *, quiet: bool = False) -> str:
    """The table of every GPU and what to take; ``quiet`` leaves the tables out."""
    lines = [f"Splits for {model}"]
    for title, rows, best, why in blocks:
        lines += ["", style.paint(title, "bold")]
        if not quiet:
            lines += ["  " + "".join(name.ljust(w) for name, w in _COLUMNS).rstrip()]
            for r in rows:
                lines += [style.paint(x, "bold") if r is best else x for x in _row(r, r is best)]
            lines += textwrap.wrap(f"Router: {_routers(rows)}.", WIDTH, initial_indent="  ", subsequent_indent="    ")
        lines += textwrap.wrap(_said(best, why), WIDTH, initial_indent="  ", subsequent_indent="    ")
    if quiet:
        return "\n".join(x.rstrip() for x in lines) + "\n"
    lines += [""]
    lines += textwrap.wrap(
        f"decode and prefill: tuned buckets of those judged. weights/GPU: expert weights only, after padding; ! where they exceed "
        f"{USABLE_MEMORY:.0%} of the GPU's memory. Expert parallelism (EP) splits experts and leaves their width whole.",
        WIDTH,
    )
    return "\n".join(x.rstrip() for x in lines) + "\n"


def _said(best: Row | None, why: str) -> str:
    return f"Recommended: {best.name}: {why}." if best else f"No recommendation: {why}."


def as_markdown(model: str, blocks: list[Block]) -> str:
    """A table for each GPU, the recommended row in bold."""
    from moe_preflight.report.markdown import code, prose

    lines = [f"## Splits for {code(model)}"]
    for title, rows, best, why in blocks:
        lines += ["", f"### {prose(title)}", "", prose(_said(best, why)), ""]
        heads = [name for name, _ in _COLUMNS]
        lines += [f"| {' | '.join([*heads, 'router'])} |", "|" + " --- |" * (len(heads) + 1)]
        for r in rows:
            cells = [*_cells(r), r.outcome, r.router]
            lines.append(f"| {' | '.join(f'**{prose(c)}**' if r is best else prose(c) for c in cells)} |")
    return "\n".join(lines) + "\n"


def _cells(r: Row) -> tuple[str, str, str, str]:
    over = " !" if r.fits is False else ""
    return r.name, _hits(r.decode.hit, r.decode.of), _hits(r.prefill.hit, r.prefill.of), bytes_text(r.expert_bytes) + over


def _row(r: Row, best: bool) -> list[str]:
    head = ("* " if best else "  ") + "".join(c.ljust(w) for c, (_, w) in zip(_cells(r), _COLUMNS, strict=False))
    return textwrap.wrap(
        r.outcome, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), max_lines=4, break_on_hyphens=False
    )


def _routers(rows: list[Row]) -> str:
    """The router's kernel, once when every split has the same."""
    names: dict[str, list[str]] = {}
    for r in rows:
        if r.router != "-":
            names.setdefault(r.router, []).append(r.name)
    if len(names) <= 1:
        return next(iter(names), "none")
    return "; ".join(f"{kernel} at {', '.join(splits)}" for kernel, splits in names.items())


def _hits(hit: int, of: int) -> str:
    return f"{hit}/{of}" if of else "-"


def as_json(model: str, blocks: list[tuple[str, str, list[Row], Row | None, str]]) -> str:
    """``blocks`` are (GPU name, gfx, rows, recommended row or None, reason). Keys sorted, same input, same bytes."""
    doc = {
        "schema_version": 1,
        "model": model,
        "gpus": [
            {
                "gpu": gpu,
                "gfx": gfx,
                "rows": [_as_dict(r) for r in rows],
                "recommended": best.name if best else None,
                "reason": why,
            }
            for gpu, gfx, rows, best, why in blocks
        ],
    }
    return json.dumps(doc, indent=2, sort_keys=True) + "\n"


def _as_dict(r: Row) -> dict[str, Any]:
    return {
        "split": r.name,
        "tp": r.tp,
        "ep": r.ep,
        "ep_size": r.ep_size,
        "outcome": r.outcome,
        "runs": r.runs,
        "accepted": r.accepted,
        "padded": r.padded,
        "extra_compute_pct": round(r.extra_compute_pct, 2),
        "decode": {"hit": r.decode.hit, "of": r.decode.of},
        "prefill": {"hit": r.prefill.hit, "of": r.prefill.of},
        "router": r.router,
        "expert_weight_bytes": r.expert_bytes,
        "memory_bytes": r.memory_bytes,
        "fits": r.fits,
        "errors": list(r.errors),
    }
