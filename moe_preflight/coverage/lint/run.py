"""From a tree or a list of files to findings: read, check, sort. The files are read through a Source; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from moe_preflight.aiter.csvtable import CsvProblem, parse, text_of
from moe_preflight.aiter.facts.dispatch_rules import is_verified, rules_for
from moe_preflight.aiter.tuned import CONFIGS, DEFAULT, UNTUNED, Source, TunedTable, shipped_files
from moe_preflight.aiter.version import Version
from moe_preflight.aiter.witness import Witness
from moe_preflight.coverage.lint import files, kernels, keys, rows, unused
from moe_preflight.coverage.lint import rules as r
from moe_preflight.coverage.lint.table import File, Tables, rows_of
from moe_preflight.errors import FileUnreadable
from moe_preflight.report.types import Evidence, Finding, NotEvaluated
from moe_preflight.rules.tuned import UNREADABLE

Check = Callable[[Tables], Iterator[Finding]]
MAX_FINDINGS = 5_000
"""Of one check. All tables of v0.1.20.post1 together have 3,690 rows; nobody reads more than this."""
CHECKS: tuple[Check, ...] = (*keys.CHECKS, *rows.CHECKS, *kernels.CHECKS, *files.CHECKS)

UNTUNED_COLUMNS = (
    *("token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type"),
    *("use_g1u1", "doweight_stage1"),
)
"""Header of untuned_fmoe.csv, every release from v0.1.7.post2 to v0.1.20.post1."""

OTHER_FAMILIES = ("tuned_grouped_fmoe", "tuned_fhmoe")
"""Tables of other kernels that AITER loads under names of their own (aiter/jit/core.py, v0.1.17 and main)."""

_MOE = frozenset(("inter_dim", "expert", "topk"))


@dataclass(frozen=True, slots=True)
class Linted:
    """What a lint found. ``tables`` and ``rows`` were looked at; ``others`` are further CSV files of the tree, read for their shape only."""

    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    tables: int
    rows: int
    others: int = 0


def lint_tree(tree: Source, version: Version, table: TunedTable | None = None, witness: Witness | None = None) -> Linted:
    """Every CSV below aiter/configs of a tree: fMoE tables by every check, the others for being readable.

    ``table``, merged by that release's rules, adds the check that asks the dispatch model for each row's own key. ``witness``
    is what the tree's own sources say, where it has any: they count before the release's built-in rules.
    """
    release = witness.rules if witness else rules_for(version)
    wanted = shipped_files(tree, release)
    names = tree.names(CONFIGS, ".csv")
    names += [n for n in wanted if n not in names and tree.exists(n)]
    loaded: list[File] = []
    others: list[File] = []
    findings: list[Finding] = []
    plain = 0
    for name in sorted(names, key=lambda n: (wanted.index(n) if n in wanted else len(wanted), n)):
        try:
            data = tree.read_bytes(name)
            if name not in wanted and not _is_moe(data):
                plain += 1
                findings += _shape(name, data)
                continue
            file = File(name, parse(data), name in wanted)
        except (CsvProblem, FileUnreadable) as e:
            findings.append(_unreadable(name, e, in_use=name in wanted))
            continue
        if file.loaded:
            loaded.append(file)
        elif _tuned(file) and not any(f in name for f in OTHER_FAMILIES):
            others.append(file)
        else:
            plain += 1
    t = _tables(
        version, loaded, others, source=tree, asm=_asm_lists(tree), merged=len(wanted) > 1, untuned=_untuned(tree), in_tree=True
    )
    if witness is not None:
        t.rules, t.ck, t.registry = witness.rules, witness.ck, t.registry and witness.verified
    missing: list[NotEvaluated] = []
    findings += _checked(t, missing, table)
    if not loaded and not others:
        missing.append(NotEvaluated("tuned tables", "the tree holds no tuned fMoE table", "Point at another tree."))
    return Linted(
        _sorted(findings), tuple(missing), len(loaded) + len(others), sum(len(f.rows) for f in (*loaded, *others)), plain
    )


def lint_files(named: Mapping[str, bytes | FileUnreadable], version: Version) -> Linted:
    """Files named one by one: name -> content, or why it could not be read. Several are linted as one merge, in that order."""
    loaded: list[File] = []
    findings: list[Finding] = []
    missing: list[NotEvaluated] = []
    for name, data in named.items():
        try:
            if isinstance(data, FileUnreadable):
                raise data
            file = File(name, parse(data))
        except (CsvProblem, FileUnreadable) as e:
            findings.append(_unreadable(name, e, in_use=True))
            continue
        if not _MOE & set(file.csv.header):
            missing.append(
                NotEvaluated(f"table {name}", "it has no fMoE columns (inter_dim, expert, topk)", "Name a tuned fMoE table.")
            )
        elif not _tuned(file):
            missing.append(
                NotEvaluated(f"table {name}", "it names no kernels: it is an untuned list", "Name a tuned fMoE table.")
            )
        else:
            loaded.append(file)
    merged = len(loaded) > 1
    t = _tables(version, loaded, [], source=None, asm=None, merged=merged, untuned=UNTUNED_COLUMNS, in_tree=False)
    findings += _checked(t, missing, None)
    findings += [f for file in loaded for f in _misnamed(t, file)]
    return Linted(_sorted(findings), tuple(missing), len(loaded), sum(len(f.rows) for f in loaded))


def _checked(t: Tables, missing: list[NotEvaluated], table: TunedTable | None) -> list[Finding]:
    """What every check finds, MAX_FINDINGS of each at most; ``missing`` gets a line for each that had more. ``table`` is there to be
    asked for the rows' own keys."""
    checks = CHECKS
    if table is not None and not table.error:
        asked = table
        checks = (*CHECKS, lambda tables: unused.unused_rows(tables, asked))
    out: list[Finding] = []
    for check in checks:
        found = list(islice(check(t), MAX_FINDINGS + 1))
        if len(found) > MAX_FINDINGS:
            what = f"{found[-1].name} findings after the first {MAX_FINDINGS:,}"
            missing.append(NotEvaluated(what, "the rest of the rows was not looked at for it", "Mend these rows and lint again."))
        out += found[:MAX_FINDINGS]
    return out


