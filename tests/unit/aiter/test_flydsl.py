"""Names of FlyDSL kernels against the registries they were read from, and against every shipped table."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import pytest

from moe_preflight.aiter.facts.flydsl_names import NAMES, STATES
from moe_preflight.aiter.flydsl import is_listed
from moe_preflight.aiter.version import Version
from tests.corpus import corpus, needs_corpus
from tests.hostile.fuzz import invoke
from tests.unit.coverage.tables import row, table, tree


def listed(state: str) -> set[str]:
    """Every name of a state, multiplied out independently of the reader."""
    out = set()
    for states, stage, dtypes, tiles, slots in NAMES:
        if state not in states:
            continue
        ways = [[*s.strip("[]").split("|"), *([""] if s.startswith("[") else [])] for s in slots.split()]
        for d, t, words in itertools.product(dtypes.split(), tiles.split(), itertools.product(*ways)):
            out.add("_".join([f"flydsl_moe{stage}_{d}_t{t}", *filter(None, words)]))
    return out


@pytest.mark.parametrize(
    ("state", "count"), list(zip("ABCDEFGHIJ", (66, 1632, 1632, 1824, 2593, 3009, 3393, 4257, 4321, 4905), strict=True))
)
def test_as_many_names_as_aiter_registers(state: str, count: int) -> None:
    names = listed(state)
    assert len(names) == count
    version = Version.of(next(since for since, s in STATES if s == state))
    assert all(is_listed(version, n) for n in sorted(names)[::37])


@pytest.mark.parametrize(
    ("version", "end", "ok"),
    [
        ("0.1.11", "_sbm32", False), ("0.1.12", "_sbm32", True), ("0.1.12", "_fq", True), ("0.1.13", "_fq", False),
        ("0.1.16", "_fp4_fp8_sbm64", True), ("0.1.16", "_fp8_fp4", False), ("0.1.16", "_kw2", False), ("0.1.17", "_kw2_fp8", True),
        ("0.1.20", "_sbm", False), ("0.1.20", "_x", False),
    ],
)  # fmt: skip
def test_what_may_follow_a_listed_name(version: str, end: str, ok: bool) -> None:
    name = "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_atomic"
    assert is_listed(Version.of(version), name)
    assert is_listed(Version.of(version), name + end) == ok


@pytest.mark.parametrize(("version", "known"), [("0.1.15.post3", False), ("0.1.16", True), ("0.1.26", None)])
def test_check_refuses_a_row_whose_kernel_the_release_does_not_have(tmp_path: Path, version: str, known: bool | None) -> None:
    """v0.1.15.post3 ships such rows for MiniMax-M3; one finding tells of all of them. Of a release not read nothing is said."""
    fp4 = {
        "cu_num": "256", "q_dtype_a": "torch.float4_e2m1fn_x2", "q_dtype_w": "torch.float4_e2m1fn_x2", "q_type": "QuantType.per_1x32",
    }  # fmt: skip
    names = [f"flydsl_moe2_afp4_wfp4_bf16_t32x128x128_{end}" for end in ("atomic", "reduce")]
    rows = [
        row(**fp4, inter_dim="256", token=t, kernelName1="flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w3", kernelName2=n)
        for t, n in zip(("64", "128"), names, strict=True)
    ]
    root = tree(tmp_path, x_tuned_fmoe=table(*rows))
    done = invoke(
        *(
            "check",
            "--shape",
            "experts=128,topk=8,hidden=4096,inter=256",
            "--quant",
            "mxfp4",
            "--engine",
            "aiter",
            "--gpu",
            "mi355x",
        ),
        *("--aiter", str(root), "--aiter-version", version, "--format", "json"),
    )
    doc = json.loads(done.out)
    stages = {b["token"]: b["stage2"] for b in doc["targets"][0]["layers"][0]["buckets"]}
    assert [stages[t]["accepted"] for t in (64, 128)] == [False if known is False else None] * 2
    said = [f for f in doc["findings"] if "Invalid FlyDSL kernel name" in f["message"]]
    assert len(said) == (known is False)
    assert [(f["name"], [e["line"] for e in f["evidence"] if e["line"]]) for f in said] == [("dispatch-raises", [2, 3])] * len(
        said
    )


@needs_corpus
@pytest.mark.parametrize("tag", ["v0.1.13", "v0.1.16.post4", "v0.1.20.post1"])
def test_every_name_of_a_shipped_table(tag: str) -> None:
    names = set()
    for path in corpus("aiter-trees", tag, "aiter", "configs").rglob("*tuned_fmoe*.csv"):
        with path.open(newline="") as file:
            names |= {r.get(c) or "" for r in csv.DictReader(file) for c in ("kernelName1", "kernelName2")}
    asked = [is_listed(Version.of(tag[1:]), n) for n in names if n.startswith("flydsl_moe")]
    assert len(asked) > 100
    assert False not in asked
