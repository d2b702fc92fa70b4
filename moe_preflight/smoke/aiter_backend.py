"""AITER for real: its router kernels, its weight layout, its fused_moe, called as the engine calls them. Imported by the worker
only, after isolate.prepare()."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from typing import Any

import torch
from torch import Tensor

from moe_preflight.smoke.aiter_call import ACTIVATION_TYPES, QUANT_TYPES, Bound, bind
from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.weights import DTYPES, Stacked

LAYOUT = (16, 16)
MAX_LOG = 400


class CannotLaunch(Exception):
    """This AITER cannot be asked for this case; the text says why."""


class _Recorder(logging.Handler):
    """Keeps AITER's log lines, whatever else is done with them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.lines) < MAX_LOG:
            self.lines.append(record.getMessage()[:4000])


class AiterBackend:
    """route() and launch(). ``log`` holds AITER's lines since the import, ``notes`` what is worth telling about the call."""

    def __init__(self, case: SmokeCase) -> None:
        if case.scheme == "mxfp4" and case.activation != "situv2":
            # vLLM sets this itself for interleaved W4A16 weights (oracle/mxfp4.py); AITER reads it at each call.
            os.environ["AITER_BF16_FP8_MOE_BOUND"] = "0"
        self._aiter = importlib.import_module("aiter")
        self._fused_moe = importlib.import_module("aiter.fused_moe").fused_moe
        self._recorder = _Recorder()
        logger = logging.getLogger("aiter")
        logger.addHandler(self._recorder)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
        self._case = case
        self.notes: list[str] = []
        self.kernels: list[str] = []
        self._quant = self._enum("QuantType", *QUANT_TYPES[case.scheme])
        if case.activation not in ACTIVATION_TYPES:
            raise CannotLaunch(f"AITER's fused_moe has no activation {case.activation}")
        self._act = self._enum("ActivationType", *ACTIVATION_TYPES[case.activation])

    @property
    def log(self) -> list[str]:
        return self._recorder.lines

    def _enum(self, kind: str, name: str, number: int) -> Any:
        """The member as the engine makes it, from a number; refused when that number means something else here."""
        enum = getattr(self._aiter, kind)
        try:
            member = enum(number)
        except (ValueError, TypeError):
            member = None
        own = getattr(member, "name", str(member).rpartition(".")[2])
        if member is None or own != name:
            raise CannotLaunch(f"this AITER has no {kind}.{name} = {number}")
        return member

    def route(self, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """(weights float32, ids int32) by the kernel the engine would ask, scaling_outside applied."""
        spec, tokens = self._case.router, logits.shape[0]
        weights = torch.empty(tokens, spec.topk, dtype=torch.float32, device=logits.device)
        ids = torch.empty(tokens, spec.topk, dtype=torch.int32, device=logits.device)
        groups = (spec.groups, spec.topk_group, spec.renormalize)
        if spec.kernel == "biased_grouped_topk":
            if bias is None:
                raise CannotLaunch("biased_grouped_topk needs a selection bias")
            self._aiter.biased_grouped_topk(logits, bias.to(logits.dtype), weights, ids, *groups, spec.scaling_inside)
        elif spec.kernel == "grouped_topk":
            self._aiter.grouped_topk(logits, weights, ids, *groups, spec.scoring == "softmax", spec.scaling_inside)
        elif spec.kernel == "topk_softmax":
            self._topk_softmax(weights, ids, logits)
        elif spec.kernel == "topk_sigmoid":
            self._aiter.topk_sigmoid(weights, ids, logits)  # no renormalize here, in the engine neither
        elif spec.kernel == "topk_gating":
            gating = getattr(importlib.import_module("aiter.ops.topk"), "topk_gating", None)
            if gating is None:
                raise CannotLaunch("this AITER has no topk_gating (it came with v0.1.14)")
            gating(
                weights,
                ids,
                logits,
                correction_bias=None,
                need_renorm=spec.renormalize,
                routed_scaling_factor=1.0,
                score_func="softmax",
            )
        else:
            raise CannotLaunch(f"router {spec.kernel} is not an AITER kernel")
        return weights * spec.scaling_outside, ids

    def _topk_softmax(self, weights: Tensor, ids: Tensor, logits: Tensor) -> None:
        """vLLM passes seven arguments; releases up to v0.1.11 take five."""
        call, scratch = self._aiter.topk_softmax, torch.empty_like(ids)
        args: tuple[Any, ...] = (weights, ids, scratch, logits, self._case.router.renormalize)
        try:
            takes = len(inspect.signature(call).parameters)
        except (TypeError, ValueError):
            takes = 7
        if takes >= 7:
            args += (0, "")
        elif self._case.engine == "vllm":
            self.notes.append("topk_softmax here takes five arguments; vLLM passes seven and would stop with a TypeError")
        call(*args)

    def prepare(self, stacked: Stacked) -> Stacked:
        """Shuffle in place of the plain weights, one at a time, as the engine does after loading."""
        ops = importlib.import_module("aiter.ops.shuffle")
        scheme = self._case.scheme
        if scheme == "mxfp4":
            return self._prepare_w4a16(ops, stacked)
        fp4 = scheme == "mxfp4_a4"
        for name in ("w13", "w2"):
            plain = getattr(stacked, name)
            shuffled = ops.shuffle_weight(_as_fp4(plain) if fp4 else plain, layout=LAYOUT)
            shuffled.is_shuffled = True
            setattr(stacked, name, shuffled)
            if fp4:
                scale = getattr(stacked, f"{name}_scale")
                rows = _as_e8m0(scale).reshape(-1, scale.shape[-1])
                swizzled = importlib.import_module("aiter.utility.fp4_utils").e8m0_shuffle(rows)
                fits = swizzled.numel() == scale.numel()
                setattr(stacked, f"{name}_scale", swizzled.view(scale.shape) if fits else swizzled)
        return stacked

    def _prepare_w4a16(self, ops: Any, stacked: Stacked) -> Stacked:
        """vLLM's two layouts for bf16 activations and MXFP4 weights: gpt-oss (swiglu) and the generic one."""
        case = self._case
        w13, w2 = _as_fp4(stacked.w13), _as_fp4(stacked.w2)
        assert stacked.w13_scale is not None
        assert stacked.w2_scale is not None
        s13, s2 = (_as_e8m0(s).reshape(-1, s.shape[-1]) for s in (stacked.w13_scale, stacked.w2_scale))
        interleave = case.gate_mode != "separated"
        generic = "is_guinterleave" in inspect.signature(ops.shuffle_weight).parameters and hasattr(ops, "shuffle_scale")
        if case.activation == "swiglu" or not generic:
            stacked.w13, stacked.w2 = ops.shuffle_weight_a16w4(w13, 16, interleave), ops.shuffle_weight_a16w4(w2, 16, False)
            stacked.w13_scale = ops.shuffle_scale_a16w4(s13, case.experts, interleave)
            stacked.w2_scale = ops.shuffle_scale_a16w4(s2, case.experts, False)
        else:
            stacked.w13 = ops.shuffle_weight(w13, is_guinterleave=interleave, gate_up=True)
            stacked.w2 = ops.shuffle_weight(w2, is_guinterleave=interleave, gate_up=False)
            stacked.w13_scale = ops.shuffle_scale(s13, case.experts, interleave, True)
            stacked.w2_scale = ops.shuffle_scale(s2, case.experts, interleave, False)
        for weight in (stacked.w13, stacked.w2):
            weight.is_shuffled = True  # type: ignore[attr-defined]
        return stacked

    def bound(self, stacked: Stacked, hidden: Tensor, weights: Tensor, ids: Tensor, *, padded: bool = True) -> Bound:
        """The engine's call, fitted to this release's signature."""
        case = self._case
        return bind(self._fused_moe, case, {
            "hidden_states": hidden, "w1": stacked.w13, "w2": stacked.w2,
            "topk_weight": weights.float(), "topk_ids": ids.int(), "expert_mask": self._mask(hidden.device),
            "activation": self._act, "quant_type": self._quant, "doweight_stage1": case.doweight_stage1,
            "w1_scale": stacked.w13_scale, "w2_scale": stacked.w2_scale, "a1_scale": None, "a2_scale": None,
            "num_local_tokens": None, "dtype": DTYPES[case.dtype],
            "hidden_pad": case.hidden_pad if padded else 0, "intermediate_pad": case.intermediate_pad if padded else 0,
            "bias1": stacked.bias13 if case.bias_passed else None, "bias2": stacked.bias2 if case.bias_passed else None,
            "moe_sorting_dispatch_policy": 0, "swiglu_limit": case.swiglu_limit, "gate_mode": case.gate_mode,
            "beta": None, "linear_beta": None,
        })  # fmt: skip

    def launch(self, stacked: Stacked, hidden: Tensor, weights: Tensor, ids: Tensor, *, padded: bool = True) -> Tensor:
        """[tokens, model_dim_padded]. Raises CannotLaunch when the signature does not take the engine's call."""
        call = self.bound(stacked, hidden, weights, ids, padded=padded)
        if call.problem:
            raise CannotLaunch(call.problem)
        if call.unknown:
            note = f"fused_moe here has no parameter {', '.join(call.unknown)}; left out, its value asks for nothing"
            if note not in self.notes:
                self.notes.append(note)
        out: Tensor = self._fused_moe(*call.args, **call.kwargs)
        return out

    def _mask(self, device: torch.device) -> Tensor | None:
        """vLLM's EP mask: int32 over global experts, shared ones and a last fake one that is always 0; this is rank 0."""
        case = self._case
        if not case.is_ep:
            return None
        mask = torch.zeros(case.router.experts + case.num_shared_fused + 1, dtype=torch.int32, device=device)
        mask[: case.experts - case.num_shared_fused] = 1
        mask[case.router.experts : case.router.experts + case.num_shared_fused] = 1
        return mask


def _as_fp4(data: Tensor) -> Tensor:
    return data.view(getattr(torch, "float4_e2m1fn_x2", torch.uint8))


def _as_e8m0(scale: Tensor) -> Tensor:
    return scale.view(getattr(torch, "float8_e8m0fnu", torch.uint8))
