"""What a log and its matches amount to: findings, and the observations of the JSON report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moe_preflight.coverage.log import FAILURES, LogKey
from moe_preflight.coverage.observe import CONTRADICTED, NOT_COMPARED, Match, Reading, slot_of
from moe_preflight.coverage.observe_rules import CONTRADICTED as CONTRADICTS
from moe_preflight.coverage.observe_rules import FAILED, NEVER, SAID, UNTUNED
from moe_preflight.report.types import Evidence, Finding, NotEvaluated

Observation = dict[str, Any]

QUIET = frozenset(
    ("merged-files", "duplicate-rows", "duplicate-rows-fallback", "tuning", "tuning-saved", "flydsl-fallback-row", "path-missing")
)
"""Messages of an ordinary start: told as observations, not as findings."""

_NOTES = {
    "merged-files": "the tuned tables were merged",
    "path-missing": "a table named in AITER_CONFIG_FMOE does not exist and was skipped",
    "duplicate-rows": "rows with one key: AITER keeps the first",
    "duplicate-rows-fallback": "fallback rows with one key: AITER keeps the first",
    "flydsl-fallback-row": "FlyDSL is missing; the row tagged flydsl_fallback stands in",
    "flydsl-unavailable": "FlyDSL is missing and no fallback row exists: the heuristic runs",
    "not-shuffled": "a tuned row is used with weights that are not shuffled: results may be wrong",
    "opus-discarded": "an Opus row was discarded: the heuristic runs",
    "opus-unsupported": "an Opus row is not supported here: the heuristic runs",
    "one-stage-discarded": "a one-stage row was discarded for its activation: the heuristic runs",
    "blockscale-bypass": "this release bypasses its rows for small fp8 block-scale problems",
    "unshuffled-cktile": "SwiGLU MXFP4 with weights that are not shuffled went to CK-Tile",
    "tile-changed": "FlyDSL runs another tile than the tuned row names",
    "tuning": "online tuning started (AITER_ONLINE_TUNE=1)",
    "tuning-saved": "online tuning saved its rows",
    "tuning-failed": "online tuning found no kernel for a key",
    "kernel-missing": "CK has no kernel of the tuned row's name and took its heuristic tile",
}


def findings(path: str, reading: Reading, matches: Sequence[Match], *, planned: bool) -> Iterator[Finding]:
    """``path`` is the log's name; ``planned`` says whether models were named, so that a key can be one nobody predicted."""
    for m in matches:
        key, s = m.seen.key, m.seen
        at = Evidence(path, s.line, words(key, m.gfx))
        if m.status == CONTRADICTED:
            rows = (
                [Evidence(m.predicted.row.file, m.predicted.row.line, m.predicted.row.kernel1)]
                if m.predicted and m.predicted.row
                else []
            )
            yield CONTRADICTS.finding(
                f"{path}:{s.line}: {words(key, m.gfx)}: {'; '.join(m.differences)}.",
                confidence="measured", target=m.target, evidence=[at, *rows],
            )  # fmt: skip
        if planned and m.target is None:
            yield NEVER.finding(
                f"{path}:{s.line}: {words(key, m.gfx)}: none of the named models, splits and GPUs asks this key.",
                confidence="measured", evidence=[at],
            )  # fmt: skip
    for group in by_shape(matches):
        missed = sorted({m.seen.key.token for m in group if m.seen.kernels is None})
        if missed:
            first = min((m for m in group if m.seen.kernels is None), key=lambda m: m.seen.line)
            yield UNTUNED.finding(
                f"{path}:{first.seen.line}: {shape_words(first.seen.key, first.gfx)}: no tuned row at {', '.join(f'{t:,}' for t in missed)} tokens, "
                f"of {len({m.seen.key.token for m in group})} buckets asked for.",
                confidence="measured",
                target=first.target,
                evidence=[Evidence(path, first.seen.line, words(first.seen.key, first.gfx))],
            )
    for said in reading.said:
        if said.kind in QUIET:
            continue
        rule = FAILED if said.kind in FAILURES else SAID
        what = _NOTES.get(said.kind, "the log holds the words of a failure")
        times = f" ({said.count:,} times)" if said.count > 1 else ""
        yield rule.finding(
            f"{path}:{said.line}: {what}{times}: {said.text}",
            confidence="measured",
            evidence=[Evidence(path, said.line, said.text)],
        )


def not_evaluated(path: str, reading: Reading, matches: Sequence[Match]) -> Iterator[NotEvaluated]:
    """What the log could not tell. "Could not look" is never green."""
    if not reading.seen:
        yield NotEvaluated(
            f"log {path}",
            f"{reading.lines:,} lines hold no [fused_moe] line that can be read",
            "Log with AITER_LOG_LEVEL=INFO (the default) and VLLM_ROCM_USE_AITER=1, from the start of the engine.",
        )
    blind = [m for m in matches if m.status == NOT_COMPARED]
    if blind:
        yield NotEvaluated(
            f"{len(blind)} of {len(matches)} answers of {path}",
            blind[0].differences[0],
            "Point --aiter at the tree of that machine; give --gfx and --cu for a log older than v0.1.16.",
        )
    if reading.dropped:
        yield NotEvaluated(
            f"{reading.dropped:,} lines of {path}", "the log holds more distinct keys than are kept", "Split the log."
        )


