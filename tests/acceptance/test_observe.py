"""``observe`` end to end: a log made of AITER's own golden answers is confirmed, a changed one is contradicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import corpus, needs_corpus

_ACT = {"silu": "Silu", "gelu": "Gelu", "swiglu": "Swiglu", "situv2": "Situv2", "no": "No"}


def observe(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "moe_preflight", "observe", *args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def golden_log(name: str, version: str, limit: int = 300) -> list[str]:
    """The lines AITER prints for keys whose answer is known and untuned: get_2stage_cfgs' own format for that release."""
    out = []
    with corpus("golden", name).open() as f:
        meta = json.loads(next(f))["meta"]
        for text in f:
            a = json.loads(text)
            k = a["key"]
            if "error" in a or a["tuned"] or a.get("order_dependent") or k.get("is_ep"):
                continue
            quoted = version < "0.1.14"
            act = f"'ActivationType.{_ACT[k['act']]}'" if quoted else f"<ActivationType.{_ACT[k['act']]}: 0>"
            gfx = "" if quoted else f"'{meta['gfx']}', "
            dtypes = (
                f"'torch.{'bfloat16' if k['dtype'] == 'bf16' else 'float16'}', '{a['q_dtype_a']}', '{_weight(k, meta['gfx'])}'"
            )
            quant = "per_1x128" if k["q_type"] == "per_128x128" else k["q_type"]
            sizes = f"{meta['cu_num']}, {a['asked_token']}, {k['model_dim']}, {k['inter_dim']}, {k['expert']}, {k['topk']}"
            stages = 1 if a["run_1stage"] else 2
            out.append(
                f"(Worker_TP0 pid=7) [aiter] [fused_moe] using {stages}stage default for "
                f"({gfx}{sizes}, {act}, {dtypes}, 'QuantType.{quant}', {bool(k['use_g1u1'])}, {bool(k['doweight_stage1'])}) "
            )
            if len(out) == limit:
                break
    return out


def _weight(k: dict[str, object], gfx: str) -> str:
    fp8 = "torch.float8_e4m3fnuz" if gfx == "gfx942" else "torch.float8_e4m3fn"
    names = {"bf16": "bfloat16", "fp16": "float16", "i8": "int8", "u32": "uint32", "i4x2": "int4", "fp4x2": "float4_e2m1fn_x2"}
    w = str(k["q_dtype_w"])
    return fp8 if w == "fp8" else f"torch.{names[w]}"


@needs_corpus
@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("dispatch-v0.1.13-gfx950-256.jsonl", "0.1.13"),
        ("dispatch-v0.1.20.post1-gfx942-304.jsonl", "0.1.20.post1"),
        ("dispatch-v0.1.20.post1-gfx950-256.jsonl", "0.1.20.post1"),
    ],
)
def test_what_aiter_did_is_confirmed(tmp_path: Path, name: str, version: str) -> None:
    log = tmp_path / "engine.log"
    lines = golden_log(name, version)
    assert len(lines) >= 200
    log.write_text("INFO start\n" + "\n".join(lines) + "\n")
    done = observe(str(log), "--aiter", str(corpus("aiter-trees", f"v{version}")), "--aiter-version", version, "--format", "json")
    doc = json.loads(done.stdout)
    keys = [o for o in doc["observations"] if o["kind"] == "key"]
    assert {o["status"] for o in keys} == {"confirmed"}, [o for o in keys if o["status"] != "confirmed"][:3]
    assert doc["observations"][0]["answers"] == len(lines)
    assert done.returncode == 0


@needs_corpus
def test_another_release_contradicts_and_exits_1(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    lines = golden_log("dispatch-v0.1.20.post1-gfx950-256.jsonl", "0.1.20.post1")
    log.write_text("\n".join(line.replace("2stage", "1stage") for line in lines))
    done = observe(str(log), "--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1")
    assert done.returncode == 1
    assert b"MP721 observed-contradicts" in done.stdout
    assert done.stderr.startswith(b"moe-preflight: FAIL")


@needs_corpus
def test_models_decide_what_was_never_predicted() -> None:
    key = "<ActivationType.Silu: 0>, 'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)"
    log = "".join(
        f"[aiter] [fused_moe] using 2stage default for ('gfx950', 256, {token}, 6144, {inter}, 192, 8, {key} \n"
        for token, inter in ((64, 256), (64, 512))
    ).encode()
    done = observe(
        "-", "--shape", "experts=192,topk=8,hidden=6144,inter=2048", "--tp", "8", "--gpu", "mi355x", "--format", "json",
        "--aiter", str(corpus("aiter-trees", "v0.1.20.post1")), "--aiter-version", "0.1.20.post1", stdin=log,
    )  # fmt: skip
    doc = json.loads(done.stdout)
    assert [(o["inter_dim"], o["target"]) for o in doc["observations"] if o["kind"] == "key"] == [(256, 0), (512, None)]
    assert [f["name"] for f in doc["findings"]].count("observed-never-predicted") == 1
    shape = next(o for o in doc["observations"] if o["kind"] == "shape" and o["inter_dim"] == 256)
    assert 64 not in shape["never_asked"]
    assert 128 in shape["never_asked"]


def test_refusals(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"")
    assert observe(str(empty), "--no-tuned").returncode == 3
    missing = observe(str(tmp_path / "none.log"))
    assert (missing.returncode, missing.stderr.count(b"\n")) == (2, 1)
    assert observe(str(tmp_path)).returncode == 2
    garbage = observe("-", "--no-tuned", stdin=b"\xff\xfe\x00[fused_moe] using \x1b[2J\n" * 5)
    assert garbage.returncode == 3
    assert b"Traceback" not in garbage.stderr
    assert b"\x1b[2J" not in garbage.stdout
