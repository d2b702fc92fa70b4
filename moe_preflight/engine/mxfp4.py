"""MXFP4 (and MXFP6) experts: three methods, two selectors, and the rounding table (fused_moe/oracle/mxfp4.py)."""

from __future__ import annotations

from collections.abc import Sequence

from moe_preflight.engine.choice import LAYERS, Backend, Choice, Question, Sizes, refused, round_up, supported
from moe_preflight.engine.experts import CDNA, Ask
from moe_preflight.engine.facts.vllm_releases import Release, at_least
from moe_preflight.engine.kernels import (
    AITER_MXFP4,
    AITER_W4A4_TRITON,
    EMULATION,
    MXFP4_DYNAMIC,
    MXFP4_STATIC,
    NVIDIA_ONLY,
    OAI_TRITON,
    OAI_TRITON_MONOLITHIC,
    OAI_TRITON_UNFUSED,
    STATIC_TENSOR,
    aiter_w4a8,
    aiter_w4a16,
    fp8_key,
)
from moe_preflight.engine.plan import BackendChoice, Note, Refusal

_FILE = f"{LAYERS}/fused_moe/oracle/mxfp4.py"
_METHOD = f"{LAYERS}/quantization/mxfp4.py"
_CT = f"{LAYERS}/quantization/compressed_tensors/compressed_tensors_moe"
NO_BACKEND = "No MXFP4 MoE backend supports the deployment configuration."

ZEROED = "vLLM allocates the weights as zeros before it loads them"
_MXFP8, _FP8_128 = "MXFP8", "FP8_128"
_CUDA: dict[str, tuple[tuple[str, str | None], ...]] = {
    "b12x": (("B12X_MXFP4_MXFP8", _MXFP8), ("B12X_MXFP4_BF16", None)),
    "deep_gemm": (("DEEPGEMM_MXFP4", _FP8_128),),
    "flashinfer_trtllm": (("FLASHINFER_TRTLLM_MXFP4_BF16", None), ("FLASHINFER_TRTLLM_MXFP4_MXFP8", _MXFP8)),
    "flashinfer_cutlass": (("FLASHINFER_CUTLASS_MXFP4_BF16", None), ("FLASHINFER_CUTLASS_MXFP4_MXFP8", _MXFP8)),
    "flashinfer_moe_ep_cutedsl": (("FLASHINFER_MOE_EP_CUTEDSL", None),),
    "flashinfer_moe_ep_mega_deep_gemm": (("FLASHINFER_MOE_EP_DEEP_GEMM", None),),
    "humming": (("HUMMING", None),),
    "marlin": (("MARLIN", None),),
}
"""--moe-backend -> vLLM's backends for NVIDIA GPUs, each with the activations it stands for (map_mxfp4_backend, line 352)."""

_EXPECTED: tuple[tuple[str, str | None], ...] = (
    ("b12x", None), ("deep_gemm", None), ("flashinfer_trtllm", None), ("flashinfer_trtllm_afp8", None),
    ("flashinfer_cutlass", None), ("flashinfer_cutlass_afp8", None), ("flashinfer_moe_ep_cutedsl", "0.32.0"),
    ("flashinfer_moe_ep_mega_deep_gemm", "0.32.0"), ("triton", None), ("triton_unfused", None), ("humming", None),
    ("marlin", None), ("aiter", None), ("aiter_triton_mxfp4_bf16", "0.30.0"), ("aiter_mxfp4_fp8", None),
    ("aiter_triton_mxfp4_mxfp4", "0.33.0"), ("aiter_mxfp4_mxfp4", None), ("xpu", None), ("cpu", None), ("emulation", None),
)  # fmt: skip
"""The names vLLM's error lists, in its order, with the release each came with."""


