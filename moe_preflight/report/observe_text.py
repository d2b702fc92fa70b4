"""The text of ``moe-preflight observe``: shapes with the buckets production asks for, each answer beside the prediction."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from moe_preflight.report.style import OF_SEVERITY, OF_VERDICT, PLAIN, Style
from moe_preflight.report.view import sentence

Document = dict[str, Any]
WIDTH = 80

_COLOUR = {"confirmed": "green", "contradicted": "red", "not-compared": "yellow"}


def render(doc: Document, style: Style = PLAIN, *, quiet: bool = False, verbose: bool = False) -> str:
    """The clean document as text. ``quiet`` leaves out the tables, ``verbose`` adds every kernel name."""
    return "\n".join(line.rstrip() for line in _lines(doc, style, quiet, verbose)) + "\n"


def summary(doc: Document) -> str:
    """One line: the verdict and how many answers were confirmed."""
    n = _statuses(doc)
    parts = [f"{n.get(s, 0)} {s}" for s in _COLOUR] + [f"{_never(doc)} never predicted"] * bool(doc["targets"])
    return f"moe-preflight: {doc['verdict'].upper()}: {', '.join(parts)}"


def _statuses(doc: Document) -> dict[str, int]:
    out: dict[str, int] = {}
    for o in _of(doc, "key"):
        out[o["status"]] = out.get(o["status"], 0) + 1
    return out


def _never(doc: Document) -> int:
    return sum(o["target"] is None for o in _of(doc, "key"))


def _of(doc: Document, kind: str) -> list[Document]:
    return [o for o in doc["observations"] if o["kind"] == kind]


def _lines(doc: Document, style: Style, quiet: bool, verbose: bool) -> Iterator[str]:
    word = doc["verdict"].upper()
    n = _statuses(doc)
    told = ", ".join(f"{n[s]} {s}" for s in _COLOUR if s in n) or "nothing to compare"
    yield style.paint(word, OF_VERDICT[doc["verdict"]], "bold") + f"  {told}"
    for o in _of(doc, "log"):
        yield from _wrap(o["detail"], "  ")
    a = doc["aiter"]
    where = f"tree {a['root']}" if a["root"] else "no tree read"
    yield from _wrap(
        f"Compared with AITER {a['version'] or 'version unknown'}, dispatch {a['dispatch_confidence']}, {where}", "  "
    )
    if not quiet:
        answers: dict[tuple[Any, ...], list[Document]] = {}
        for o in _of(doc, "key"):
            answers.setdefault(_shape_of(o), []).append(o)
        for shape in _of(doc, "shape"):
            yield ""
            yield from _shape(doc, shape, answers.get(_shape_of(shape), []), style, verbose)
        for o in _of(doc, "tables"):
            if o["status"] == "differ":
                yield ""
                yield from _wrap(f"Tables differ from that machine's: {o['detail']}", "")
    findings = [f for f in doc["findings"] if not (quiet and f["severity"] == "info")]
    if findings:
        yield ""
        yield style.paint("Findings", "bold")
    for f in findings:
        yield from _wrap(
            f"{f['severity']} {f['code']} {f['name']}: {f['message']}",
            "  ",
            "    ",
            paint=(style, OF_SEVERITY[f["severity"]], f["severity"]),
        )
        yield from _wrap(f"Do: {f['remedy']}", "    ", "        ")
    for miss in doc["not_evaluated"]:
        yield ""
        yield from _wrap(f"Not evaluated: {miss['what']}: {sentence(miss['why'])} {miss['how_to_get_it']}", "", "  ")


_SHAPE = (
    "gfx", "cu_num", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1",
)  # fmt: skip


def _shape_of(o: Document) -> tuple[Any, ...]:
    """What keys of one shape have in common: everything but the tokens."""
    return tuple(o[k] for k in _SHAPE)


def _shape(doc: Document, shape: Document, answers: list[Document], style: Style, verbose: bool) -> Iterator[str]:
    yield style.paint(shape["detail"].partition(":")[0], "bold")
    yield "  " + style.paint(f"{'tokens':>8} {'seen':>7}  {'the log':<14}{'predicted':<22}status", "dim")
    for o in sorted(answers, key=lambda o: (o["token"], o["line"])):
        log = f"{o['stages']} st. " + ("default" if o["kernels"] is None else "tuned")
        p = o["predicted"]
        predicted = f"{p['path']} {p['tuned']}" if p else "-"
        status = style.paint(o["status"], _COLOUR[o["status"]]) + (
            ", never predicted" if doc["targets"] and o["target"] is None else ""
        )
        yield f"  {o['token']:>8,} {o['count']:>7,}  {log:<14}{predicted:<22}{status}"
        if verbose:
            for name in o["kernels"] or ():
                if name:
                    yield from _wrap(name, "            ")
    if shape["never_asked"]:
        yield from _wrap(f"predicted and never asked: {', '.join(f'{t:,}' for t in shape['never_asked'])} tokens", "  ")


def _wrap(text: str, first: str, rest: str | None = None, *, paint: tuple[Style, str, str] | None = None) -> list[str]:
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first]
    if paint is not None:
        style, colour, word = paint
        lines[0] = lines[0].replace(word, style.paint(word, colour, "bold"), 1)
    return lines
