"""Hostile inputs by the thousand, and what must hold for every one of them.

    python -m tests.hostile.fuzz --minutes 10 [--seed N] [--only config,csv]

Each target is a hypothesis property: it makes an input, runs the command line in this process and hands the outcome to
:func:`hold`. ``tests/hostile/test_fuzz.py`` runs the same properties briefly. Failures print the command and are shrunk by
hypothesis; the last line is the figure the README quotes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import struct
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from moe_preflight.gate.spec import DEPLOYMENT, IGNORE, REQUIRE, ROOT

SECONDS = 5.0
"""No input may take more of one processor (which, unlike the clock, does not run faster on a busy machine)."""
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no output may hold raw: control characters but newline, direction marks, lone surrogates."""
CARDS = Path(__file__).resolve().parents[2] / "configs" / "models"
BARE = ("--no-tuned", "--aiter-version", "v0.1.20.post1", "--gpu", "mi300x")
"""No AITER tree is needed: the same inputs are judged wherever the tests run."""
SECRET = "hf_FuzzedSecretFuzzedSecret"


@dataclass(frozen=True)
class Done:
    """One run of the command line. ``seconds`` are processor time; ``raised`` is a traceback, which must never be."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float
    raised: str = ""


@dataclass
class Figures:
    """What a campaign adds up to."""

    runs: dict[str, int] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)
    slowest: float = 0.0
    slowest_argv: tuple[str, ...] = ()

    def add(self, target: str, done: Done) -> None:
        self.runs[target] = self.runs.get(target, 0) + 1
        self.codes[done.code] = self.codes.get(done.code, 0) + 1
        if done.seconds > self.slowest:
            self.slowest, self.slowest_argv = done.seconds, done.argv


FIGURES = Figures()


class _Bytes(io.BytesIO):
    def isatty(self) -> bool:
        return False


def invoke(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
    """``moe-preflight ARGV`` in this process: offline, with its own standard streams."""
    from moe_preflight.cli.app import run

    out, err = (io.TextIOWrapper(_Bytes(), "utf-8", errors="surrogatepass") for _ in range(2))
    given_in = io.TextIOWrapper(_Bytes(stdin), "utf-8", errors="surrogateescape")
    environment = {"HF_HUB_OFFLINE": "1", "HF_TOKEN": SECRET, **(env or {})}
    raised, code = "", 0
    started = time.process_time()
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["moe-preflight", *argv]),
        mock.patch.object(sys, "stdin", given_in),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ):
        try:
            run()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            raised = traceback.format_exc()
    seconds = time.process_time() - started
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "surrogatepass"))  # type: ignore[attr-defined]
    return Done(argv, code, texts[0], texts[1], seconds, raised)


@cache
def _validator() -> Any:
    import jsonschema

    text = resources.files("moe_preflight.report.schema").joinpath("report-v1.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def hold(done: Done, *, target: str = "") -> Done:
    """What is true of every run, whatever the input. Returns ``done``."""
    FIGURES.add(target, done)
    shown = " ".join(map(repr, done.argv))
    assert not done.raised, f"{shown}\n{done.raised}"
    assert "Traceback (most recent" not in done.out + done.err, f"{shown}\n{done.err}"
    assert done.code in (0, 1, 2, 3), f"{shown}: exit {done.code}"
    assert done.seconds < SECONDS, f"{shown}: {done.seconds:.1f} s"
    for name, text in (("stdout", done.out), ("stderr", done.err)):
        assert not (m := UNSAFE.search(text)), f"{shown}: {m[0]!r} on {name}"
        assert SECRET not in text, f"{shown}: the token is on {name}"
    if done.code == 2:
        assert done.err.strip(), f"{shown}: exit 2 and not a word"
    return done


def hold_report(done: Done, *, target: str = "") -> Any:
    """hold(), and the JSON report on stdout agrees with itself and with the exit code. Returns it, or None."""
    hold(done, target=target)
    if done.raised or not done.out:
        return None
    doc = json.loads(done.out, parse_constant=_refuse)
    shown = " ".join(map(repr, done.argv))
    for error in _validator().iter_errors(doc):
        raise AssertionError(f"{shown}: {error.json_path}: {error.message}")
    severities = {f["severity"] for f in doc["findings"]}
    green = "warn" if "warning" in severities else "pass"
    expected = "fail" if "error" in severities else "inconclusive" if doc["not_evaluated"] else green
    assert doc["verdict"] == expected, f"{shown}: verdict {doc['verdict']}, its findings say {expected}"
    if done.code == 0:
        assert doc["verdict"] in ("pass", "warn"), f"{shown}: exit 0 with verdict {doc['verdict']}"
        assert doc["targets"], f"{shown}: exit 0 and nothing was judged"
    for i, one in enumerate(doc["targets"]):
        for j, layer in enumerate(one["layers"]):
            hold_layer(doc, i, j, layer, shown)
    return doc


def hold_layer(doc: Any, i: int, j: int, layer: Any, shown: str) -> None:
    """One layer's numbers agree among themselves and with the findings."""
    tuned = [b["tuned"] for b in layer["buckets"]]
    assert layer["coverage"] == {k: tuned.count(k) for k in layer["coverage"]}, shown
    tokens = [b["token"] for b in layer["buckets"]]
    assert tokens == sorted(set(tokens)), f"{shown}: buckets {tokens}"
    rejected = [
        b["token"] for b in layer["buckets"] if any(b[s] is not None and b[s]["accepted"] is False for s in ("stage1", "stage2"))
    ]
    if rejected:
        assert doc["targets"][i]["verdict"] == "fail", f"{shown}: rejected at {rejected}, target {doc['targets'][i]['verdict']}"
        assert any(f["severity"] == "error" and f["target"] == i and f["layer"] in (j, None) for f in doc["findings"]), (
            f"{shown}: rejected at {rejected} and no finding says so"
        )
    p = layer["problem"]
    for size in ("inter_dim", "model_dim"):
        assert p[f"{size}_padded"] >= p[size], f"{shown}: {size} shrinks"
    steps = layer["router"]["by_tokens"] if layer["router"] else []
    for a, b in pairwise(steps):
        assert b["from"] == (a["to"] or 0) + 1, f"{shown}: the router's ranges leave a gap"
    if layer["backend"]["name"] is None:
        assert doc["verdict"] in ("fail", "inconclusive"), f"{shown}: refused ({layer['backend']['reason']}), and green"
    if layer["backend"]["name"] == "AITER":
        assert layer["buckets"] or doc["verdict"] == "fail", f"{shown}: no bucket was judged"


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


