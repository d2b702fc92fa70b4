"""FP8 experts: QuantKeys by checkpoint method, block adaptation to TP, backend (fused_moe/oracle/fp8.py)."""

from __future__ import annotations

from math import gcd

from moe_preflight.engine.choice import LAYERS, Backend, Choice, Question, Sizes, first_that_fits, refused, round_up, supported
from moe_preflight.engine.experts import Ask
from moe_preflight.engine.facts.vllm_releases import Release, at_least
from moe_preflight.engine.kernels import (
    BATCHED_TRITON,
    DYNAMIC_128,
    DYNAMIC_TENSOR,
    DYNAMIC_TOKEN,
    STATIC_BLOCK,
    STATIC_CHANNEL,
    STATIC_TENSOR,
    TRITON,
    aiter_fp8,
    block,
    fp8_key,
)
from moe_preflight.engine.plan import BackendChoice, Note, Refusal
from moe_preflight.model.moe import Quantization

_FILE = f"{LAYERS}/fused_moe/oracle/fp8.py"
_UTILS = f"{LAYERS}/quantization/utils/fp8_utils.py"
SMALLEST_BLOCK = 32

_TRITON = Backend("TRITON", (TRITON,))
_BATCHED = Backend("BATCHED_TRITON", (BATCHED_TRITON,))
_CUDA = {
    "deep_gemm": "DEEPGEMM", "flashinfer_trtllm": "FLASHINFER_TRTLLM", "flashinfer_cutlass": "FLASHINFER_CUTLASS",
    "marlin": "MARLIN", "humming": "HUMMING", "hpc": "HPC", "cutlass": "VLLM_CUTLASS",
}  # fmt: skip
_ORDER = (
    "triton", "deep_gemm", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass", "marlin", "humming", "aiter", "hpc",
)  # fmt: skip


def _aiter(release: Release) -> Backend:
    return Backend("AITER", aiter_fp8(release))


METHODS = {
    "fp8": "Fp8MoEMethod", "deepseek_v4_fp8": "Fp8MoEMethod", "compressed-tensors": "CompressedTensorsW8A8Fp8MoEMethod",
    "quark": "QuarkW8A8Fp8MoEMethod", "modelopt": "ModelOptFp8MoEMethod",
}  # fmt: skip
"""quant_method -> vLLM's MoE method class; a bare shape (no method) is taken as Fp8MoEMethod."""

_KEYS = {"fp8_block": "per_128x128", "fp8_channel": "per_Token", "fp8_tensor": "per_Tensor"}


def choose(q: Question) -> Choice:
    """Backend and sizes of fp8 experts. Block scales may be refined or the shard padded before the backend is chosen."""
    quantization = q.layer.quantization
    method = METHODS.get(quantization.method or "fp8", "Fp8MoEMethod")
    if method == "Fp8MoEMethod" and quantization.scheme == "fp8_block":
        return _adapted(q, quantization.block_shape or (128, 128))
    weight, activation, problem = keys(quantization, method, q.ask)
    if problem is not None:
        return refused(method, q.sizes, problem)
    choice = _select(_ask(q, weight, activation), method, q.sizes)
    if choice.refusal is None and quantization.scheme == "fp8_block":
        stop = _validate(q.sizes.inter, quantization.block_shape or (128, 128), q.tp)
        if stop:
            return refused(method, q.sizes, stop)
    return _keyed(q, choice)


def _ask(q: Question, weight: str, activation: str) -> Ask:
    return q.ask._replace(weight=fp8_key(q.ask, weight), activation_key=fp8_key(q.ask, activation))


def _keyed(q: Question, choice: Choice) -> Choice:
    choice = choice._replace(bytes_per_element=1.0)
    if choice.refusal is not None or not choice.backend.on_aiter:
        return choice
    notes = choice.notes
    if "gfx94" in q.ask.gfx:
        text = f"{q.ask.gfx} computes in e4m3fnuz: vLLM converts the checkpoint's e4m3fn weights and doubles their scales."
        notes = (*notes, Note("fp8-fnuz", text, f"{LAYERS}/quantization/utils/w8a8_utils.py (0.33.0)"))
    if q.layer.weight_on_input and q.layer.quantization.scheme == "fp8_block":
        text = "apply_router_weight_on_input is not supported for block scaled moe"
        notes = (*notes, Note("weight-on-input-asserts", text, f"{LAYERS}/fused_moe/experts/rocm_aiter_moe.py:365 (0.33.0)"))
    return choice._replace(key=(_KEYS[q.layer.quantization.scheme], "fp8", "fp8"), notes=notes)


