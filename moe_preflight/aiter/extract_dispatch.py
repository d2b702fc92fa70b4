"""Facts of the Python dispatch read out of ``aiter/fused_moe.py``: token tiers, lookup columns, how act_type is matched.

Parsed, never run. Each function takes the module's tree (syntax.parse_only with NAMES) and answers, or raises Refused with
what it did not understand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from moe_preflight.aiter.facts.dispatch_rules import Tiers
from moe_preflight.aiter.sources import Refused
from moe_preflight.aiter.syntax import assignments, canonical, definitions, literal

NAMES = ("get_padded_M", "_PADDED_M_TIERS", "nextPow2", "get_2stage_cfgs")
"""What of the file is looked at here."""

# --- token tiers -----------------------------------------------------------------------------------------------------


def token_tiers(module: ast.Module) -> tuple[Tiers, int]:
    """What get_padded_M makes of a token count, and its line."""
    defined, names = definitions(module), assignments(module)
    function = defined.get("get_padded_M")
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) != 1:
        raise Refused("get_padded_M is not a function of one argument")
    _check_next_pow2(defined.get("nextPow2"))
    subject = {function.args.args[0].arg}
    tiers: list[tuple[int | None, int | str]] = []
    for statement in function.body:
        if _names_subject(statement, subject):
            continue
        tiers += _tiers_of(statement, subject, names)
        if tiers and tiers[-1][0] is None:
            return _joined(tiers), function.lineno
    raise Refused("get_padded_M does not end in a value for the largest token counts")


def _names_subject(statement: ast.stmt, subject: set[str]) -> bool:
    """A docstring, or ``padded_m = M``: one more name for the argument."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)) if source in subject:
            subject.add(name)
            return True
    return False


def _tiers_of(statement: ast.stmt, subject: set[str], names: dict[str, ast.expr]) -> list[tuple[int | None, int | str]]:
    match statement:
        case ast.If(test=test, body=[inner], orelse=orelse):
            tiers: list[tuple[int | None, int | str]] = [(_below(test, subject, names), _value(inner, subject, names))]
            for following in orelse:
                tiers += _tiers_of(following, subject, names)
            return tiers
        case ast.For(target=ast.Name(id=tier), iter=iterated, body=[ast.If(test=test, body=[ast.Return(value=value)])]):
            at_least = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.GtE) and _is(test.comparators[0], tier)
            if not at_least or not _is(value, tier) or not isinstance(test, ast.Compare) or not _is(test.left, *subject):
                raise Refused(f"line {statement.lineno} of get_padded_M is not a search of tiers")
            found = _descending(iterated, names)
            return [(above, tier_) for above, tier_ in zip([*found[1:], None], found, strict=True)]
        case ast.Return() | ast.Assign():
            return [(None, _value(statement, subject, names))]
    raise Refused(f"line {statement.lineno} of get_padded_M is not understood")


def _is(node: ast.expr | None, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _descending(node: ast.expr, names: dict[str, ast.expr]) -> list[int]:
    """``reversed(_PADDED_M_TIERS)`` as an ascending list of tiers."""
    match node:
        case ast.Call(func=ast.Name(id="reversed"), args=[ast.Name(id=name)]):
            tiers = literal(names.get(name))
            if (
                isinstance(tiers, list | tuple)
                and tiers
                and all(type(t) is int and t > 0 for t in tiers)
                and sorted(tiers) == list(tiers)
            ):
                return list(tiers)
    raise Refused(f"line {node.lineno} of get_padded_M goes over something other than a list of tiers")


def _below(test: ast.expr, subject: set[str], names: dict[str, ast.expr]) -> int:
    """The bound of ``M < n``, ``M <= n`` or ``M >= 1 and M <= n``, exclusive."""
    match test:
        case ast.BoolOp(
            op=ast.And(), values=[ast.Compare(left=left, ops=[ast.GtE()], comparators=[ast.Constant(value=1)]), upper]
        ):
            if _is(left, *subject):
                return _below(upper, subject, names)
        case ast.Compare(left=left, ops=[(ast.Lt() | ast.LtE()) as op], comparators=[bound]) if _is(left, *subject):
            return _number(bound, names) + isinstance(op, ast.LtE)
    raise Refused(f"line {test.lineno} of get_padded_M asks something else than a bound")


def _value(statement: ast.stmt, subject: set[str], names: dict[str, ast.expr]) -> int | str:
    match statement:
        case ast.Return(value=ast.expr() as value) | ast.Assign(targets=[ast.Name()], value=value):
            match value:
                case ast.Call(func=ast.Name(id="nextPow2"), args=[argument]) if _is(argument, *subject):
                    return "pow2"
            return _number(value, names)
    raise Refused(f"line {statement.lineno} of get_padded_M gives something else than a count")


def _number(node: ast.expr, names: dict[str, ast.expr]) -> int:
    """A number, or an element of a named list: ``_PADDED_M_TIERS[0]``."""
    match node:
        case ast.Constant(value=int() as n) if type(n) is int:
            return n
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as i)):
            listed = literal(names.get(name))
            if isinstance(listed, list | tuple) and -len(listed) <= i < len(listed) and type(listed[i]) is int:
                return int(listed[i])
    raise Refused(f"line {node.lineno} of get_padded_M is not a number")


