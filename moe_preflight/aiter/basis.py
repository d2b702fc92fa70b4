"""Which AITER a run is judged for: the tree, its version, its tables and the facts in force. Opened once a run.

The version is the first that answers of: --aiter-version, the tree itself (metadata, wheel name, _version.py, git), the release
whose dispatch code the tree holds, the engine's pin. A version newer than our facts uses the newest facts and is unverified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moe_preflight.aiter.census import Census, take
from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.facts.dispatch_rules import HISTORY, MAIN, is_verified, rules_for
from moe_preflight.aiter.fingerprint import Fingerprint, fingerprint
from moe_preflight.aiter.stage_judge import stage_judge
from moe_preflight.aiter.tree import Tree, open_tree
from moe_preflight.aiter.tuned import TunedTable, load
from moe_preflight.aiter.version import Version
from moe_preflight.aiter.witness import Witness, hear
from moe_preflight.errors import TreeUnavailable, UsageError
from moe_preflight.hardware import Gpu

MAIN_NAME = "main of 2026-08-22"
PIN = "the engine's pin"
NOBODY = "nothing said which AITER"
"""Who said which version it is (AiterBasis.version_from), where the tree did not."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A table that could not be read, or a fault AITER itself would raise while loading the tables."""

    file: str
    line: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class AiterBasis:
    """Which AITER the predictions are for, and what they rest on.

    ``version`` is what was found or asked for (None: nothing said), ``version_from`` who said it; ``facts_version`` the release
    whose facts answer. ``root`` is None when no tree was found, ``missing`` says why. ``confidence`` is ``verified`` when the dispatch
    of that version (and of the tree's own code, if it has any) was compared with AITER's, else ``unverified``.
    ``differences`` are plain statements where the tree's own sources differ from the built-in facts (the tree's are used).
    """

    version: Version | None
    version_from: str
    facts_version: Version
    confidence: str
    root: str | None = None
    found_by: str = ""
    missing: str = ""
    tuned: bool = False
    census: Census | None = None
    unreadable: tuple[Unreadable, ...] = ()
    unread: tuple[Unreadable, ...] = ()
    """Tuned tables this tool could not look at: their rows may be what a miss misses."""
    table_errors: tuple[Unreadable, ...] = ()
    differences: tuple[str, ...] = ()
    pin: str | None = None
    looked_up: str = ""
    """What was looked up instead of the shipped tables, in words; empty when it was those."""


@dataclass(frozen=True, slots=True)
class Basis:
    """``facts`` for the report, and what is needed to dispatch."""

    facts: AiterBasis
    version: Version
    table: TunedTable | None
    flydsl: bool
    env: Mapping[str, str]
    multi_arch: bool = False
    witness: Witness | None = None
    tree: Tree | None = None
    _dispatchers: dict[tuple[str, int], Dispatcher] = field(default_factory=dict)

    @property
    def group_counts(self) -> frozenset[int] | None:
        """The expert-group counts the tree's own kernel source compiles; None: the release's."""
        return self.witness.group_counts if self.witness else None

    def dispatcher(self, gpu: Gpu) -> Dispatcher:
        """The dispatcher for a GPU: one per (gfx, cu_num), so that its caches serve every model of the run."""
        key = (gpu.gfx, gpu.cu_num)
        if key not in self._dispatchers:
            self._dispatchers[key] = Dispatcher(
                self.version,
                gpu.gfx,
                gpu.cu_num,
                flydsl=self.flydsl,
                table=self.table,
                env=self.env,
                rules=self.witness.rules if self.witness else None,
                judge=stage_judge(
                    self.version,
                    gpu.gfx,
                    tree=self.tree,
                    tree_facts=self.witness.ck if self.witness else None,
                    multi_arch=self.multi_arch,
                ),
                confidence=self.facts.confidence,
            )
        return self._dispatchers[key]


def open_basis(
    spec: str,
    *,
    asked_version: str | None,
    pin: str | None,
    tuned: bool,
    flydsl: bool = True,
    multi_arch: bool = False,
    env: Mapping[str, str] | None = None,
) -> Basis:
    """Find the tree ``spec`` (auto, a folder, a wheel), read its tables when ``tuned``, and settle on a version.

    No tree is an answer with ``auto`` (the report says so); a tree named by the user that is not there raises. Raises UsageError
    for a version that is no version.
    """
    if asked_version is not None and Version.parse(asked_version) is None:
        raise UsageError(f"--aiter-version {asked_version}: not a version.", hint="Expected such as 0.1.20.post1.")
    tree, missing = _tree(spec, asked_version)
    code = fingerprint(tree) if tree is not None else None
    version, said_by = _version(tree, asked_version, pin, code)
    facts_version = _facts_version(version)
    env = env or {}
    _whole_numbers(env, version or facts_version)
    witness = hear(tree, version or facts_version, code) if tree and (tree.has_python or tree.has_sources) else None
    table = load(tree, witness.rules if witness else rules_for(facts_version), env) if tree and tuned else None
    shipped = {} if table is None or env.get("AITER_CONFIG_FMOE") else {f.name: f.csv for f in table.files}
    census = take(tree, shipped) if tree and tuned else None
    facts = AiterBasis(
        version=version,
        version_from=said_by,
        facts_version=facts_version,
        confidence="verified"
        if (witness.verified if witness else version is not None and is_verified(version))
        else "unverified",
        root=tree.root if tree else None,
        found_by=tree.found_by if tree else "",
        missing=missing,
        tuned=table is not None,
        census=census,
        unreadable=_unreadable(tree, table, census),
        unread=_unread(tree, table),
        table_errors=_table_errors(table),
        differences=witness.differences if witness else (),
        pin=pin,
        looked_up=_looked_up(table) if table is not None and env.get("AITER_CONFIG_FMOE") else "",
    )
    return Basis(facts, version or facts_version, table, flydsl, env, multi_arch, witness, tree)