# ---- inputs ----------------------------------------------------------------------------------------------------------

HOSTILE_TEXT = st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "\x1b[31mred\x1b]0;title\x07",
        "\u202eesrever",
        "a\r\nb\n::error::x",
        "%0A`|<b>&\"'",
        "\ud800",
        "../../../etc/passwd",
        "x" * 5000,
        "[bold]",
        "\uff18",
        "1e3",
        "-0",
        "nan",
        "true",
        "__import__('os')",
    ]
) | st.text(max_size=12)
NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 7, 8, 127, 128, 65536, 2**31, 2**63, 10**30, 1.0, 8.5, 1e300]) | st.integers(-5, 5000)
JUNK = st.recursive(
    st.none() | st.booleans() | NUMBERS | HOSTILE_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE_TEXT, inner, max_size=3),
    max_leaves=4,
)


@cache
def cards() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(p.read_text(encoding="utf-8")) for p in sorted(CARDS.glob("*.json")))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for v in value.values():
            yield from _objects(v)


INTERESTING = re.compile(
    r"expert|topk|top_k|group|moe|hidden|inter|layer|act|quant|dtype|score|scoring|method|block|bias|arch|type"
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A real config with one to three fields made something else, gone, or new."""
    config = json.loads(json.dumps(draw(st.sampled_from(cards()))))
    for _ in range(draw(st.integers(1, 3))):
        inside = draw(st.sampled_from(list(_objects(config))))
        keys = sorted(inside, key=lambda k: (not INTERESTING.search(k), k))
        if not keys:
            inside[draw(HOSTILE_TEXT)] = draw(JUNK)
            continue
        key = draw(st.sampled_from(keys))
        how = draw(st.sampled_from(["other", "other", "other", "gone", "swap"]))
        if how == "gone":
            del inside[key]
        elif how == "swap":
            inside[key] = inside[draw(st.sampled_from(keys))]
        else:
            inside[key] = draw(JUNK)
    return config


@st.composite
def spoiled(draw: st.DrawFn, good: bytes) -> bytes:
    """``good`` with bytes cut out, put in, doubled or re-encoded."""
    data = good
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 40)))
        put = draw(
            st.sampled_from([b"", b"\0", b"\xff\xfe", b'"', b"\n", b"\r", b",", b"[" * 500, b"9" * 400, b"NaN", b"\x1b[2J", b"-"])
            | st.binary(max_size=6)
        )
        data = draw(st.sampled_from([data[:at] + put + data[to:], data[:to] + data[at:to] + data[to:], data[:at]]))
    return draw(st.sampled_from([data, data, data, b"\xef\xbb\xbf" + data, data.decode("latin-1").encode("utf-16")]))


TABLE_HEADER = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,"
    "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag"
)
TABLE_ROW = (
    "gfx942,304,{token},4096,256,64,8,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,"
    "64,0,5,moe_ck2stages_gemm1_x,0,5,moe_ck2stages_gemm2_x,0,{us},0,1,1,"
)
SHAPE = "experts=64,topk=8,hidden=4096,inter=256"


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A tuned table with cells of any kind in it, or its bytes spoiled."""
    cells = st.sampled_from(
        ["", "nan", "inf", "-1", "1e400", "abc", "True", "16.0", " 16", "9" * 400, '"', "a,b", "\0", "\uff11\uff16"]
    )
    rows = []
    for token in draw(st.lists(st.sampled_from([1, 16, 64, 16, 32768]), max_size=4)):
        row = TABLE_ROW.format(token=token, us=draw(st.sampled_from(["10", "5", "", "nan", "-3"]))).split(",")
        for _ in range(draw(st.integers(0, 2))):
            row[draw(st.integers(0, len(row) - 1))] = draw(cells)
        rows.append(",".join(row[: draw(st.sampled_from([len(row), len(row), 3]))] + draw(st.sampled_from([[], [], ["x", "y"]]))))
    header = draw(
        st.sampled_from([TABLE_HEADER, TABLE_HEADER, TABLE_HEADER.replace("gfx,", ""), TABLE_HEADER.replace("err1", "us")])
    )
    ending = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
    data = ending.join([header, *rows, ""]).encode()
    return draw(spoiled(data)) if draw(st.booleans()) else data


ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
KEY = {
    "token": 16,
    "model_dim": 4096,
    "inter_dim": 256,
    "expert": 64,
    "topk": 8,
    "act": "silu",
    "dtype": "bf16",
    "q_dtype_w": "bf16",
    "q_type": "No",
    "use_g1u1": 1,
    "doweight_stage1": 0,
}
LINE = (
    b"INFO [aiter] [fused_moe] using 2stage default for ('gfx942', 304, 64, 4096, 256, 64, 8, 'ActivationType.Silu', "
    b"'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False) \n"
)

PLAIN_WORDS = """
    0 -1 1 3 8 1e3 99999999 8,4 8,,4 auto mi300x gfx942 json text all decode prefill 1,64 64-1 MP111 MP XX error never vllm sglang
    0.33.0 0.31.0 v0.1.13 main fp8_block none A=1 VLLM_ROCM_USE_AITER=0 no/such - experts=8
"""
WORDS = st.sampled_from([*PLAIN_WORDS.split(), "", SHAPE, SHAPE + ",act=gelu", "x" * 3000, "\x1b[31m", "\u202e", "\uff19"])
OPTION_NAMES = """
    tp dp pcp pp gpu gfx cu engine engine-version engine-env moe-backend all2all-backend aiter-version shape quant tokens revision
    max-num-batched-tokens format fail-on select ignore color redundant-experts ep-size
"""
OPTIONS = st.sampled_from([f"--{name}" for name in OPTION_NAMES.split()])
"""--aiter, --output, --config and --write-baseline are left out: they may name any file of this machine. They have targets of their own."""
SWITCHES = st.sampled_from(["--ep", "--no-ep", "--enable-lora", "--no-flydsl", "--multi-arch", "--env", "-q", "-v", "--offline"])


@contextlib.contextmanager
def room() -> Iterator[Path]:
    """An empty folder that is the current one; what is written there must have been asked for."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


INPUTS: dict[str, dict[str, Any]] = {}


def inputs(**strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Remember what a property is drawn from; ``as_test`` makes it runnable, as often as wanted."""

    def remember(check: Callable[..., None]) -> Callable[..., None]:
        INPUTS[check.__name__] = strategies
        return check

    return remember


def as_test(name: str, examples: int, with_seed: int | None = None) -> Callable[[], None]:
    """Property ``name`` of PROPERTIES, over ``examples`` inputs; without a seed always the same ones."""
    check = PROPERTIES[name]

    def once(**drawn: Any) -> None:
        check(**drawn)

    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=with_seed is None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    test = how(given(**INPUTS[check.__name__])(once))
    return test if with_seed is None else seed(with_seed)(test)


# ---- properties ------------------------------------------------------------------------------------------------------


@inputs(config=configs(), more=st.sampled_from([(), ("--tp", "8"), ("--tp", "8", "--ep"), ("--engine", "sglang"), ("--tp", "3")]))
def config_fields(config: dict[str, Any], more: tuple[str, ...]) -> None:
    """A config whose fields are anything is judged, or refused in one line that names the field."""
    with room() as folder:
        (folder / "config.json").write_bytes(json.dumps(config).encode("utf-8", "surrogatepass"))
        hold_report(invoke("check", "config.json", *BARE, *more, "--format", "json"), target="config")
        assert [p.name for p in folder.iterdir()] == ["config.json"]


@inputs(data=st.data())
def config_bytes(data: st.DataObject) -> None:
    """A config file may hold any bytes."""
    good = json.dumps(data.draw(st.sampled_from(cards()))).encode()
    text = data.draw(spoiled(good) | st.binary(max_size=200))
    with room() as folder:
        (folder / "config.json").write_bytes(text)
        hold_report(invoke("check", "config.json", *BARE, "--format", "json"), target="config bytes")
        hold(invoke("check", "-", *BARE, stdin=text), target="config bytes")


@inputs(one=tables(), two=st.none() | tables())
def csv_tables(one: bytes, two: bytes | None) -> None:
    """A tree's tables may hold anything: every command that reads them says what is wrong, or answers."""
    with room() as folder:
        models = folder / "tree" / "aiter" / "configs" / "model_configs"
        models.mkdir(parents=True)
        (models.parent / "tuned_fmoe.csv").write_bytes(one)
        if two is not None:
            (models / "a_tuned_fmoe.csv").write_bytes(two)
        tree = ("--aiter", "tree", "--aiter-version", "v0.1.20.post1")
        hold_report(invoke("check", "--shape", SHAPE, *tree, "--gpu", "mi300x", "--format", "json"), target="csv")
        hold(invoke("lint", "tree", "--aiter-version", "v0.1.20.post1"), target="csv")
        done = invoke("dispatch", "-", *tree, "--gfx", "gfx942", "--cu", "304", stdin=json.dumps(KEY).encode() + b"\n")
        hold(done, target="csv")
        assert [p.name for p in folder.iterdir()] == ["tree"]
        assert (models.parent / "tuned_fmoe.csv").read_bytes() == one


@inputs(data=st.data())
def dispatch_keys(data: st.DataObject) -> None:
    """Every key is answered in its place, whatever stands around it."""
    fields = st.sampled_from([*KEY, "q_dtype_a", "is_ep", "gate_mode", "frob"])
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        key = {**KEY, data.draw(fields): data.draw(JUNK)}
        line = json.dumps(key).encode("utf-8", "surrogatepass")
        lines.append(data.draw(st.just(line) | spoiled(line)).translate(ONE_LINE))
    with room() as folder:
        (folder / "tree" / "aiter" / "configs").mkdir(parents=True)
        (folder / "tree" / "aiter" / "configs" / "tuned_fmoe.csv").write_text(TABLE_HEADER + "\n")
        argv = ("dispatch", "-", "--aiter", "tree", "--aiter-version", "v0.1.20.post1", "--gfx", "gfx942", "--cu", "304")
        done = hold(invoke(*argv, stdin=b"\n".join(lines) + b"\n"), target="keys")
    answered = [x for x in done.out.splitlines() if x]
    assert len(answered) == sum(1 for x in lines if x.strip()), done.out


@inputs(data=st.data())
def engine_logs(data: st.DataObject) -> None:
    """A log may hold anything between, around and inside the lines that are looked for."""
    parts = [data.draw(st.just(LINE) | spoiled(LINE) | st.binary(max_size=60)) for _ in range(data.draw(st.integers(1, 4)))]
    with room() as folder:
        (folder / "engine.log").write_bytes(b"".join(parts))
        argv = ("observe", "engine.log", "--gpu", "mi300x", "--aiter-version", "v0.1.20.post1", "--no-tuned")
        done = hold(invoke(*argv), target="log")
        assert done.code != 2, done.err


@inputs(
    header=JUNK | st.dictionaries(HOSTILE_TEXT, JUNK, max_size=4),
    length=st.none() | st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1]),
)
def safetensors_headers(header: Any, length: int | None) -> None:
    """A shard's header may be any JSON, and claim any length."""
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    with room() as folder:
        (folder / "config.json").write_text(json.dumps(cards()[0]))
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text) if length is None else length) + text)
        hold_report(invoke("check", str(folder), *BARE, "--checkpoint", "--format", "json"), target="safetensors")


