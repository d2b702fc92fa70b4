"""The Python API says what the command line says: every flag has its argument, and both ask the same."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import moe_preflight
from moe_preflight import api, errors, preflight
from moe_preflight.cli import check as command
from moe_preflight.cli import compare as compare_command
from moe_preflight.cli import gate as gate_command
from moe_preflight.settings import Request
from tests.hostile.fuzz import invoke

SHAPE = "experts=128,topk=8,hidden=4096,inter=192"
FAR = ("--no-tuned", "--aiter-version", "0.1.20.post1")


def flags(function: Any) -> set[str]:
    """The long names of a command's options and the names of its arguments."""
    out = set()
    for name, hint in get_type_hints(function, include_extras=True).items():
        if name == "return":
            continue
        said = next((m for m in get_args(hint)[1:] if hasattr(m, "param_decls")), None)
        words = (said.default, *(said.param_decls or ())) if said is not None else ()  # typer keeps the first in default
        declared = next((w for w in words if isinstance(w, str) and w.startswith("--")), None)
        out.add(declared.split("/")[0][2:].replace("-", "_") if declared else name)
    return out


ARGUMENT = {"no_tuned": "tuned", "ep_size": "ep"}
"""Flags whose argument has another name."""
CLI_ONLY = {
    # where a report goes and how it looks; exit_code(fail_on) is a method; defaults from a file are the command line's
    "format", "output", "color", "quiet", "verbose", "fail_on", "config",
}  # fmt: skip