def _backends(release: Release) -> dict[str, Backend]:
    """vLLM's backends on ROCm by name. Before 0.30.0 the Triton W4A16 kernel stood behind AITER_MXFP4_BF16 as a second choice."""
    w4a16 = aiter_w4a16(release)
    split = at_least(release, "0.30.0")
    rows = [
        Backend("AITER_MXFP4_BF16", (AITER_MXFP4,) if split else (AITER_MXFP4, w4a16)),
        *([Backend("AITER_TRITON_MXFP4_BF16", (w4a16,))] if split else []),
        Backend("AITER_MXFP4_FP8", (aiter_w4a8(release),)),
        Backend("AITER_MXFP4_MXFP4", (AITER_MXFP4,)),
        *([Backend("AITER_TRITON_MXFP4_MXFP4", (AITER_W4A4_TRITON,))] if at_least(release, "0.33.0") else []),
        Backend("TRITON", (OAI_TRITON_MONOLITHIC, OAI_TRITON)),
        Backend("TRITON_UNFUSED", (OAI_TRITON_UNFUSED,)),
        Backend("EMULATION", (EMULATION,)),
        *(Backend(name, (NVIDIA_ONLY,)) for pairs in _CUDA.values() for name, _ in pairs),
    ]
    return {b.name: b for b in rows}


_AUTO = ("AITER_MXFP4_BF16", "AITER_TRITON_MXFP4_BF16", "AITER_MXFP4_FP8", "AITER_MXFP4_MXFP4", "TRITON", "EMULATION")
_ALIASES = {
    "triton": ("TRITON",),
    "triton_unfused": ("TRITON_UNFUSED",),
    "emulation": ("EMULATION",),
    "aiter_triton_mxfp4_bf16": ("AITER_TRITON_MXFP4_BF16",),
    "aiter_triton_mxfp4_mxfp4": ("AITER_TRITON_MXFP4_MXFP4",),
    "aiter": (
        "AITER_MXFP4_BF16", "AITER_TRITON_MXFP4_BF16", "AITER_MXFP4_FP8", "AITER_MXFP4_MXFP4", "AITER_TRITON_MXFP4_MXFP4",
    ),
}  # fmt: skip


_CUDA_ACTIVATIONS = {backend: activation for pairs in _CUDA.values() for backend, activation in pairs}


def _activation_of(name: str, ask: Ask) -> str | None:
    """The activation key a backend stands for; None is bf16 (_backend_activation_key)."""
    if name == "AITER_MXFP4_FP8":
        return fp8_key(ask, STATIC_TENSOR)
    if name in ("AITER_MXFP4_MXFP4", "AITER_TRITON_MXFP4_MXFP4"):
        return MXFP4_DYNAMIC
    return _CUDA_ACTIVATIONS.get(name)


def choose(q: Question) -> Choice:
    """The method a checkpoint's MXFP4 experts get, and its answer."""
    method = q.layer.quantization.method
    if method == "quark":
        return _quark(q._replace(ask=q.ask._replace(quark=True)))
    rewritten = q.block == "kimi_k3"  # its config class turns compressed-tensors MXFP4 into plain "mxfp4" (models/config.py:514)
    if method == "compressed-tensors" and q.layer.quantization.scheme != "mxfp4_a8" and not rewritten:
        return _marlin(q)
    if q.ask.model_type == "gpt_oss" and method in ("mxfp4", None):
        return _first(q, "GptOssMxfp4MoEMethod", None, rounds_by_activation=False)
    return _generic(q)


def _generic(q: Question) -> Choice:
    """Mxfp4MoEMethod: DeepSeek-V4 fp4 experts, Kimi-K3, compressed-tensors W4A8 (select_deepseek_v4_mxfp4_moe_backend)."""
    ask, method = q.ask, "Mxfp4MoEMethod"
    if q.layer.quantization.method == "compressed-tensors" and q.block != "kimi_k3":
        method = "CompressedTensorsW4A8Mxfp4MoEMethod"
    have = _backends(ask.release)
    if ask.activation == "situ" and ask.gfx == "gfx950" and ask.aiter_moe:
        why = "Kimi-K3's SiTU experts are sent to AITER on gfx950"
        return _done(q, method, have["AITER_MXFP4_BF16"], why, (), f"{_METHOD}:487 (0.33.0)", by_activation=True)
    if ask.backend != "auto":
        names = _named(ask.backend, ask.release)
        if isinstance(names, Refusal):
            return refused(method, q.sizes, names)
        if not at_least(ask.release, "0.30.0"):
            names = [n for n in names if _activation_of(n, ask) is None] or names
        return _try(q, method, [have[n] for n in names if n in have], by_activation=True, explicit=True)
    second = "TRITON_UNFUSED" if ask.method == "DeepseekV4" else "EMULATION"
    choice = _try(q, method, [have["AITER_MXFP4_BF16"], have[second]], by_activation=True, explicit=False)
    if choice.refusal is not None and second == "EMULATION":
        text = "Where the amd-quark package is installed, vLLM starts on its EMULATION backend instead of stopping."
        return choice._replace(notes=(*choice.notes, Note("emulation-needs-quark", text, f"{_FILE}:445 (0.33.0)")))
    return choice