@inputs(more=st.lists(st.tuples(OPTIONS, WORDS).map(list) | SWITCHES.map(lambda s: [s]) | WORDS.map(lambda w: [w]), max_size=4))
def arguments(more: list[list[str]]) -> None:
    """Any words at all: a report, or a line that says which word is wrong."""
    words = [w for group in more for w in group]
    with room() as folder:
        (folder / "config.json").write_text(json.dumps(cards()[0]))
        hold(invoke("check", "config.json", *BARE, *words), target="arguments")
        assert [p.name for p in folder.iterdir()] == ["config.json"], "wrote a file nobody asked for"


GATE = b"""
[require]
on_aiter = true
[[deployment]]
name = "x"
model = "config.json"
tp = 8
gpus = ["mi300x"]
tuned = false
aiter = { version = "0.1.20.post1" }
"""


@inputs(data=st.data())
def gate_files(data: st.DataObject) -> None:
    """A gate that cannot be read is never green."""
    with room() as folder:
        (folder / "config.json").write_text(json.dumps(cards()[0]))
        (folder / "gate.toml").write_bytes(data.draw(spoiled(GATE) | st.binary(max_size=100)))
        hold(invoke("gate", "gate.toml"), target="gate")


REQUEST_WORDS = {
    # command -> the words that make it run on ./config.json or the files beside it; every command but smoke, which starts processes
    "check": ("config.json", *BARE),
    "audit": ("config.json", "--aiter", "tree", "--gpu", "mi300x"),
    "tune": ("config.json", "--aiter", "tree", "--gpu", "mi300x"),
    "advise": ("config.json", *BARE),
    "compare": ("config.json", "--aiter", "0.1.13", "--aiter", "0.1.20.post1", "--no-tuned", "--gpu", "mi300x"),
    "observe": ("engine.log", "config.json", *BARE),
    "gate": ("gate.toml",),
    "lint": ("tree",),
    "dispatch": ("keys.jsonl", "--aiter", "tree", "--gfx", "gfx942", "--cu", "304"),
    "rule": (),
    "advisories": (),
    "models": (),
}