def keys(quantization: Quantization, method: str, ask: Ask) -> tuple[str, str, Refusal | None]:
    """The weight and activation scale texts each method builds its QuantKeys from, or the error it raises first."""
    weight, activation = quantization.weight_strategy, quantization.activation_strategy
    static = quantization.activation_dynamic is False
    if quantization.scheme == "fp8_block":
        # Quark's per-block experts came with 0.30.0 (vLLM PR 52263).
        late = method == "QuarkW8A8Fp8MoEMethod" and not at_least(ask.release, "0.30.0")
        return STATIC_BLOCK, DYNAMIC_128, _quark_mismatch("per_block", "per_group", ask.release) if late else None
    if method == "CompressedTensorsW8A8Fp8MoEMethod":
        return _compressed(weight, activation, static)
    if method == "ModelOptFp8MoEMethod" and quantization.scheme == "fp8_tensor":
        return STATIC_TENSOR, STATIC_TENSOR, None
    if quantization.scheme == "fp8_channel":
        if method == "QuarkW8A8Fp8MoEMethod" and activation == "tensor":
            return "", "", _quark_mismatch("per_channel", "per_tensor", ask.release)
        return STATIC_CHANNEL, DYNAMIC_TOKEN, None
    if method == "QuarkW8A8Fp8MoEMethod" and activation in ("token", "channel"):
        return "", "", _quark_mismatch("per_tensor", "per_channel", ask.release)
    if static:
        return STATIC_TENSOR, STATIC_TENSOR, None
    if method == "Fp8MoEMethod" and ask.env.batch_invariant and at_least(ask.release, "0.33.0"):
        return STATIC_TENSOR, DYNAMIC_TOKEN, None
    return STATIC_TENSOR, DYNAMIC_TENSOR, None


def _compressed(weight: str | None, activation: str | None, static: bool) -> tuple[str, str, Refusal | None]:
    """compressed_tensors_moe_w8a8_fp8.py:66: tensor/tensor, channel/token or block; a dynamic tensor scale is keyed 1x128."""
    where = f"{LAYERS}/quantization/compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_w8a8_fp8.py"
    if weight == "channel" and activation in ("token", None):
        if static:
            text = "For FP8 Fused MoE layer, we require either per tensor or channelwise, dynamic per token quantization."
            why = "static activation scales do not go with per-channel weights."
            return "", "", Refusal("layer", text, why, "Requantize with dynamic per-token activations.", f"{where}:84 (0.33.0)")
        return STATIC_CHANNEL, DYNAMIC_TOKEN, None
    if weight == "tensor" and activation in ("tensor", None):
        return STATIC_TENSOR, (STATIC_TENSOR if static else DYNAMIC_128), None
    why = f"{weight} weights with {activation} activations are neither tensor/tensor, channel/token nor block (a bare assertion)."
    return "", "", Refusal("layer", "AssertionError", why, "Requantize with one of the three.", f"{where}:75 (0.33.0)")


def _quark_mismatch(weight: str, activation: str, release: Release) -> Refusal:
    kinds = "per-tensor, per-channel and per-block" if at_least(release, "0.30.0") else "per-tensor and per-channel"
    text = (
        f"For FP8 Fused MoE layers, only {kinds} scales for weights and activations are supported. Found {weight}, {activation}"
    )
    why = "Quark's FP8 method takes matching weight and activation scales only."
    return Refusal("layer", text, why, "Requantize.", f"{LAYERS}/quantization/quark/quark_moe.py:666 (0.33.0)")


