"""Reading facts out of Python's syntax trees: small helpers, and the one way to say "not understood".

Nothing here runs what it reads. A normal form of a tree (``canonical``) is the same for every Python this package runs
on, for any layout, and with docstrings, annotations, decorators and logging left out: what it says is not what it does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from itertools import pairwise

from moe_preflight.aiter.sources import Refused


def parse(source: str, name: str) -> ast.Module:
    """The tree of ``source``. Raises Refused."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise Refused(f"{name} is not Python this tool can parse ({type(e).__name__})") from None


def parse_only(source: str, name: str, wanted: Collection[str]) -> ast.Module:
    """The module of ``source`` with no more than its top-level ``wanted`` functions, classes and assignments.

    Only their text is parsed, which matters for files of thousands of lines; line numbers stay those of the file. Where the
    text does not fall apart at its left margin (a wanted name inside a block, a string that reaches into the margin), the
    whole file is parsed and filtered. Absent names are left out. Raises Refused.
    """
    margins = [m.start() for m in _MARGIN.finditer(source)] + [len(source)]
    inside = re.compile(rf"\b(?:{'|'.join(map(re.escape, wanted))})\b[ \t]*[(:=]")
    body: list[ast.stmt] = []
    line = counted = 0
    try:
        for start, end in pairwise(margins):
            m = _NAMED.match(source, start)
            if m and (m[1] or m[2]) in wanted:
                if len(body) > MAX_TIMES * len(wanted):
                    raise Refused(f"{name} defines the same names too often")
                line, counted = line + source.count("\n", counted, start), start
                piece = ast.parse("\n" * line + source[start:end])
                if len(piece.body) != 1:
                    raise SyntaxError
                body += piece.body
            elif _BLOCK.match(source, start) and inside.search(source, start, end):
                raise SyntaxError
        return ast.Module(body, [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        whole = parse(source, name)
        return ast.Module([n for n in _top_level(whole.body) if _name_of(n) in wanted], [])


MAX_TIMES = 8
"""How often a file may define a name before it is taken to be something else than a module of AITER."""

_MARGIN = re.compile(r"^[A-Za-z_@]", re.M)
_NAMED = re.compile(r"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*(?::[^=\n]{1,200})?=(?!=)")
_BLOCK = re.compile(r"(?:if|try|else|elif|except|finally|with|for|while|match)\b")
"""Statements whose indented part may define a name of the module."""


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def assignments(module: ast.Module) -> dict[str, ast.expr]:
    """Values of the module's plain assignments by name; the last one of a name wins, as when it runs."""
    out: dict[str, ast.expr] = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            out[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            out[node.target.id] = node.value
    return out


def definitions(module: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes of the module by name, those inside ``if`` and ``try`` blocks of it included."""
    out: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = {}
    for node in _top_level(module.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            out[node.name] = node
    return out


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            for part in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(node, part, []):
                    yield from _top_level(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])
        else:
            yield node


_MUTATORS = frozenset({"update", "pop", "popitem", "setdefault", "clear", "append", "extend", "insert", "remove", "__setitem__"})


def refuse_if_changed(module: ast.Module, names: Collection[str]) -> None:
    """Raise Refused when a literal of the module is changed after it was written down: then it is only half the truth."""
    for node in ast.walk(module):
        target: ast.expr | None = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
            target = node.func.value
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name) and target.id in names:
            raise Refused(f"{target.id} is changed after it is written down")


def string_map(node: ast.expr | None, name: str) -> dict[str, ast.expr]:
    """A dictionary literal whose keys are strings. Raises Refused."""
    if not isinstance(node, ast.Dict):
        raise Refused(f"{name} is not a dictionary")
    out: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or key.value in out:
            raise Refused(f"{name} has a key that is not a plain string, or one twice")
        out[key.value] = value
    return out


def literal(node: ast.AST | None) -> object:
    """The value of a literal (numbers, strings, containers of them, signed numbers). Raises Refused."""
    if not isinstance(node, ast.expr):
        raise Refused("a value is missing")
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise Refused(f"line {node.lineno} is not a literal") from None


def strings(node: ast.AST | None) -> tuple[str, ...]:
    """A list or tuple literal of strings. Raises Refused."""
    value = literal(node)
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise Refused("a list of strings is something else")
    return tuple(value)


# --- a normal form ---------------------------------------------------------------------------------------------------

_SKIPPED = frozenset(
    {"ctx", "kind", "type_comment", "type_params", "decorator_list", "returns", "annotation", "lineno", "col_offset"}
)
"""Fields that say nothing about behaviour here, or that came and went between Python versions."""

_SPEAKERS = frozenset({"logger", "logging", "warnings"})


def canonical(node: ast.AST) -> str:
    """A text that two trees share when they do the same in the same words.

    Own walk instead of ast.dump(): its output changes between Python releases (new fields, defaults left out). Raises
    Refused when the tree is too deep.
    """
    out: list[str] = []
    try:
        _write(node, out)
    except RecursionError:
        raise Refused("an expression is nested too deeply") from None
    return "".join(out)


def _write(node: object, out: list[str]) -> None:
    if isinstance(node, ast.JoinedStr):
        _write_joined(node, out)
    elif isinstance(node, ast.AST):
        out.append(type(node).__name__)
        out.append("(")
        for name in node._fields:
            if name in _SKIPPED:
                continue
            value = getattr(node, name, None)
            if value is None or value == []:
                continue
            out.append(name)
            out.append("=")
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                _write_body(value, out)
            else:
                _write(value, out)
            out.append(",")
        if isinstance(node, ast.Constant) and node.value is None:
            out.append("None")
        out.append(")")
    elif isinstance(node, list):
        out.append("[")
        for item in node:
            _write(item, out)
            out.append(",")
        out.append("]")
    elif isinstance(node, str):
        # ascii() and not repr(): what counts as printable changes with the Unicode tables of a Python release.
        out.append(ascii(node))
    else:
        out.append(f"{type(node).__name__}:{node!r}")


def _write_body(body: list[object], out: list[str]) -> None:
    out.append("[")
    for statement in body:
        if isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and _says_only(statement.value)):
            continue
        _write(statement, out)
        out.append(",")
    out.append("]")


def _says_only(value: ast.expr) -> bool:
    """A docstring, or a call of a logger: ``logger.info(...)``, ``aiter.logger.warning(...)``, ``print(...)``."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str)
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    if isinstance(function, ast.Name):
        return function.id == "print"
    if isinstance(function, ast.Attribute):
        speaker = function.value
        return (speaker.id if isinstance(speaker, ast.Name) else getattr(speaker, "attr", "")) in _SPEAKERS
    return False


def _write_joined(node: ast.JoinedStr, out: list[str]) -> None:
    """f-strings: neighbouring constant pieces are one, however a Python release cuts them."""
    out.append("JoinedStr(")
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            text += part.value
            continue
        out.append(ascii(text))
        text = ""
        _write(part, out)
    out.append(ascii(text))
    out.append(")")
