"""SGLang 0.5.23 on ROCm with SGLANG_USE_AITER=1: the parts of it that decide what AITER is asked (sglang/srt, 0.5.23 wheel)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from moe_preflight.engine import parallel
from moe_preflight.engine.call import ACT_TYPES
from moe_preflight.engine.choice import round_up
from moe_preflight.engine.plan import (
    BackendChoice,
    Deployment,
    EnginePlan,
    LayerPlan,
    Note,
    RankProblem,
    Refusal,
    RouterCall,
)
from moe_preflight.engine.raw import BYTES
from moe_preflight.errors import UsageError
from moe_preflight.model.moe import ExpertLayer, MoEModel

VERSION = "0.5.23"
PADDING = 128
_DIR = "sglang/srt/layers"
_AITER_GPUS = ("gfx942", "gfx950", "gfx1250")
LOADER_ZEROES = "SGLang's weight loader zeroes the tail of every padded shard (model_loader/weight_utils.py:1985)"
_RUNNERS = (
    "auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass",
    "flashinfer_mxfp4", "flashinfer_cutedsl", "flashinfer_megamoe", "cutlass", "marlin", "humming", "aiter", "hpc_ops",
)  # fmt: skip
_SWIGLU_OAI = ("swigluoai", "swigluoai_uninterleave")


class _Split(NamedTuple):
    """tp // ep is what splits an expert's width; ep must divide the experts (fused_moe_triton/layer.py:414)."""

    tp: int
    ep: int

    @property
    def moe_tp(self) -> int:
        return max(1, self.tp // self.ep)


class _Answer(NamedTuple):
    backend: BackendChoice
    key: tuple[str, str | None, str] | None = None
    inter: int = 0
    hidden: int = 0
    alignment: int | None = None
    refusal: Refusal | None = None
    notes: tuple[Note, ...] = ()
    zeroed: str | None = None
    gate_mode: str = "separated"
    aiter_env: tuple[tuple[str, str], ...] = ()


def plan(model: MoEModel, deployment: Deployment) -> EnginePlan:
    """The plan of one deployment on SGLang. Another version than the one read is judged with its facts, unverified."""
    if deployment.moe_backend not in _RUNNERS:
        from difflib import get_close_matches

        close = get_close_matches(deployment.moe_backend, _RUNNERS, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        hint = f"{guess}SGLang has: {', '.join(_RUNNERS)}."
        raise UsageError(f"--moe-backend {deployment.moe_backend}: SGLang has no such runner.", hint=hint)
    tp = max(1, deployment.tp)
    split = _Split(tp, max(1, deployment.ep_size or (tp if deployment.ep else 1)))
    exact = deployment.engine_version in (VERSION, f"v{VERSION}")
    notes = []
    if "SGLANG_USE_AITER" not in deployment.env:
        notes.append(Note("aiter-taken-as-on", "AITER is taken as switched on (SGLANG_USE_AITER=1).", f"{_DIR}/moe/topk.py:146"))
    if not exact:
        text = f"SGLang {deployment.engine_version} was not read; the facts of {VERSION} are used, unverified."
        notes.append(Note("engine-version-unverified", text, "moe_preflight/engine/sglang.py"))
    refusals = _refusals(model, deployment, split)
    layers = tuple(_layer(model, layer, deployment, split) for layer in model.layers)
    return EnginePlan(
        model,
        deployment,
        layers,
        tuple(refusals),
        "read" if exact else "unverified",
        VERSION,
        ep_size=split.ep,
        notes=tuple(notes),
    )


def _refusals(model: MoEModel, deployment: Deployment, split: _Split) -> list[Refusal]:
    out: list[Refusal] = []
    for name, value in (("tp_size", deployment.tp), ("pp_size", deployment.pp), ("ep_size", deployment.ep_size or 1)):
        if value < 1:
            why = f"{name}={value}: SGLang needs 1 or more."
            out.append(Refusal("config", f"{name} must be at least 1", why, f"Give {name} 1 or more.", "unverified"))
    if split.tp % split.ep:
        text = f"tp_size {split.tp} must be divisible by ep_size {split.ep}"
        source = "sglang/srt/model_executor/model_runner_components/moe_ep_setup.py:151 (0.5.23)"
        out.append(
            Refusal("config", text, "expert parallel groups are cut out of the tensor parallel one.", "Change --ep.", source)
        )
    return out


def _aiter_on(deployment: Deployment) -> bool:
    value = deployment.env.get("SGLANG_USE_AITER", "1")
    return value.lower() in ("true", "1") and deployment.gpu.gfx in _AITER_GPUS


def _layer(model: MoEModel, layer: ExpertLayer, deployment: Deployment, split: _Split) -> LayerPlan:
    inter = max(1, layer.moe_intermediate_size // split.moe_tp)
    answer = _choose(model, layer, deployment, inter, split)
    refusals = [] if answer.refusal is None else [answer.refusal]
    if layer.experts % split.ep:
        why = f"{layer.experts} experts do not divide by ep {split.ep} (a bare assertion: no uneven expert parallelism)."
        where = f"{_DIR}/moe/fused_moe_triton/layer.py:414 (0.5.23)"
        refusals.append(Refusal("layer", "AssertionError", why, f"Use an --ep that divides {layer.experts}.", where))
    if layer.moe_intermediate_size % split.moe_tp:
        why = f"the expert width {layer.moe_intermediate_size} does not divide by moe_tp {split.moe_tp} (a bare assertion)."
        where = f"{_DIR}/moe/fused_moe_triton/layer.py:427 (0.5.23)"
        refusals.append(Refusal("layer", "AssertionError", why, "Use another --tp or a larger --ep.", where))
    key = answer.key if answer.backend.on_aiter else None
    if key and key[0] == "No":
        key = ("No", model.dtype, model.dtype)
    act = layer.activation if layer.activation in ("silu", "situ", *_SWIGLU_OAI) else "gelu"
    problem = RankProblem(
        model_dim=layer.model_dim,
        model_dim_padded=answer.hidden or layer.model_dim,
        inter_dim=inter,
        inter_dim_padded=answer.inter or inter,
        alignment=answer.alignment,
        expert=-(-layer.experts // split.ep),
        topk=layer.topk,
        act_type=ACT_TYPES[act],
        dtype=model.dtype,
        q_dtype_a=key[1] if key else None,
        q_dtype_w=key[2] if key else None,
        q_type=key[0] if key else None,
        use_g1u1=layer.gated,
        doweight_stage1=layer.weight_on_input,
        hidden_pad=(answer.hidden or layer.model_dim) - layer.model_dim,
        intermediate_pad=(answer.inter or inter) - inter,
        gate_mode=answer.gate_mode,
        is_ep=split.ep > 1,
        moe_tp_size=split.moe_tp,
        ep_size=split.ep,
        global_experts=layer.experts,
        weight_bytes_per_element=BYTES.get(layer.quantization.scheme, 2.0),
        aiter_env=answer.aiter_env if key else (),
        sorting_policy=_policy(deployment) if key else 0,
    )
    return LayerPlan(
        layer=layer,
        backend=answer.backend,
        problem=problem,
        router=_router(layer, model.dtype, deployment),
        zero_filled_by=answer.zeroed,
        refusals=tuple(refusals),
        notes=answer.notes,
        layers_per_rank=parallel.most_on_one_rank(layer.layers, layer.count, model.num_layers, max(1, deployment.pp)),
    )


def _policy(deployment: Deployment) -> int:
    """SGLANG_AITER_MOE_SORTING_DISPATCH_POLICY, 2 unless set (environ.py)."""
    value = deployment.env.get("SGLANG_AITER_MOE_SORTING_DISPATCH_POLICY", "2")
    if value not in ("0", "1", "2"):
        name = "SGLANG_AITER_MOE_SORTING_DISPATCH_POLICY"
        raise UsageError(f"--engine-env {name}={value[:20]}: no such sorting policy.", hint="Expected 0, 1 or 2.")
    return int(value)


def _choose(model: MoEModel, layer: ExpertLayer, deployment: Deployment, inter: int, split: _Split) -> _Answer:
    scheme, runner = layer.quantization.scheme, deployment.moe_backend
    if not _aiter_on(deployment) or runner not in ("auto", "aiter"):
        why = "AITER is switched off or not for this GPU" if not _aiter_on(deployment) else f"asked for by --moe-backend {runner}"
        name = "triton" if runner in ("auto", "aiter") else runner
        return _Answer(BackendChoice(name.upper(), why, (("AITER", why),), False, f"{_DIR}/moe/utils.py:194 (0.5.23)"))
    if scheme == "none":
        return _unquantized(layer, deployment, inter)
    if scheme in ("fp8_tensor", "fp8_channel", "fp8_block"):
        return _fp8(layer, inter, split)
    if scheme in ("mxfp4", "mxfp4_a4", "mxfp4_a8"):
        if layer.quantization.method in ("fp8", "deepseek_v4_fp8"):
            return _fp4_in_fp8(model, layer, deployment, inter)
        return _mxfp4(layer, inter)
    if scheme == "mxfp8":
        return _mxfp8(layer)
    why = f"SGLang has no AITER path for {scheme} experts"
    source = f"{_DIR}/quantization (0.5.23)"
    if scheme in ("int4", "int8", "int8_w8a16"):
        return _Answer(BackendChoice("TRITON", why, (("AITER", why),), False, source))
    note = Note("scheme-not-modelled", f"How SGLang {VERSION} serves {scheme} experts on ROCm was not read.", source)
    return _Answer(BackendChoice(None, why, (("AITER", why),), False, source), notes=(note,))


def _unquantized(layer: ExpertLayer, deployment: Deployment, inter: int) -> _Answer:
    """unquant.py:1142: whole 128s or Triton, no padding; on gfx95 no SwiGLU-OAI."""
    reason = None
    if inter % PADDING:
        reason = f"intermediate_size_per_partition={inter} is not 128-aligned"
    elif layer.activation in _SWIGLU_OAI and deployment.gpu.gfx.startswith("gfx95"):
        reason = f"activation={layer.activation} (SwiGLU-OAI) is not implemented by the aiter CK bf16 fused-MoE kernels"
    source = f"{_DIR}/quantization/unquant.py:1142 (0.5.23)"
    if reason is None:
        return _Answer(BackendChoice("AITER", "supported", (), True, source), key=("No", "bf16", "bf16"))
    if deployment.moe_backend == "aiter":
        text = f"moe_runner_backend=aiter is not supported: {reason}; use --moe-runner-backend triton."
        stop = Refusal("layer", text, reason, "Leave the runner at auto, or use another split.", source)
        return _Answer(BackendChoice(None, reason, (("AITER", reason),), False, source), refusal=stop)
    text = f"aiter CK fused-MoE does not support this layer: {reason}; using triton MoE runner."
    note = Note("aiter-falls-back", text, source, {"inter_dim": inter})
    return _Answer(BackendChoice("TRITON", reason, (("AITER", reason),), False, source), notes=(note,))


def _fp8(layer: ExpertLayer, inter: int, split: _Split) -> _Answer:
    """fp8.py:2960, compressed_tensors_w8a8_fp8_moe.py:348, quark_w8a8_fp8_moe.py:271: AITER takes blocks and channels; widths
    are padded to 128 whenever SGLANG_USE_AITER is on."""
    quantization = layer.quantization
    method, scheme = quantization.method, quantization.scheme
    padded = round_up(inter, PADDING)
    block = quantization.block_shape or (128, 128)
    # Fp8MoEMethod skips the check where AITER's padding makes whole blocks; compressed-tensors does not (…_fp8_moe.py:110).
    skips = block == (PADDING, PADDING) and method != "compressed-tensors"
    if scheme == "fp8_block" and not skips:
        stop = _blocks(inter, block, split.moe_tp)
        if stop:
            return _Answer(BackendChoice(None, stop.why, (), False, stop.source), refusal=stop)
    source = f"{_DIR}/quantization/fp8.py:2960 (0.5.23)"
    channel_only = method in ("compressed-tensors", "quark")
    if method == "modelopt" or (channel_only and scheme != "fp8_channel"):
        why = f"SGLang's {method} method sends only per-channel fp8 to AITER"
        return _Answer(
            BackendChoice("TRITON", why, (("AITER", why),), False, source),
            inter=padded if method == "compressed-tensors" else 0,
            alignment=PADDING if method == "compressed-tensors" else None,
        )
    q_type = "per_128x128" if scheme == "fp8_block" else "per_Token"
    pads = method != "quark"
    return _Answer(
        BackendChoice("AITER", "auto takes AITER for fp8 experts", (), True, source),
        key=(q_type, "fp8", "fp8"),
        inter=padded if pads else inter,
        alignment=PADDING if pads else None,
        zeroed=LOADER_ZEROES if pads and padded > inter else None,
    )


def _blocks(inter: int, block: tuple[int, int], moe_tp: int) -> Refusal | None:
    rows, cols = block
    source = f"{_DIR}/quantization/fp8.py:1588 (0.5.23)"
    remedy = "Use a split whose width is a multiple of the block."
    if inter % rows:
        text = f"The output_size of gate's and up's weight = {inter} is not divisible by weight quantization block_n = {rows}."
        return Refusal("layer", text, "the shard is not a whole number of scale blocks.", remedy, source)
    if moe_tp > 1 and inter % cols:
        text = f"The input_size of down's weight = {inter} is not divisible by weight quantization block_k = {cols}."
        return Refusal("layer", text, "the shard is not a whole number of scale blocks.", remedy, source)
    return None


def _mxfp4(layer: ExpertLayer, inter: int) -> _Answer:
    """mxfp4.py:517 rounds to 256 (model_dim too); Quark pads the packed w2 row to 128, which is 256 values (utils.py:1055)."""
    quark = layer.quantization.method == "quark"
    padded = round_up(inter, 256)
    hidden = layer.model_dim if quark else round_up(layer.model_dim, 256)
    source = f"{_DIR}/quantization/{'quark/schemes/quark_w4a4_mxfp4_moe.py:263' if quark else 'mxfp4.py:517'} (0.5.23)"
    a8 = layer.quantization.scheme == "mxfp4_a8"
    return _Answer(
        BackendChoice("AITER", "auto takes AITER for MXFP4 experts", (), True, source),
        key=("per_1x32", "fp8" if a8 else None, "fp4x2"),
        inter=padded,
        hidden=hidden,
        alignment=256,
        zeroed=None if padded == inter else "SGLang allocates MXFP4 weights as zeros before it loads them",
        gate_mode="interleave" if layer.activation in _SWIGLU_OAI else "separated",
    )


_V41 = ("deepseek_v41", "deepseek_v41_text")


def _fp4_in_fp8(model: MoEModel, layer: ExpertLayer, deployment: Deployment, inter: int) -> _Answer:
    """DeepSeek-V4's fp4 experts inside an fp8 checkpoint (fp8.py:1902): padded to 128 and not to 256, model_dim left alone, and
    gate and up rows interleaved where the model clamps SwiGLU, unless SGLANG_USE_AITER_MOE_GU_ITLV is off (aiter.py:235)."""
    padded = round_up(inter, PADDING)
    limit = model.config.get("swiglu_limit")
    clamps = isinstance(limit, int | float) and limit > 0
    interleaved = clamps and deployment.env.get("SGLANG_USE_AITER_MOE_GU_ITLV", "1").lower() in ("true", "1")
    return _Answer(
        BackendChoice(
            "AITER", "auto takes AITER for DeepSeek-V4's fp4 experts", (), True, f"{_DIR}/quantization/fp8.py:1902 (0.5.23)"
        ),
        key=("per_1x32", None, "fp4x2"),
        inter=padded,
        alignment=PADDING,
        zeroed="SGLang pads the loaded weights with zeros" if padded > inter else None,
        gate_mode="interleave" if interleaved else "separated",
        # V4.1 hands quant_dtype_a=fp8 over (deepseek_v4.py:3171), which is what AITER takes with its bound at 0.
        aiter_env=(("AITER_BF16_FP8_MOE_BOUND", "0"),) if interleaved and model.model_type in _V41 else (),
    )


def _mxfp8(layer: ExpertLayer) -> _Answer:
    source = f"{_DIR}/quantization/fp8.py:3425 (0.5.23)"
    if layer.activation not in _SWIGLU_OAI:
        text = "AITER MXFP8 MoE only supports swiglu-oai alpha=1.702, got gemm1_alpha=None."
        stop = Refusal("layer", text, "AITER's MXFP8 kernel hard-codes SwiGLU-OAI.", "Use --moe-backend triton.", source)
        return _Answer(BackendChoice(None, stop.why, (), False, source), refusal=stop)
    choice = BackendChoice("AITER", "auto takes AITER for MXFP8 experts", (), True, source)
    return _Answer(choice, key=("per_1x32", "fp8", "fp8"), gate_mode="interleave")


def _router(layer: ExpertLayer, dtype: str, deployment: Deployment) -> RouterCall:
    """select_experts (topk.py:2821): AITER only for grouped + bias, softmax without groups, and sqrtsoftplus."""
    grouped = layer.n_group is not None and layer.topk_group is not None
    base = RouterCall(
        "TopK", "other", layer.experts + layer.zero_experts, layer.topk, renormalize=layer.renormalize, scoring=layer.scoring,
        bias=layer.selection_bias, logits_dtype=dtype, source=f"{_DIR}/moe/topk.py:2821 (0.5.23)",
    )  # fmt: skip
    if grouped:
        base = replace(base, kind="grouped TopK", num_expert_group=layer.n_group, topk_group=layer.topk_group)
    if not _aiter_on(deployment):
        return replace(base, falls_back_to="other", fallback_reason="SGLANG_USE_AITER is off")
    if grouped and layer.selection_bias:
        if deployment.env.get("SGLANG_OPT_USE_JIT_KERNEL_GROUPED_TOPK", "0").lower() in ("1", "true"):
            return replace(base, fallback_reason="SGLANG_OPT_USE_JIT_KERNEL_GROUPED_TOPK routes with SGLang's own kernel")
        scale = layer.routed_scaling_factor
        where = f"{_DIR}/moe/topk.py:2140 (0.5.23)"
        return replace(base, kernel="biased_grouped_topk", on_aiter=True, scaling_inside=scale, source=where)
    if grouped:
        return replace(
            base, kernel="torch", falls_back_to="torch", fallback_reason="grouped routing without a bias is torch code"
        )
    if layer.scoring == "sqrtsoftplus":
        return replace(base, kernel="topk_gating", on_aiter=True, source=f"{_DIR}/moe/topk.py:1669 (0.5.23)")
    if layer.scoring == "sigmoid":
        why = "sigmoid scores without groups go to SGLang's own JIT kernel"
        return replace(base, falls_back_to="other", fallback_reason=why, source=f"{_DIR}/moe/topk.py:2976 (0.5.23)")
    where = f"{_DIR}/moe/topk.py:1270 (0.5.23)"
    return replace(base, kernel="topk_softmax", on_aiter=True, prefers_asm=True, source=where)