def _adapted(q: Question, shape: tuple[int, int]) -> Choice:
    """Fp8MoEMethod with block scales: refine the blocks, or pad the shard, then choose (resolve_fp8_moe_weight_block_shape)."""
    method, ask, inter = "Fp8MoEMethod", q.ask, q.sizes.inter
    refined = refine(shape, inter, q.sizes.hidden, ask.split.moe_tp)
    sizes, padded = q.sizes, False
    if ask.release.fp8_pad_tp_shard and ask.backend != "auto":
        if ask.backend not in _ORDER:
            return refused(method, sizes, _unknown_name(ask.backend))
        takes_refined = refined is not None and _takes(ask, refined)
        if not takes_refined and _wants_padding(shape, inter, ask.split.moe_tp):
            stop = _cannot_pad(q, shape)
            if stop:
                return refused(method, sizes, stop)
            sizes = Sizes(sizes.hidden, inter, sizes.hidden, round_up(inter, shape[0]), shape[0])
            refined, padded = None, True
    used = refined or shape
    keyed = ask._replace(weight=fp8_key(ask, f"static,{block(*used)}"), activation_key=fp8_key(ask, DYNAMIC_128))
    choice = _select(keyed, method, sizes)
    if choice.refusal is not None:
        return choice
    if refined is None:
        stop = _validate(sizes.inter_padded, shape, q.tp)
        if stop:
            return refused(method, sizes, stop)
    else:
        text = f"Block scales are refined from {list(shape)} to {list(used)} so that they fit the width {inter} of one rank."
        choice = choice._replace(notes=(*choice.notes, Note("fp8-block-refined", text, f"{_FILE}:265 (0.33.0)")))
    if padded:
        choice = choice._replace(zero_filled_by=f"the weight loader: zeros in weights, ones in scales ({_FILE}:307)")
    return _keyed(q, choice)


def refine(shape: tuple[int, int], inter: int, hidden: int, moe_tp: int) -> tuple[int, int] | None:
    """The finer square block that fits a TP shard, None when none is needed or possible (refine_fp8_moe_block_shape)."""
    rows, cols = shape
    if inter % rows == 0 and (moe_tp == 1 or inter % cols == 0):
        return None
    unit = gcd(rows, cols, inter, hidden)
    return None if unit < SMALLEST_BLOCK else (unit, unit)


def _takes(ask: Ask, refined: tuple[int, int]) -> bool:
    """Does the named backend list the refined key? Only Triton's kernels take a block shape other than 128 x 128."""
    named = _named(ask)
    keyed = ask._replace(weight=fp8_key(ask, f"static,{block(*refined)}"), activation_key=fp8_key(ask, DYNAMIC_128))
    return named is not None and any(k.scheme(keyed) for k in named.kernels)


def _named(ask: Ask) -> Backend | None:
    """The backend of ROCm that --moe-backend names, if it is one."""
    return {"triton": _TRITON, "aiter": _aiter(ask.release)}.get(ask.backend)


def _wants_padding(shape: tuple[int, int], inter: int, moe_tp: int) -> bool:
    return shape[0] == shape[1] and moe_tp > 1 and inter % shape[0] != 0


def _cannot_pad(q: Question, shape: tuple[int, int]) -> Refusal | None:
    unit = shape[0]
    split = q.ask.split
    if (
        q.intermediate_size % unit == 0
        and q.sizes.hidden % unit == 0
        and split.ep_size == 1
        and not q.ask.lora
        and not q.layer.expert_bias
    ):
        return None
    text = f"Block-aligned FP8 TP sharding requires {unit}-aligned global expert dimensions, pure TP, and no LoRA or expert bias."
    why = f"vLLM would pad the shard of {q.sizes.inter} to whole {unit}-blocks, but not here."
    return Refusal("layer", text, why, "Leave --moe-backend at auto, or use another split.", f"{_FILE}:330 (0.33.0)")


def _validate(inter: int, shape: tuple[int, int], tp: int) -> Refusal | None:
    """validate_fp8_block_shape_moe: asks the TP group's world size, not the MoE's."""
    rows, cols = shape
    why = f"one rank's width {inter} is not a whole number of the checkpoint's {rows} x {cols} scale blocks."
    remedy = "Use a split whose width is a multiple of the block, or expert parallelism, which leaves the width whole."
    if inter % rows:
        text = f"The output_size of gate's and up's weight = {inter} is not divisible by weight quantization block_n = {rows}."
        return Refusal("layer", text, why, remedy, f"{_UTILS}:1361 (0.33.0)")
    if tp > 1 and inter % cols:
        text = f"The input_size of down's weight = {inter} is not divisible by weight quantization block_k = {cols}."
        return Refusal("layer", text, why, remedy, f"{_UTILS}:1367 (0.33.0)")
    return None


