"""Tile tables and instance lists out of AITER's CK code generator, read as text: parsed, never run.

Two files of ``csrc/ck_gemm_moe_2stages_codegen``: ``gen_instances.py`` keeps the heuristic dispatch as C++ templates in
string constants, ``gemm_moe_ck2stages_common.py`` keeps the instance lists and how kernel names are built. Both are read
through their syntax trees, and the C++ through its tokens, so layout does not matter. What is not understood is a
``Refused`` with a reason; there is never half a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from moe_preflight.aiter import cpp
from moe_preflight.aiter.ck import FAMILIES, TWINS, Instance, TileRule, brief_operations
from moe_preflight.aiter.ck_facts import CkFacts
from moe_preflight.aiter.sources import Refused, Slot
from moe_preflight.aiter.syntax import assignments, definitions, parse, refuse_if_changed, string_map, strings

TAGS = tuple(t for f in FAMILIES for t in ((f, f"{f}_gfx950") if f in TWINS else (f,)))
"""Every table name the generator uses."""

# --- the heuristic dispatch: C++ in string constants -----------------------------------------------------------------

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")
_DIRECTIVE = re.compile(r"^[ \t]*#([^\n]*)", re.M)
_HARMLESS = re.compile(r"if(?:def)?\b[^\n]*__Float4_e2m1fn_x2[^\n]*|endif\b[^\n]*")
"""Directives that hide a whole template from compilers without fp4, and nothing else."""


def _tokens(template: str) -> list[str]:
    """Tokens of one template: ``{{`` is a brace, ``{Name}`` the identifier Name; preprocessor lines are dropped."""
    text = cpp.without_comments(_PLACEHOLDER.sub(lambda m: m[1] or m[0][0], template))
    for directive in _DIRECTIVE.findall(text):
        if not _HARMLESS.fullmatch(directive.strip()):
            raise Refused(f"a dispatch template has the directive #{directive}")
    text = _DIRECTIVE.sub("", text)
    return cpp.tokens(text)


_GUARDS = frozenset({"dtype_checker", "ActOP", "MulRoutedWeight", "Quant", "Preshuffle"})
"""What the outer condition may start its parts with: they select the module, not the tile."""


@dataclass
class _Reader:
    """A reader of ``if (guards) { if (block_m == N) { ... return kernel<...>; } ... }``."""

    tokens: list[str]
    stage: int
    sizeof: int
    at: int = 0
    rules: list[TileRule] = field(default_factory=list)

    def rules_of_template(self) -> tuple[TileRule, ...]:
        self._take("if")
        guards = self._parenthesised()
        starts = [part[0] for part in _split(guards, "&&")]
        if not set(starts) <= _GUARDS:
            raise Refused(f"a dispatch template is guarded by {sorted(set(starts) - _GUARDS)}")
        self._take("{")
        self._statements((None, ""))
        self._take("}")
        if self.at != len(self.tokens):
            raise Refused("a dispatch template goes on after its block")
        rules = _without_idle(self.rules)
        if not rules:
            raise Refused("a dispatch template returns no kernel")
        return rules

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, expected: str) -> None:
        if self._peek() != expected:
            raise Refused(f"expected {expected!r} and found {self._peek()!r} in a dispatch template")
        self.at += 1

    def _parenthesised(self) -> list[str]:
        """The tokens inside the round brackets that open here."""
        self._take("(")
        start, depth = self.at, 1
        while depth:
            t = self._peek()
            if not t:
                raise Refused("brackets do not close in a dispatch template")
            depth += (t == "(") - (t == ")")
            self.at += 1
        return self.tokens[start : self.at - 1]

    def _statements(self, known: tuple[int | None, str]) -> None:
        """One block. A TORCH_CHECK(false, ...) is how the template says no kernel: a rule without an instance."""
        while self._peek() not in ("}", ""):
            self._statement(known)

    def _statement(self, known: tuple[int | None, str]) -> None:
        match self._peek():
            case "{":
                self._take("{")
                self._statements(known)
                self._take("}")
            case "if":
                self._if(known)
            case "return":
                self._return(known)
            case "TORCH_CHECK" | "AITER_CHECK":
                self.at += 1
                if self._parenthesised()[:1] != ["false"]:
                    raise Refused("a dispatch template checks something other than false")
                self._take(";")
                self.rules.append(TileRule(known[0] or 0, known[1], ""))
            case other:
                raise Refused(f"unexpected {other!r} in a dispatch template")

    def _if(self, known: tuple[int | None, str]) -> None:
        self._take("if")
        block_m, when = self._condition(self._parenthesised(), known)
        self._statement((block_m, when))
        if self._peek() == "else":
            # The rules of the first branch come first and win, so the second one needs no negated condition.
            self._take("else")
            self._statement(known)

    def _condition(self, tokens: list[str], known: tuple[int | None, str]) -> tuple[int | None, str]:
        block_m, when = known
        match tokens:
            case ["block_m", "==", n] if n.isdecimal() and block_m is None:
                return int(n), when
            case ["inter_dim", ("<=" | "<" | ">=" | ">") as op, n] if n.isdecimal() and not when:
                return block_m, f"inter_dim {op} {n}"
            case ["inter_dim", "%", n, "==", "0"] if n.isdecimal() and int(n) > 0 and not when:
                return block_m, f"inter_dim % {n} == 0"
        raise Refused(f"a dispatch template asks ({' '.join(tokens)})")

    def _return(self, known: tuple[int | None, str]) -> None:
        self._take("return")
        name = self._peek()
        if name != f"ck_moe_stage{self.stage}_gemm":
            raise Refused(f"a stage {self.stage} dispatch template returns {name!r}")
        self.at += 1
        start = self.at
        while self._peek() != ";":
            if self._peek() in ("", "{", "}"):
                raise Refused("a return does not end in a dispatch template")
            self.at += 1
        inner = self.tokens[start : self.at]
        self.at += 1
        if inner[:1] != ["<"] or inner[-1:] != [">"]:
            raise Refused("a dispatch template returns something without template arguments")
        block_m, when = known
        if block_m is None:
            raise Refused("a dispatch template returns a kernel for any block_m")
        self.rules.append(TileRule(block_m, when, str(self._instance(_template_arguments(inner[1:-1])))))

    def _instance(self, arguments: list[list[str]]) -> Instance:
        """From A0, B0, Acc, E, CDEElementOp, V1, BlockSize, MPerBlock, NPerBlock, KPerBlock, MWaves, NWaves, ..."""
        names = [a[0] if len(a) == 1 else "" for a in arguments[:5]]
        if names != ["A0DataType", "B0DataType", "AccDataType", "EDataType", "CDEElementOp"] or len(arguments) < 12:
            raise Refused("a kernel's template arguments are not in the known order")
        pipeline = arguments[5][0]
        if not re.fullmatch(r"V\d", pipeline):
            raise Refused(f"a kernel's pipeline is {pipeline!r}")
        block_size, m, n, k, m_waves, n_waves = (self._number(a) for a in arguments[6:12])
        return Instance(block_size, m, n, k, m_waves, n_waves, int(pipeline[1:]))

    def _number(self, tokens: list[str]) -> int:
        match tokens:
            case [n] if n.isdecimal():
                return int(n)
            case [n, "/", "sizeof", "(", "A0DataType", ")"] if n.isdecimal() and int(n) % self.sizeof == 0:
                return int(n) // self.sizeof
        raise Refused(f"a kernel's tile is {' '.join(tokens)!r}")


def _without_idle(rules: list[TileRule]) -> tuple[TileRule, ...]:
    """Leave out refusals that change nothing: no later rule would have answered what they refuse."""
    kept: list[TileRule] = []
    for i, rule in enumerate(rules):
        later = {r.block_m for r in rules[i + 1 :] if r.instance and (rule.block_m in (0, r.block_m))}
        answered = {r.block_m for r in rules[:i] if r.instance and r.when in ("", rule.when)}
        if rule.instance or later - answered:
            kept.append(rule)
    return tuple(kept)


def _split(tokens: list[str], separator: str) -> Iterator[list[str]]:
    part: list[str] = []
    for t in tokens:
        if t == separator:
            yield part or [""]
            part = []
        else:
            part.append(t)
    yield part or [""]


def _template_arguments(tokens: list[str]) -> list[list[str]]:
    """Split at commas outside angle and round brackets. ``a == b`` inside an argument is left as it is."""
    out: list[list[str]] = [[]]
    depth = 0
    for t in tokens:
        depth += (t in "(<") - (t in ")>")
        if t == "," and depth == 0:
            out.append([])
        else:
            out[-1].append(t)
    return [a or [""] for a in out]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The heuristic dispatch of one gen_instances.py: rules and the line of each template, and known activations."""

    rules: dict[Slot, tuple[TileRule, ...]]
    lines: dict[Slot, int]
    activations: tuple[str, ...]


def heuristic_dispatch(source: str) -> Dispatch:
    """Read gen_instances.py. Raises Refused."""
    module = parse(source, "gen_instances.py")
    names = assignments(module)
    refuse_if_changed(module, {"heuristic_dispatch_dict"})
    rules: dict[Slot, tuple[TileRule, ...]] = {}
    lines: dict[Slot, int] = {}
    for tag, pair in string_map(names.get("heuristic_dispatch_dict"), "heuristic_dispatch_dict").items():
        if not isinstance(pair, ast.List | ast.Tuple) or len(pair.elts) != 2:
            raise Refused(f"heuristic_dispatch_dict[{tag!r}] is not a pair of templates")
        for stage, element in enumerate(pair.elts, 1):
            template = names.get(element.id) if isinstance(element, ast.Name) else None
            if not isinstance(template, ast.Constant) or not isinstance(template.value, str):
                raise Refused(f"heuristic_dispatch_dict[{tag!r}] does not name a template")
            reader = _Reader(_tokens(template.value), stage, 2 if tag.startswith("a16w16") else 1)
            rules[tag, stage], lines[tag, stage] = reader.rules_of_template(), template.lineno
    _refuse_missing(rules, "dispatch template")
    return Dispatch(rules, lines, _activations(module))


def _refuse_missing(found: Collection[Slot], what: str) -> None:
    missing = sorted({(t, s) for t in TAGS for s in (1, 2)} - set(found))
    if missing:
        raise Refused(f"no {what} for {missing[0][0]} stage {missing[0][1]}")


def _activations(module: ast.Module) -> tuple[str, ...]:
    """The choices of the generator's ``--activation`` argument: another activation has no module at all."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and any(isinstance(a, ast.Constant) and a.value == "--activation" for a in node.args):
            return strings(next((k.value for k in node.keywords if k.arg == "choices"), None))
    raise Refused("the generator has no --activation argument")


# --- the instance lists: Python --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instances:
    """The instance lists of one gemm_moe_ck2stages_common.py.

    ``instances`` and ``lines`` by tag and stage; ``operations`` is the element operation in kernel names by (tag, stage,
    multiplies by the routing weight, split-k).
    """

    instances: dict[Slot, tuple[str, ...]]
    lines: dict[Slot, int]
    operations: dict[tuple[str, int, bool, bool], str]


_FIELDS = ("BLOCK_SIZE", "MPerBlock", "NPerBlock", "KPerBlock", "MWaves", "NWaves", "GemmPipelineVersion")


def instance_lists(source: str) -> Instances:
    """Read gemm_moe_ck2stages_common.py. Raises Refused."""
    module = parse(source, "gemm_moe_ck2stages_common.py")
    names, defined = assignments(module), definitions(module)
    found: dict[Slot, tuple[str, ...]] = {}
    lines: dict[Slot, int] = {}
    operations: dict[tuple[str, int, bool, bool], str] = {}
    used = {"gemm1_kernels_dict", "gemm2_kernels_dict"}
    for stage in (1, 2):
        which = f"gemm{stage}_kernels_dict"
        kind = f"kernelInstanceGEMM{stage}"
        default = _check_name(defined.get(kind), stage)
        for tag, element in string_map(names.get(which), which).items():
            listed = names.get(element.id) if isinstance(element, ast.Name) else element
            if isinstance(element, ast.Name):
                used.add(element.id)
            if not isinstance(listed, ast.Dict):
                raise Refused(f"{which}[{tag!r}] is not a dictionary of instances")
            # Python keeps the last of two equal keys, at the place of the first.
            kept = {_integer(k): _instance(v, kind) for k, v in zip(listed.keys, listed.values, strict=True)}
            found[tag, stage], lines[tag, stage] = tuple(kept.values()), listed.lineno
        function = defined.get(f"get_gemm{stage}_kernels_list")
        for tag in TAGS:
            for weighted in (False, True):
                for splitk in (False, True):
                    operations[tag, stage, weighted, splitk] = _operation(function, tag, weighted, splitk) or default
    refuse_if_changed(module, used)
    _refuse_missing(found, "instance list")
    return Instances(found, lines, operations)


def _integer(node: ast.expr | None) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise Refused("an instance has a key that is not a number")


def _instance(node: ast.expr, kind: str) -> str:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != kind:
        raise Refused(f"line {node.lineno} is not a {kind}")
    given: dict[str, ast.expr] = dict(zip(_FIELDS, node.args, strict=False))
    given.update({k.arg: k.value for k in node.keywords if k.arg})
    if len(node.args) > len(_FIELDS) or set(given) != set(_FIELDS):
        raise Refused(f"line {node.lineno}: {kind} is given other fields than its tile")
    return str(Instance(*[_integer(given[name]) for name in _FIELDS]))


def _check_name(node: ast.AST | None, stage: int) -> str:
    """Check that a kernel name is put together as we take it apart; return the default element operation."""
    if not isinstance(node, ast.ClassDef):
        raise Refused(f"kernelInstanceGEMM{stage} is not a class")
    fields = [s for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    if tuple(s.target.id for s in fields if isinstance(s.target, ast.Name))[: len(_FIELDS)] != _FIELDS:
        raise Refused(f"kernelInstanceGEMM{stage} does not start with its tile")
    name = next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "name"), None)
    if name is None or _name_parts(ast.Module(name.body, [])) not in _KNOWN_NAMES[stage]:
        raise Refused(f"kernel names of stage {stage} are put together in a way this tool does not know")
    for s in fields:
        if isinstance(s.target, ast.Name) and s.target.id == "CDEElementOp" and isinstance(s.value, ast.Constant):
            return str(s.value.value)
    raise Refused(f"kernelInstanceGEMM{stage} has no default element operation")


def _name_parts(node: ast.AST) -> list[str]:
    """What a kernel name is joined from, in the order of the tree: attributes of self, and constant pieces in quotes."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return [node.attr]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [repr(node.value)]
    return [part for child in ast.iter_child_nodes(node) for part in _name_parts(child)]


_HEAD = ["'_'", "'moe_ck2stages_gemm'", "stage", "'x'", *_FIELDS[:4], "'x'", *_FIELDS[4:6], "CDEElementOp", "'v'", _FIELDS[6]]
_MIDDLE = ["'Nswizzle'", "Nswizzle", "'Quant'", "QuantType", "'MulRoutedWeight'", "MulRoutedWeight"]
_TAIL = ["Adtype", "Bdtype", "Cdtype"]
_KNOWN_NAMES = {
    # Stage 1 says the activation: a choice of two words up to v0.1.19, a table of them from v0.1.19.post1.
    1: ([*_HEAD, *_MIDDLE, "ActOP", "'silu'", "'gelu'", *_TAIL], [*_HEAD, *_MIDDLE, "ActOP", *_TAIL]),
    2: ([*_HEAD, *_MIDDLE, *_TAIL],),
}


# The element operation is chosen by a chain of ifs over tag, splitk and MulRoutedWeight. It is walked with each
# combination of the three, the only names it may ask.


def _operation(function: ast.AST | None, tag: str, weighted: bool, splitk: bool) -> str:
    """The element operation get_gemmN_kernels_list gives ``tag``, or empty when it leaves the default."""
    if not isinstance(function, ast.FunctionDef):
        raise Refused("the function that lists instances is missing")
    loop = next((n for n in function.body if isinstance(n, ast.For)), None)
    if loop is None:
        raise Refused(f"{function.name} does not go over its instances")
    known: dict[str, str | bool] = {"tag": tag, "MulRoutedWeight": weighted, "splitk": splitk}
    chosen = ""
    for statement in loop.body:
        chosen = _walk_choice(statement, known) or chosen
    return chosen


def _walk_choice(node: ast.stmt, known: dict[str, str | bool]) -> str:
    if isinstance(node, ast.If):
        branch = node.body if _truth(node.test, known) else node.orelse
        chosen = ""
        for statement in branch:
            chosen = _walk_choice(statement, known) or chosen
        return chosen
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        if node.targets[0].attr != "CDEElementOp":
            return ""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
    raise Refused(f"line {node.lineno} of the instance lists is not a choice of element operation")


def _truth(node: ast.expr, known: dict[str, str | bool]) -> bool:
    match node:
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_truth(v, known) for v in values)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_truth(v, known) for v in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(operand, known)
        case ast.Compare(left=ast.Name(id="tag"), ops=[ast.Eq()], comparators=[ast.Constant(value=str(value))]):
            return known["tag"] == value
        case ast.Name(id=("MulRoutedWeight" | "splitk") as name):
            return bool(known[name])
    raise Refused(f"line {node.lineno} of the instance lists asks something this tool does not know")


# --- both ------------------------------------------------------------------------------------------------------------


def ck_facts(gen: str, common: str, name: str) -> CkFacts:
    """The tables of a tree from the text of its two files. ``name`` is gen_instances.py's name in the tree, for sources.
    Raises Refused."""
    dispatch, listed = heuristic_dispatch(gen), instance_lists(common)
    try:
        operations = brief_operations(listed.operations)
    except ValueError as e:
        raise Refused(str(e)) from None
    return CkFacts(
        rules=dispatch.rules,
        instances={slot: frozenset(map(Instance.parse, names)) for slot, names in listed.instances.items()},
        operations=operations,
        activations=dispatch.activations,
        sources={slot: f"{name}:{line}" for slot, line in dispatch.lines.items()},
        confidence="read",
    )
