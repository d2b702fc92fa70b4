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
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SECONDS = 5.0
"""No input may take longer in one process."""
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no output may hold raw: control characters but newline, direction marks, lone surrogates."""
CARDS = Path(__file__).resolve().parents[2] / "configs" / "models"
BARE = ("--no-tuned", "--aiter-version", "v0.1.20.post1", "--gpu", "mi300x")
"""No AITER tree is needed: the same inputs are judged wherever the tests run."""
SECRET = "hf_FuzzedSecretFuzzedSecret"


@dataclass(frozen=True)
class Done:
    """One run of the command line. ``raised`` is a traceback, which must never be."""

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
    started = time.monotonic()
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
    seconds = time.monotonic() - started
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
    tp dp pcp gpu gfx cu engine engine-version engine-env moe-backend all2all-backend aiter-version shape quant tokens revision
    format fail-on select ignore color redundant-experts ep-size
"""
OPTIONS = st.sampled_from([f"--{name}" for name in OPTION_NAMES.split()])
# --pp is left out: a degree in the thousands of millions still takes memory by the degree. --aiter is left out: it may name any
# folder of this machine. --max-num-batched-tokens is left out: with --tokens it can leave no bucket, which is not told yet.
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
aiter = { version = "0.1.20.post1" }
"""


@inputs(data=st.data())
def gate_files(data: st.DataObject) -> None:
    """A gate that cannot be read is never green."""
    with room() as folder:
        (folder / "config.json").write_text(json.dumps(cards()[0]))
        (folder / "gate.toml").write_bytes(data.draw(spoiled(GATE) | st.binary(max_size=100)))
        hold(invoke("gate", "gate.toml"), target="gate")


PROPERTIES: dict[str, Callable[..., None]] = {
    "config": config_fields,
    "config-bytes": config_bytes,
    "csv": csv_tables,
    "keys": dispatch_keys,
    "log": engine_logs,
    "safetensors": safetensors_headers,
    "arguments": arguments,
    "gate": gate_files,
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
