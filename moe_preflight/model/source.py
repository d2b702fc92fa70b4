"""Where a model's config comes from: the hub, a folder, a file, stdin, or a bundled card. All of the model room's I/O.

Order, as in vLLM: what exists on this disk is local, everything else is a hub id. A card stands in only when the hub cannot
be asked (offline, no network, a server error) and the hub cache has no copy; a refusal of the hub is never papered over.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from moe_preflight.errors import ConfigError, InputError, ModelUnavailable, PreflightError, UsageError
from moe_preflight.model import cards, hub
from moe_preflight.model.moe import MoEModel
from moe_preflight.model.read import read_config
from moe_preflight.model.strict_json import MAX_BYTES, load_object

CONFIG = "config.json"
QUANT = "hf_quant_config.json"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A config as found. ``hf_quant_config`` is ModelOpt's file beside it, read only when the engine would read it."""

    config: dict[str, object]
    id: str
    source: str
    revision: str | None = None
    hf_quant_config: dict[str, object] | None = None
    notes: tuple[str, ...] = ()


def load(model: str, *, revision: str | None = None, offline: bool = False, card_dir: str | None = None) -> MoEModel:
    """``resolve`` and ``read_config`` in one."""
    found = resolve(model, revision=revision, offline=offline, card_dir=card_dir)
    read = read_config(
        found.config, id=found.id, source=found.source, revision=found.revision, hf_quant_config=found.hf_quant_config
    )
    return replace(read, notes=(*found.notes, *read.notes)) if found.notes else read


def resolve(model: str, *, revision: str | None = None, offline: bool = False, card_dir: str | None = None) -> Resolved:
    """The config that MODEL stands for. Raises UsageError (what was typed makes no sense), InputError / ConfigError (it is
    there but cannot be read) or ModelUnavailable (it could not be looked at)."""
    if model == "-":
        return Resolved(load_object(_stdin(), "stdin"), "stdin", "stdin")
    if not model.strip() or "\0" in model:
        raise UsageError("MODEL is empty.", hint="Expected org/name, a folder, a config.json file, or - for stdin.")
    path = os.path.expanduser(model)
    if os.path.lexists(path):
        return _local(path)
    if _looks_like_a_path(model):
        raise UsageError(f"{shown(model)}: no such file or folder.", hint=_nearby(path))
    try:
        hub.check_id(model)
    except UsageError as e:
        raise _with_guess(e, model, card_dir) from None
    return _from_hub(model, revision, offline or hub.is_offline(), card_dir)


def shown(path: str) -> str:
    """A path as it may stand in a line: control characters and broken bytes escaped, not too long."""
    line = path if path.isprintable() else ascii(path)[1:-1]
    return line if len(line) <= 200 else "..." + line[-197:]


def _looks_like_a_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1 or model.endswith((".json", "/"))


def _nearby(path: str) -> str:
    """What stands in the folder that a mistyped path points into."""
    from difflib import get_close_matches

    folder, name = os.path.split(path.rstrip("/"))
    try:
        close = get_close_matches(name, os.listdir(folder or ".")[:2000], n=1)
    except OSError:
        return "Check the path; a hub id is org/name."
    return f"Did you mean {shown(os.path.join(folder, close[0]))}?" if close else "Check the path; a hub id is org/name."


def _local(path: str) -> Resolved:
    if os.path.isdir(path):
        file = os.path.join(path, CONFIG)
        if not os.path.lexists(file):
            raise InputError(
                f"{shown(path)}: a folder without a {CONFIG}.",
                hint="If the hub's model of that name is meant, run from another folder.",
            )
        beside = os.path.join(path, QUANT)
    else:
        file = path
        stem = path.removesuffix(".json")
        beside = os.path.join(os.path.dirname(path), QUANT) if os.path.basename(path) == CONFIG else f"{stem}.{QUANT}"
    config = load_object(read_file(file), shown(file))
    quant = None
    if wants_quant_file(config) and os.path.lexists(beside):
        quant = load_object(read_file(beside), shown(beside))
    return Resolved(config, shown(path), "local", hf_quant_config=quant)


def wants_quant_file(config: Mapping[str, object]) -> bool:
    """Would vLLM look at ModelOpt's own file? When the config has no quantization_config (transformers_utils/config.py:957),
    or says MIXED_PRECISION without saying which module has what (weight_utils.py:269)."""
    quant = config.get("quantization_config")
    if quant is None:
        return True
    if not isinstance(quant, Mapping):
        return False
    inner = quant.get("quantization")
    holder = inner if isinstance(inner, Mapping) else quant
    return str(holder.get("quant_algo")).upper() == "MIXED_PRECISION" and "quantized_layers" not in holder


