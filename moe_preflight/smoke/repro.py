"""A short stand-alone script (torch and AITER only) that launches one case, fit for an upstream issue. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from moe_preflight.smoke.aiter_call import ACTIVATION_TYPES, QUANT_TYPES
from moe_preflight.smoke.case import SmokeCase, tolerance
from moe_preflight.smoke.judge import Observation

_HEAD = '''\
"""{title}

{said}
Needs torch and AITER (amd-aiter) only. Prints the relative error of the worst token against float32 on the sizes before padding;
more than {tolerance:g} or not finite is wrong, and the script ends with 1.
"""
import sys

import torch
import aiter
from aiter import ActivationType, QuantType
from aiter.fused_moe import fused_moe
from aiter.ops.shuffle import shuffle_weight

TOKENS, E, TOPK = {tokens}, {experts}, {topk}
H, H_PAD, I, I_PAD = {model_dim}, {model_dim_padded}, {inter_dim}, {inter_dim_padded}
DTYPE = torch.{dtype}
device = "cuda" if torch.cuda.is_available() else "cpu"
gen = torch.Generator(device=device).manual_seed({seed})
print("torch", torch.__version__, "aiter", getattr(aiter, "__version__", "?"))


def randn(*shape, fan_in=1):
    return torch.randn(*shape, generator=gen, device=device) * fan_in**-0.5


# What a checkpoint holds, and the padded weights an engine makes of it: gate at 0, up at I_PAD, the tail zero.
gate, up, down = randn(E, I, H, fan_in=H), randn(E, I, H, fan_in=H), randn(E, H, I, fan_in=I)
w13 = torch.zeros(E, 2 * I_PAD, H_PAD, device=device)
w13[:, :I, :H], w13[:, I_PAD : I_PAD + I, :H] = gate, up
w2 = torch.zeros(E, H_PAD, I_PAD, device=device)
w2[:, :H, :I] = down
x = torch.zeros(TOKENS, H_PAD, device=device)
x[:, :H] = randn(TOKENS, H)
x = x.to(DTYPE)
'''

_ROUTING = {
    "biased_grouped_topk": """
logits = randn(TOKENS, E).to(torch.{logits})
bias = (randn(E) * 0.1).to(logits.dtype)
weights = torch.empty(TOKENS, TOPK, device=device)
ids = torch.empty(TOKENS, TOPK, dtype=torch.int32, device=device)
aiter.biased_grouped_topk(logits, bias, weights, ids, {groups}, {topk_group}, {renormalize}, {inside})
""",
    "grouped_topk": """
logits = randn(TOKENS, E).to(torch.{logits})
weights = torch.empty(TOKENS, TOPK, device=device)
ids = torch.empty(TOKENS, TOPK, dtype=torch.int32, device=device)
aiter.grouped_topk(logits, weights, ids, {groups}, {topk_group}, {renormalize}, {softmax}, {inside})
""",
    "torch": """
weights, ids = randn(TOKENS, E).softmax(-1).topk(TOPK, dim=-1)
weights, ids = weights / weights.sum(-1, keepdim=True), ids.int()
""",
}
"""Where the case is about routing, the script routes by the same kernel; otherwise any choice of experts will do."""

_PLAIN = """
q13, q2, s13, s2 = w13.to(DTYPE), w2.to(DTYPE), None, None
r13, r2 = q13.float(), q2.float()
"""

_FP8 = """
FP8 = aiter.dtypes.fp8
TOP = torch.finfo(FP8).max


