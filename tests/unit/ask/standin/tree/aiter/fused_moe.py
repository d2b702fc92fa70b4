"""Answers as AITER v0.1.20 would for one layer on 304 CUs, and misbehaves as STANDIN says at 256 tokens."""

import csv
import functools
import os
import signal
import sys
import time

from aiter import MODE, logger


class Metadata:
    def __init__(self, names, block_m):
        self.stage1 = functools.partial(functools.partial(ck_moe_stage1, kernelName="inner"), kernelName=names[0])
        self.stage2 = functools.partial(ck_moe_stage2_fwd, kernelName=names[1])
        self.block_m, self.ksplit, self.run_1stage = block_m, 0, False


def ck_moe_stage1(): ...


def ck_moe_stage2_fwd(): ...


@functools.lru_cache
def get_2stage_cfgs(token, model_dim, inter_dim, expert, topk, dtype, q_dtype_a):
    if token == 256:
        misbehave()
    with open(os.environ["AITER_CONFIG_FMOE"]) as f:
        rows = [r for r in csv.DictReader(f) if int(r["token"]) == token]
    how = f"(kernelName1={rows[0]['kernelName1']!r}, kernelName2={rows[0]['kernelName2']!r})" if rows else "default"
    logger.info(f"[fused_moe] using 2stage {how} for (key) ")
    if rows:
        return Metadata((rows[0]["kernelName1"], rows[0]["kernelName2"]), int(rows[0]["block_m"]))
    return Metadata(("", float("nan")), 64 if MODE == "lies" and token == 256 else 32 if token < 256 else 128)


def misbehave():
    if MODE == "hangs":
        time.sleep(60)
    if MODE == "aborts":
        print("Memory access fault by GPU node-1", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if MODE == "exits":
        os._exit(7)
    if MODE == "raises":
        raise KeyError("no such key")
    if MODE == "garbage":
        os.write(1, b'{"event": "answers", "first": "x"}\n' + b"\xff" * 5000 + b"\n")
        sys.stdout.write('{"event": "end", "status": "done"}\n' * 3)


def fused_moe(hidden, w1, w2, weights, ids, *, activation, quant_type, doweight_stage1, expert_mask=None, **pads):
    assert hidden.dtype == "torch.bfloat16"
    assert w1.is_shuffled
    assert weights.shape == ids.shape
    token, topk = ids.shape
    try:
        get_2stage_cfgs(token, w2.shape[1], w2.shape[2], w1.shape[0], topk, hidden.dtype, w1.dtype)
    except Exception as e:
        raise RuntimeError(f"wrapped: {e}") from e
    raise AssertionError("the choice was made and a kernel would run now")