def _check_next_pow2(node: ast.AST | None) -> None:
    body = canonical(ast.Module(node.body, [])) if isinstance(node, ast.FunctionDef) else ""
    if body not in [canonical(ast.parse(_NEXT_POW2.format(first))) for first in (0, 1)]:
        raise Refused("nextPow2 is not the next power of two in the known words")


_NEXT_POW2 = "if n <= {}:\n    return 1\nreturn 1 << (n - 1).bit_length()"
"""The two ways it was written; the same from one token on."""


def _joined(tiers: list[tuple[int | None, int | str]]) -> Tiers:
    """Neighbours that say the same are one; bounds must ascend."""
    out: list[tuple[int | None, int | str]] = []
    for below, value in tiers:
        if out and out[-1][0] is not None and below is not None and below <= out[-1][0]:
            raise Refused("the bounds of get_padded_M do not ascend")
        if out and out[-1][1] == value:
            out.pop()
        out.append((below, value))
    return tuple(out)


# --- the lookup key --------------------------------------------------------------------------------------------------


def _lookup(module: ast.Module) -> ast.FunctionDef:
    function = definitions(module).get("get_2stage_cfgs")
    if not isinstance(function, ast.FunctionDef):
        raise Refused("get_2stage_cfgs is not a function")
    return function


def lookup_columns(module: ast.Module) -> tuple[tuple[str, ...], int]:
    """The columns tuned rows are looked up by, in the order of the key, and their line."""
    found: dict[tuple[str, ...], int] = {}
    for node in ast.walk(_lookup(module)):
        if isinstance(node, ast.List) and node.elts and all(isinstance(e, ast.Constant) for e in node.elts):
            values = tuple(e.value for e in node.elts if isinstance(e, ast.Constant))
            if {"token", "expert", "act_type"} <= {v for v in values if isinstance(v, str)}:
                found.setdefault(tuple(map(str, values)), node.lineno)
    if len(found) != 1:
        raise Refused(f"get_2stage_cfgs names {len(found)} lists of lookup columns")
    return next(iter(found.items()))


ACT_MODES = {
    # (the key holds the activation as text, other activations' rows are borrowed, CK rows are not lent)
    (True, False, False): "exact",
    (False, True, False): "ignored",
    (True, True, False): "exact-else-any",
    (True, True, True): "exact-else-any-non-ck",
    (False, True, True): "any-non-ck",
}
"""How act_type is matched. ``ignored`` because a key that holds the enum never equals a row's text, so the first row of any
activation is taken; with CK rows not lent on top (``any-non-ck``) no CK row can be reached at all."""


def act_mode(module: ast.Module, columns: tuple[str, ...]) -> tuple[str, int]:
    """How act_type is matched, and the line of the key."""
    function = _lookup(module)
    at = columns.index("act_type")
    key = None
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="keys")], value=ast.Tuple() as key_):
                key = key_
    if key is None or len(key.elts) != len(columns):
        raise Refused("get_2stage_cfgs does not build a key of as many parts as there are columns")
    element = key.elts[at]
    if not (_is(element, "activation") or _is_text(element)):
        raise Refused("the key of get_2stage_cfgs holds no activation where act_type is")
    # A dedicated table of another layer (config_file) has a lookup of its own, inside ``if config_file is not None``.
    ordinary = [n for n in _outside_of_config_file(function) if isinstance(n, ast.expr | ast.stmt)]
    text = _is_text(element) or any(_replaces_activation(n, at) for n in ordinary)
    lent = any(_sets_act_type(n) for n in ordinary)
    spared = any(_asks_for_ck(n) for n in ordinary)
    mode = ACT_MODES.get((text, lent, spared))
    if mode is None:
        raise Refused("how get_2stage_cfgs matches act_type is not understood")
    return mode, key.lineno


def _outside_of_config_file(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Compare(left=ast.Name(id="config_file"), ops=[ast.IsNot()])):
                for other in child.orelse:
                    yield other
                    yield from _outside_of_config_file(other)
            case _:
                yield child
                yield from _outside_of_config_file(child)


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id="activation")]):
            return True
    return False


def _replaces_activation(node: ast.AST, at: int) -> bool:
    """``keys[:7] + (str(activation),) + ...`` where 7 is the place of act_type."""
    match node:
        case ast.BinOp(
            left=ast.Subscript(value=ast.Name(id="keys"), slice=ast.Slice(lower=None, upper=ast.Constant(value=upper))),
            op=ast.Add(),
            right=ast.Tuple(elts=[inner]),
        ):
            return upper == at and _is_text(inner)
    return False


def _sets_act_type(node: ast.AST) -> bool:
    """``df["act_type"] = ...``: rows are put under one activation for all."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="act_type"))]):
            return True
    return False


def _asks_for_ck(node: ast.AST) -> bool:
    """``....str.contains("moe_ck2stages", ...)``."""
    match node:
        case ast.Call(func=ast.Attribute(attr="contains"), args=[ast.Constant(value=str() as text), *_]):
            return "ck2stages" in text
    return False
