"""``moe-preflight dispatch``: AITER's own choice for raw keys, one JSON object per line in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moe_preflight.cli.options import Aiter, AiterVersion, Flydsl, MultiArch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from moe_preflight.aiter.dispatch import Dispatcher


def dispatch(
    keys: Annotated[str, typer.Argument(help="JSONL file of keys, or - for stdin.")],
    gfx: Annotated[str, typer.Option("--gfx", help="Architecture, such as gfx950.")],
    cu: Annotated[int, typer.Option("--cu", help="Compute units.", min=1, max=4096)],
    aiter: Aiter = "auto",
    aiter_version: AiterVersion = None,
    flydsl: Flydsl = True,
    multi_arch: MultiArch = False,
    env: Annotated[list[str] | None, typer.Option("--aiter-env", help="NAME=VALUE AITER would see; repeat.")] = None,
) -> None:
    """Answer raw AITER keys (JSONL in, JSONL out).

    A key: token model_dim inter_dim expert topk act dtype q_dtype_w q_type [use_g1u1 doweight_stage1 q_dtype_a is_shuffled
    gate_mode is_ep bias2]. A bad key is answered in its place with an error; the exit code is then 2.

    Example: moe-preflight dispatch --gfx gfx942 --cu 304 keys.jsonl
    """
    from moe_preflight.hardware import by_hand

    by_hand(gfx, cu)
    bad = _answer_all(_open(keys), _dispatcher(gfx, cu, aiter, aiter_version, flydsl, multi_arch, env or []))
    if bad:
        raise typer.Exit(2)


def _dispatcher(
    gfx: str, cu: int, aiter: str, aiter_version: str | None, flydsl: bool, multi_arch: bool, env: list[str]
) -> Dispatcher:
    from moe_preflight.aiter import tuned
    from moe_preflight.aiter.dispatch import Dispatcher
    from moe_preflight.aiter.facts.dispatch_onestage import ARCHITECTURES
    from moe_preflight.aiter.facts.dispatch_rules import MAIN, MAIN_DATE, is_verified, rules_for
    from moe_preflight.aiter.stage_judge import stage_judge
    from moe_preflight.aiter.tree import open_tree
    from moe_preflight.aiter.version import Version
    from moe_preflight.aiter.witness import hear
    from moe_preflight.errors import UsageError

    seen = dict(_pair(e) for e in env)
    branch = aiter_version is not None and Version.parse(aiter_version) is None and _names_main(aiter_version)
    tree = open_tree(aiter, version=None if branch else aiter_version)
    version = Version.of(MAIN) if branch or tree.version is None else tree.version
    witness = hear(tree, version) if tree.has_python or tree.has_sources else None
    verified = witness.verified if witness else is_verified(version) and not branch and tree.version is not None
    if not verified:
        why = witness.reason if witness else "its dispatch was not compared with AITER's own"
        said = f"AITER {aiter_version if branch else tree.version or 'of unknown version'}"
        taken = f", taken for main of {MAIN_DATE}" if branch or tree.version is None else ""
        _warn(f"{said}{taken}: the answers are unverified: {why}.")
    rules = witness.rules if witness else rules_for(version)
    table = tuned.load(tree, rules, seen)
    for text in filter(None, (table.error, table.conflict)):
        _warn(f"AITER itself raises on these tables: {text}")
    if not table.files:
        raise UsageError(f"{tree.root}: no tuned table to look up.", hint="Expected aiter/configs/tuned_fmoe.csv.")
    judge = stage_judge(version, gfx, tree=tree, tree_facts=witness.ck if witness else None, multi_arch=multi_arch)
    return Dispatcher(
        *(version, gfx, cu),
        flydsl=flydsl,
        table=table,
        env=seen,
        rules=rules,
        judge=judge,
        confidence="verified" if verified and gfx in ARCHITECTURES else "unverified",
    )


def _names_main(text: str) -> bool:
    """``main``, ``HEAD`` or a commit: no release, but no nonsense either."""
    import re

    return re.match(r"(?:head|main|master|(?=[a-f]*[0-9])[0-9a-f]{7,40})(?:[-+_@.].{0,60})?\Z", text, re.I) is not None


def _pair(text: str) -> tuple[str, str]:
    from moe_preflight.errors import UsageError

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--aiter-env {text}: no NAME=VALUE.", hint="For example AITER_KSPLIT=2.")
    return name, value


def _warn(text: str) -> None:
    from moe_preflight.report.output import say
    from moe_preflight.report.sanitise import clean

    say(f"moe-preflight: warning: {clean(text)}")


def _open(keys: str) -> TextIO:
    import os
    import stat
    import sys

    from moe_preflight.errors import UsageError

    if keys == "-":
        return sys.stdin
    try:
        if stat.S_ISCHR(os.stat(keys).st_mode) and not os.path.samefile(keys, "/dev/tty"):
            raise UsageError(f"{keys}: a device, which never ends.", hint="Expected a file of JSON lines, or - for stdin.")
        return open(keys, encoding="utf-8", errors="surrogateescape", newline="\n")
    except (OSError, ValueError) as e:
        why = getattr(e, "strerror", None) or str(e)
        raise UsageError(f"{keys}: {why.lower()}.", hint="Expected a file of JSON lines, or - for stdin.") from None


def _lines(source: TextIO) -> Iterator[str]:
    """Lines of any length, each cut to a length no key has."""
    from moe_preflight.aiter.rawkey import MAX_LINE

    while line := source.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE and not line.endswith("\n"):
            while (rest := source.readline(MAX_LINE)) and not rest.endswith("\n"):
                pass
        yield line


def _answer_all(source: TextIO, dispatcher: Dispatcher) -> int:
    """Answer every key in order as it comes; the number of bad ones."""
    import json
    import os
    import stat

    from moe_preflight.aiter.rawkey import MAX_LINE, answer, reader
    from moe_preflight.errors import KeyFieldError
    from moe_preflight.report.output import say

    read, gfx, bad, number = reader(dispatcher.gfx), dispatcher.gfx, 0, 0
    encode, decode = (
        json.JSONEncoder(ensure_ascii=True).encode,
        json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_once).decode,
    )
    waiting: list[str] = []
    try:
        live = not stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except (OSError, ValueError):
        live = True
    for line in _lines(source):
        if not line.strip():
            continue
        number += 1
        raw: object = line.strip()[:200]
        try:
            if len(line) > MAX_LINE:
                raise KeyFieldError("", f"longer than {MAX_LINE} characters.")
            try:
                raw = decode(line)
            except json.JSONDecodeError as e:
                raise KeyFieldError("", f"not JSON: {e.msg} at character {e.colno}.") from None
            except (ValueError, RecursionError):
                raise KeyFieldError("", "not JSON: a number too long, or nested too deeply.") from None
            key, padded = read(raw)
            out = answer(raw, dispatcher.dispatch(key, padded=padded), gfx)
        except KeyFieldError as e:
            bad += 1
            say(f"moe-preflight: key {number}: {_clean(str(e))}")
            out = {"key": raw, "error": str(e)}
        waiting.append(encode(out) + "\n")
        if (live or len(waiting) >= BATCH) and not _flush(waiting):
            return bad
    _flush(waiting)
    return bad


def _refuse(constant: str) -> object:
    from moe_preflight.errors import KeyFieldError

    raise KeyFieldError("", f"not JSON: {constant} is no number.")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object; a field given twice is refused, as nobody can say which one was meant."""
    from moe_preflight.errors import KeyFieldError

    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(n for n in names if names.count(n) > 1)
        raise KeyFieldError(twice, f"{twice}: given twice.")
    return out


BATCH = 256
"""Answers written at once when the keys come from a file; keys that come live are answered one by one."""


def _flush(waiting: list[str]) -> bool:
    """Write what is waiting; False when the reader of stdout has gone, who wants no more."""
    import sys

    try:
        sys.stdout.write("".join(waiting))
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    waiting.clear()
    return True


def _clean(text: str) -> str:
    from moe_preflight.report.sanitise import clean

    return clean(text)