def _quark(q: Question) -> Choice:
    """QuarkOCP_MX_MoEMethod (quark_moe.py:1565): weight-only, static fp8, or fp4 activations; anything else is emulated."""
    scheme, method = q.layer.quantization.scheme, "QuarkOCP_MX_MoEMethod"
    if scheme == "mxfp4":
        return _first(q, method, None, rounds_by_activation=False)
    if scheme == "mxfp4_a4":
        return _first(q, method, MXFP4_DYNAMIC, rounds_by_activation=False)
    if scheme == "mxfp4_a8" and q.layer.quantization.activation_dynamic is False:
        return _first(q, method, fp8_key(q.ask, STATIC_TENSOR), rounds_by_activation=False)
    if scheme == "mxfp4_a8":
        text = (
            "QuarkOCP_MX_MoEMethod with dynamic input scales is currently not implemented for OCP MX scheme "
            "OCP_MX_Scheme.w_mxfp4_a_fp8. "
            "Please open an issue."
        )
        source = f"{LAYERS}/quantization/quark/quark_moe.py:1654 (0.33.0)"
        why = "vLLM takes fp8 activations of MXFP4 experts with static scales only."
        return refused(method, q.sizes, Refusal("layer", text, why, "Requantize with static input scales.", source))
    emulation = _backends(q.ask.release)["EMULATION"]
    why = "vLLM has no kernel for this OCP MX scheme and emulates it"
    return _done(q, method, emulation, why, (), f"{LAYERS}/quantization/quark/quark_moe.py:1667 (0.33.0)", by_activation=False)


def _marlin(q: Question) -> Choice:
    """CompressedTensorsW4A4Mxfp4MoEMethod names MarlinExperts without asking anybody; Marlin is CUDA only."""
    source = f"{_CT}/compressed_tensors_moe_w4a4_mxfp4.py:77 (0.33.0)"
    why = "compressed-tensors MXFP4 is bound to Marlin, whose kernels are not in a ROCm build; loading the weights fails."
    remedy = "Use a Quark MXFP4 checkpoint, or another quantization."
    stop = Refusal("load", "kernel does not support current device rocm", why, remedy, source)
    backend = BackendChoice("MARLIN", "hard-coded for compressed-tensors MXFP4", (), False, source)
    return Choice("CompressedTensorsW4A4Mxfp4MoEMethod", backend, q.sizes, refusal=stop, bytes_per_element=0.5)


def _first(q: Question, method: str, requested: str | None, *, rounds_by_activation: bool) -> Choice:
    """select_mxfp4_moe_backend: backends of the requested activation first, then bf16 ones."""
    ask = q.ask
    have = _backends(ask.release)
    if ask.backend != "auto":
        names = _named(ask.backend, ask.release)
        if isinstance(names, Refusal):
            return refused(method, q.sizes, names)
        picked = _filtered(names, requested, ask)
        if not picked:
            text = f"moe_backend={ask.backend!r} does not support activation={requested}"
            return refused(method, q.sizes, _stop("ValueError", text))
        return _try(q, method, [have[n] for n in picked if n in have], rounds_by_activation, explicit=True, requested=requested)
    if _needs_emulation(q, requested):
        why = "vLLM emulates this very shape (512 experts, 2560 x 640, EP 8): the native kernel is not accurate enough there"
        return _done(q, method, have["EMULATION"], why, (), f"{_FILE}:676 (0.32.0)", by_activation=False)
    order = [have[n] for n in _filtered(_AUTO, requested, ask) if n in have]
    return _try(q, method, order, rounds_by_activation, explicit=False, requested=requested)