def _looked_up(table: TunedTable) -> str:
    rows, files = table.count, len(table.files)
    return f"{rows:,} row{'s' * (rows != 1)} in {files} table{'s' * (files != 1)} of AITER_CONFIG_FMOE"


_WHOLE_NUMBERS = {
    **dict.fromkeys(("AITER_FP4x2", "AITER_LOG_MORE", "AITER_LOG_TUNED_CONFIG", "AITER_REBUILD"), "0.1.7.post2"),
    **dict.fromkeys(("AITER_BYPASS_TUNE_CONFIG", "AITER_KSPLIT"), "0.1.9"),
    "AITER_USE_NT": "0.1.10",
    "AITER_XBFLOAT16": "0.1.13",
    "AITER_BF16_FP8_MOE_BOUND": "0.1.14",
    **dict.fromkeys(("AITER_ASM_DEBUG", "AITER_DISABLE_KERNARG_PRELOAD"), "0.1.16"),
}
"""Variables AITER gives to int(), and the first release that does: aiter/fused_moe.py and aiter/jit/core.py, read at every release
from v0.1.7.post2 to v0.1.20.post1 (v0.1.20.post1: fused_moe.py:724, :1198, :1206, :2327, :2355; jit/core.py)."""


def _whole_numbers(env: Mapping[str, str], version: Version) -> None:
    """Raises UsageError for a value on which AITER's int() would raise, at import or at the first call that reads it."""
    for name in sorted(env.keys() & _WHOLE_NUMBERS.keys()):
        if version >= Version.of(_WHOLE_NUMBERS[name]):
            try:
                int(env[name])
            except ValueError:
                shown = ascii(env[name][:40])
                raise UsageError(
                    f"{name}={shown}: AITER {version} reads it with int() and raises ValueError.",
                    hint="Give a whole number such as 0, or unset it.",
                ) from None


def _tree(spec: str, asked_version: str | None) -> tuple[Tree | None, str]:
    if spec != "auto":
        return open_tree(spec, version=asked_version), ""
    try:
        tree = open_tree(spec)
    except TreeUnavailable as e:
        return None, str(e)
    asked = Version.parse(asked_version) if asked_version else None
    if asked is not None and tree.version not in (None, asked):
        return None, f"the installed amd-aiter is {tree.version}, not the {asked} asked for."
    return tree, ""


def _version(tree: Tree | None, asked: str | None, pin: str | None, code: Fingerprint | None) -> tuple[Version | None, str]:
    if asked is not None:
        return Version.of(asked), "--aiter-version"
    if tree is not None and tree.version is not None:
        return tree.version, tree.version_source
    if code is not None and code.releases:
        return _named(Version.of(code.releases[-1])), "its dispatch code, which is that release's"
    if pin is not None:
        return Version.of(pin), PIN
    return None, NOBODY


def _named(version: Version) -> Version:
    """AITER's main branch has no number of its own: it is called by the day it was read."""
    return replace(version, text=MAIN_NAME) if version == Version.of(MAIN) else version


def _facts_version(version: Version | None) -> Version:
    """The newest release our facts name that is not newer; the newest of all when the version is unknown."""
    known = [Version.of(v) for v, _ in HISTORY]
    if version is None:
        return known[-1]
    if is_verified(version):
        return version
    return max((v for v in known if v <= version), default=known[0])


def _unreadable(tree: Tree | None, table: TunedTable | None, census: Census | None) -> tuple[Unreadable, ...]:
    found = [Unreadable(name, None, reason) for name, reason in (tree.unreadable if tree else [])]
    found += [Unreadable(p.file, p.line or None, p.reason) for p in ([] if table is None else table.problems)]
    found += [Unreadable(p.file, p.line or None, p.reason) for p in (census.problems if census else ())]
    return tuple(dict.fromkeys(found))


def _unread(tree: Tree | None, table: TunedTable | None) -> tuple[Unreadable, ...]:
    if tree is None or table is None:
        return ()
    found = [Unreadable(p.file, None, p.reason) for p in table.problems if not p.text]
    names = [(name, reason) for name, reason in tree.unreadable if "tuned_fmoe" in name and "untuned" not in name]
    return tuple(dict.fromkeys([*found, *(Unreadable(name, None, reason) for name, reason in names)]))


def _table_errors(table: TunedTable | None) -> tuple[Unreadable, ...]:
    """What AITER raises on the tables, at the file and line that make it do so where one does."""
    if table is None:
        return ()
    at = {p.text: (p.file, p.line or None) for p in reversed(table.problems)}
    return tuple(Unreadable(*at.get(t, ("aiter/configs", None)), t) for t in (table.error, table.conflict) if t)
