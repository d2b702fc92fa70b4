"""The remaining schemes: int4 / int8 weights, NVFP4, MXFP8, int8, Quark int4-fp8. Only MXFP8 and int4-fp8 can reach AITER."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moe_preflight.engine.choice import LAYERS, Backend, Choice, Question, first_that_fits, refused, supported
from moe_preflight.engine.facts.vllm_releases import at_least
from moe_preflight.engine.kernels import (
    INT4_EMULATION,
    INT8_STATIC,
    MXFP8_EMULATION,
    MXFP8_NATIVE,
    NVFP4_EMULATION,
    RDNA3_WNA16,
    TRITON,
    TRITON_WNA16,
    aiter_mxfp8,
    block,
    fp8_name,
)
from moe_preflight.engine.plan import BackendChoice, Refusal

_ORACLE = f"{LAYERS}/fused_moe/oracle"
_QUANT = f"{LAYERS}/quantization"
_ROCM_NO = "kernel does not support current device rocm"


def _stop(text: str, why: str, source: str) -> Refusal:
    return Refusal("layer", text, why, "Leave --moe-backend at auto.", source)


def _choice(method: str, q: Question, backend: Backend, why: str, rejected: tuple[tuple[str, str], ...], source: str) -> Choice:
    return Choice(method, BackendChoice(backend.name, why, rejected, backend.on_aiter, source), q.sizes)


# ---- int4 / int8 weights, bf16 activations (oracle/int_wna16.py) ----

_WNA16 = {
    "triton": Backend("TRITON", (TRITON_WNA16,)),
    "emulation": Backend("EMULATION", (INT4_EMULATION,)),
    "rdna3": Backend("RDNA3", (RDNA3_WNA16,)),
}
_WNA16_NAMES = ("triton", "marlin", "humming", "flashinfer_trtllm", "emulation", "rdna3")


def wna16(q: Question) -> Choice:
    """GPTQ, AWQ, compressed-tensors pack-quantized, Quark int4: never AITER (one FlyDSL exception by name)."""
    quantization = q.layer.quantization
    method = {"compressed-tensors": "CompressedTensorsWNA16MoEMethod", "quark": "QuarkW4A16Int4MoEMethod"}.get(
        quantization.method or "", "MoeWNA16Method"
    )
    if method == "CompressedTensorsWNA16MoEMethod" and _flydsl(q):
        source = f"{_QUANT}/compressed_tensors/compressed_tensors_moe/compressed_tensors_moe.py:97 (0.33.0)"
        backend = BackendChoice("FLYDSL", "asked for by --moe-backend flydsl", (), False, source)
        return Choice("CompressedTensorsW4A16FlydslMoEMethod", backend, q.sizes, bytes_per_element=0.5)
    if quantization.scheme == "int8_w8a16":
        q = q._replace(ask=q.ask._replace(weight=INT8_STATIC))
    choice = _wna16_backend(q, method)._replace(bytes_per_element=1.0 if quantization.scheme == "int8_w8a16" else 0.5)
    if choice.refusal is None:
        stop = _group_crosses_shards(q) if method == "CompressedTensorsWNA16MoEMethod" else None
        if method == "MoeWNA16Method":
            stop = _group_cannot_shrink(q)
        if stop:
            return choice._replace(refusal=stop)
    return choice


def _flydsl(q: Question) -> bool:
    quantization = q.layer.quantization
    grouped = quantization.scheme == "int4" and quantization.group_size == 32 and quantization.weight_strategy == "group"
    return grouped and q.ask.gfx == "gfx950" and not q.ask.lora and q.ask.backend == "flydsl"


def _wna16_backend(q: Question, method: str) -> Choice:
    source = f"{_ORACLE}/int_wna16.py:256 (0.33.0)"
    if q.ask.backend != "auto":
        name = q.ask.backend
        if name not in _WNA16_NAMES:
            names = [n for n in _WNA16_NAMES if n != "rdna3" or at_least(q.ask.release, "0.30.0")]
            text = f"moe_backend='{name}' is not supported for WNA16 MoE. Expected one of {names}."
            return refused(method, q.sizes, _stop(text, "4- and 8-bit integer weights have no such backend.", source))
        backend = _WNA16.get(name)
        reason = _cuda_layout(name, method) if backend is None else _layout(backend, q, method) or supported(backend, q.ask)
        if backend is None or reason:
            text = f"WNA16 MoE backend '{name.upper()}' does not support the deployment configuration since {reason}."
            return refused(method, q.sizes, _stop(text, "the backend was asked for by name.", source))
        return _choice(method, q, backend, f"asked for by --moe-backend {name}", (), source)
    rejected: tuple[tuple[str, str], ...] = ()
    for backend in (_WNA16["rdna3"], _WNA16["triton"], _WNA16["emulation"]):
        reason = _layout(backend, q, method) or supported(backend, q.ask)
        if reason is None:
            why = "AITER has no entry for 4- or 8-bit integer weights in vLLM; this is the first of the list that fits"
            return _choice(method, q, backend, why, rejected, source)
        rejected = (*rejected, (backend.name, reason))
    text = "No WNA16 MoE backend supports the deployment configuration."
    return refused(method, q.sizes, _stop(text, "no kernel for this layout runs on ROCm.", source), rejected)


def _cuda_layout(name: str, method: str) -> str:
    """Why a CUDA backend asked for by name does not fit: Marlin's layout is looked at before its device (int_wna16.py:201)."""
    if name != "marlin":
        return _ROCM_NO
    return (
        "the MoeWNA16 checkpoint layout is not supported" if method == "MoeWNA16Method" else "Marlin not supported for this layer"
    )