def _needs_emulation(q: Question, requested: str | None) -> bool:
    """_requires_qwen38_tep8_emulation, gone with 0.33.0."""
    split, layer = q.ask.split, q.layer
    shape = (layer.experts, layer.model_dim, q.intermediate_size)
    exact = split.use_ep and split.ep_size == 8 and shape == (512, 2560, 640) and requested == MXFP4_DYNAMIC
    return exact and q.ask.gfx == "gfx950" and not at_least(q.ask.release, "0.33.0")


def _filtered(names: Sequence[str], requested: str | None, ask: Ask) -> list[str]:
    plain = [n for n in names if _activation_of(n, ask) is None]
    if requested is None:
        return plain or list(names)
    matching = [n for n in names if _activation_of(n, ask) == requested or n == "EMULATION"]
    if not at_least(ask.release, "0.32.0"):
        return matching
    return matching + [n for n in plain if n not in matching]


def _named(name: str, release: Release) -> list[str] | Refusal:
    """The backends --moe-backend names, or the error for a name that is none of MXFP4's."""
    if name in _ALIASES:
        return list(_ALIASES[name])
    if name in _CUDA:
        return [backend for backend, _ in _CUDA[name]]
    expected = [known for known, since in _EXPECTED if since is None or at_least(release, since)]
    return _stop("ValueError", f"moe_backend='{name}' is not supported for MXFP4 MoE. Expected one of {expected}.")


def _try(
    q: Question, method: str, order: Sequence[Backend], by_activation: bool, *, explicit: bool, requested: str | None = None
) -> Choice:
    rejected: tuple[tuple[str, str], ...] = ()
    for backend in order:
        key = requested if backend.name == "EMULATION" else _activation_of(backend.name, q.ask)
        reason = supported(backend, q.ask._replace(weight=MXFP4_STATIC, activation_key=key))
        if reason is None:
            why = f"asked for by --moe-backend {q.ask.backend}" if explicit else "first of vLLM's list that supports this layer"
            return _done(q, method, backend, why, rejected, f"{_FILE}:600 (0.33.0)", by_activation=by_activation)
        rejected = (*rejected, (backend.name, reason))
    if explicit and rejected:
        name, reason = rejected[-1]
        text = f"Mxfp4 MoE backend '{name}' does not support the deployment configuration since {reason}."
        return refused(method, q.sizes, _stop("ValueError", text), rejected)
    return refused(method, q.sizes, _stop("NotImplementedError", NO_BACKEND), rejected)


def _stop(kind: str, text: str) -> Refusal:
    why = f"vLLM raises {kind} while it chooses a backend for the MXFP4 experts."
    remedy = "Leave --moe-backend at auto, or use a GPU with MXFP4 kernels (gfx950)."
    return Refusal("layer", text, why, remedy, f"{_FILE}:600 (0.33.0)")


def alignment(backend: str, activation: str | None, gfx: str, release: Release) -> tuple[int, int]:
    """(inter_dim unit, model_dim unit) of mxfp4_round_up_hidden_size_and_intermediate_size (line 720)."""
    if backend == "EMULATION":
        return 32, 32
    narrow = activation in ("situ", "silu")
    if backend == "AITER_MXFP4_MXFP4":
        return release.w4a4_alignment, 256
    if backend == "AITER_MXFP4_BF16" and narrow:
        return 128, 128
    if backend == "TRITON_UNFUSED" and narrow and CDNA.get(gfx, 0) != 4 and at_least(release, "0.31.0"):
        return 128, 128
    return 256, 256


def _done(
    q: Question,
    method: str,
    backend: Backend,
    why: str,
    rejected: tuple[tuple[str, str], ...],
    source: str,
    *,
    by_activation: bool,
) -> Choice:
    unit, hidden_unit = alignment(backend.name, q.ask.activation if by_activation else None, q.ask.gfx, q.ask.release)
    inter, hidden = round_up(q.sizes.inter, unit), round_up(q.sizes.hidden, hidden_unit)
    # AITER_TRITON_* and AITER_MXFP4_FP8 are aiter's Triton GEMMs, not fused_moe.
    on_aiter = backend.kernels[0] is AITER_MXFP4 and supported(Backend(backend.name, (AITER_MXFP4,)), _keyed(q, backend)) is None
    w4a4 = backend.name == "AITER_MXFP4_MXFP4"
    return Choice(
        method,
        BackendChoice(backend.name, why, rejected, on_aiter, source),
        Sizes(q.sizes.hidden, q.sizes.inter, hidden, inter, unit),
        key=("per_1x32", _activation_dtype(q, w4a4), "fp4x2") if on_aiter else None,
        gate_mode="interleave" if on_aiter and _interleaved(q, w4a4) else "separated",
        zero_filled_by=ZEROED if inter > q.sizes.inter or hidden > q.sizes.hidden else None,
        bytes_per_element=0.75 if q.layer.quantization.scheme == "mxfp6" else 0.5,
        w4a4=w4a4,
        bias_passed=not w4a4,
        notes=_known_gaps(q, backend) if on_aiter else (),
        aiter_env=_sets(q, method) if on_aiter else (),
    )


