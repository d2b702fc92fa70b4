"""Bundled cards: config.json files of well-known models, for when the hub cannot be asked.

A card is a plain config under ``configs/models`` named ``org__name.json``; ``INDEX.toml`` beside says where each came from.
Finding a card reads no index.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from moe_preflight.errors import InputError

ALIKE = 0.8
"""How much of two names must agree, as difflib counts it, to ask whether one was meant."""

SHORT = 6
"""Letters and digits below which a name is too short to be taken for the start of another."""

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


def id_of(path: str) -> str | None:
    """The id of the card that the file ``path`` is; None for any other file."""
    folder, name = os.path.split(path)
    here = directory()
    known = (
        here is not None and name.endswith(".json") and os.path.isabs(path) and os.path.realpath(folder) == os.path.realpath(here)
    )
    return name.removesuffix(".json").replace("__", "/", 1) if known else None


def ids(card_dir: str | None = None) -> list[str]:
    """The ids of all cards, from the file names."""
    folder = card_dir or directory()
    if folder is None:
        return []
    try:
        return sorted(x.removesuffix(".json").replace("__", "/", 1) for x in os.listdir(folder) if x.endswith(".json"))
    except OSError:
        return []


def close_to(name: str, card_dir: str | None = None) -> list[str]:
    """The ids of cards that a short, miscased or misspelt name may mean, at most three, the likeliest first.

    A name without an organisation is held against names alone. What is exactly a part of one comes before what merely looks alike.
    """
    wanted, bare = _plain(name), _plain(name.rpartition("/")[2])
    if not 3 <= len(wanted) <= 200:
        return []
    scored = sorted((-_likeness(card, wanted, bare), card) for card in ids(card_dir))
    best = -scored[0][0] if scored else 0.0
    return [card for score, card in scored if -score >= max(ALIKE, min(best - 0.15, 2.0))][:3]


def _likeness(card: str, wanted: str, bare: str) -> float:
    """3: the same name. 2 to 3: a part of it. 1 to 2: so under another organisation. Below 1: difflib's ratio."""
    from difflib import SequenceMatcher

    own = _plain(card.rpartition("/")[2])
    whole = own if wanted == bare else _plain(card)
    if wanted in (whole, own):
        return 3.0
    if wanted in whole:
        return 2.0 + len(wanted) / len(whole)
    if len(bare) < SHORT:
        return SequenceMatcher(None, whole, wanted).ratio()
    if bare in own:
        return 1.0 + len(bare) / len(own)
    cut = SequenceMatcher(None, own[: len(bare)], bare).ratio() - 0.05  # a short name, misspelt
    return max(cut, SequenceMatcher(None, whole, wanted).ratio())


def _plain(text: str) -> str:
    """Letters and digits in one case: what is left when a name is remembered, not copied."""
    return "".join(c for c in text.lower() if c.isalnum())


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
