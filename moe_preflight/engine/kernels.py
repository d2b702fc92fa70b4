"""The expert kernels vLLM can choose on ROCm, as rows (fused_moe/experts/*.py; the files of 0.29 - 0.33 agree unless said)."""

from __future__ import annotations

from moe_preflight.engine.experts import CDNA, Ask, Kernel
from moe_preflight.engine.facts.vllm_releases import Release, at_least
from moe_preflight.engine.parallel import Split

_DIR = "vllm/model_executor/layers/fused_moe/experts"


def fp8_name(ask: Ask) -> str:
    """The abbreviation of the platform's fp8 in QuantKey texts: e4m3fnuz on gfx94x (platforms/rocm.py:1259)."""
    return "f8e4m3fnuz" if "gfx94" in ask.gfx else "f8e4m3fn"


def fp8_key(ask: Ask, scale: str) -> str:
    """A QuantKey text, as ``fp8_key(ask, "static,per_tensor")`` (quantization/utils/quant_utils.py:188)."""
    return f"QuantKey({fp8_name(ask)},scale(f32,{scale}),symmetric)"


def block(rows: int, cols: int) -> str:
    return f"GroupShape(row={rows}, col={cols})"


STATIC_TENSOR, DYNAMIC_TENSOR = "static,per_tensor", "dynamic,per_tensor"
STATIC_CHANNEL, DYNAMIC_TOKEN = "static,per_channel", "dynamic,per_token"
STATIC_BLOCK, DYNAMIC_128 = f"static,{block(128, 128)}", f"dynamic,{block(1, 128)}"

MXFP4_STATIC = f"QuantKey(u8,scale(u8,static,{block(1, 32)}),symmetric)"
MXFP4_DYNAMIC = f"QuantKey(u8,scale(u8,dynamic,{block(1, 32)}),symmetric)"
MXFP8_DYNAMIC = f"QuantKey(f8e4m3fn,scale(u8,dynamic,{block(1, 32)}),symmetric)"
INT8_STATIC = "QuantKey(uint8b128,scale(f16,static,per_token),symmetric)"
INT4_STATIC_32 = f"QuantKey(int4,scale(f16,static,{block(1, 32)}),symmetric)"

_AITER_ACTIVATIONS = frozenset(("silu", "gelu", "situ", "swigluoai", "swigluoai_uninterleave"))
_APPLIED = frozenset(
    (
        "silu", "gelu", "gelu_tanh", "situ", "swigluoai", "swigluoai_uninterleave", "swiglustep", "silu_no_mul",
        "gelu_no_mul", "gelu_tanh_no_mul", "relu2_no_mul",
    )
)  # fmt: skip
_WNA16 = _APPLIED - {"situ"}
_RENORMALIZE = frozenset(("Renormalize", "RenormalizeNaive"))


def _pairs(ask: Ask, *pairs: tuple[str, str]) -> bool:
    return (ask.weight, ask.activation_key) in [(fp8_key(ask, w), fp8_key(ask, a)) for w, a in pairs]


def _plain(ask: Ask) -> bool:
    return ask.weight is None and ask.activation_key is None


def _aiter(name: str, scheme: object) -> Kernel:
    assert callable(scheme)
    return Kernel(
        name,
        f"{_DIR}/rocm_aiter_moe.py:488 (0.33.0)",
        device=lambda ask: ask.aiter_moe,
        scheme=scheme,
        activations=_AITER_ACTIVATIONS,
        on_aiter=True,
        names_switches=True,
    )


AITER_UNQUANTIZED = _aiter("AiterUnquantizedExperts", _plain)
AITER_FP8_BLOCK = _aiter("AiterFp8BlockExperts", lambda ask: _pairs(ask, (STATIC_BLOCK, DYNAMIC_128)))
AITER_FP8_TENSOR = _aiter(
    "AiterFp8TensorExperts", lambda ask: _pairs(ask, (STATIC_TENSOR, STATIC_TENSOR), (STATIC_TENSOR, DYNAMIC_TENSOR))
)
AITER_FP8_CHANNEL = _aiter("AiterFp8ChannelExperts", lambda ask: _pairs(ask, (STATIC_CHANNEL, DYNAMIC_TOKEN)))


def _aiter_mxfp4(ask: Ask) -> bool:
    if (ask.weight, ask.activation_key) == (INT4_STATIC_32, None):
        return ask.gfx == "gfx942"
    return ask.gfx == "gfx950" and ask.weight == MXFP4_STATIC and ask.activation_key in (None, MXFP4_DYNAMIC)


AITER_MXFP4 = _aiter("AiterMxfp4Experts", _aiter_mxfp4)


def aiter_fp8(release: Release) -> tuple[Kernel, ...]:
    """AITER's kernels for fp8 in the order they are asked: three classes from 0.33.0, one AiterExperts before (:446, 0.32.0),
    which shows in the objection that vLLM reports."""
    apart = (AITER_FP8_BLOCK, AITER_FP8_TENSOR, AITER_FP8_CHANNEL)
    if at_least(release, "0.33.0"):
        return apart
    return (_aiter("AiterExperts", lambda ask: any(k.scheme(ask) for k in apart)),)


