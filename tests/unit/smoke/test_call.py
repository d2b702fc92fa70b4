"""The engine's call against AITER's real signatures: the installed wheel's, parsed and never imported, and those of any tree in
MOE_PREFLIGHT_AITER_SOURCES (a list of checkouts, for running by hand)."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.smoke.aiter_call import ACTIVATION_TYPES, NEUTRAL, QUANT_TYPES, bind, engine_call
from tests.unit.smoke.cases import small


def _installed() -> Path | None:
    try:
        files = importlib.metadata.files("amd-aiter") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())).parents[1] for f in files if str(f) == "aiter/fused_moe.py"), None)


TREES = [p for p in (_installed(), *map(Path, filter(None, os.environ.get("MOE_PREFLIGHT_AITER_SOURCES", "").split(":")))) if p]
needs_tree = pytest.mark.skipif(not TREES, reason="amd-aiter is not installed")
trees = pytest.mark.parametrize("tree", TREES or [Path()], ids=lambda p: p.name)


def signature_of(path: Path, name: str) -> Any:
    """A function with the parameters of ``name`` in ``path``, built from its text; defaults become None."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    args = node.args
    positional = args.posonlyargs + args.args
    with_default = len(positional) - len(args.defaults)
    parameters = [
        inspect.Parameter(
            a.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=inspect.Parameter.empty if n < with_default else None
        )
        for n, a in enumerate(positional)
    ]
    parameters += [inspect.Parameter(a.arg, inspect.Parameter.KEYWORD_ONLY, default=None) for a in args.kwonlyargs]

    def stand_in(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    stand_in.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return stand_in


def values(case: Any) -> dict[str, Any]:
    positional, keywords = engine_call(case)
    plain = {n: NEUTRAL[n][0] if n in NEUTRAL else object() for n in positional + keywords}
    return plain | {"gate_mode": case.gate_mode, "swiglu_limit": case.swiglu_limit, "doweight_stage1": False}


@needs_tree
@pytest.mark.aiter
@trees
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_call_fits_the_real_signature(tree: Path, engine: str) -> None:
    case = small(engine=engine)
    function = signature_of(tree / "aiter" / "fused_moe.py", "fused_moe")
    bound = bind(function, case, values(case))
    assert bound.problem == ""
    assert bound.required == ()
    assert set(bound.unknown) <= {"swiglu_limit"}  # it came with v0.1.14
    inspect.signature(function).bind(*bound.args, **bound.kwargs)


@needs_tree
@pytest.mark.aiter
@trees
def test_enum_numbers_are_aiter_s(tree: Path) -> None:
    meta = tree / "aiter_meta" if (tree / "aiter_meta").is_dir() else tree
    text = (meta / "csrc" / "include" / "aiter_enum.h").read_text(encoding="utf-8")
    quant, act = _enum(text, "QuantType"), _enum(text, "ActivationType")
    assert dict(QUANT_TYPES.values()).items() <= quant.items()
    known = dict(ACTIVATION_TYPES.values())
    assert all(act.get(name, number) == number for name, number in known.items())
    assert {"Silu", "Gelu", "Swiglu"} <= act.keys()


OUT = ["topk_weights", "topk_ids"]
GROUPS = ["num_expert_group", "topk_group", "need_renorm"]


def _enum(text: str, name: str) -> dict[str, int]:
    body = re.search(rf"enum class {name} : int\s*\{{([^}}]*)\}}", text)
    assert body
    out, number = {}, -1
    for item in body.group(1).split(","):
        word, _, value = (part.strip() for part in item.partition("="))
        if word:
            number = int(value) if value else number + 1
            out[word] = number
    return out


@needs_tree
@pytest.mark.aiter
@trees
@pytest.mark.parametrize(
    ("file", "name", "order"),
    [
        ("ops/topk.py", "biased_grouped_topk", ["gating_output", "correction_bias", *OUT, *GROUPS, "routed_scaling_factor"]),
        ("ops/topk.py", "grouped_topk", ["gating_output", *OUT, *GROUPS, "is_softmax", "routed_scaling_factor"]),
        ("ops/moe_op.py", "topk_softmax", ["topk_weights", "topk_indices", "token_expert_indices", "gating_output", "need_renorm"]),
        ("ops/moe_op.py", "topk_sigmoid", ["topk_weights", "topk_indices", "gating_output"]),
        ("ops/shuffle.py", "shuffle_weight", ["x", "layout"]),
        ("ops/shuffle.py", "shuffle_weight_a16w4", ["src", "NLane", "gate_up"]),
        ("ops/shuffle.py", "shuffle_scale_a16w4", ["src", "experts_cnt", "gate_up"]),
        ("utility/fp4_utils.py", "e8m0_shuffle", ["scale"]),
    ],
)  # fmt: skip
def test_router_and_shuffle_take_what_they_are_given(tree: Path, file: str, name: str, order: list[str]) -> None:
    names = list(inspect.signature(signature_of(tree / "aiter" / file, name)).parameters)
    assert names[: len(order)] == order


def old(hidden_states: Any, w1: Any, w2: Any, topk_weight: Any, topk_ids: Any, expert_mask: Any = None, activation: Any = 0,
        quant_type: Any = 0, doweight_stage1: Any = False, w1_scale: Any = None, w2_scale: Any = None, a1_scale: Any = None,
        a2_scale: Any = None, num_local_tokens: Any = None, moe_sorting_dispatch_policy: int = 0, dtype: Any = None,
        hidden_pad: int = 0, intermediate_pad: int = 0, bias1: Any = None, bias2: Any = None) -> None: ...  # fmt: skip


def test_a_parameter_that_asks_for_nothing_is_left_out() -> None:
    case = small()
    bound = bind(old, case, values(case))
    assert (bound.unknown, bound.problem) == (("swiglu_limit",), "")
    inspect.signature(old).bind(*bound.args, **bound.kwargs)


def test_a_parameter_that_matters_stops_the_launch() -> None:
    case = small(swiglu_limit=7.0)
    assert "swiglu_limit" in bind(old, case, values(case)).problem


def test_gate_mode_goes_silently_as_in_the_engine() -> None:
    case = small(gate_mode="interleave")
    bound = bind(old, case, values(case))
    assert "gate_mode" in bound.unknown
    assert bound.problem == ""


def test_a_new_required_parameter_and_another_order_are_named() -> None:
    def needs(hidden_states: Any, w1: Any, w2: Any, topk_weight: Any, topk_ids: Any, plan: Any, **more: Any) -> None: ...

    def moved(w1: Any, hidden_states: Any, w2: Any, **more: Any) -> None: ...

    case = small(engine="sglang")
    assert "plan" in bind(needs, case, values(case)).problem
    assert "another order" in bind(moved, small(), values(small())).problem


class Opaque:
    __signature__ = "not one"

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        return len(args), len(kwargs)


def test_a_function_without_a_signature_is_called_as_the_engine_does() -> None:
    function = Opaque()
    with pytest.raises(TypeError):
        inspect.signature(function)
    bound = bind(function, small(), values(small()))
    assert bound.problem == ""
    assert function(*bound.args, **bound.kwargs) == (13, 8)