def observations(
    path: str,
    reading: Reading,
    matches: Sequence[Match],
    planned: Mapping[tuple[object, ...], int] | None,
    tree_files: Sequence[str] | None,
) -> list[Observation]:
    """The log as a whole, every answer, every shape with the buckets asked for, every message."""
    first = reading.first_odd
    out: list[Observation] = [
        {
            **_of("log"),
            "status": "read",
            "detail": f"{path}: {reading.lines:,} lines, {reading.answers:,} of them name a key, {len(matches):,} distinct answers, "
            f"{reading.odd:,} odd lines skipped" + (f" (first: line {first[0]})" if first else ""),
            "lines": reading.lines,
            "answers": reading.answers,
            "distinct": len(matches),
            "odd": reading.odd,
            "first_odd_line": first[0] if first else None,
        }
    ]
    out += [_answer(m) for m in matches]
    out += [_shape(group, planned) for group in by_shape(matches)]
    out += [
        {
            **_of("message"),
            "status": s.kind,
            "detail": s.text if s.kind != "merged-files" else "",
            "line": s.line,
            "count": s.count,
        }
        for s in reading.said
    ]
    merged = next((s for s in reading.said if s.kind == "merged-files"), None)
    if merged is not None and tree_files is not None:
        out.append(_tables(merged.text, tree_files))
    return out


def _of(kind: str) -> Observation:
    """What every observation has; it is about no single target or layer unless it says so."""
    return {"kind": kind, "target": None, "layer": None}


def _answer(m: Match) -> Observation:
    s, d = m.seen, m.predicted
    return {
        **_of("key"),
        "status": m.status,
        "detail": "; ".join(m.differences),
        **_key(s.key, m.gfx),
        "token": s.key.token,
        "q_dtype_a": s.key.q_dtype_a,
        "line": s.line,
        "count": s.count,
        "stages": s.stages,
        "kernels": list(s.kernels) if s.kernels is not None else None,
        "target": m.target,
        "predicted": None
        if d is None
        else {
            "tuned": d.tuned,
            "path": d.path,
            "kernels": [d.stage1.kernel, d.stage2.kernel if d.stage2 else ""],
            "row": {"file": d.row.file, "line": d.row.line} if d.row else None,
            "confidence": d.confidence,
        },
    }


def _shape(group: Sequence[Match], planned: Mapping[tuple[object, ...], int] | None) -> Observation:
    """One shape: which buckets production asks for, which are tuned, and which predicted ones it never asked."""
    key, gfx = group[0].seen.key, group[0].gfx
    tokens: dict[int, Observation] = {}
    for m in sorted(group, key=lambda m: m.seen.key.token):
        t = tokens.setdefault(m.seen.key.token, {"token": m.seen.key.token, "count": 0, "tuned": True})
        t["count"] += m.seen.count
        t["tuned"] = t["tuned"] and m.seen.kernels is not None
    never: list[int] | None = None
    if planned is not None:
        mine = _without_token(slot_of(key, gfx))
        never = sorted({int(str(slot[2])) for slot in planned if _without_token(slot) == mine} - set(tokens))
    return {
        **_of("shape"),
        "status": "asked",
        "detail": f"{shape_words(key, gfx)}: "
        + ", ".join(f"{t:,}{'' if x['tuned'] else ' (untuned)'}" for t, x in tokens.items()),
        **_key(key, gfx),
        "buckets": list(tokens.values()),
        "never_asked": never,
    }


def _without_token(slot: tuple[object, ...]) -> tuple[object, ...]:
    """A slot without its token (2) and activation dtype (9), which change from bucket to bucket."""
    return (*slot[:2], *slot[3:9], *slot[10:])


def by_shape(matches: Iterable[Match]) -> list[list[Match]]:
    """Matches whose keys differ in tokens and activation dtype only, together."""
    groups: dict[tuple[object, ...], list[Match]] = {}
    for m in matches:
        groups.setdefault(_without_token(slot_of(m.seen.key, m.gfx)), []).append(m)
    return list(groups.values())


def _key(key: LogKey, gfx: str | None) -> Observation:
    return {
        "gfx": gfx,
        "cu_num": key.cu_num,
        "model_dim": key.model_dim,
        "inter_dim": key.inter_dim,
        "expert": key.expert,
        "topk": key.topk,
        "act_type": key.act,
        "dtype": key.dtype,
        "q_dtype_w": key.q_dtype_w,
        "q_type": key.q_type,
        "use_g1u1": key.use_g1u1,
        "doweight_stage1": key.doweight_stage1,
    }


def _tables(text: str, tree_files: Sequence[str]) -> Observation:
    """The tables that machine merged beside those that were judged, by file name."""
    listed = text.rpartition(" ")[2].split(":")
    there, here = ({f.replace("\\", "/").rpartition("/")[2] for f in files} for files in (listed, tree_files))
    same = there == here
    return {
        **_of("tables"),
        "status": "same" if same else "differ",
        "detail": ""
        if same
        else f"only there: {', '.join(sorted(there - here)) or 'none'}; only here: {', '.join(sorted(here - there)) or 'none'}",
        "only_in_log": sorted(there - here),
        "only_in_tree": sorted(here - there),
    }


def shape_words(key: LogKey, gfx: str | None) -> str:
    """The key without its tokens, briefly."""
    quant = key.dtype if key.q_type == "No" else f"{key.q_dtype_w} {key.q_type}"
    return f"{gfx or 'gfx?'}/{key.cu_num} E{key.expert} k{key.topk} {key.model_dim}x{key.inter_dim} {quant} {key.act}"


def words(key: LogKey, gfx: str | None) -> str:
    """The key, briefly."""
    return f"{key.token:,} tokens on {shape_words(key, gfx)}"
