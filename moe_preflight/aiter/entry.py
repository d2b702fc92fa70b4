"""From a user's call of ``fused_moe`` to the question AITER asks its dispatch: shapes, activation dtype, refusals.

Source: fused_moe_ / _fused_moe_impl of aiter/fused_moe.py (v0.1.20: lines 656-871), by release in
facts/dispatch_rules.py. What AITER raises on the way is raised as AiterRaises with its own text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moe_preflight.aiter.dtypes import PACK, torch_name
from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.heuristics import env_int
from moe_preflight.aiter.key import Key

QUANT_REMAP = {"per_128x128": "per_1x128"}


class AiterRaises(Exception):
    """AITER itself would raise here; str() is ``Type: text`` as a traceback shows it."""


class Asked(NamedTuple):
    """The arguments of get_2stage_cfgs, save for the token count; dtypes are short names. A tuple, since it keys a cache."""

    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    dtype: str
    q_dtype_a: str
    q_dtype_w: str
    quant: str
    g1u1: bool
    act: str
    doweight: bool
    shuffled: bool
    gate_mode: str
    is_ep: bool
    bias2: bool


def asked(key: Key, rules: Rules, gfx: str, env: Mapping[str, str], flydsl: bool) -> Asked:
    """What AITER asks itself for ``key``. A key with ``q_dtype_a`` is such a question already and passes unchanged."""
    if key.gate_mode != "separated" and not rules.has_gate_mode:
        raise AiterRaises("TypeError: fused_moe() got an unexpected keyword argument 'gate_mode'")
    if key.q_dtype_a is not None:
        return _with(key, key.inter_dim, key.q_type, key.use_g1u1, key.q_dtype_a)
    inter_dim, g1u1 = _weight_shapes(key)
    if key.dtype not in ("bf16", "fp16"):
        # A model may be fp32 or fp64, which no row of AITER's tables is.
        shown = {"fp32": "torch.float32", "fp64": "torch.float64"}.get(key.dtype) or torch_name(key.dtype, gfx)
        raise AiterRaises(f"AssertionError: Fused_moe unsupported out dtype: {shown}")
    quant = QUANT_REMAP.get(key.q_type, key.q_type)
    a = activation_dtype(rules, gfx, env, key.token, key.act, quant, key.q_dtype_w, key.gate_mode)
    if rules.situv2_guard and quant == "per_1x32" and key.q_dtype_w == "fp4x2" and a == "bf16" and key.act == "situv2":
        _refuse_situv2(key, gfx, flydsl, g1u1)
    return _with(key, inter_dim, quant, g1u1, a)


def _with(key: Key, inter_dim: int, quant: str, g1u1: bool, q_dtype_a: str) -> Asked:
    return Asked(
        *(key.model_dim, inter_dim, key.expert, key.topk, key.dtype, q_dtype_a, key.q_dtype_w, quant, g1u1, key.act),
        *(key.doweight_stage1, key.is_shuffled, key.gate_mode, key.is_ep, key.bias2),
    )


def _weight_shapes(key: Key) -> tuple[int, bool]:
    """inter_dim and gating as AITER derives them from the shapes of packed weights (get_inter_dim)."""
    pack = PACK.get(key.q_dtype_w, 1)
    rows = key.inter_dim * (2 if key.use_g1u1 else 1)
    packed_k, packed_n = key.model_dim // pack, key.inter_dim // pack
    if packed_k == 0:
        raise AiterRaises("ZeroDivisionError: integer division or modulo by zero")
    inter_dim = packed_n * (key.model_dim // packed_k)
    if rows not in (inter_dim, inter_dim * 2):
        raise AiterRaises(
            f"AssertionError: Invalid MoE weight: w1.shape=torch.Size([{key.expert}, {rows}, {packed_k}]) "
            f"w2.shape=torch.Size([{key.expert}, {key.model_dim}, {packed_n}])"
        )
    return inter_dim, inter_dim != rows


def activation_dtype(
    rules: Rules, gfx: str, env: Mapping[str, str], tokens: int, act: str, quant: str, q_dtype_w: str, gate_mode: str
) -> str:
    """q_dtype_a, by the raw token count (not the bucket). Raises ValueError for a malformed environment bound."""
    a = "fp8" if q_dtype_w == "u32" else q_dtype_w
    if quant == "per_1x32":
        if rules.a16wi4 and q_dtype_w == "i4x2":
            a = "bf16"
        elif rules.mxfp8 and q_dtype_w == "fp8":
            a = "fp8"
        else:
            a = _a_per_1x32(rules, gfx, env, tokens, act, gate_mode)
    if rules.gfx1250_a and gfx == "gfx1250":
        return "fp8" if env.get("AITER_FORCE_A8W4", "0") in ("", "1") else "fp4x2"
    return a


def _a_per_1x32(rules: Rules, gfx: str, env: Mapping[str, str], tokens: int, act: str, gate_mode: str) -> str:
    if rules.a_per_1x32 == "fp4":
        return "fp4x2"
    bound = env_int(env, rules.bf16_bound_env, rules.bf16_bound) if rules.bf16_bound_env else rules.bf16_bound
    bf16_or_fp8 = "bf16" if gfx != "gfx950" or tokens < bound else "fp8"
    if rules.a_per_1x32 == "swiglu":
        return bf16_or_fp8 if act == "swiglu" else "fp4x2"
    if act == "situv2" and rules.situv2 == "first":
        if env.get("AITER_SITUV2_A8W4", "0") == "1":
            return "fp8"
        return "fp4x2" if env.get("AITER_SITUV2_A4W4", "0") == "1" else "bf16"
    if act == "swiglu" and gate_mode == "separated":
        return "bf16" if tokens < env_int(env, "GPTOSS_SWIGLU_MXFP4_BF16_BOUND", 256) else "fp4x2"
    if act == "swiglu" or gate_mode == "interleave":
        return bf16_or_fp8
    if act == "situv2" and rules.situv2 == "late":
        return "fp8" if env.get("AITER_SITUV2_A8W4", "0") == "1" else "bf16"
    return "fp4x2"


def _refuse_situv2(key: Key, gfx: str, flydsl: bool, g1u1: bool) -> None:
    """a16w4 SiTUv2 runs on FlyDSL only; AITER refuses the rest at its entry (v0.1.20 fused_moe.py:439-463)."""
    for refused, why in (
        (
            gfx not in ("gfx942", "gfx950") or not flydsl,
            f"requires the FlyDSL kernel on CDNA gfx942/gfx950 (gfx={gfx!r}, flydsl_available={flydsl})",
        ),
        (key.bias2, "per-expert bias"),
        (key.is_ep, "expert-parallel masking"),
        (
            not (key.is_shuffled and g1u1 and not key.doweight_stage1),
            "non-preshuffled / non-g1u1 weights or doweight_stage1=True",
        ),
    ):
        if refused:
            raise AiterRaises(f"NotImplementedError: a16w4 (bf16 A x MXFP4 W) SiTUv2 is not supported: {why}.")
