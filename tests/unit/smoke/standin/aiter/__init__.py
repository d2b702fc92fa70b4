"""A stand-in for AITER: the names, signatures and habits a launch meets, with the arithmetic in plain torch on any device.

MOE_STANDIN picks what goes wrong, for the expert GEMMs (ok, ck, abort, abort-native, wrong, nan, chatty, garbage, fork, torch-oom)
or the router (router-aborts, router-wrong, router-garbage, router-unscaled).
"""

import logging
import os
import sys
from enum import IntEnum

import torch

from . import dtypes as dtypes

__version__ = "0.1.20.post1"


def mode():
    return os.environ.get("MOE_STANDIN", "ok")


logger = logging.getLogger("aiter")
if not logger.handlers:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

if mode() == "chatty":
    print("merge tuned file under model_configs/ and configs/")
    os.write(1, b"C++ writes here too\n")
    for n in range(20000):
        print(f"noise {n} " + "x" * 200, file=sys.stderr)

# What a release would have written somewhere it should not; the tests look at where this goes.
for name in ("AITER_CONFIG_FMOE", "AITER_JIT_DIR", "AITER_ONLINE_TUNE", "TMPDIR", "HF_TOKEN"):
    logger.info(f"[standin] {name}={os.environ.get(name)}")


class QuantType(IntEnum):
    No = 0
    per_Tensor = 1
    per_Token = 2
    per_1x32 = 3
    per_1x128 = 4
    per_128x128 = 5


class ActivationType(IntEnum):
    No = -1
    Silu = 0
    Gelu = 1
    Swiglu = 2


def biased_grouped_topk(
    gating_output, correction_bias, topk_weights, topk_ids, num_expert_group, topk_group, need_renorm, routed_scaling_factor=1.0
):
    assert gating_output.dtype == correction_bias.dtype
    if num_expert_group not in (1, 2, 4, 8):
        text = f"Unsupported num_expert_group: {num_expert_group}"
        if mode() == "router-aborts":
            os.write(2, f"[AITER] topk_softmax_kernels_group.cu:1118 {text}\n".encode())
            os.abort()
        raise RuntimeError(text)
    scores = gating_output.float().sigmoid()
    choice = scores + correction_bias.float()
    per_group = choice.view(choice.shape[0], num_expert_group, -1)
    if topk_group < num_expert_group:
        kept = per_group.topk(2, -1).values.sum(-1).topk(topk_group, -1).indices
        mask = torch.zeros(per_group.shape[:2], dtype=torch.bool, device=kept.device).scatter_(1, kept, True)
        choice = per_group.masked_fill(~mask[..., None], float("-inf")).view(choice.shape)
    ids = choice.topk(topk_ids.shape[1], -1).indices
    weights = scores.gather(1, ids)
    if need_renorm:
        weights = weights / weights.sum(-1, keepdim=True)
    if mode() == "router-wrong":
        ids = (ids + 1) % scores.shape[1]
    if mode() == "router-garbage":
        ids = ids + 100000
    topk_weights.copy_(weights * (1.0 if mode() == "router-unscaled" else routed_scaling_factor))
    topk_ids.copy_(ids)


def topk_softmax(topk_weights, topk_indices, token_expert_indices, gating_output, need_renorm):
    """Five arguments, as releases up to v0.1.11 have it."""
    weights, ids = gating_output.float().softmax(-1).topk(topk_indices.shape[1], -1)
    topk_weights.copy_(weights / weights.sum(-1, keepdim=True) if need_renorm else weights)
    topk_indices.copy_(ids)