def arguments(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_every_flag_of_check_has_an_argument() -> None:
    assert {ARGUMENT.get(f, f) for f in flags(command.check) - CLI_ONLY} == arguments(api.check)


def test_every_flag_of_gate_and_compare_has_one() -> None:
    assert flags(gate_command.gate) - CLI_ONLY - {"write_baseline"} == arguments(api.check_gate)
    more = arguments(api.request) - {"tokens", "checkpoint", "select", "ignore"}
    assert {ARGUMENT.get(f, f) for f in flags(compare_command.compare) - CLI_ONLY} == arguments(api.compare) - {"more"} | more


def test_check_takes_what_a_request_takes() -> None:
    extra = {"ask_aiter", "smoke", "smoke_backend", "smoke_tokens", "env"}
    asked, made = inspect.signature(api.check).parameters, inspect.signature(api.request).parameters
    assert set(asked) == set(made) | extra
    assert all(asked[name] == made[name] for name in made)


def test_defaults_are_those_of_the_command_line() -> None:
    cli = inspect.signature(command.check).parameters
    same = {"dp", "pcp", "pp", "ep", "redundant_experts", "gfx", "cu", "engine", "engine_version", "moe_backend", "aiter", "aiter_version", "flydsl",
            "multi_arch", "quant", "tokens", "max_num_batched_tokens", "revision", "offline", "checkpoint", "ask_aiter", "smoke", "smoke_backend",
            "smoke_tokens", "env"}  # fmt: skip
    asked = inspect.signature(api.check).parameters
    assert {n: asked[n].default for n in same} == {n: cli[n].default for n in same}


PAIRS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "models": (["a/b", "c"], {"models": ["a/b", Path("c")]}),
    "nothing more": (["a/b"], {"models": "a/b"}),
    "tp": (["a", "--tp", "8,4", "--tp", "8"], {"models": "a", "tp": [8, 4, 8]}),
    "tp, a word": (["a", "--tp", "8,4"], {"models": "a", "tp": "8,4"}),
    "dp pcp pp ep": (["a", "--dp", "2", "--pcp", "3", "--pp", "4", "--ep"], {"models": "a", "dp": 2, "pcp": 3, "pp": 4, "ep": True}),
    "a degree for the engine to refuse": (["a", "--dp", "-1", "--tp", "0"], {"models": "a", "dp": -1, "tp": 0}),
    "ep, a number": (["a", "--engine", "sglang", "--ep", "8"], {"models": "a", "engine": "sglang", "ep": 8}),
    "ep, one": (["a", "--engine", "sglang", "--ep", "1"], {"models": "a", "engine": "sglang", "ep": 1}),
    "redundant": (["a", "--redundant-experts", "4"], {"models": "a", "redundant_experts": 4}),
    "gpu": (["a", "--gpu", "mi308x,MI300A"], {"models": "a", "gpu": ["mi308x", "mi300a"]}),
    "gfx": (["a", "--gfx", "gfx942", "--cu", "64", "--gpu", "mi300x"], {"models": "a", "gfx": "gfx942", "cu": 64, "gpu": "mi300x"}),
    "engine": (["a", "--engine", "aiter"], {"models": "a", "engine": "aiter"}),
    "engine version": (["a", "--engine-version", "0.31.0"], {"models": "a", "engine_version": "0.31.0"}),
    "engine env": (["a", "--engine-env", "X=1", "--engine-env", "AITER_CONFIG_FMOE=t.csv"],
                   {"models": "a", "engine_env": {"X": "1", "AITER_CONFIG_FMOE": "t.csv"}}),
    "backends": (["a", "--moe-backend", "triton", "--all2all-backend", "mori", "--enable-lora"],
                 {"models": "a", "moe_backend": "triton", "all2all_backend": "mori", "enable_lora": True}),
    "aiter": (["a", "--aiter", "x", "--aiter-version", "0.1.16", "--no-flydsl", "--multi-arch", "--no-tuned"],
              {"models": "a", "aiter": Path("x"), "aiter_version": "0.1.16", "flydsl": False, "multi_arch": True, "tuned": False}),
    "shape": (["--shape", SHAPE, "--quant", "fp8_block"], {"shape": SHAPE, "quant": "fp8_block"}),
    "tokens": (["a", "--tokens", "1,64", "--max-num-batched-tokens", "99"], {"models": "a", "tokens": "1,64", "max_num_batched_tokens": 99}),
    "hub": (["a", "--revision", "r", "--offline", "--checkpoint"], {"models": "a", "revision": "r", "offline": True, "checkpoint": True}),
    "select": (["a", "--select", "mp1,MP301", "--ignore", "MP4"], {"models": "a", "select": "mp1,MP301", "ignore": ["MP4"]}),
}  # fmt: skip
BOTH_REFUSE: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nothing": ([], {}),
    "quant alone": (["a", "--quant", "fp8_block"], {"models": "a", "quant": "fp8_block"}),
    "engine": (["a", "--engine", "x"], {"models": "a", "engine": "x"}),
    "ep of vllm": (["a", "--ep", "8"], {"models": "a", "ep": 8}),
    "half a gpu": (["a", "--cu", "64"], {"models": "a", "cu": 64}),
    "gpu": (["a", "--gpu", "mi300"], {"models": "a", "gpu": "mi300"}),
    "tp": (["a", "--tp", "x"], {"models": "a", "tp": "x"}),
    "pp": (["a", "--pp", "9999999"], {"models": "a", "pp": 9999999}),
    "code": (["a", "--select", "MP9"], {"models": "a", "select": "MP9"}),
    "limit": (["a", "--max-num-batched-tokens", "0"], {"models": "a", "max_num_batched_tokens": 0}),
    "tokens": (["--shape", SHAPE, "--tokens", "x"], {"shape": SHAPE, "tokens": "x"}),
    "launches": (["--shape", SHAPE, *FAR, "--smoke", "--smoke-tokens", "1-4"],
                 {"shape": SHAPE, "tuned": False, "aiter_version": "0.1.20.post1", "smoke": True, "smoke_tokens": "1-4"}),
    "launched by": (["--shape", SHAPE, *FAR, "--smoke", "--smoke-backend", "x"],
                    {"shape": SHAPE, "tuned": False, "aiter_version": "0.1.20.post1", "smoke": True, "smoke_backend": "x"}),
}  # fmt: skip


class Asked(Exception):
    """Carries the request a check was asked."""


@pytest.mark.parametrize("case", PAIRS)
def test_both_ask_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []

    def catch(request: Request, *_: Any, **__: Any) -> Any:
        seen.append(request)
        raise Asked

    monkeypatch.setattr(preflight, "check", catch)
    words, arguments = PAIRS[case]
    invoke("check", *words)
    with pytest.raises(Asked):
        api.check(**arguments)
    assert len(seen) == 2
    assert seen[0] == seen[1]


@pytest.mark.parametrize("case", BOTH_REFUSE)
def test_both_refuse(case: str) -> None:
    words, arguments = BOTH_REFUSE[case]
    assert invoke("check", *words).code == 2
    with pytest.raises(errors.PreflightError) as caught:
        api.check(**arguments)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["tp", "dp", "pp", "redundant_experts", "max_num_batched_tokens"])
