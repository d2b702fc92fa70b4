"""bf16 / fp16 experts: backend and the 64 / 128 rounding (fused_moe/oracle/unquantized.py, PR #55368)."""

from __future__ import annotations

from moe_preflight.engine.choice import LAYERS, Backend, Choice, Question, Sizes, first_that_fits, refused, round_up, supported
from moe_preflight.engine.kernels import AITER_UNQUANTIZED, BATCHED_TRITON, TRITON
from moe_preflight.engine.plan import BackendChoice, Refusal

METHOD = "UnquantizedFusedMoEMethod"
_FILE = f"{LAYERS}/fused_moe/oracle/unquantized.py"

AITER = Backend("AITER", (AITER_UNQUANTIZED,), "ROCm AITER")
_TRITON = Backend("TRITON", (TRITON,))
_BATCHED = Backend("BATCHED_TRITON", (BATCHED_TRITON,))
_CUDA_ONLY = {"flashinfer_trtllm": "FlashInfer TRTLLM", "flashinfer_cutlass": "FlashInfer CUTLASS"}
_NAMED = {"triton": _TRITON, "batched_triton": _BATCHED, "aiter": AITER}
_ORDER = ("triton", "batched_triton", "flashinfer_trtllm", "flashinfer_cutlass", "aiter")


def alignment(inter: int) -> int:
    """The unit vLLM rounds a rank's width to: 64 up to 192, 128 above (aiter_moe_intermediate_alignment)."""
    return 64 if inter <= 192 else 128


def choose(q: Question) -> Choice:
    """Backend and sizes of a layer without quantization (select_unquantized_moe_backend, line 209)."""
    ask = q.ask
    if ask.lora:
        return _chosen(q, _TRITON, "LoRA is on: vLLM takes Triton before it looks at AITER", (), f"{_FILE}:220 (0.33.0)")
    if ask.split.uses_all2all and ask.split.all2all == "moonep":
        text = (
            "Unquantized MoE backend MOONEP does not support the deployment configuration since kernel does not support current "
        )
        return _error(q, "ValueError", f"{text}device rocm.", (), f"{_FILE}:252 (0.33.0)")
    auto = ("auto", "humming", "marlin") if ask.release.marlin_falls_to_auto else ("auto", "humming")
    if ask.backend not in auto:
        return _explicit(q)
    rejected: tuple[tuple[str, str], ...] = ()
    candidates = [AITER, _TRITON, _BATCHED]
    if ask.env.is_set("VLLM_ROCM_USE_AITER") or ask.env.is_set("VLLM_ROCM_USE_AITER_MOE"):
        candidates = [_TRITON, _BATCHED]
        if not ask.env.aiter_moe:
            rejected = (("AITER", "AITER's MoE is switched off by environment"),)
        elif ask.gfx in ("gfx1200", "gfx1201"):
            rejected = (("AITER", f"{ask.gfx} is RDNA4: AITER's MoE is skipped"),)
        else:
            reason = supported(AITER, ask)
            if reason is None:
                return _chosen(q, AITER, "asked for by VLLM_ROCM_USE_AITER and supported", (), f"{_FILE}:280 (0.33.0)")
            if not ask.release.unquantized_fallback:
                return _error(q, "ValueError", _unsupported(AITER, reason), rejected, f"{_FILE}:264 ({ask.release.version})")
            rejected = (("AITER", reason),)
    pick = first_that_fits(candidates, ask, rejected)
    if pick.backend is None:
        text = "No Unquantized MoE backend supports the deployment configuration."
        return _error(q, "NotImplementedError", text, pick.rejected, f"{_FILE}:321 (0.33.0)")
    why = "first of vLLM's list on ROCm that supports this layer"
    return _chosen(q, pick.backend, why, pick.rejected, f"{_FILE}:310 (0.33.0)")


def _explicit(q: Question) -> Choice:
    name = q.ask.backend
    if name not in _ORDER:
        text = f"moe_backend='{name}' is not supported for unquantized MoE. Expected one of {list(_ORDER)}."
        return _error(q, "ValueError", text, (), f"{_FILE}:181 (0.33.0)")
    if name in _CUDA_ONLY:
        text = (
            f"Unquantized MoE backend {_CUDA_ONLY[name]} does not support the deployment configuration since kernel does not "
            "support current device rocm."
        )
        return _error(q, "ValueError", text, (), f"{_FILE}:246 (0.33.0)")
    backend = _NAMED[name]
    if name == "triton" and q.ask.split.batched:
        backend = _BATCHED
    # batched_triton by name brings its own activation format, with or without a batched all2all (line 259).
    reason = supported(backend, q.ask._replace(batched_by_name=name == "batched_triton"))
    if reason is not None:
        return _error(q, "ValueError", _unsupported(backend, reason), (), f"{_FILE}:246 (0.33.0)")
    return _chosen(q, backend, f"asked for by --moe-backend {name}", (), f"{_FILE}:261 (0.33.0)")


def _unsupported(backend: Backend, reason: str) -> str:
    return f"Unquantized MoE backend {backend.shown} does not support the deployment configuration since {reason}."


def _error(q: Question, kind: str, text: str, rejected: tuple[tuple[str, str], ...], source: str) -> Choice:
    why = f"vLLM raises {kind} while it chooses a backend for the experts."
    remedy = "Leave --moe-backend at auto, or switch AITER's MoE off (VLLM_ROCM_USE_AITER_MOE=0)."
    return refused(METHOD, q.sizes, Refusal("layer", text, why, remedy, source), rejected)


def _chosen(q: Question, backend: Backend, why: str, rejected: tuple[tuple[str, str], ...], source: str) -> Choice:
    choice = Choice(METHOD, BackendChoice(backend.name, why, rejected, backend.on_aiter, source), q.sizes)
    if not backend.on_aiter:
        return choice
    choice = choice._replace(key=("No", q.dtype, q.dtype))
    if not q.ask.release.unquantized_roundup:
        return choice
    unit = alignment(q.sizes.inter)
    padded = round_up(q.sizes.inter, unit)
    sizes = Sizes(q.sizes.hidden, q.sizes.inter, q.sizes.hidden, padded, unit)
    return choice._replace(sizes=sizes, zero_filled_by=ZEROED if padded > q.sizes.inter else None)


ZEROED = (
    "vLLM zeroes the tail of w13 and w2 after loading and before the shuffle, on every load "
    "(_zero_intermediate_padding, oracle/unquantized.py)"
)