def furnish(folder: Path) -> set[str]:
    """Something good of every kind, for words to go wrong on; the names of what is there."""
    (folder / "config.json").write_text(json.dumps(cards()[0]))
    (folder / "engine.log").write_bytes(LINE)
    (folder / "gate.toml").write_bytes(GATE)
    (folder / "keys.jsonl").write_text(json.dumps(KEY) + "\n")
    (folder / "tree" / "aiter" / "configs").mkdir(parents=True)
    (folder / "tree" / "aiter" / "configs" / "tuned_fmoe.csv").write_text(
        f"{TABLE_HEADER}\n{TABLE_ROW.format(token=16, us=10)}\n"
    )
    return {p.name for p in folder.iterdir()}


@inputs(
    command=st.sampled_from(sorted(REQUEST_WORDS)),
    more=st.lists(st.tuples(OPTIONS, WORDS).map(list) | SWITCHES.map(lambda s: [s]) | WORDS.map(lambda w: [w]), max_size=3),
)
def every_command(command: str, more: list[list[str]]) -> None:
    """Every command takes any words: an answer, or a line that says which word is wrong; and no file but what was there."""
    with room() as folder:
        there = furnish(folder)
        hold(invoke(command, *REQUEST_WORDS[command], *(w for group in more for w in group)), target=command)
        assert {p.name for p in folder.iterdir()} == there, "wrote a file nobody asked for"


