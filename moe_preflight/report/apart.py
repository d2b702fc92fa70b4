"""A report never takes the place of what the run read: the model, the tables, the AITER tree, the log, the gate file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatch

from moe_preflight.errors import UsageError

PACKAGE = ("aiter", "aiter_meta", "csrc", "hsa")
"""The folders of an AITER tree (a checkout, or the site-packages it is installed in); what lies beside them is the user's."""

OURS = ("config.json", "*hf_quant_config.json", "*.safetensors", "*.safetensors.index.json", "*fmoe*.csv")
"""What is read of a folder, by name; any other file of it may be a report of an earlier run."""


def keep_apart(destinations: Iterable[str | None], reads: Iterable[str | None]) -> None:
    """``reads`` are files and folders the run looked at (names that are no paths, such as hub ids, do no harm), links followed.

    Raises UsageError for a destination that is one of them, is a file of the kind that is read of such a folder, or lies in an
    AITER tree, whether it is there yet or not.
    """
    seen = [os.path.realpath(r) for r in reads if r and r != "-" and "\0" not in r]
    for name in destinations:
        if name is None:
            continue
        place = os.path.realpath(name)
        for read in seen:
            if place == read or _of_folder(place, read):
                raise UsageError(f"{name}: this run reads it, the report would take its place.", hint="Name another file.")
            tree = next((t for t in (os.path.join(read, p) for p in PACKAGE) if place.startswith(t + os.sep)), None)
            if tree is not None and os.path.isdir(os.path.join(read, "aiter")):
                raise UsageError(f"{name}: lies in the AITER tree {read}, which is never written to.", hint="Name another file.")


def _of_folder(place: str, folder: str) -> bool:
    name = os.path.basename(place)
    return place.startswith(folder + os.sep) and os.path.isfile(place) and any(fnmatch(name, p) for p in OURS)