_FP8_PAIRS = (
    (STATIC_BLOCK, DYNAMIC_128), (STATIC_CHANNEL, DYNAMIC_TOKEN), (STATIC_TENSOR, DYNAMIC_TOKEN),
    (STATIC_TENSOR, STATIC_TENSOR), (STATIC_TENSOR, DYNAMIC_TENSOR),
)  # fmt: skip


def _computes_fp8(ask: Ask) -> bool:
    """current_platform.supports_fp8(): CDNA and RDNA4, from 0.33.0 RDNA3 too (platforms/rocm.py:1255; :1185 in 0.32.0)."""
    if ask.gfx.startswith("gfx9") or ask.gfx in ("gfx1200", "gfx1201", "gfx1250"):
        return True
    return ask.gfx.startswith(("gfx11", "gfx12")) and at_least(ask.release, "0.33.0")


def _triton(ask: Ask) -> bool:
    """TritonExperts: plain, fp8 in five pairs, and any fp8 block shape beside dynamic 1x128 activations."""
    if _plain(ask) or (ask.weight or "").startswith("QuantKey(i8"):
        return True
    if not _computes_fp8(ask):
        return False
    if _pairs(ask, *_FP8_PAIRS):
        return True
    blocks = (ask.weight or "").startswith(f"QuantKey({fp8_name(ask)},scale(f32,static,GroupShape(")
    return blocks and ask.activation_key == fp8_key(ask, DYNAMIC_128)


def _batched_triton(ask: Ask) -> bool:
    fp8 = CDNA.get(ask.gfx, 0) > 2 or ask.gfx.startswith("gfx12")
    return _plain(ask) or (fp8 and _pairs(ask, *_FP8_PAIRS))


TRITON = Kernel(
    "TritonExperts", f"{_DIR}/triton_moe.py", scheme=_triton, activations=_APPLIED, non_gated=True, batch_invariant=True,
    lora=True,
)  # fmt: skip
BATCHED_TRITON = Kernel(
    "BatchedTritonExperts", f"{_DIR}/fused_batched_moe.py", scheme=_batched_triton, activations=_APPLIED, non_gated=True,
    fits=lambda split: True, batched=True,
)  # fmt: skip
TRITON_WNA16 = Kernel(
    "TritonWNA16Experts", f"{_DIR}/triton_moe.py", activations=_WNA16, non_gated=True, batch_invariant=True, lora=True,
)  # fmt: skip
EMULATION = Kernel(
    "OCP_MXQuantizationEmulationTritonExperts", f"{_DIR}/ocp_mx_emulation_moe.py", activations=_APPLIED, non_gated=True,
    batch_invariant=True, lora=True, needs_quark=True,
)  # fmt: skip
INT4_EMULATION = Kernel(
    "Int4EmulationTritonExperts", f"{_DIR}/int4_emulation_moe.py", scheme=lambda ask: ask.weight != INT8_STATIC,
    activations=_APPLIED, non_gated=True, batch_invariant=True, lora=True,
)  # fmt: skip
NVFP4_EMULATION = Kernel(
    "Nvfp4QuantizationEmulationTritonExperts", f"{_DIR}/nvfp4_emulation_moe.py", activations=_APPLIED, non_gated=True,
    batch_invariant=True,
)  # fmt: skip


NVIDIA_ONLY = Kernel("(kernels for NVIDIA GPUs)", _DIR, device=lambda ask: False)
"""Stands for every backend that no ROCm device passes."""

RDNA3_WNA16 = Kernel(
    "Rdna3WNA16Experts", f"{_DIR}/rdna3_moe.py (0.33.0)", device=lambda ask: ask.gfx == "gfx1100" and at_least(ask.release, "0.30.0"),
    scheme=lambda ask: ask.weight != INT8_STATIC, activations=_APPLIED, non_gated=True,
)  # fmt: skip
MXFP8_EMULATION = Kernel(
    "Mxfp8EmulationTritonExperts", f"{_DIR}/mxfp8_emulation_moe.py (0.33.0)", activations=_APPLIED, non_gated=True,
    batch_invariant=True, lora=True,
)  # fmt: skip
MXFP8_NATIVE = Kernel(
    "Mxfp8NativeTritonExperts", f"{_DIR}/mxfp8_native_moe.py (0.33.0)", device=lambda ask: ask.mx, activations=_APPLIED,
    non_gated=True, batch_invariant=True, lora=True,
)  # fmt: skip


def aiter_mxfp8(release: Release) -> Kernel:
    """FlyDSL's two-stage MXFP8 GEMM. SwiGLU-OAI is hard-wired to alpha 1.702 and beta 1.0, which is what MiniMax-M3 has.
    SiLU joined with 0.33.0; before it every other activation was turned down (aiter_mxfp8_moe.py:61, 0.31.0)."""
    silu = ("silu",) if at_least(release, "0.33.0") else ()
    return Kernel(
        "AiterMxfp8Experts", f"{_DIR}/aiter_mxfp8_moe.py (0.33.0)", device=lambda ask: ask.mx and ask.aiter_moe,
        activations=_APPLIED, hardwired=(*silu, "swigluoai_uninterleave"), non_gated=True, fits=lambda split: True, lora=True,
        on_aiter=True,
    )  # fmt: skip


