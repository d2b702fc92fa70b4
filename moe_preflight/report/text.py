"""The report a person reads at 3 a.m.: verdict first, one block per target, findings with what to do. 80 columns, ASCII."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.style import OF_SEVERITY, OF_VERDICT, PLAIN, Style
from moe_preflight.report.view import ENGINE_NAMES, alike, body, instead, router_kernel, target_name, where
from moe_preflight.units import bytes_text

WIDTH = 80
Document = dict[str, Any]


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The whole report as text ending in a newline. ``doc`` must be clean (report/sanitise.py).

    ``quiet`` leaves out the blocks and info findings; ``verbose`` never folds buckets and shows evidence and rejected backends.
    """
    lines = list(_head(doc, style))
    if not quiet:
        for i, target in enumerate(doc["targets"]):
            lines += ["", *_target(doc, i, target, style, verbose)]
    findings = [f for f in doc["findings"] if not (quiet and f["severity"] == "info")]
    if findings:
        lines += ["", style.paint("Findings", "bold")]
        for group in alike(doc):
            if group[0] in findings:
                lines += _finding(doc, group, style, verbose)
    if doc["not_evaluated"]:
        lines += ["", style.paint("Not evaluated", "bold")]
        for n in doc["not_evaluated"]:
            lines += _wrap(f"{n['what']}: {n['why']}", "  ")
            lines += _wrap(f"To get it: {n['how_to_get_it']}", "    ")
    if doc["observations"]:
        lines += ["", style.paint("Observations", "bold")]
        for o in doc["observations"]:
            lines += _observation(doc, o, style)
    if "environment" in doc:
        lines += ["", style.paint("Environment", "bold")]
        lines += [x for k, v in doc["environment"].items() for x in _wrap(f"{k}: {_plain(v)}", "  ", "    ")]
    return "\n".join(x.rstrip() for x in lines) + "\n"


def _plain(value: Any) -> str:
    """A value of the environment in words: pairs as NAME=VALUE, none as ``none``."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"


def summary(doc: Document) -> str:
    """One line for stderr: the verdict and the counts."""
    n = {s: sum(f["severity"] == s for f in doc["findings"]) for s in OF_SEVERITY}
    missing = len(doc["not_evaluated"])
    parts = [f"{n[s]} {s}{'s' if n[s] != 1 and s != 'info' else ''}" for s in OF_SEVERITY]
    if missing:
        parts.append(f"{missing} not evaluated")
    targets = len(doc["targets"])
    return f"moe-preflight: {doc['verdict'].upper()}: {targets} target{'s' * (targets != 1)}, {', '.join(parts)}"


def _head(doc: Document, style: Style) -> Iterator[str]:
    word = doc["verdict"].upper()
    first, *rest = _wrap(f"{word}  {_headline(doc)}", "", " " * (len(word) + 2))
    yield style.paint(word, OF_VERDICT[doc["verdict"]], "bold") + first[len(word) :]
    yield from rest
    for m in doc["models"]:
        if m["error"]:
            yield from _wrap(m["error"] if m["error"].startswith(m["id"]) else f"{m['id']}: {m['error']}", "  ")
            continue
        rev = f" @ {m['revision'][:12]}" if m["revision"] else ""
        q = m["quantization"]
        quant = "unquantized" if q["scheme"] == "none" else f"{q['scheme']} ({q['method'] or 'given'})"
        yield from _wrap(
            f"{m['id']}{rev} ({m['source']}): {m['architecture'] or m['model_type'] or 'shape'}, {m['num_layers'] or '?'} layers, "
            f"hidden {m['hidden_size'] or '?'}, {m['dtype']}, experts {quant}",
            "  ",
        )
    a = doc["aiter"]
    if a["root"] and not a["csv_files"]:
        yield from _wrap(
            f"AITER {a['version'] or 'version unknown'} ({a['found_by']}, {a['root']}): tables not read; dispatch {a['dispatch_confidence']}",
            "  ",
        )
    elif a["root"]:
        yield from _wrap(
            f"AITER {a['version'] or 'version unknown'} ({a['found_by']}, {a['root']}): {a['csv_files']} CSV files with {a['csv_rows']:,} rows, "
            f"{a['moe_csv_files']} of them MoE with {a['moe_csv_rows']:,}{instead(a)}; dispatch {a['dispatch_confidence']}",
            "  ",
        )
    else:
        yield from _wrap(f"AITER {a['version'] or 'version unknown'}: no tree read; dispatch {a['dispatch_confidence']}", "  ")
    engines = {(t["deployment"]["engine"], t["deployment"]["engine_version"]) for t in doc["targets"]}
    for engine, version in sorted(engines):
        yield from _wrap(f"Engine {ENGINE_NAMES.get(engine, engine)} {version}".rstrip(), "  ")


def _headline(doc: Document) -> str:
    """Why the verdict is what it is, in the names of the findings behind it."""
    if doc["verdict"] == "pass":
        return _nothing_wrong(doc)
    if doc["verdict"] == "inconclusive":
        return "could not evaluate " + ", ".join(dict.fromkeys(n["what"] for n in doc["not_evaluated"]))
    severity = "error" if doc["verdict"] == "fail" else "warning"
    return ", ".join(dict.fromkeys(f["name"] for f in doc["findings"] if f["severity"] == severity))


def _nothing_wrong(doc: Document) -> str:
    """What a pass means here: findings may have been left out by --select or --ignore, and some kernels' own rules are unknown."""
    layers = [x for t in doc["targets"] for x in t["layers"]]
    stages = [s for x in layers for b in x["buckets"] for s in (b["stage1"], b["stage2"]) if s]
    bad = any(b["error"] for x in layers for b in x["buckets"]) or any(x["backend"]["name"] is None for x in layers)
    missing = any(part["compiled"] is False for x in layers for part in x["router"]["by_tokens"])
    if bad or missing or any(s["accepted"] is False for s in stages):
        return "no finding is left after --select, --ignore or a policy; look at the table"
    if any(s["accepted"] is None for s in stages):
        return "no kernel asked for is known to be missing or to refuse its shape"
    return "every kernel asked for exists and accepts its shape"


