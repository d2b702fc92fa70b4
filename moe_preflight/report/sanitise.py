"""The one sanitiser in front of every format: nothing a config, a table or a hub reply says can move a terminal's cursor.

Control, bidirectional, zero-width, surrogate and otherwise invisible characters are shown escaped (``\\x1b``, ``\\u202e``), a
string longer than ``MAX_CHARS`` is cut and says so, the user and password of a URL are masked, and what JSON cannot hold
(infinities, NaN) becomes null. Each format then escapes what is special to itself.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

MAX_CHARS = 16_384
"""The longest string a report shows. The longest kernel name AITER has is 300 characters; a config may hold megabytes."""

_BLANK = frozenset(
    chr(c)
    for low, high in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
    )
    for c in range(low, high + 1)
)  # fmt: skip
"""Characters Python calls printable that show nothing: Unicode's default ignorable code points (DerivedCoreProperties) and
the blank braille cell."""


def clean(text: str) -> str:
    """``text`` with every character that has no glyph of its own shown as an escape; plain text is returned as it is.

    Cleaning twice changes nothing more.
    """
    if "://" in text and "@" in text:
        text = re.sub(r"://[^/?#\s]*@", "://***@", text)
    if len(text) <= MAX_CHARS and text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text)):
        return text
    shown = text[:MAX_CHARS].translate(_SHOWN)
    if len(text) <= MAX_CHARS and len(shown) <= MAX_CHARS:
        return shown
    note = f"... [cut: {len(text):,} characters]"
    return shown[: MAX_CHARS - len(note)] + note


class _Shown(dict[int, str]):
    """What each character is shown as, found out once; a stranger's text cannot make it large."""

    def __missing__(self, code: int) -> str:
        c = chr(code)
        shown = c if c.isprintable() and c not in _BLANK else _escape(code)
        if len(self) < 4096:
            self[code] = shown
        return shown


_SHOWN = _Shown()


def _escape(code: int) -> str:
    if code == 0x0A:
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clean_document(value: Any) -> Any:
    """A copy of a JSON-like value with every string in it, keys included, cleaned. Tuples become lists, numbers that JSON has no
    word for None, and anything that is not JSON at all its cleaned text."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {clean(str(k)): clean_document(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_document(v) for v in value]
    return clean(str(value))