def _layout(backend: Backend, q: Question, method: str) -> str | None:
    """_backend_incompatibility_reason (int_wna16.py:146), the parts that matter on ROCm."""
    quantization = q.layer.quantization
    if backend.name == "RDNA3" and method != "CompressedTensorsWNA16MoEMethod":
        return "only compressed-tensors checkpoints are supported"
    if backend.name == "RDNA3" and not quantization.symmetric:
        return "asymmetric checkpoints are not supported"
    if backend.name == "TRITON" and q.layer.expert_bias:
        return "expert bias is not supported"
    if backend.name == "TRITON" and quantization.detail.get("actorder") == "group":
        return "group activation ordering is not supported"
    if backend.name == "EMULATION" and method == "MoeWNA16Method":
        return "the MoeWNA16 checkpoint layout is not supported"
    return None


def _group_crosses_shards(q: Question) -> Refusal | None:
    """compressed_tensors_moe_wna16.py:113 and :238: only group scales, and whole groups on every rank."""
    quantization = q.layer.quantization
    source = f"{_QUANT}/compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_wna16.py:238 (0.33.0)"
    group = quantization.group_size or 0
    if quantization.detail.get("actorder") == "group" and not at_least(q.ask.release, "0.30.0"):
        why = "group activation ordering is not supported without Marlin (a bare assertion)."
        source = f"{_QUANT}/compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_wna16.py:136"
        return Refusal("layer", "AssertionError", why, "Use a checkpoint without activation ordering.", f"{source} (0.29.0)")
    if quantization.weight_strategy != "group" or group <= 0:
        why = "per-channel integer scales are not supported without Marlin (a bare assertion)."
        return Refusal("layer", "AssertionError", why, "Use a checkpoint with group scales.", source)
    if q.sizes.hidden % group:
        text = f"CompressedTensors WNA16 MoE requires hidden_size ({q.sizes.hidden}) to be divisible by group_size ({group})."
        return Refusal("layer", text, "a scale group would be cut.", "Requantize with a smaller group.", source)
    if q.sizes.inter % group:
        text = (
            "CompressedTensors WNA16 MoE with static group scales requires the MoE intermediate size per tensor-parallel "
            f"partition ({q.sizes.inter}) to be divisible by group_size ({group}). Scale groups would otherwise cross TP shard "
            "boundaries; use a compatible TP size or enable expert parallelism."
        )
        return Refusal("layer", text, "a scale group would be cut by the split.", "Use expert parallelism or another TP.", source)
    return None


SMALLEST_GROUP = 32


def _group_cannot_shrink(q: Question) -> Refusal | None:
    """GPTQ and AWQ (MoeWNA16Method): the group is halved until it divides both sizes, but not below 32 (moe_wna16.py:283)."""
    quantization, hidden, inter = q.layer.quantization, q.sizes.hidden, q.sizes.inter
    if quantization.weight_strategy == "channel":
        shape = [q.ask.split.local_experts(q.layer.experts), inter * (2 if q.ask.gated else 1), -hidden]
        text = f"Trying to create tensor with negative dimension -{hidden}: {shape}"
        why = "the checkpoint has one scale per output channel (group_size -1), by which vLLM divides the hidden size."
        where = f"{_QUANT}/moe_wna16.py:323 (0.33.0)"
        return Refusal("layer", text, why, "Use a checkpoint with group scales.", where)
    group = first = quantization.group_size or 0
    while group and (inter % group or hidden % group):
        group //= 2
        if group < SMALLEST_GROUP:
            why = (
                f"vLLM halves the scale group of {first} until it divides one rank's width {inter} and the hidden size {hidden}, and "
                f"asserts that at least {SMALLEST_GROUP} is left."
            )
            remedy = "Use a smaller tensor parallel size, or expert parallelism, which leaves the width whole."
            return Refusal("layer", "AssertionError", why, remedy, f"{_QUANT}/moe_wna16.py:286 (0.33.0)")
    return None


# ---- NVFP4 (oracle/nvfp4.py) ----