def _target(doc: Document, index: int, t: Document, style: Style, verbose: bool) -> Iterator[str]:
    d = t["deployment"]
    title = f"{target_name(t)} ({d['gfx']}, {d['cu_num']} CU)"
    if len(doc["models"]) > 1:
        title = f"{t['model']}  {title}"
    word = t["verdict"].upper()
    yield (
        style.paint(title, "bold")
        + " " * max(2, WIDTH - len(title) - len(word))
        + style.paint(word, OF_VERDICT[t["verdict"]], "bold")
    )
    for layer in t["layers"]:
        yield from _layer(layer, d, style, verbose)
    if not t["layers"]:
        yield "  no MoE layer was reached"


def _layer(x: Document, d: Document, style: Style, verbose: bool) -> Iterator[str]:
    p, pad, b = x["problem"], x["padding"], x["backend"]
    shared = f" (+{p['num_shared_fused']} shared, fused)" if p["num_shared_fused"] else ""
    layers = "layer" if x["count"] == 1 else "layers"
    yield (
        f"  {x['name']}: {x['count']} {layers} from number {x['first_layer']}, {p['expert']} experts on a rank{shared}, "
        f"top-{p['topk']}, {p['act_type']}"
    )
    backend = f"{b['name'] or 'refused'}: {b['reason']}"
    yield from _row("backend", backend)
    if verbose:
        for r in b["rejected"]:
            yield from _row("", f"not {r['name']}: {r['reason']}")
    rule = f"rounded up to a multiple of {p['alignment']}" if p["alignment"] else "no rounding rule applies"
    yield from _row("inter_dim", _size(p["inter_dim"], p["inter_dim_padded"]) + f" ({rule})")
    yield from _row("model_dim", _size(p["model_dim"], p["model_dim_padded"]))
    if (p["inter_dim"], p["model_dim"]) != (p["inter_dim_padded"], p["model_dim_padded"]):
        yield from _row(
            "padding",
            f"+{pad['extra_compute_pct']:.1f} % expert arithmetic, +{bytes_text(pad['extra_weight_bytes_per_rank'])} "
            f"({pad['extra_weight_bytes_per_rank']:,} bytes) of weights per rank",
        )
        yield from _row("zero-filled", pad["zero_filled_by"] or "by nothing we could find")
    yield from _router(x["router"])
    if x["buckets"]:
        yield from _buckets(x, style, verbose)


