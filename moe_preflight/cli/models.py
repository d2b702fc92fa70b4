"""``moe-preflight models``: the bundled cards, what each says of its experts, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from moe_preflight.model.cards import Card

_COLUMNS = (("experts", 7), ("top-k", 5), ("hidden", 6), ("inter", 11), ("experts stored as", 17))
WIDTH = 80


def models(
    words: Annotated[list[str] | None, typer.Argument(help="Only ids that contain every word.", show_default=False)] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """List the bundled cards: configs that stand in when the hub cannot be asked.

    Example: moe-preflight models deepseek
    """
    from moe_preflight.errors import UsageError
    from moe_preflight.model.cards import index
    from moe_preflight.report.output import write_stdout

    if format not in ("text", "json"):
        raise UsageError(f"--format {format}: unknown format.", hint="Expected text or json.")
    rows = [describe(card) for card in index() if all(w.lower() in card.id.lower() for w in words or ())]
    if not rows:
        raise UsageError(f"models {' '.join(words or ())}: no card of that name.", hint="All of them: moe-preflight models.")
    if format == "json":
        import json

        write_stdout(json.dumps({"models": rows}, indent=2, sort_keys=True) + "\n", utf8=True)
    else:
        write_stdout(as_text(rows))


def describe(card: Card) -> dict[str, Any]:
    """One card as a JSON object: identity, origin, and the numbers of each kind of expert layer."""
    from moe_preflight.model.cards import find
    from moe_preflight.model.source import load

    model = load(find(card.id) or card.file)
    return {
        "id": card.id,
        "file": card.file,
        "revision": card.revision,
        "source": card.source,
        "architecture": model.architecture,
        "hidden_size": model.hidden_size,
        "num_layers": model.num_layers,
        "layers": [
            {
                "name": x.name,
                "count": x.count,
                "experts": x.experts,
                "topk": x.topk,
                "model_dim": x.model_dim,
                "moe_intermediate_size": x.moe_intermediate_size,
                "quantization": x.quantization.scheme,
            }
            for x in model.layers
        ],
    }


def as_text(rows: list[dict[str, Any]]) -> str:
    """A table of 80 columns: what differs between kinds of layer is joined by a slash."""
    from moe_preflight.report.sanitise import clean

    room = WIDTH - sum(width + 2 for _, width in _COLUMNS)
    lines = ["model".ljust(room) + "".join("  " + (t.rjust(w) if t != "experts stored as" else t) for t, w in _COLUMNS)]
    for row in rows:
        kinds = [x for x in row["layers"] if not x["name"].startswith("mtp")]
        cells = [_joined(kinds, k) for k in ("experts", "topk", "model_dim", "moe_intermediate_size")]
        numbers = "".join("  " + c.rjust(w) for c, (_, w) in zip(cells, _COLUMNS, strict=False))
        name = clean(row["id"])
        text = f"{numbers}  {_joined(kinds, 'quantization').replace('none', 'bf16')}".rstrip()
        if len(name) <= room:
            lines.append(name.ljust(room) + text)
        else:
            lines += [name, " " * room + text]
    lines.append("")
    lines.append(f"{len(rows)} card{'' if len(rows) == 1 else 's'}. They stand in only when the hub cannot be asked.")
    return "\n".join(lines) + "\n"


def _joined(kinds: list[dict[str, Any]], key: str) -> str:
    return "/".join(dict.fromkeys(str(x[key]) for x in kinds)) or "-"