@inputs(config=configs(), command=st.sampled_from(["audit", "tune", "advise", "compare"]))
def configs_elsewhere(config: dict[str, Any], command: str) -> None:
    """The other commands that read a config: what check refuses or leaves open, they do too."""
    with room() as folder:
        furnish(folder)
        (folder / "config.json").write_bytes(json.dumps(config).encode("utf-8", "surrogatepass"))
        judged = invoke("check", "config.json", *BARE)
        done = hold(invoke(command, *REQUEST_WORDS[command], "--format", "json"), target=command)
        if judged.code in (2, 3):
            assert done.code == judged.code, f"check: {judged.code} {judged.err}, {command}: {done.code} {done.err}"


@inputs(data=st.data())
def toml_files(data: st.DataObject) -> None:
    """A gate of any values, a table of defaults of any values: read, or refused in a line."""
    keys = st.sampled_from([*ROOT, *DEPLOYMENT, *IGNORE, *REQUIRE, "frob"])
    values = st.recursive(
        st.booleans()
        | st.integers(-2, 1 << 70)
        | st.sampled_from([0.5, "a", "mi300x", "8", "all", "MP1", "\x1b[31m", "\u202e", "config.json"]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
        max_leaves=4,
    )
    lines = [f"{data.draw(keys)} = {_toml(data.draw(values))}" for _ in range(data.draw(st.integers(1, 3)))]
    with room() as folder:
        furnish(folder)
        head = data.draw(st.sampled_from([b"", GATE, GATE + b"[[ignore]]\n", GATE + b"[severity]\n", b"[[deployment]]\n"]))
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
        (folder / "gate.toml").write_bytes(head + text if data.draw(st.booleans()) else text + b"\n" + head)
        hold(invoke("gate", "gate.toml"), target="toml")
        (folder / "pyproject.toml").write_bytes(b"[tool.moe-preflight]\n" + text)
        hold(invoke("check", "config.json", *BARE), target="toml")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)  # the same in TOML for what is drawn here