@pytest.mark.parametrize("value", [True, 8.0, "eight"])
def test_true_is_not_1(name: str, value: Any) -> None:
    with pytest.raises(errors.UsageError):
        api.check("a", **{name: value})


def test_the_same_report() -> None:
    report = api.check(shape=SHAPE, gpu="mi300x", tuned=False, aiter_version="0.1.20.post1", env=False)
    done = invoke("check", "--shape", SHAPE, "--gpu", "mi300x", *FAR, "--format", "json")
    assert json.loads(done.out) == json.loads(json.dumps(report.to_dict()))
    assert done.code == report.exit_code()
    asked = api.check(shape=SHAPE, gpu="mi300x", tuned=False, aiter_version="0.1.20.post1", ask_aiter=True, env=True)
    assert [n.what for n in asked.not_evaluated] == ["AITER's own dispatch (--ask-aiter)"], "no tree, nobody to ask"
    assert asked.environment


def test_compare_and_gate(tmp_path: Path) -> None:
    found = moe_preflight.compare(shape=SHAPE, gpu="mi300x", aiter=("0.1.13", "0.1.20.post1"), tuned=False)
    done = invoke(
        "compare",
        "--shape",
        SHAPE,
        "--gpu",
        "mi300x",
        "--aiter",
        "0.1.13",
        "--aiter",
        "0.1.20.post1",
        "--no-tuned",
        "--format",
        "json",
    )
    assert json.loads(done.out)["observations"] == json.loads(json.dumps(found.to_dict()["observations"]))
    assert done.code == found.exit_code()
    for same in ({}, {"aiter": "x"}, {"aiter": ("x", "x")}):
        with pytest.raises(errors.UsageError):
            moe_preflight.compare(shape=SHAPE, **same)
    with pytest.raises(TypeError):
        moe_preflight.compare(shape=SHAPE, aiter=("0.1.13", "0.1.20.post1"), tokens="decode")

    held = f'shape = "{SHAPE}"\ngpus = "mi300x"\ntuned = false\naiter = {{ version = "0.1.20.post1" }}\n'
    file = tmp_path / "gate.toml"
    file.write_text(
        f'fail_on = "warning"\n[[deployment]]\nname = "a"\n{held}[[deployment]]\nname = "b"\n{held}require = {{ aiter_is_pin = true }}\n'
    )
    report = moe_preflight.check_gate(file, today="2026-11-30")
    done = invoke("gate", str(file), "--format", "json", "--today", "2026-11-30")
    assert json.loads(done.out) == json.loads(json.dumps(report.to_dict()))
    assert (done.code, report.verdict) == (report.exit_code(), "fail")
    assert moe_preflight.check_gate(file, only="a").exit_code("never") == 0
    assert moe_preflight.check_gate(str(file), only=["a"]).exit_code() == 1, "the file's fail_on"
    for wrong in ({"only": "c"}, {"today": "today"}):
        with pytest.raises(errors.UsageError):
            moe_preflight.check_gate(file, **wrong)


def test_everything_is_typed_and_told() -> None:
    for name in api.__all__:
        thing = getattr(api, name)
        assert thing.__doc__, name
        if inspect.isfunction(thing):
            hints = get_type_hints(thing)
            assert set(hints) == {*inspect.signature(thing).parameters, "return"}, name
    assert set(moe_preflight.__all__) - {"__version__"} == set(api.__all__) - {"request"}
    assert set(moe_preflight.__all__) <= set(dir(moe_preflight))


@pytest.mark.parametrize(
    ("code", "allowed"),
    [("import moe_preflight; moe_preflight.__version__", {"moe_preflight"}), ("import moe_preflight; moe_preflight.check", None)],
)
def test_importing_is_cheap(code: str, allowed: set[str] | None) -> None:
    """The package alone imports nothing of its own; the API none of what is heavy."""
    ask = f"{code}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {
        "typer",
        "rich",
        "click",
        "torch",
        "huggingface_hub",
        "pandas",
        "numpy",
        "aiter",
        "transformers",
        "pydantic",
        "subprocess",
        "zipfile",
        "tomllib",
    }
    assert not heavy & loaded
    if allowed is not None:
        assert {m for m in loaded if m.startswith("moe_preflight")} == allowed