def read_file(path: str) -> bytes:
    """The bytes of a regular file of sane size. Opened without waiting, so a pipe or a device cannot hold us."""
    name = shown(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{name}: not a regular file.", hint="Expected a config.json; use - to read from a pipe.")
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as e:
        raise InputError(f"{name}: cannot be opened ({e.strerror or e}).") from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{name}: no longer a regular file.")
        if info.st_size > MAX_BYTES:
            raise ConfigError(
                f"{name}: {info.st_size:,} bytes; a config is at most {MAX_BYTES:,}.", hint="Is this the right file?"
            )
        with os.fdopen(fd, "rb", closefd=False) as f:
            return f.read(MAX_BYTES + 1)
    except OSError as e:
        raise InputError(f"{name}: cannot be read ({e.strerror or e}).") from None
    finally:
        os.close(fd)


def _stdin() -> bytes:
    stream = sys.stdin
    if stream is None or stream.closed:
        raise UsageError("- was given, but stdin is closed.")
    if stream.isatty():
        raise UsageError("- was given, but stdin is a terminal.", hint="Pipe a config in: curl ... | moe-preflight check -")
    try:
        data = stream.buffer.read(MAX_BYTES + 1)
    except OSError as e:
        raise InputError(f"stdin: cannot be read ({e.strerror or e}).") from None
    if not data:
        raise ConfigError("stdin: empty; expected a JSON object.", hint="It can be read once only.")
    return bytes(data)


def _from_hub(repo_id: str, revision: str | None, offline: bool, card_dir: str | None) -> Resolved:
    card = cards.find(repo_id, card_dir)
    pinned = revision is not None and revision != "main"
    if offline:
        found = hub.cached(repo_id, CONFIG, revision)
        if found is not None:
            return _of_cache(repo_id, found, ())
        return _of_card(repo_id, card, revision, pinned, "offline, and the hub cache has no copy", card_dir)
    spare = hub.cached(repo_id, CONFIG, revision) is not None or (card is not None and not pinned)
    with hub.asking(hub.IMPATIENT if spare else hub.PATIENT) as ask:
        try:
            got = ask.fetch(repo_id, CONFIG, revision)
        except hub.Unreachable as e:
            found = hub.cached(repo_id, CONFIG, revision)
            if found is not None:
                return _of_cache(repo_id, found, (f"the hub could not be reached ({e.reason}): read from the hub cache",))
            return _of_card(repo_id, card, revision, pinned, f"the hub could not be reached ({e.reason})", card_dir)
        except ModelUnavailable as e:
            raise (_with_guess(e, repo_id, card_dir) if "not on the hub" in e.message else e) from None
        if got is None:
            raise ModelUnavailable(
                f"{repo_id}: has no {CONFIG} on the hub.",
                hint="An adapter, GGUF or diffusers repository? Give the base model's id.",
            )
        config = load_object(read_file(got.path), f"{repo_id}/{CONFIG}")
        quant, notes = _quant_from_hub(ask, repo_id, config, got.commit)
    return Resolved(config, repo_id, "hub", got.commit, quant, notes)


def _quant_from_hub(
    ask: hub.Asking, repo_id: str, config: dict[str, object], commit: str | None
) -> tuple[dict[str, object] | None, tuple[str, ...]]:
    if not wants_quant_file(config) or commit is None or hub.known_missing(repo_id, QUANT, commit):
        return None, ()
    try:
        got = ask.fetch(repo_id, QUANT, commit)
    except hub.Unreachable as e:
        return None, (f"{QUANT} could not be looked for ({e.reason}): the model is taken for unquantized",)
    if got is None:
        hub.remember_missing(repo_id, QUANT, commit)
        return None, ()
    return load_object(read_file(got.path), f"{repo_id}/{QUANT}"), ()


def _of_cache(repo_id: str, found: hub.Fetched, notes: tuple[str, ...]) -> Resolved:
    config = load_object(read_file(found.path), f"{repo_id}/{CONFIG}")
    quant = None
    if wants_quant_file(config):
        beside = hub.cached(repo_id, QUANT, found.commit)
        quant = load_object(read_file(beside.path), f"{repo_id}/{QUANT}") if beside is not None else None
    return Resolved(config, repo_id, "hub", found.commit, quant, notes)


def _of_card(repo_id: str, card: str | None, revision: str | None, pinned: bool, why: str, card_dir: str | None) -> Resolved:
    if card is None or pinned:
        what = f"no bundled card stands for revision {shown(revision or '')}" if card is not None else "there is no bundled card"
        e = ModelUnavailable(
            f"{repo_id}: {why}, and {what}.",
            hint="Give a config.json file, or try again with a network (HF_ENDPOINT, HTTPS_PROXY).",
        )
        raise e if card is not None else _with_guess(e, repo_id, card_dir)
    note = f"{why}: the bundled card of {repo_id} was used; it may lag behind the hub"
    return Resolved(load_object(read_file(card), shown(card)), repo_id, "bundled", notes=(note,))


def _with_guess(e: PreflightError, repo_id: str, card_dir: str | None) -> PreflightError:
    """The same error, with the ids of the cards that a short, miscased or misspelt name may mean."""
    close = [x for x in cards.close_to(repo_id, card_dir) if x.lower() != repo_id.lower()]
    if not close:
        return e
    *others, last = close
    meant = f"{', '.join(others)} or {last}" if others else last
    return type(e)(e.message, hint=f"Did you mean {meant}? {e.hint}".rstrip())