@cache
def _good_baseline() -> bytes:
    with room() as folder:
        furnish(folder)
        done = invoke("gate", "gate.toml", "--write-baseline", "known.json")
        assert (folder / "known.json").exists(), done.err
        return (folder / "known.json").read_bytes()


@inputs(data=st.data())
def baselines(data: st.DataObject) -> None:
    """A baseline of any bytes is read, or exit 2; the file itself stays as it is."""
    good = _good_baseline()
    known = json.loads(good)
    for f in known["findings"][:1]:
        f[data.draw(st.sampled_from([*f, "more"]))] = data.draw(JUNK)
    changed = json.dumps(known).encode("utf-8", "surrogatepass")
    with room() as folder:
        furnish(folder)
        (folder / "gate.toml").write_bytes(b'baseline = "known.json"\n' + GATE)
        held = data.draw(spoiled(good) | st.just(changed) | st.binary(max_size=60))
        (folder / "known.json").write_bytes(held)
        hold(invoke("gate", "gate.toml"), target="baseline")
        assert (folder / "known.json").read_bytes() == held


@inputs(table=tables(), data=st.data())
def wheels(table: bytes, data: st.DataObject) -> None:
    """A wheel is a zip file of a stranger: any member, any name, any bytes."""
    raw = io.BytesIO()
    names = [
        "aiter/configs/tuned_fmoe.csv",
        "aiter/configs/model_configs/a_tuned_fmoe.csv",
        "amd_aiter-0.1.20.dist-info/METADATA",
    ]
    odd = [
        "../../out.csv",
        "/abs.csv",
        "aiter/configs/../../x.csv",
        "aiter/configs/\x1b[31m.csv",
        "a" * 300,
        "aiter/configs/",
        "aiter\\configs\\t.csv",
    ]
    with (
        zipfile.ZipFile(raw, "w", data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))) as archive,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # a name twice
        for name in [names[0], *data.draw(st.lists(st.sampled_from([*names, *odd]), max_size=3))]:
            bomb = data.draw(st.integers(0, 20)) == 0
            archive.writestr(
                name, b"1," * (4 << 20) if bomb else table if name.endswith(".csv") else b"Name: amd-aiter\nVersion: 0.1.20\n"
            )
    whole = raw.getvalue()
    with room() as folder:
        name = "amd_aiter-0.1.20-py3-none-any.whl"
        (folder / name).write_bytes(data.draw(st.just(whole) | spoiled(whole[:200_000]) | st.binary(max_size=80)))
        for argv in (("check", "--shape", SHAPE, "--gpu", "mi300x", "--aiter", name), ("lint", name)):
            hold(invoke(*argv), target="wheel")
        assert [p.name for p in folder.iterdir()] == [name]


