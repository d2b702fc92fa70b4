"""``moe-preflight lint``: are the tuned tables themselves sound?"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from moe_preflight.cli import options as o

if TYPE_CHECKING:
    from moe_preflight.aiter.basis import AiterBasis
    from moe_preflight.coverage.lint.run import Linted

Paths = Annotated[list[str], typer.Argument(help="An AITER tree, a wheel, a folder of tables, or CSV files.")]
Select = Annotated[list[str] | None, typer.Option("--select", help="Only these codes or names.", show_default=False)]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", help="Not these codes or names.", show_default=False)]


def lint(
    paths: Paths,
    aiter_version: o.AiterVersion = None,
    format: o.FormatOption = None,
    output: o.Output = None,
    fail_on: o.FailOn = "error",
    select: Select = None,
    ignore: Ignore = None,
    color: o.Color = "auto",
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Check tuned fMoE tables: doubled, unreachable and shadowed rows, kernels that do not exist or do not fit, layouts a merge drops.

    Example: moe-preflight lint . --format github

    A file inside a tree is judged together with the tables it would be merged with. Without --aiter-version the tree's own
    version counts, else the newest source read.

    Exit codes: 0 nothing at or above --fail-on; 1 a finding at or above it; 2 usage, settings or malformed input;
    3 something asked for could not be looked at.
    """
    from moe_preflight.cli.rules import every_rule
    from moe_preflight.coverage.catalogue import chosen
    from moe_preflight.report.document import document
    from moe_preflight.report.formats import FORMATS
    from moe_preflight.report.lint_text import render, summary
    from moe_preflight.report.output import emit, say, sinks, use_colour
    from moe_preflight.report.sanitise import clean_document
    from moe_preflight.report.types import exit_code
    from moe_preflight.rules.run import Run
    from moe_preflight.settings import Request

    def sarif(doc: dict[str, object]) -> str:
        from moe_preflight.report.sarif import render as as_sarif

        return as_sarif(doc, {r.code: r for r in every_rule()})

    o.choice(fail_on, "--fail-on", ("error", "warning", "never"))
    formats = {**FORMATS, "text": render, "sarif": sarif}
    destinations = sinks(format, output, known=formats)
    colour = use_colour(color, sys.stdout)
    found, facts = _lint(paths, aiter_version)
    findings = chosen(found.findings, select, ignore)
    looked = {
        "kind": "lint",
        "target": None,
        "layer": None,
        "status": "read",
        "tables": found.tables,
        "rows": found.rows,
        "other_csv_files": found.others,
        "rules": str(facts.facts_version),
        "rules_from": facts.version_from,
    }
    doc = clean_document(document(Run(Request(), (), facts, ()), findings, found.not_evaluated, (looked,)))
    emit(doc, destinations, colour=colour, quiet=quiet, verbose=verbose, formats=formats, text=render, reads=paths)
    say(summary(doc))
    raise typer.Exit(exit_code(findings, found.not_evaluated, fail_on=fail_on, malformed=False))


def _lint(paths: list[str], asked: str | None) -> tuple[Linted, AiterBasis]:
    """Trees by tree, everything else as one list of files."""
    from moe_preflight.errors import UsageError

    homes = [_home(p) for p in paths]
    roots = list(dict.fromkeys(h for h in homes if h is not None))
    if not roots:
        return _lint_files([f for p in paths for f in _files(p)], asked)
    if len(roots) > 1 or None in homes:
        raise UsageError("lint: one tree at a time, or files that belong to none.", hint="Run lint once for each.")
    return _lint_tree(roots[0], paths, asked)


def _home(path: str) -> str | None:
    """The tree a path is, or lies in; None for a file or folder of its own."""
    if os.path.isdir(os.path.join(path, "aiter", "configs")) or path.lower().endswith(".whl"):
        return path
    real = os.path.realpath(path)
    folder = real if os.path.isdir(real) else os.path.dirname(real)
    for _ in range(3):
        if os.path.basename(folder) == "configs" and os.path.basename(os.path.dirname(folder)) == "aiter":
            return os.path.dirname(os.path.dirname(folder))
        if os.path.basename(folder) == "aiter" and os.path.isdir(os.path.join(folder, "configs")):
            return os.path.dirname(folder)
        folder = os.path.dirname(folder)
    return None


def _lint_tree(root: str, paths: list[str], asked: str | None) -> tuple[Linted, AiterBasis]:
    from moe_preflight.aiter.basis import PIN, open_basis
    from moe_preflight.aiter.facts.dispatch_rules import MAIN
    from moe_preflight.coverage.lint.run import lint_tree

    basis = open_basis(root, asked_version=asked, pin=MAIN, tuned=True)
    facts, tree = basis.facts, basis.tree
    assert tree is not None  # a tree named by the user is there, or open_basis raises
    if facts.version_from == PIN:  # there is no engine here: nothing said which AITER
        facts = replace(facts, version=None, version_from=_NEWEST, confidence="unverified")
    found = lint_tree(tree, basis.version, basis.table, basis.witness)
    if root in paths:
        return found, facts
    # Some files of a tree: judged among the others, told for these alone.
    real = [os.path.realpath(p) for p in paths]
    inside = [os.path.relpath(p, os.path.realpath(tree.root)).replace(os.sep, "/") for p in real]
    mine = tuple(
        f for f in found.findings if any(e.file == p or e.file.startswith(p + "/") for e in f.evidence[:1] for p in inside)
    )
    return replace(found, findings=mine), facts


_NEWEST = "the newest source read; nothing said which AITER"
MAX_FILES = 10_000


def _files(path: str) -> list[str]:
    """The path itself, or the CSV files directly in it."""
    from moe_preflight.errors import TableError

    if not os.path.isdir(path):
        return [path]
    try:
        names = sorted(n for n in os.listdir(path) if n.endswith(".csv"))
    except OSError as e:
        raise TableError(f"{path}: {(e.strerror or 'cannot be listed').lower()}.", hint="Name a folder you may read.") from None
    if not names or len(names) > MAX_FILES:
        raise TableError(
            f"{path}: no CSV file in this folder, or too many.", hint="Name a tree, a folder of tables, or CSV files."
        )
    return [os.path.join(path, n) for n in names]


def _lint_files(names: list[str], asked: str | None) -> tuple[Linted, AiterBasis]:
    from moe_preflight.aiter.basis import AiterBasis
    from moe_preflight.aiter.facts.dispatch_rules import MAIN, is_verified
    from moe_preflight.aiter.tree import read_regular
    from moe_preflight.aiter.version import Version
    from moe_preflight.coverage.lint.run import lint_files
    from moe_preflight.errors import FileUnreadable, TableError, UsageError

    version = Version.parse(asked) if asked is not None else Version.of(MAIN)
    if version is None:
        raise UsageError(f"--aiter-version {asked}: not a version.", hint="Expected such as 0.1.20.post1.")
    contents: dict[str, bytes | FileUnreadable] = {}
    for name in names:
        if not os.path.lexists(name):
            raise TableError(f"{name}: no such file or folder.", hint="Name a tree, a folder of tables, or CSV files.")
        try:
            contents[name] = read_regular(name)
        except FileUnreadable as e:
            contents[name] = e
    confidence = "verified" if asked is not None and is_verified(version) else "unverified"
    said = "--aiter-version" if asked is not None else _NEWEST
    facts = AiterBasis(version if asked is not None else None, said, version, confidence)
    return lint_files(contents, version), facts