def _size(native: int, padded: int) -> str:
    return f"{native}" if native == padded else f"{native} -> {padded}"


def _router(r: Document) -> Iterator[str]:
    groups = ""
    if r["num_expert_group"] is not None:
        naive = r["num_expert_group_naive"]
        was = f", rounded from {naive}" if naive not in (None, r["num_expert_group"]) else ""
        groups = f", {r['num_expert_group']} expert group{'s' * (r['num_expert_group'] != 1)}{was}"
    if r["falls_back_to"]:
        yield from _row("router", f"falls back to {r['falls_back_to']}{groups}")
        return
    first, *larger = r["by_tokens"] or [{"kernel": r["kernel"], "compiled": r["compiled"], "defects": []}]
    yield from _row("router", f"{first['kernel']}{groups}{_kernel(first)}")
    for part in larger:
        yield from _row("", f"from {part['from']:,} tokens: {part['kernel']}{_kernel(part)}")


def _kernel(part: Document) -> str:
    """Whether a launch reaches a kernel, and whether something is known against it."""
    word = router_kernel(part)
    known = any(d["severity"] != "info" for d in part["defects"]) or (word and part["compiled"] is None)
    said = ", ".join(filter(None, [word, "but see MP201" if known and part["compiled"] else "see MP201" if known else ""]))
    return f": {said}" if said else ""


_COLUMNS = (("tokens", 13), ("path", 10), ("block_m", 9), ("stage 1", 17), ("stage 2", 17), ("tuned", 8))


def _buckets(x: Document, style: Style, verbose: bool) -> Iterator[str]:
    yield "  " + style.paint("".join(name.ljust(w) for name, w in _COLUMNS).rstrip(), "dim")
    rows: list[tuple[list[Document], tuple[str, ...]]] = []
    for bucket in x["buckets"]:
        cells = _cells(bucket)
        if rows and rows[-1][1] == cells and not verbose:
            rows[-1][0].append(bucket)
        else:
            rows.append(([bucket], cells))
    for buckets, cells in rows:
        first, last = buckets[0]["token"], buckets[-1]["token"]
        label = f"{first}" if first == last else f"{first}-{last}"
        line = "".join(c.ljust(w) for c, (_, w) in zip((label, *cells), _COLUMNS, strict=True)).rstrip()
        bad = any(s and s["accepted"] is False for b in buckets for s in (b["stage1"], b["stage2"])) or any(
            b["error"] for b in buckets
        )
        yield "  " + (style.paint(line, "red") if bad else line)
    yield from _rows_found(x["buckets"], verbose)
    c = x["coverage"]
    total = sum(c.values())
    unknown = f", {c['unknown']} not looked up" if c["unknown"] else ""
    if total == c["unknown"]:
        yield from _row("tuned", "not looked up")
        return
    tier = f", {c['tier']} by the next lower tier" if c["tier"] else ""
    noun = "token bucket" if total == 1 else "token buckets"
    yield from _row("tuned", f"{c['hit']} of {total} {noun} have a row{tier}, {c['miss']} have none{unknown}")


def _cells(b: Document) -> tuple[str, ...]:
    if b["error"]:
        return (b["path"], str(b["block_m"] or ""), "raises", "", b["tuned"])
    return (b["path"], str(b["block_m"]), _stage(b["stage1"]), _stage(b["stage2"]) if b["stage2"] else "-", b["tuned"])


def _stage(s: Document) -> str:
    word = {True: "ok", False: "REJECTED", None: "?"}[s["accepted"]]
    if s["tile_n"] is None:
        return s["kind"] if s["accepted"] is None else f"{s['kind']} {word}"
    return f"{s['tile_n']}x{s['tile_k']} {word}" if s["tile_k"] is not None else f"{s['kind']} {s['tile_n']} {word}"