class _Answers(BaseHTTPRequestHandler):
    """A hub that answers everything in one way; no request is refused and none is waited for."""

    protocol_version = "HTTP/1.1"
    status, headers_, body, asked = 200, {}, b"", 0  # type: ignore[var-annotated]

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        cls = _Answers
        cls.asked += 1
        self.send_response(cls.status)
        for name, value in {"Content-Length": str(len(cls.body)), **cls.headers_}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(cls.body)
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default 5, a connection may wait for its time-out


@cache
def _hub() -> str:
    server = _Server(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


HEADERS = {
    "X-Repo-Commit": ["a" * 40, "a", "../../x", "\u00ff", "A" * 40, ""],
    "ETag": ['"abc"', "", '"../../x"', "x" * 500],
    "Content-Length": ["0", "5", "99999999999999", "-1", "x"],
    "X-Linked-Size": ["3", "99999999999999", "x"],
    "X-Error-Message": ["\x1b[31mred", "a::error::b", "x" * 3000],
    "X-Error-Code": ["RepoNotFound", "GatedRepo", "x"],
    "Content-Type": ["text/html", "application/json; charset=utf-7"],
    "Content-Encoding": ["gzip", "deflate", "x"],
    "Location": ["/", "http://127.0.0.1:1/x", "file:///etc/passwd", "//", ""],
}


@inputs(data=st.data())
def hub_replies(data: st.DataObject) -> None:
    """Whatever answers at HF_ENDPOINT: a report, or a line; the cache is the only place that is written."""
    import huggingface_hub.constants as library

    url = _hub()
    config = json.dumps(data.draw(st.sampled_from(cards()))).encode()
    _Answers.status = data.draw(st.sampled_from([200, 200, 200, 206, 301, 307, 401, 403, 404, 416, 500, 204]))
    _Answers.body = data.draw(st.just(config) | spoiled(config) | st.binary(max_size=60))
    good = {"X-Repo-Commit": "a" * 40, "ETag": '"abc"'}
    odd = {
        name: data.draw(st.sampled_from(HEADERS[name]))
        for name in data.draw(st.lists(st.sampled_from(sorted(HEADERS)), max_size=2))
    }
    _Answers.headers_ = (good if data.draw(st.integers(0, 9)) else {}) | odd
    with room() as folder:
        # The library reads these once, when it is imported; a template that still names the real hub would ask the real hub.
        changed = {
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            "ENDPOINT": url,
            "HF_HUB_OFFLINE": False,
            "HF_HUB_CACHE": str(folder / "hf" / "hub"),
            "HF_HOME": str(folder / "hf"),
        }
        env = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": url, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        sleep = time.sleep
        with contextlib.ExitStack() as stack:
            for name, value in changed.items():
                stack.enter_context(mock.patch.object(library, name, value))
            # The client waits a second before each of its further attempts; that is its own business.
            stack.enter_context(mock.patch.object(time, "sleep", lambda seconds: sleep(min(seconds, 0.001))))
            asked = _Answers.asked
            hold_report(invoke("check", "some/model", *BARE, "--format", "json", env=env), target="hub")
            assert _Answers.asked > asked, "another hub was asked"
        assert {p.name for p in folder.iterdir()} <= {"hf"}, "written outside the cache"


PROPERTIES: dict[str, Callable[..., None]] = {
    "config": config_fields,
    "config-bytes": config_bytes,
    "csv": csv_tables,
    "keys": dispatch_keys,
    "log": engine_logs,
    "safetensors": safetensors_headers,
    "arguments": arguments,
    "gate": gate_files,
    "commands": every_command,
    "configs-elsewhere": configs_elsewhere,
    "toml": toml_files,
    "baseline": baselines,
    "wheel": wheels,
    "hub": hub_replies,
}


def main(argv: list[str] | None = None) -> int:
    """Round after round over the targets until the time is up; 1 when a property failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description="Fuzz the command line in this process.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", help="targets, comma-separated: " + ", ".join(PROPERTIES))
    given_args = parser.parse_args(argv)
    names = [n for n in given_args.only.split(",") if n] or list(PROPERTIES)
    end = time.monotonic() + 60 * given_args.minutes
    failed: set[str] = set()
    turn = 0
    print(f"seed {given_args.seed}", flush=True)
    while time.monotonic() < end and len(failed) < len(names):
        for name in names:
            if name in failed or time.monotonic() >= end:
                continue
            try:
                as_test(name, 40, given_args.seed + turn)()
            except Exception:
                failed.add(name)
                print(f"FAILED {name} (seed {given_args.seed + turn})\n{traceback.format_exc(limit=-1)[-4000:]}", flush=True)
        turn += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = sum(FIGURES.runs.values())
    print(
        f"{total:,} runs ({', '.join(f'{k} {v:,}' for k, v in sorted(FIGURES.runs.items()))}); "
        f"exit codes {dict(sorted(FIGURES.codes.items()))}; slowest {FIGURES.slowest:.2f} s; peak {peak:.0f} MiB; "
        f"{len(failed)} properties failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
