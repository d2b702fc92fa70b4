"""Numbers and lists as people read them."""

from __future__ import annotations


def bytes_text(n: int) -> str:
    """``4.08 GiB``: binary units, three significant digits; exact below 1 KiB."""
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{n} B" if unit == "B" else f"{value:.3g} {unit}" if abs(value) < 999.5 else f"{value:.0f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def any_of(words: list[str]) -> str:
    """``1``, ``1 or 2``, ``1, 2 or 4``."""
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def sentence_of(clauses: list[str]) -> str:
    """The clauses as one sentence: ``First; second.`` Empty when there are none."""
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