def _one_node(split: Split) -> bool:
    """No all2all, no load balancer, no data parallelism: the limit of vLLM's monolithic MXFP4 kernels."""
    return not split.uses_all2all and not split.eplb and split.dp <= 1


def _no_ep(split: Split) -> bool:
    return not split.use_ep and not split.eplb and split.dp <= 1


def aiter_w4a16(release: Release) -> Kernel:
    """aiter's Triton moe_gemm_a16w4 (aiter_mxfp4_w4a16_moe.py): its limits moved with almost every release."""
    methods = {"Renormalize", "RenormalizeNaive", "DeepseekV4"}
    return Kernel(
        "AiterW4A16ExpertsMonolithic", f"{_DIR}/aiter_mxfp4_w4a16_moe.py:143 (0.33.0)",
        device=_w4a16_device if at_least(release, "0.30.0") else (lambda ask: ask.aiter and ask.gfx in ("gfx950", "gfx1250")),
        scheme=lambda ask: (ask.weight, ask.activation_key) == (MXFP4_STATIC, None),
        activations=frozenset(("swigluoai", "silu")),
        fits=_one_node if release.w4a16_under_ep else _no_ep,
        methods=frozenset(methods | {"DeepSeekV3"} if at_least(release, "0.32.0") else methods),
        monolithic=True,
        hash_routing=at_least(release, "0.33.0"),
    )  # fmt: skip


def _w4a16_device(ask: Ask) -> bool:
    return ask.aiter and ask.gfx in ("gfx942", "gfx950", "gfx1250")


def aiter_w4a8(release: Release) -> Kernel:
    """aiter's Triton kernel for MXFP4 weights and static fp8 activations (aiter_mxfp4_w4a8_moe.py)."""
    return Kernel(
        "AiterW4A8ExpertsMonolithic", f"{_DIR}/aiter_mxfp4_w4a8_moe.py (0.33.0)",
        device=lambda ask: ask.aiter and ask.gfx in ("gfx950", "gfx1250"),
        scheme=lambda ask: (ask.weight, ask.activation_key) == (MXFP4_STATIC, fp8_key(ask, STATIC_TENSOR)),
        activations=frozenset(("swigluoai",)),
        fits=_no_ep if at_least(release, "0.31.0") else _one_node,
        methods=_RENORMALIZE,
        monolithic=True,
    )  # fmt: skip


AITER_W4A4_TRITON = Kernel(
    "AiterW4A4ExpertsMonolithic", f"{_DIR}/aiter_mxfp4_w4a4_moe.py (0.33.0)",
    device=lambda ask: ask.aiter and ask.gfx == "gfx1250",
    scheme=lambda ask: (ask.weight, ask.activation_key) == (MXFP4_STATIC, MXFP4_DYNAMIC),
    activations=frozenset(("swigluoai", "swigluoai_uninterleave", "silu")),
    fits=_one_node,
    methods=_RENORMALIZE | {"DeepseekV4", "DeepSeekV3", "MiniMax2"},
    monolithic=True,
    hash_routing=True,
)  # fmt: skip


def _triton_kernels(ask: Ask) -> bool:
    """on_gfx9() or on_gfx1x(): gfx90a, MI300, MI350, RDNA3 and RDNA4, but not gfx1250 (gpt_oss_triton_kernels_moe.py:41)."""
    return ask.gfx in ("gfx90a", "gfx942", "gfx950") or (ask.gfx.startswith(("gfx11", "gfx12")) and ask.gfx not in CDNA)


def _mxfp4_bf16(ask: Ask) -> bool:
    return (ask.weight, ask.activation_key) == (MXFP4_STATIC, None)


OAI_TRITON_MONOLITHIC = Kernel(
    "OAITritonMxfp4ExpertsMonolithic", f"{_DIR}/gpt_oss_triton_kernels_moe.py (0.33.0)", device=_triton_kernels,
    scheme=_mxfp4_bf16, activations=frozenset(("swigluoai",)), fits=_one_node, methods=_RENORMALIZE, monolithic=True,
)  # fmt: skip
OAI_TRITON = Kernel(
    "OAITritonExperts", f"{_DIR}/gpt_oss_triton_kernels_moe.py (0.33.0)", device=_triton_kernels, scheme=_mxfp4_bf16,
    activations=frozenset(("swigluoai",)), fits=lambda split: True,
)  # fmt: skip
OAI_TRITON_UNFUSED = Kernel(
    "UnfusedOAITritonExperts", f"{_DIR}/gpt_oss_triton_kernels_moe.py (0.33.0)", device=_triton_kernels, scheme=_mxfp4_bf16,
    activations=frozenset(("silu", "gelu", "swigluoai", "swiglustep", "swigluoai_uninterleave")), fits=lambda split: True,
    lora=True,
)  # fmt: skip
