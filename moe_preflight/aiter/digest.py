"""The fingerprint of one file: a hash over the normal form of the functions that decide."""

from __future__ import annotations

import ast
from collections.abc import Collection
from hashlib import sha256

from moe_preflight.aiter.fingerprint import HOLDERS, PARTS, WHOLE
from moe_preflight.aiter.syntax import canonical, parse, parse_only


def digest(source: str, name: str) -> str:
    """The fingerprint of one file's part. Raises Refused when it cannot be parsed."""
    wanted = PARTS[name]
    if wanted == WHOLE:
        return _hash(canonical(_without_imports(parse(source, name))))
    module = parse_only(source, name, (*wanted, *HOLDERS))
    normal = sorted(f"{found}={canonical(node)}" for found, node in _parts(module.body, wanted))
    return _hash("\n".join(normal))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:24]


def _without_imports(module: ast.Module) -> ast.Module:
    return ast.Module([n for n in module.body if not isinstance(n, ast.Import | ast.ImportFrom)], [])


def _parts(body: list[ast.stmt], wanted: Collection[str]) -> list[tuple[str, ast.AST]]:
    out: list[tuple[str, ast.AST]] = []
    for node in body:
        match node:
            case ast.ClassDef(name=name) if name in HOLDERS:
                out += _parts(node.body, wanted)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name in wanted:
                out.append((name, node))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in wanted:
                out.append((name, value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name in wanted:
                out.append((name, value))
    return out