def quantize(w, block):
    {doc}
    e, n, k = w.shape
    bn, bk = block(n, k)
    blocks = w.view(e, n // bn, bn, k // bk, bk)
    scale = blocks.abs().amax((2, 4), keepdim=True) / TOP
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    q = (blocks / scale).to(FP8)
    return q.view(e, n, k), scale.view(e, n // bn, k // bk), (q.float() * scale).view(e, n, k)


q13, s13, r13 = quantize(w13, {block})
q2, s2, r2 = quantize(w2, {block})
{reshape}"""

_MXFP4 = """
from aiter import get_torch_quant
from aiter.utility import fp4_utils

quant = get_torch_quant(QuantType.per_1x32)
q13, s13 = quant(w13.to(DTYPE), quant_dtype=aiter.dtypes.fp4x2)
q2, s2 = quant(w2.to(DTYPE), quant_dtype=aiter.dtypes.fp4x2)


def unpack(q, s, shape):
    values = fp4_utils.mxfp4_to_f32(q.view(-1, q.shape[-1])).view(-1, 32)
    return (values * fp4_utils.e8m0_to_f32(s).reshape(-1, 1)).view(shape)


r13, r2 = unpack(q13, s13, w13.shape), unpack(q2, s2, w2.shape)
q13, q2 = q13.view(E, 2 * I_PAD, H_PAD // 2), q2.view(E, H_PAD, I_PAD // 2)
s13, s2 = fp4_utils.e8m0_shuffle(s13), fp4_utils.e8m0_shuffle(s2)
"""

_TAIL = """
a, b = shuffle_weight(q13, layout=(16, 16)), shuffle_weight(q2, layout=(16, 16))
a.is_shuffled = b.is_shuffled = True
out = fused_moe(
    x, a, b, weights.float(), ids, None, ActivationType({act}), QuantType({quant}), {doweight}, s13, s2,
    hidden_pad={hidden_pad}, intermediate_pad={intermediate_pad},
)
if device == "cuda":
    torch.cuda.synchronize()

ref = torch.zeros(TOKENS, H, device=device)
for e in range(E):
    rows, slots = (ids == e).nonzero(as_tuple=True)
    if rows.numel():
        h = x[rows, :H].float()
        g, u = h @ r13[e, :I, :H].T, h @ r13[e, I_PAD : I_PAD + I, :H].T
        ref[rows] += ({formula}) @ r2[e, :H, :I].T * weights[rows, slots, None].float()
err = ((out[:, :H].float() - ref).norm(dim=-1) / ref.norm(dim=-1).clamp_min(1e-6)).amax().item()
print(f"relative error {{err:.4g}}")
sys.exit(0 if err <= {tolerance:g} else 1)
"""

_FORMULAS = {
    "silu": "torch.nn.functional.silu(g) * u",
    "gelu": "torch.nn.functional.gelu(g) * u",
    "swiglu": "g.clamp(max=7.0) * torch.sigmoid(1.702 * g.clamp(max=7.0)) * (u.clamp(-7.0, 7.0) + 1)",
}

_BLOCKS = {"fp8_tensor": "lambda n, k: (n, k)", "fp8_channel": "lambda n, k: (1, k)", "fp8_block": "lambda n, k: (128, 128)"}


def worst(observations: Iterable[Observation], cases: Iterable[SmokeCase]) -> tuple[SmokeCase, Observation] | None:
    """The case to reproduce: the first that went wrong, else None."""
    for case, o in zip(cases, observations, strict=True):
        if o["status"] not in ("ok", "confirmed", "refused", "not-observable") or (o["status"] == "confirmed" and not o["ran"]):
            return case, o
    return None


def unfit(case: SmokeCase) -> str:
    """Why no script can be written for this case; empty when one can."""
    if case.scheme == "mxfp4":
        return "weight-only MXFP4 has engine-specific weight layouts; the script covers bf16, fp16, fp8 and MXFP4 with fp4 activations"
    if case.activation not in _FORMULAS:
        return f"activation {case.activation} is not covered by the script"
    if case.is_ep or case.num_shared_fused or case.expert_bias:
        return "expert parallelism, fused shared experts and expert biases are not covered by the script"
    return ""


def script(case: SmokeCase, o: Observation) -> str:
    """The script's text. Random weights always: a script for an issue carries no checkpoint."""
    limit = tolerance(case, "aiter")
    spec = case.router
    prediction = o["prediction"]
    said = [f"Observed: {o['status']}" + (f", {_ascii(o['detail'])}" if o["detail"] else "") + "."]
    machine = ", ".join(f"{k} {v}" for k, v in sorted(o["machine"].items()) if v)
    if machine:
        said.append(f"On: {_ascii(machine)}.")
    if prediction["why"]:
        said.append(f"Predicted: {_ascii(prediction['verdict'])}, {_ascii(prediction['why'])}.")
    head = _HEAD.format(
        title=f"fused_moe {_ascii(case.label)}, {case.tokens} tokens",
        said="\n".join(said),
        tolerance=limit,
        tokens=case.tokens,
        experts=case.experts,
        topk=case.topk,
        model_dim=case.model_dim,
        model_dim_padded=case.model_dim_padded,
        inter_dim=case.inter_dim,
        inter_dim_padded=case.inter_dim_padded,
        dtype={"bf16": "bfloat16", "fp16": "float16"}[case.dtype],
        seed=case.seed,
    )
    routing = _ROUTING.get(spec.kernel, _ROUTING["torch"]).format(
        logits={"bf16": "bfloat16", "fp16": "float16"}.get(spec.logits_dtype, "float32"),
        groups=spec.groups,
        topk_group=spec.topk_group,
        renormalize=spec.renormalize,
        softmax=spec.scoring == "softmax",
        inside=spec.scaling_inside,
    )
    tail = _TAIL.format(
        act=ACTIVATION_TYPES[case.activation][1],
        quant=QUANT_TYPES[case.scheme][1],
        doweight=case.doweight_stage1,
        hidden_pad=case.hidden_pad,
        intermediate_pad=case.intermediate_pad,
        formula=_FORMULAS[case.activation],
        tolerance=limit,
    )
    return head + routing + _weights(case) + tail


def _weights(case: SmokeCase) -> str:
    if case.scheme == "none":
        return _PLAIN
    if case.scheme == "mxfp4_a4":
        return _MXFP4
    reshape = "s13, s2 = s13.view(E), s2.view(E)\n" if case.scheme == "fp8_tensor" else ""
    return _FP8.format(block=_BLOCKS[case.scheme], reshape=reshape, doc='"""One scale per block of ``w`` [E, n, k]."""')


def _ascii(text: object) -> str:
    """One line for a docstring, whatever a log said."""
    flat = " ".join(str(text).split())[:400]
    return flat.encode("ascii", "replace").decode().replace("\\", "/").replace('"', "'")
