"""Which versions the facts are for, and whether those are the ones that will run."""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.aiter.version import Version
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run

AITER_UNVERIFIED = Rule(
    code="MP601",
    name="aiter-unverified",
    severity="warning",
    depends="--",
    what="This AITER is not one whose dispatch we have compared with AITER's own code.",
    why="The prediction uses the nearest facts; AITER's rules change monthly.",
    example="v0.1.26 is newer than the newest AITER we could read.",
    remedy="Point --aiter at the tree that will run, or ask it itself with --ask-aiter.",
    source="aiter/facts (newest version covered)",
)

NOT_THE_PIN = Rule(
    code="MP602",
    name="aiter-not-the-pin",
    severity="warning",
    depends="the engine's image pins an AITER",
    what="The AITER judged here is not the one this engine release ships in its image.",
    why="The deployment will likely run the pinned one: other tables, other rules.",
    example="The PyPI wheel 0.1.7.post2 against vLLM 0.33.0, which pins v0.1.26.",
    remedy="Judge the pinned tree (--aiter DIR of its checkout), or build the engine with the one judged here.",
    source="vLLM docker/Dockerfile.rocm_base ARG AITER_BRANCH",
)

ENGINE_UNVERIFIED = Rule(
    code="MP603",
    name="engine-unverified",
    severity="warning",
    depends="--",
    what="This engine release is outside the ones we read.",
    why="Backend choice, rounding and routing are those of the nearest release we know.",
    example="vLLM 0.28.0 is judged with the facts of 0.29.0.",
    remedy="Judge a release we know, or compare with the engine's own log (moe-preflight observe).",
    source="facts: vLLM 0.29.0 - 0.33.0, SGLang 0.5.23",
)

TREE_DIFFERS = Rule(
    code="MP604",
    name="tree-differs",
    severity="info",
    depends="the tree has its sources",
    what="The tree's own sources differ from the built-in facts for that version; the tree's were used.",
    why="The tree is patched, or between releases.",
    example="A fork with an added tile.",
    remedy="Nothing to do; know that this tree is not the release it calls itself.",
    source="the tree's csrc and aiter/fused_moe.py",
)


def aiter_unverified(run: Run) -> Iterator[Finding]:
    """MP601: one warning that names both versions."""
    a = run.aiter
    if a.confidence == "unverified" and run.targets:
        asked = f"AITER {a.version}" if a.version else f"AITER ({a.version_from})"
        yield AITER_UNVERIFIED.finding(
            f"{asked} is not a version whose dispatch we have verified; judged with the facts of {a.facts_version}.",
            confidence="unverified",
            evidence=[Evidence(a.version_from, None, str(a.version or "unknown"))],
        )


def not_the_pin(run: Run) -> Iterator[Finding]:
    """MP602."""
    a = run.aiter
    pin = Version.parse(a.pin) if a.pin else None
    if pin is None or a.version is None or a.version == pin or not run.targets:
        return
    older = "older" if a.version < pin else "newer"
    yield NOT_THE_PIN.finding(
        f"AITER {a.version} is {older} than the {a.pin} that {run.request.engine} {run.request.engine_version} pins in its image.",
        confidence="read",
        evidence=[Evidence("docker/Dockerfile.rocm_base", None, f"ARG AITER_BRANCH={a.pin}")],
    )


def engine_unverified(run: Run) -> Iterator[Finding]:
    """MP603."""
    seen = set()
    for target in run.targets:
        p = target.plan
        if p.confidence == "unverified" and p.facts_version not in seen:
            seen.add(p.facts_version)
            yield ENGINE_UNVERIFIED.finding(
                f"{p.deployment.engine} {p.deployment.engine_version} is outside the releases we read; judged as {p.facts_version}.",
                confidence="unverified",
            )


def tree_differs(run: Run) -> Iterator[Finding]:
    """MP604."""
    if run.aiter.differences:
        shown = "; ".join(run.aiter.differences[:5])
        more = len(run.aiter.differences) - 5
        yield TREE_DIFFERS.finding(
            f"The AITER tree differs from the built-in facts for {run.aiter.facts_version}: {shown}"
            + (f"; and {more} more." if more > 0 else "."),
            confidence="read",
        )


RULES = (AITER_UNVERIFIED, NOT_THE_PIN, ENGINE_UNVERIFIED, TREE_DIFFERS)
CHECKS = (aiter_unverified, not_the_pin, engine_unverified, tree_differs)
