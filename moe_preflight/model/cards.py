"""Bundled cards: config.json files of well-known models, for when the hub cannot be asked.

A card is a plain config under ``configs/models`` named ``org__name.json``; ``INDEX.toml`` beside says where each came from.
Finding a card reads no index.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from moe_preflight.errors import InputError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True)
class Card:
    """One entry of the index: which model, which commit of it where that is known, and where the values were read."""

    id: str
    file: str
    revision: str | None
    source: str


def directory() -> str | None:
    """Where the cards are: inside the installed package, or beside it in a checkout."""
    for path in (os.path.join(_PACKAGE, "configs", "models"), os.path.join(os.path.dirname(_PACKAGE), "configs", "models")):
        if os.path.isdir(path):
            return path
    return None


def find(repo_id: str, card_dir: str | None = None) -> str | None:
    """The card's path, or None. The hub treats ids as case-insensitive, so does this."""
    folder = card_dir or directory()
    if folder is None:
        return None
    name = repo_id.replace("/", "__") + ".json"
    path = os.path.join(folder, name)
    if os.path.isfile(path):
        return path
    low = name.lower()
    try:
        return next((os.path.join(folder, x) for x in os.listdir(folder) if x.lower() == low), None)
    except OSError:
        return None


def ids(card_dir: str | None = None) -> list[str]:
    """The ids of all cards, from the file names."""
    folder = card_dir or directory()
    if folder is None:
        return []
    try:
        return sorted(x.removesuffix(".json").replace("__", "/", 1) for x in os.listdir(folder) if x.endswith(".json"))
    except OSError:
        return []


def index(card_dir: str | None = None) -> list[Card]:
    """Every card with what the index says of it, sorted by id. Raises InputError when the index cannot be read."""
    import tomllib

    folder = card_dir or directory()
    if folder is None:
        return []
    path = os.path.join(folder, "INDEX.toml")
    try:
        with open(path, "rb") as f:
            data = tomllib.load(f)
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise InputError(f"{path}: the index of the cards cannot be read ({e}).") from None
    cards = [
        Card(str(key), str(row["file"]), str(row["revision"]) if row.get("revision") else None, str(row.get("source", "")))
        for key, row in data.get("models", {}).items()
    ]
    return sorted(cards, key=lambda c: c.id.lower())