def _select(ask: Ask, method: str, sizes: Sizes) -> Choice:
    """select_fp8_moe_backend: a named backend or AITER by environment must fit, there is no way back."""
    if ask.backend != "auto":
        return _explicit(ask, method, sizes)
    if _deep_gemm_forced(ask):
        name = "BATCHED_DEEPGEMM" if ask.split.batched else "DEEPGEMM"
        text = _unsupported(name, "kernel does not support current device rocm")
        why = "VLLM_USE_DEEP_GEMM is set and on: vLLM then takes DeepGEMM or stops, and DeepGEMM has no kernel for AMD GPUs."
        remedy = "Unset VLLM_USE_DEEP_GEMM and VLLM_MOE_USE_DEEP_GEMM, or set one of them to 0."
        return refused(method, sizes, Refusal("layer", text, why, remedy, f"{_FILE}:484 (0.33.0)"))
    aiter = _aiter(ask.release)
    candidates = [aiter, _TRITON, _BATCHED]
    rejected: tuple[tuple[str, str], ...] = ()
    if ask.env.is_set("VLLM_ROCM_USE_AITER") or ask.env.is_set("VLLM_ROCM_USE_AITER_MOE"):
        candidates = [_TRITON, _BATCHED]
        if not ask.env.aiter_moe:
            rejected = (("AITER", "AITER's MoE is switched off by environment"),)
        elif ask.gfx in ("gfx1200", "gfx1201"):
            rejected = (("AITER", f"{ask.gfx} is RDNA4: AITER's MoE is skipped"),)
        else:
            reason = supported(aiter, ask)
            if reason is None:
                why = "asked for by VLLM_ROCM_USE_AITER and supported"
                return _chosen(ask, method, sizes, aiter, why, (), f"{_FILE}:545 (0.33.0)")
            return refused(method, sizes, _stop(_unsupported("AITER", reason), f"{_FILE}:545 (0.33.0)"), (("AITER", reason),))
    pick = first_that_fits(candidates, ask, rejected)
    if pick.backend is None:
        text = "No FP8 MoE backend supports the deployment configuration."
        return refused(method, sizes, _stop(text, f"{_FILE}:580 (0.33.0)"), pick.rejected)
    why = "first of vLLM's list that supports this layer on ROCm"
    return _chosen(ask, method, sizes, pick.backend, why, pick.rejected, f"{_FILE}:556 (0.33.0)")


def _deep_gemm_forced(ask: Ask) -> bool:
    """Either variable set, and neither off (each is on by default): looked at before AITER's (line 484)."""
    names = ("VLLM_USE_DEEP_GEMM", "VLLM_MOE_USE_DEEP_GEMM")
    return any(ask.env.is_set(n) for n in names) and all(ask.env.number(n, 1) for n in names)


def _explicit(ask: Ask, method: str, sizes: Sizes) -> Choice:
    name, source = ask.backend, f"{_FILE}:488 (0.33.0)"
    if name not in _ORDER:
        return refused(method, sizes, _unknown_name(name))
    if name == "cutlass" and method != "CompressedTensorsW8A8Fp8MoEMethod":
        return refused(method, sizes, _stop("vLLM CUTLASS FP8 MoE backend is disabled for this configuration.", source))
    named = _named(ask)
    if named is None:
        batched = "BATCHED_" if ask.split.batched and name in ("deep_gemm", "cutlass") else ""
        return refused(
            method, sizes, _stop(_unsupported(f"{batched}{_CUDA[name]}", "kernel does not support current device rocm"), source)
        )
    backend = _BATCHED if name == "triton" and ask.split.batched else named
    reason = supported(backend, ask)
    if reason is not None:
        return refused(method, sizes, _stop(_unsupported(backend.name, reason), source), ((backend.name, reason),))
    return _chosen(ask, method, sizes, backend, f"asked for by --moe-backend {name}", (), source)


def _unknown_name(name: str) -> Refusal:
    text = f"moe_backend='{name}' is not supported for FP8 MoE. Expected one of {list(_ORDER)}."
    return _stop(text, f"{_FILE}:222 (0.33.0)")


def _unsupported(name: str, reason: str) -> str:
    return f"FP8 MoE backend {name} does not support the deployment configuration since {reason}."


def _stop(text: str, source: str) -> Refusal:
    why = "vLLM's FP8 selector has no way back: a backend asked for by flag or environment must support the layer."
    return Refusal("layer", text, why, "Set VLLM_ROCM_USE_AITER_MOE=0 (Triton), or change the split or --moe-backend.", source)


def _chosen(
    ask: Ask, method: str, sizes: Sizes, backend: Backend, why: str, rejected: tuple[tuple[str, str], ...], source: str
) -> Choice:
    return Choice(method, BackendChoice(backend.name, why, rejected, backend.on_aiter, source), sizes)
