import contextlib
import os
import subprocess
import sys
import time

import torch

from . import ActivationType, QuantType, logger, mode
from .ops.shuffle import _flip

TOKENS_LOGGED = set()


def fused_moe(
    hidden_states,
    w1,
    w2,
    topk_weight,
    topk_ids,
    expert_mask=None,
    activation=ActivationType.Silu,
    quant_type=QuantType.No,
    doweight_stage1=False,
    w1_scale=None,
    w2_scale=None,
    a1_scale=None,
    a2_scale=None,
    block_size_M=None,
    num_local_tokens=None,
    moe_sorting_dispatch_policy=0,
    dtype=None,
    hidden_pad=0,
    intermediate_pad=0,
    bias1=None,
    bias2=None,
    splitk=0,
    swiglu_limit=None,
    beta=None,
    linear_beta=None,
    gate_mode="separated",
):
    assert topk_weight.dtype == torch.float32
    assert topk_ids.dtype == torch.int32
    assert w1.is_shuffled
    assert w2.is_shuffled
    inter = w2.shape[-1] * (2 if w2.dtype not in (torch.bfloat16, torch.float16) and quant_type == QuantType.per_1x32 else 1)
    _say(hidden_states.shape, inter, w1.shape[0])
    if mode() == "ck":
        raise RuntimeError("wrong! device_gemm with the specified compilation parameters does not support this GEMM problem")
    if mode() == "abort":
        os.write(2, b"Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x2. Reason: Page not present\n")
        os.abort()
    if mode() == "abort-native" and inter % 128:
        os.abort()
    if mode() == "garbage":
        for fd in range(3, 10):
            with contextlib.suppress(OSError):
                os.write(fd, b'{"event": 7}\n\xff\xfe not json\n{"event": "end", \n')
        os._exit(3)
    if mode() == "torch-oom":
        raise torch.cuda.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB.")
    if mode() == "fork":
        os.write(2, b"[aiter] start build [module_moe_ck2stages_b16] under jit/build\n")
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        logger.info(f"[standin] grandchild {child.pid}")
        time.sleep(600)
    out = _experts(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask, activation, w1_scale, w2_scale, quant_type, inter)
    if mode() == "wrong":
        out = out * 2
    if mode() == "nan":
        out[-1] = float("nan")
    return out.to(hidden_states.dtype)


def _say(shape, inter, experts):
    if (shape, inter) in TOKENS_LOGGED:
        return
    TOKENS_LOGGED.add((shape, inter))
    tag = os.environ.get("MOE_STANDIN_TAG", "default")
    logger.info(f"[fused_moe] using 2stage {tag} for ('gfx942', 304, {shape[0]}, {shape[1]}, {inter}, {experts}) ")


def _experts(x, w1, w2, weights, ids, mask, activation, s1, s2, quant, inter):
    out = torch.zeros(x.shape[0], x.shape[1])
    local = torch.full((max(int(ids.max()) + 1, w1.shape[0]) if mask is None else mask.numel(),), -1)
    present = torch.arange(w1.shape[0]) if mask is None else mask.nonzero()[:, 0]
    local[present] = torch.arange(w1.shape[0])[: local[present].numel()]
    for e in ids.unique().tolist():
        at = int(local[e])
        if at < 0:
            continue
        rows, slots = (ids == e).nonzero(as_tuple=True)
        a, b = (_wide(_flip(w[at]), None if s is None else s[at], quant) for w, s in ((w1, s1), (w2, s2)))
        h = x[rows].float() @ a.T
        gate, up = h[:, :inter], h[:, inter:]
        if activation == ActivationType.Silu:
            h = torch.nn.functional.silu(gate) * up
        elif activation == ActivationType.Gelu:
            h = torch.nn.functional.gelu(gate) * up
        else:
            gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
            h = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        out[rows] += h @ b.T * weights[rows, slots, None]
    return out


def _wide(w, scale, quant):
    if scale is None:
        return w.float()
    if quant == QuantType.per_1x32:
        raw = w.view(torch.uint8)
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
        values = torch.stack((table[(raw & 15).long()], table[(raw >> 4).long()]), -1).view(raw.shape[0], -1)
        return values * torch.exp2(scale.view(torch.uint8).float() - 127).repeat_interleave(32, -1)
    if quant == QuantType.per_128x128:
        return w.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return w.float() * scale