def _tables(
    version: Version, loaded: list[File], others: list[File], *, source: Source | None, asm: Mapping[str, Mapping[str, str]] | None,
    merged: bool, untuned: Sequence[str], in_tree: bool,
) -> Tables:  # fmt: skip
    start = 0
    for f in (*loaded, *others):
        f.rows = rows_of(f, start)
        start += len(f.rows)
    known = is_verified(version)
    return Tables(
        version, rules_for(version), loaded, others, merged, untuned, source, asm, in_tree, "read" if known else "unverified",
        registry=known,
    )  # fmt: skip


def _is_moe(data: bytes) -> bool:
    return b"inter_dim" in data[:4096].partition(b"\n")[0]


def _tuned(file: File) -> bool:
    return set(file.csv.header) >= _MOE and any(c.startswith("kernelName") for c in file.csv.header)


def _untuned(tree: Source) -> Sequence[str]:
    try:
        return parse(tree.read_bytes(UNTUNED)).header
    except (FileUnreadable, CsvProblem):
        return UNTUNED_COLUMNS


def _asm_lists(tree: Source) -> dict[str, dict[str, str]] | None:
    """Architecture -> assembly kernel -> the list that holds it, from hsa/<gfx>/fmoe and fmoe_2stages; None when there are none."""
    prefix = getattr(tree, "hsa_prefix", "hsa")
    out: dict[str, dict[str, str]] = {}
    for name in tree.names(prefix, ".csv"):
        gfx, _, place = name[len(prefix) + 1 :].partition("/")
        if not place.startswith(("fmoe/", "fmoe_2stages/")):
            continue
        held = out.setdefault(gfx, {})
        try:
            for row in parse(tree.read_bytes(name)).rows:
                held.update((cell.strip(), name) for cell in row if cell.lstrip().startswith("_ZN5aiter"))
        except (CsvProblem, FileUnreadable):
            # A list that cannot be read proves nothing about a name: leave the architecture unchecked.
            return {g: k for g, k in out.items() if g != gfx} or None
    return out or None


def _shape(name: str, data: bytes) -> Iterator[Finding]:
    """A table of another kernel: is it readable, and does every row have the header's cells?"""
    text = text_of(data)
    if '"' in text:
        parse(data)
        return
    lines = text.split("\n")
    width = lines[0].count(",")
    for number, line in enumerate(lines[1:], 2):
        if line.count(",") != width and line.strip(" \t"):
            cells = line.count(",") + 1
            yield r.RAGGED.finding(
                f"{name}:{number}: {cells} cells where the header has {width + 1}.",
                severity="error" if cells > width + 1 else "warning",
                confidence="read",
                evidence=[Evidence(name, number, line[:300])],
            )


def _unreadable(name: str, e: CsvProblem | FileUnreadable, *, in_use: bool) -> Finding:
    severity = "error" if in_use else "warning"
    if isinstance(e, FileUnreadable):
        return UNREADABLE.finding(
            f"{name}: {e.reason}.", severity=severity, confidence="read", evidence=[Evidence(name, None, e.reason)]
        )
    rule = r.RAGGED if "cells where" in e.reason else UNREADABLE
    where = f"{name}:{e.line}" if e.line else name
    return rule.finding(
        f'{where}: {e.reason}; AITER raises "{e.text}" and reads none of the file.',
        severity=severity,
        confidence="read",
        evidence=[Evidence(name, e.line or None, e.reason)],
    )


def _misnamed(t: Tables, file: File) -> Iterator[Finding]:
    """A file on its own whose name AITER would not take, were it put among the others."""
    base = file.name.replace("\\", "/").rpartition("/")[2]
    if "tuned_fmoe" in base and "untuned" not in base and (base.endswith(".csv") or t.rules.any_suffix):
        return
    in_place = file.name.replace("\\", "/").rpartition("/")[0].endswith(("aiter/configs", "model_configs"))
    yield from (
        r.NAME.finding(
            f"{file.name}:1: AITER {t.version} loads *tuned_fmoe*.csv from model_configs; this name it loads only through AITER_CONFIG_FMOE.",
            severity=None if in_place else "info",
            confidence=t.confidence,
            evidence=[Evidence(file.name, 1, ",".join(file.csv.header)[:300])],
        )
        for _ in file.rows[:1]
    )


_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    """By file and line, so that a reader mends one file from top to bottom."""

    def place(f: Finding) -> tuple[bool, str, int, str, str]:
        e = f.evidence[0]
        return e.file != DEFAULT, e.file, e.line or 0, f.code, f.message

    return tuple(sorted(findings, key=place))