def _rows_found(buckets: list[Document], verbose: bool) -> Iterator[str]:
    """The tuned rows behind the hits: token buckets, file:line and time, kernel names; rows of one file and kernel together."""
    groups: list[list[Document]] = []
    for b in buckets:
        if b["row"] is None:
            continue
        if groups and not verbose and _kernels(groups[-1][-1]) == _kernels(b) and _next_to(groups[-1][-1], b):
            groups[-1].append(b)
        else:
            groups.append([b])
    for group in groups:
        rows = [b["row"] for b in group]
        tokens = _ends([b["token"] for b in group])
        times = [r["us"] for r in rows if r["us"]]
        us = f", {_ends([f'{t:.4g}' for t in times])} us" if times else ""
        yield from _wrap(f"{tokens}: {rows[0]['file']}:{_ends([r['line'] for r in rows])}{us}", "    ", "      ")
        for name in dict.fromkeys(n for n in _kernels(group[0])[1:] if n):
            yield from _wrap(name, "      ")


def _kernels(b: Document) -> tuple[str, str, str]:
    return b["row"]["file"], b["row"]["kernelName1"], b["row"]["kernelName2"]


def _next_to(a: Document, b: Document) -> bool:
    """Is b's row the line after a's, so that the two can be shown as one span?"""
    return bool(b["row"]["line"] == a["row"]["line"] + 1)


def _ends(values: list[Any]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]}-{values[-1]}"


def _finding(doc: Document, group: list[Document], style: Style, verbose: bool) -> Iterator[str]:
    f = group[0]
    mark = style.paint(f["severity"], OF_SEVERITY[f["severity"]], "bold")
    unverified = " (unverified)" if f["confidence"] == "unverified" else ""
    advisory = f" {f['advisory']}" if f["advisory"] else ""
    yield f"  {mark} {f['code']} {f['name']}{advisory}{unverified}"
    said = f["message"] if f["target"] is None else f"{where(doc, group)}: {body(doc, f)}"
    yield from _wrap(said, "    ")
    if f["severity"] != "info":
        yield from _wrap(f"Why: {f['why']}", "    ", "         ")
    if f["remedy"]:
        yield from _wrap(f"Do:  {f['remedy']}", "    ", "         ")
    if verbose:
        for e in f["evidence"]:
            place = e["file"] if e["line"] is None else f"{e['file']}:{e['line']}"
            yield from _wrap(f"Read: {place} {e['text']}", "    ", "          ")


def _observation(doc: Document, o: Document, style: Style) -> Iterator[str]:
    """One line of what was seen: where, at how many tokens, on which backend, how it ended, and the figures there are."""
    at = o.get("target")
    where = target_name(doc["targets"][at]) if isinstance(at, int) and at < len(doc["targets"]) else "run"
    tokens = o.get("tokens")
    counts = tokens if isinstance(tokens, list) else [tokens]
    shown = "-".join(dict.fromkeys(f"{n:,}" if isinstance(n, int) else "?" for n in (counts[0], counts[-1]))) if counts else "?"
    figures = [
        f"{name} {o[key]:.4g}"
        for key, name in (("rel_err", "relative error"), ("median_us", "us"), ("native_us", "unpadded us"))
        if isinstance(o.get(key), (int, float))
    ]
    if o.get("experts_match") is not None:
        figures.append("experts right" if o["experts_match"] else "EXPERTS WRONG")
    good = o.get("status") in ("ok", "confirmed")
    status = style.paint(str(o.get("status", "")), "green" if good else "red")
    said = ", ".join(filter(None, [f"{shown} tokens on {o.get('backend', '?')}", *figures]))
    yield from (
        _wrap(f"{where}: {said}: {o.get('status', '')}", "  ", "    ") if not style.colour else [f"  {where}: {said}: {status}"]
    )
    if o.get("detail"):
        yield from _wrap(str(o["detail"]), "    ")


_LABEL = 13


def _row(label: str, text: str) -> Iterator[str]:
    yield from _wrap(text, f"    {label.ljust(_LABEL)}", " " * (4 + _LABEL))


def _wrap(text: str, first: str, rest: str | None = None) -> Iterator[str]:
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=True,
        break_on_hyphens=False,
    ) or [first]