_NVFP4_NAMES = (
    "b12x", "cutlass", "flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_moe_ep_cutedsl",
    "flashinfer_b12x", "marlin", "humming", "emulation",
)  # fmt: skip
_NVFP4_EMULATION = Backend("EMULATION", (NVFP4_EMULATION,))


def nvfp4(q: Question) -> Choice:
    """NVFP4 has no kernel on ROCm: every layer ends in emulation, or in an error when another backend is named."""
    quantization = q.layer.quantization
    method = {"compressed-tensors": "CompressedTensorsW4A4Nvfp4MoEMethod", "quark": "QuarkNvfp4MoEMethod"}.get(
        quantization.method or "", "ModelOptNvFp4FusedMoE"
    )
    source = f"{_ORACLE}/nvfp4.py:200 (0.33.0)"
    ask = q.ask
    names = nvfp4_names(q)
    if ask.backend not in ("auto", "emulation"):
        if ask.backend not in names:
            text = f"moe_backend='{ask.backend}' is not supported for NvFP4 MoE. Expected one of {list(names)}."
            return refused(method, q.sizes, _stop(text, "NVFP4 experts have no such backend.", source))
        shown = {"cutlass": "VLLM_CUTLASS"}.get(ask.backend, ask.backend.upper())
        text = f"NvFp4 MoE backend '{shown}' does not support the deployment configuration since {_ROCM_NO}."
        return refused(method, q.sizes, _stop(text, "NVFP4 kernels are CUDA only.", source))
    lead = "NvFp4 MoE backend 'EMULATION' does not support the deployment configuration since"
    if quantization.scheme == "nvfp4_a16" and ask.backend == "emulation":
        key = f"QuantKey(u8,scale({fp8_name(ask)},static,{block(1, 16)}),scale2(f32,static,per_tensor),symmetric)"
        text = f"{lead} kernel does not support quantization scheme {key}xNone."
        return refused(method, q.sizes, _stop(text, "the emulation takes NVFP4 activations only.", source))
    if quantization.scheme == "nvfp4_a16":
        text = "No NvFp4 MoE backend supports the deployment configuration."
        why = "the emulation takes NVFP4 activations only; weight-only NVFP4 has no kernel on ROCm."
        return refused(method, q.sizes, _stop(text, why, source))
    reason = supported(_NVFP4_EMULATION, ask)
    if reason is not None:
        named = ask.backend == "emulation"
        text = f"{lead} {reason}." if named else "No NvFp4 MoE backend supports the deployment configuration."
        return refused(method, q.sizes, _stop(text, reason, source), (("EMULATION", reason),))
    why = "no NVFP4 kernel runs on ROCm: the weights are dequantized on the fly"
    return _choice(method, q, _NVFP4_EMULATION, why, (), source)._replace(bytes_per_element=0.5)


def nvfp4_names(q: Question) -> Sequence[str]:
    """The names vLLM's error lists; flashinfer_moe_ep_cutedsl joined with 0.32.0."""
    if q.ask.release.version in ("0.29.0", "0.30.0", "0.31.0"):
        return tuple(n for n in _NVFP4_NAMES if n != "flashinfer_moe_ep_cutedsl")
    return _NVFP4_NAMES


# ---- MXFP8 (oracle/mxfp8.py) ----

_MXFP8_NAMES = ("flashinfer_trtllm", "deep_gemm", "marlin", "xpu", "aiter", "triton", "humming")


def mxfp8(q: Question) -> Choice:
    """AITER's FlyDSL kernel on GPUs with MX support, else Triton's, else emulation."""
    method = {"quark": "QuarkW8A8Mxfp8MoEMethod", "compressed-tensors": "CompressedTensorsW8A8Mxfp8MoEMethod"}.get(
        q.layer.quantization.method or "", "ModelOptMxFp8FusedMoE"
    )
    source = f"{_ORACLE}/mxfp8.py (0.33.0)"
    rows = {
        "aiter": Backend("AITER_MXFP8", (aiter_mxfp8(q.ask.release),)),
        "triton": Backend("TRITON_MXFP8", (MXFP8_NATIVE,)),
        "": Backend("EMULATION", (MXFP8_EMULATION,)),
    }
    if q.ask.backend != "auto":
        name = q.ask.backend
        if name not in _MXFP8_NAMES:
            text = f"moe_backend='{name}' is not supported for MXFP8 MoE. Expected one of {list(_MXFP8_NAMES)}."
            return refused(method, q.sizes, _stop(text, "MXFP8 experts have no such backend.", source))
        backend = rows.get(name)
        reason = _ROCM_NO if backend is None else supported(backend, q.ask)
        if backend is None or reason:
            shown = backend.name if backend else {"deep_gemm": "DEEPGEMM"}.get(name, name.upper())
            text = f"No supported MXFP8 expert class for {shown}: {reason}"
            return refused(method, q.sizes, _stop(text, "the backend was asked for by name.", source))
        return _whole_mx_blocks(q, _mxfp8_done(_choice(method, q, backend, f"asked for by --moe-backend {name}", (), source)))
    pick = first_that_fits(list(rows.values()), q.ask)
    if pick.backend is None:
        return refused(method, q.sizes, _stop("No MXFP8 MoE backends available.", "no kernel fits.", source), pick.rejected)
    why = "first of vLLM's list that supports this layer on ROCm"
    return _whole_mx_blocks(q, _mxfp8_done(_choice(method, q, pick.backend, why, pick.rejected, source)))


