"""C++ as text: comments out, tokens apart. As much as reading a switch and a chain of ifs needs."""

from __future__ import annotations

import re

from moe_preflight.aiter.sources import Refused

_INTEREST = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*')
_TOKEN = re.compile(r'\s+|("(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|\d+|&&|\|\||[<>=!]=|::|[{}()<>;:,%/#&|!=*+-])')


def without_comments(text: str) -> str:
    """``text`` with comments blanked and every line where it was. Raises Refused at a comment without an end."""
    out: list[str] = []
    at = 0
    while m := _INTEREST.search(text, at):
        if m[0][0] == '"':
            out.append(text[at : m.end()])
            at = m.end()
            continue
        out.append(text[at : m.start()])
        end = m.end()
        if m[0] == "/*":
            end = text.find("*/", m.end()) + 2
            if end < 2:
                raise Refused("a comment does not end")
        out.append(" " + "\n" * text.count("\n", m.start(), end))
        at = end
    out.append(text[at:])
    return "".join(out)


def tokens(text: str) -> list[str]:
    """Tokens of ``text``, which has no comments any more. Raises Refused."""
    out: list[str] = []
    at = 0
    while at < len(text):
        m = _TOKEN.match(text, at)
        if m is None:
            raise Refused(f"unexpected character {text[at]!r}")
        if m[1] is not None:
            out.append(m[1])
        at = m.end()
    return out
