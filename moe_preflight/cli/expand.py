"""Many models by few words: ``@file`` lists, folders of configs, and the bundled cards."""

from __future__ import annotations

import os

from moe_preflight.errors import InputError, UsageError

MAX_MODELS = 100_000
MAX_LIST = 8 << 20
"""Bytes of an @file."""


def expand(words: list[str] | None, *, cards: bool = False) -> list[str]:
    """Every model the words stand for, in order, each once. A folder with a config.json is one model; one without stands for the
    ``*.json`` files in it and the folders in it that have a config.json. Raises UsageError and InputError."""
    out: list[str] = []
    for word in words or []:
        if word.startswith("@"):
            out += [m for line in _lines(word[1:]) for m in _one(line)]
        else:
            out += _one(word)
    if cards:
        from moe_preflight.model.cards import find, ids

        out += [path for i in ids() if (path := find(i)) is not None]
    if len(out) > MAX_MODELS:
        raise UsageError(f"{len(out):,} models: more than {MAX_MODELS:,}.", hint="Split the run.")
    return list(dict.fromkeys(out))


def _lines(path: str) -> list[str]:
    from moe_preflight.aiter.tree import read_regular

    if not path:
        raise UsageError("@: no file named.", hint="@models.txt holds one model a line; # starts a comment.")
    try:
        text = read_regular(path, MAX_LIST).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"@{path}: not UTF-8 text.", hint="One model a line; # starts a comment.") from None
    return [stripped for line in text.splitlines() if (stripped := line.partition("#")[0].strip())]


def _one(word: str) -> list[str]:
    path = os.path.expanduser(word)
    if not os.path.isdir(path) or os.path.lexists(os.path.join(path, "config.json")):
        return [word]
    try:
        names = sorted(os.listdir(path))
    except OSError as e:
        raise InputError(f"{word}: {(e.strerror or 'cannot be listed').lower()}.") from None
    found = [os.path.join(word, n) for n in names if n.endswith(".json") and not n.endswith("hf_quant_config.json")]
    found += [os.path.join(word, n) for n in names if os.path.isfile(os.path.join(path, n, "config.json"))]
    return found or [word]