def _sets(q: Question, method: str) -> tuple[tuple[str, str], ...]:
    """What vLLM itself puts into the environment that AITER's choice of the activation type reads.

    Mxfp4MoEMethod keeps AITER from bf16 activations in small batches (oracle/mxfp4.py:1822; :1569 in 0.29.0). SiTU's two
    variables follow VLLM_ROCM_USE_AITER_MOE_SITUV2 from 0.31.0 (_aiter_ops.py:2102).
    """
    if method != "Mxfp4MoEMethod":
        return ()
    if q.ask.activation != "situ":
        return (("AITER_BF16_FP8_MOE_BOUND", "0"),)
    if not at_least(q.ask.release, "0.31.0"):
        return ()
    chosen = situ_activation(q)
    return tuple((f"AITER_SITUV2_{name.upper()}", "1" if name == chosen else "0") for name in ("a4w4", "a8w4"))


def _keyed(q: Question, backend: Backend) -> Ask:
    return q.ask._replace(weight=MXFP4_STATIC, activation_key=_activation_of(backend.name, q.ask))


def situ_activation(q: Question) -> str:
    """a4w4, a8w4 or a16w4: what VLLM_ROCM_USE_AITER_MOE_SITUV2 resolves to (_aiter_ops.py:2089); a16w4 before 0.31.0."""
    env, release = q.ask.env, q.ask.release
    if not at_least(release, "0.31.0"):
        return "a8w4" if env.flag("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4") else "a16w4"
    value = env.text("VLLM_ROCM_USE_AITER_MOE_SITUV2", "auto").lower()
    return {"auto": "a4w4", "1": "a4w4", "0": "a16w4"}.get(value, value)


def _activation_dtype(q: Question, w4a4: bool) -> str | None:
    """q_dtype_a where vLLM fixes it; None leaves it to AITER's own rule, which looks at gfx, activation and tokens."""
    if q.ask.activation == "situ" and not w4a4:
        return {"a4w4": "fp4x2", "a8w4": "fp8", "a16w4": "bf16"}[situ_activation(q)]
    if q.block == "deepseek_v4" and q.ask.env.number("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4"):
        return "fp4x2"
    return None


def _interleaved(q: Question, w4a4: bool) -> bool:
    """gate_mode of the call (rocm_aiter_moe.py:418)."""
    if q.ask.activation == "situ":
        return situ_activation(q) == "a8w4"
    if w4a4:
        return False
    return not (q.block == "deepseek_v4" and q.ask.env.number("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4"))


def _known_gaps(q: Question, backend: Backend) -> tuple[Note, ...]:
    """Combinations the gates let through although vLLM's own tests skip them (tests/kernels/moe, 0.33.0)."""
    notes: list[Note] = []
    tests = "vllm tests/kernels/moe/modular_kernel_tools/common.py (0.33.0)"
    if backend.name == "AITER_MXFP4_BF16" and q.ask.activation == "swigluoai" and not q.layer.expert_bias:
        text = "MXFP4 W4A16 with swigluoai and no expert bias gives wrong numbers without an error (vLLM PR 59766)."
        notes.append(Note("w4a16-without-bias-wrong", text, tests))
    if backend.name == "AITER_MXFP4_BF16" and q.layer.weight_on_input:
        text = "MXFP4 W4A16 with the router weight on the input was seen to hang or fault the GPU at top-1 (AITER issue 2418)."
        notes.append(Note("w4a16-top1-hangs", text, tests))
    return tuple(notes)
