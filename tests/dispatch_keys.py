"""Random dispatch keys: every dtype, quantization and activation, odd sizes, and neighbours of tuned rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from moe_preflight.aiter.dtypes import SHORT

Raw = dict[str, Any]

EDGES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
MODEL_DIMS = (512, 768, 1024, 1536, 2048, 2560, 2688, 2880, 3072, 3584, 4096, 5120, 5376, 6144, 7168, 8192)
INTER_DIMS = (
    60,
    64,
    96,
    100,
    116,
    128,
    160,
    192,
    224,
    256,
    320,
    352,
    384,
    448,
    512,
    576,
    640,
    704,
    768,
    896,
    1024,
    1152,
    1536,
    1792,
    2048,
)
EXPERTS = (0, 1, 2, 4, 5, 8, 16, 20, 32, 40, 48, 60, 64, 72, 96, 128, 160, 192, 256, 257, 288, 384, 385, 512, 513, 896)
TOPKS = (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 16, 22)
ACTS = ("silu", "silu", "silu", "gelu", "swiglu", "swiglu", "situv2", "no")
# Weight dtype with the quantizations it is used with; the last entries are combinations nobody should ask for.
WEIGHTS = (
    *(("bf16", "No"), ("bf16", "No"), ("fp16", "No"), ("bf16", "per_Token"), ("i8", "per_Token"), ("fp8", "per_Tensor")),
    *(("fp8", "per_Token"), ("fp8", "per_Token"), ("fp8", "per_1x128"), ("fp8", "per_128x128"), ("fp8", "per_1x32")),
    *(("fp4x2", "per_1x32"), ("fp4x2", "per_1x32"), ("fp4x2", "per_1x32"), ("i4x2", "per_1x32"), ("i4x2", "per_Token")),
    *(
        ("u32", "per_Token"),
        ("u32", "No"),
        ("fp4x2", "per_Token"),
        ("i8", "per_1x128"),
        ("bf16", "per_1x32"),
        ("fp16", "per_1x128"),
    ),
)
A_DTYPES = ("bf16", "fp16", "fp8", "i8", "fp4x2")
GATES = ("separated", "separated", "interleave", "interleave", "mock_gate_only", "gate_only")


def token(rng: random.Random) -> int:
    """A token count at, next to or between bucket edges."""
    edge = rng.choice(EDGES)
    return max(0, rng.choice((edge, edge, edge - 1, edge + 1, rng.randint(1, 300), rng.randint(1, 40000), edge * 2 - edge // 3)))


def random_key(rng: random.Random, *, gates: bool) -> Raw:
    """One key with nothing in mind. ``gates``: the release knows gate modes."""
    w, q = rng.choice(WEIGHTS)
    expert = rng.choice(EXPERTS)
    key: Raw = {
        "token": token(rng),
        "model_dim": rng.choice(MODEL_DIMS) + (rng.randint(0, 3) if rng.random() < 0.05 else 0),
        "inter_dim": rng.choice(INTER_DIMS) + (rng.randint(0, 3) if rng.random() < 0.05 else 0),
        "expert": expert,
        "topk": rng.choice(TOPKS),
        "act": rng.choice(ACTS),
        "dtype": rng.choice(("bf16", "bf16", "bf16", "fp16")),
        "q_dtype_w": w,
        "q_type": q,
        "use_g1u1": int(rng.random() < 0.9),
        "doweight_stage1": int(rng.random() < 0.15),
    }
    return _options(rng, key, gates=gates, direct=rng.choice(A_DTYPES))


def _options(rng: random.Random, key: Raw, *, gates: bool, direct: str) -> Raw:
    if rng.random() < 0.25:
        key["q_dtype_a"] = direct
        if rng.random() < 0.15:
            key["pad_token"] = 0
    if rng.random() < 0.2:
        key["is_shuffled"] = 0
    if rng.random() < 0.15:
        key["is_ep"] = 1
    if rng.random() < 0.1:
        key["bias2"] = 1
    if gates and rng.random() < 0.4:
        key["gate_mode"] = rng.choice(GATES)
    return key


def key_near(rng: random.Random, row: dict[str, str], *, gates: bool) -> Raw:
    """The key of a tuned row, with up to two fields moved."""
    try:
        sizes = {c: int(float(row[c])) for c in ("token", "model_dim", "inter_dim", "expert", "topk")}
        w = SHORT[row["q_dtype_w"]]
    except (KeyError, ValueError):
        return random_key(rng, gates=gates)
    key: Raw = {
        **sizes,
        "act": row["act_type"].rpartition(".")[2].lower(),
        "dtype": SHORT[row["dtype"]],
        "q_dtype_w": w,
        "q_type": row["q_type"].rpartition(".")[2],
        "use_g1u1": int(row["use_g1u1"] in ("1", "True")),
        "doweight_stage1": int(row["doweight_stage1"] in ("1", "True")),
    }
    _options(rng, key, gates=gates, direct=SHORT.get(row["q_dtype_a"], "bf16"))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        field = rng.choice(
            ("token", "token", "token", "act", "inter_dim", "expert", "topk", "q_type", "dtype", "doweight_stage1")
        )
        if field == "token":
            key["token"] = rng.choice((token(rng), key["token"] * 3 // 4 + 1, key["token"] * 4, 131072, 200000))
        elif field == "act":
            key["act"] = rng.choice(ACTS)
        elif field == "q_type":
            key["q_type"] = "per_128x128" if key["q_type"] == "per_1x128" else key["q_type"]
        elif field == "dtype":
            key["dtype"] = "fp16"
        elif field == "doweight_stage1":
            key["doweight_stage1"] ^= 1
        else:
            key[field] = max(0, key[field] + rng.choice((-1, 1, 64)))
    return key


def keys(rng: random.Random, rows: Sequence[dict[str, str]], count: int, *, gates: bool) -> Iterator[Raw]:
    """``count`` keys: half of them near a tuned row, if there are any."""
    for _ in range(count):
        yield key_near(rng, rng.choice(rows), gates=gates) if rows and rng.random() < 0.5 else random_key(rng, gates=gates)