def _whole_mx_blocks(q: Question, choice: Choice) -> Choice:
    """Quark's and ModelOpt's MXFP8 methods refuse a size that is no multiple of 32; compressed-tensors' asks nothing."""
    hidden, inter = q.sizes.hidden, q.sizes.inter
    if not (hidden % 32 or inter % 32) or choice.method == "CompressedTensorsW8A8Mxfp8MoEMethod":
        return choice
    where = f"{_QUANT}/modelopt.py:1320 (0.33.0)"
    text = f"MXFP8 MoE requires intermediate_size_per_partition divisible by 32, got {inter}."
    if hidden % 32:
        text = f"MXFP8 MoE requires hidden_size divisible by 32, got {hidden}."
    if choice.method == "QuarkW8A8Mxfp8MoEMethod":
        where = f"{_QUANT}/quark/quark_moe.py:2053 (0.33.0)"
        text = (
            f"Quark MXFP8 MoE requires hidden_size and intermediate_size_per_partition divisible by 32, got {hidden} and {inter}."
        )
    return refused(choice.method, q.sizes, Refusal("layer", text, "an MX block holds 32 values.", "Use another split.", where))


def _mxfp8_done(choice: Choice) -> Choice:
    choice = choice._replace(bytes_per_element=1.0)
    if not choice.backend.on_aiter:
        return choice
    return choice._replace(key=("per_1x32", "fp8", "fp8"), gate_mode="interleave")


# ---- int8 and Quark int4 weights with fp8 activations ----

_INT8_TRITON = Backend("TRITON", (TRITON,))


def int8(q: Question) -> Choice:
    """W8A8 int8 (oracle/int8.py): Triton; AITER is not in the list."""
    method = "QuarkW8A8Int8MoEMethod" if q.layer.quantization.method == "quark" else "CompressedTensorsW8A8Int8MoEMethod"
    source = f"{_ORACLE}/int8.py:88 (0.33.0)"
    ask = q.ask._replace(weight="QuantKey(i8,scale(f32,static,per_channel),symmetric)")
    names = ("triton", "humming")
    if q.ask.backend not in ("auto", *names):
        text = f"moe_backend='{q.ask.backend}' is not supported for Int8 MoE. Expected one of {list(names)}."
        return refused(method, q.sizes, _stop(text, "int8 experts have no such backend.", source))
    reason = _ROCM_NO if q.ask.backend == "humming" else supported(_INT8_TRITON, ask)
    if reason is not None:
        text = f"Int8 MoE backend {'HUMMING' if q.ask.backend == 'humming' else 'TRITON'} does not support the deployment "
        return refused(method, q.sizes, _stop(f"{text}configuration since {reason}.", reason, source))
    why = "vLLM's int8 experts run on Triton; AITER is not in the list"
    return _choice(method, q, _INT8_TRITON, why, (), source)._replace(bytes_per_element=1.0)


def int4_fp8(q: Question) -> Choice:
    """Quark W4A8 (int4 weights, fp8 compute): straight to AITER with per-token scales, or an assertion."""
    method, source = "QuarkW4A8Fp8MoEMethod", f"{_QUANT}/quark/quark_moe.py:1420 (0.33.0)"
    if not q.ask.aiter_moe:
        text = "W4A8 FP8 MoE requires ROCm AITER fused MoE support."
        why = "int4 weights with fp8 activations exist in AITER only."
        remedy = "Set VLLM_ROCM_USE_AITER=1 on gfx942, gfx950 or gfx1250."
        return refused(method, q.sizes, Refusal("layer", text, why, remedy, source))
    backend = BackendChoice("AITER", "Quark W4A8 calls AITER directly", (), True, source)
    return Choice(method, backend, q.sizes, key=("per_Token", "fp8", "i4x2"), bytes_per_element=0.5)


CHOOSERS: dict[str, Callable[[Question], Choice]] = {
    "mxfp8": mxfp8,
    "nvfp4": nvfp4,
    "nvfp4_a16": nvfp4,
    "int4": wna16,
    "int8_w8a16": wna16,
    "int8": int8,
    "int4_fp8": int4_fp8,
}
"""Scheme -> the function of this file that answers it."""
