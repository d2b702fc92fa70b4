"""Is there a tuned row for what will be asked, and can AITER use the tables at all?"""

from __future__ import annotations

from collections.abc import Iterator

from moe_preflight.aiter.basis import Unreadable
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run, spans

MISS = Rule(
    code="MP301",
    name="tuned-miss",
    severity="warning",
    depends="tuned tables were read and the experts reach AITER",
    what="No tuned row exists for this key at some token buckets: AITER runs its heuristic choice.",
    why="It works, but untuned: the kernel may be far from the fastest for this shape.",
    example="K2-Horizon at TP8 asks for 192 experts, inter_dim 256, model_dim 6144; no v0.1.20 table has that key.",
    remedy="Write the missing keys with `moe-preflight tune MODEL`, tune them with AITER's tuner, and set AITER_CONFIG_FMOE.",
    source="aiter/fused_moe.py get_2stage_cfgs (lookup), aiter/jit/core.py (tables)",
)

NATIVE_ONLY = Rule(
    code="MP302",
    name="tuned-for-native-size",
    severity="warning",
    depends="tuned tables were read and the engine pads",
    what="A tuned row exists for the unpadded size, but the engine asks for the padded one.",
    why="The row will never be found: someone tuned this model for an engine that does not pad.",
    example="Rows for inter_dim 224 while the engine asks for 256.",
    remedy="Tune the padded key as well.",
    source="the table row itself; vLLM rounding as in MP111",
)

UNREADABLE = Rule(
    code="MP303",
    name="table-unreadable",
    severity="warning",
    depends="an AITER tree was found",
    what="A CSV under the tree's configs could not be read; the rest was.",
    why="Rows in it are missing from this report, and AITER itself will likely fail on it.",
    example="A file with NUL bytes, or one the user may not read.",
    remedy="Mend or remove the file.",
    source="the file itself",
)

AITER_RAISES = Rule(
    code="MP304",
    name="tables-refused-by-aiter",
    severity="error",
    depends="tuned tables were read",
    what="AITER of this version raises while it loads or merges these tables.",
    why="The first fused_moe call fails; from v0.1.12 AITER also rewrites the CSV files in place before it raises.",
    example='Two files with the same key: "Found 1 duplicate shape entries during merge".',
    remedy="Remove the duplicate rows (moe-preflight lint names them), or name one table in AITER_CONFIG_FMOE.",
    source="aiter/jit/core.py update_config_files",
)

NOT_LOOKED = Rule(
    code="MP305",
    name="tuned-not-evaluated",
    severity="warning",
    depends="tuned coverage was asked for",
    what="No AITER tree was found, so tuned coverage could not be looked at.",
    why="Whether these kernels are tuned is unknown; this report is inconclusive, not green.",
    example="A laptop without amd-aiter installed.",
    remedy="pip install --pre amd-aiter, or point --aiter at a checkout, a folder or a .whl; or say --no-tuned.",
    source="--",
)

UNUSED_ROW = Rule(
    code="MP306",
    name="tuned-row-unused",
    severity="warning",
    depends="a tuned row was found",
    what="AITER finds a tuned row and does not run what it names, or the row belongs to another activation, or (lint) no call asks for it.",
    why="The log says tuned; the kernel is another one.",
    example="v0.1.20 ignores the activation in the lookup: the first row of any activation wins.",
    remedy="Read the note in the finding; retune for this activation, or move to an AITER that matches it.",
    source="aiter/fused_moe.py get_2stage_cfgs",
)

ORDER = Rule(
    code="MP307",
    name="directory-order-decides",
    severity="warning",
    depends="a tuned row was found",
    what="Two files hold this key and AITER takes whichever its directory listing gives first.",
    why="Two machines with the same files can run different kernels.",
    example="tuned_fmoe.csv and a model table with the same key and different kernels.",
    remedy="Remove one of the rows, or name the tables in order in AITER_CONFIG_FMOE.",
    source="aiter/jit/core.py get_config_file (unsorted Path.glob)",
)

_NOTES = {
    "borrowed-activation": "the row found is another activation's",
    "row-kernels-not-used": "no branch of AITER takes the kernels this row names, so others run although the log prints them",
    "opus-row-discarded": "AITER discards the Opus row it finds and falls back to its heuristic",
    "one-stage-row-discarded": "AITER discards the one-stage row it finds: it is for silu and gelu only",
    "flydsl-row-discarded": "the row names FlyDSL kernels and FlyDSL is not installed, so the heuristic answers",
    "blockscale-bypass": "this AITER ignores tuned rows of fp8 block-scaled silu experts",
}


ORDER_NOTE = "order-dependent"


def miss(run: Run) -> Iterator[Finding]:
    """MP301."""
    for target, i, layer in run.started():
        ds = layer.dispatches
        bad = {d.token for d in ds if d.tuned == "miss"}
        if not bad:
            continue
        p = layer.plan.problem
        found = len(ds) - len(bad)
        where = (
            f"at any of {len(ds)} token buckets"
            if not found
            else f"at {spans(ds, bad)} tokens ({found} of {len(ds)} buckets have one)"
        )
        yield MISS.finding(
            f"{target.name}: no tuned row {where} (expert {p.expert}, topk {p.topk}, model_dim {p.model_dim_padded}, "
            f"inter_dim {p.inter_dim_padded}, {'unquantized' if p.q_type == 'No' else p.q_type}).",
            confidence="read",
            target=target.index,
            layer=i,
            evidence=[Evidence(run.request.aiter_env.get("AITER_CONFIG_FMOE") or run.aiter.root or "", None, _tables(run))],
        )


def _tables(run: Run) -> str:
    census = run.aiter.census
    if run.aiter.looked_up:
        return run.aiter.looked_up
    return f"{census.moe_rows:,} rows in {census.moe_files} MoE tables" if census else "AITER_CONFIG_FMOE"


def native_only(run: Run) -> Iterator[Finding]:
    """MP302."""
    for target, i, layer in run.started():
        padded = {d.token: d for d in layer.dispatches}
        lost = [d for d in layer.native if d.tuned in ("hit", "tier") and padded[d.token].tuned == "miss"]
        if lost:
            p = layer.plan.problem
            yield NATIVE_ONLY.finding(
                f"{target.name}: rows for inter_dim {p.inter_dim} exist at {spans(layer.native, {d.token for d in lost})} tokens, but the "
                f"engine asks for {p.inter_dim_padded}.",
                confidence="read",
                target=target.index,
                layer=i,
                evidence=[Evidence(d.row.file, d.row.line, d.row.kernel1) for d in lost[:5] if d.row],
            )


def unused_row(run: Run) -> Iterator[Finding]:
    """MP306: by note, with the rows as evidence."""
    for target, i, layer in run.started():
        for note, words in _NOTES.items():
            bad = [d for d in layer.dispatches if note in d.notes]
            if bad:
                yield UNUSED_ROW.finding(
                    f"{target.name}: at {spans(layer.dispatches, {d.token for d in bad})} tokens {words}.",
                    confidence=bad[0].confidence,
                    target=target.index,
                    layer=i,
                    evidence=[Evidence(d.row.file, d.row.line, d.row.kernel1) for d in bad[:5] if d.row],
                )


def order(run: Run) -> Iterator[Finding]:
    """MP307."""
    for target, i, layer in run.started():
        bad = [d for d in layer.dispatches if ORDER_NOTE in d.notes]
        if bad:
            yield ORDER.finding(
                f"{target.name}: at {spans(layer.dispatches, {d.token for d in bad})} tokens two files hold the key with different kernels.",
                confidence="read",
                target=target.index,
                layer=i,
                evidence=[Evidence(r.file, r.line, r.kernel1) for d in bad[:3] for r in d.rows[:4]],
            )


def unreadable(run: Run) -> Iterator[Finding]:
    """MP303: one finding per reason; a bad line is a reason of its own."""
    kinds: dict[tuple[str, str], list[Unreadable]] = {}
    for u in run.aiter.unreadable:
        kinds.setdefault((u.reason, "" if u.line is None else f"{u.file}:{u.line}"), []).append(u)
    for (reason, at), mine in kinds.items():
        where = at or mine[0].file
        more = f" ({len(mine)} such files; this is the first)" if len(mine) > 1 else ""
        yield UNREADABLE.finding(
            f"{where}: {reason}{more}.", confidence="read", evidence=[Evidence(u.file, u.line, u.reason) for u in mine[:5]]
        )


def refused(run: Run) -> Iterator[Finding]:
    """MP304."""
    for u in run.aiter.table_errors:
        rewritten = "duplicate shape" in u.reason
        yield AITER_RAISES.finding(
            f'AITER {run.aiter.version} raises while loading its tables{_at(u)}: "{u.reason}".',
            remedy=table_remedy(u),
            why=None if rewritten else "The first fused_moe call fails.",
            confidence="modelled",
            evidence=[Evidence(u.file, u.line, u.reason)],
        )


def _at(u: Unreadable) -> str:
    return f" ({where_of(u)})" if u.file.endswith(".csv") or u.line is not None else ""


def where_of(u: Unreadable) -> str:
    """File and, where known, line."""
    return u.file if u.line is None else f"{u.file}:{u.line}"


_REMEDIES = (
    ("Column mismatch", "Give all tables the same columns in the same order, or name one table in AITER_CONFIG_FMOE."),
    ("FileNotFoundError", "Name only files that exist in AITER_CONFIG_FMOE, or unset it to use the shipped tables."),
    ("KeyError", "Give the table the columns AITER's key needs (the header of aiter/configs/tuned_fmoe.csv), or remove it."),
    ("duplicate shape", AITER_RAISES.remedy),
    ("must be unique", AITER_RAISES.remedy),
)
"""By a part of what AITER raises."""


def table_remedy(u: Unreadable) -> str:
    """What to do about a table AITER raises on."""
    known = next((remedy for part, remedy in _REMEDIES if part in u.reason), None)
    return known or f"Mend {where_of(u)}, or remove the file: AITER reads it with pandas, and one bad table stops them all."


def not_looked(run: Run) -> Iterator[Finding]:
    """MP305."""
    if run.request.tuned and run.aiter.root is None and run.targets:
        yield NOT_LOOKED.finding(f"Tuned coverage was not evaluated: {run.aiter.missing}", confidence="read")


RULES = (MISS, NATIVE_ONLY, UNREADABLE, AITER_RAISES, NOT_LOOKED, UNUSED_ROW, ORDER)
CHECKS = (miss, native_only, unreadable, refused, not_looked, unused_row, order)
