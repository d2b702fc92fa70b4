"""The same launch in plain torch: grouped GEMM where this build has it, else expert by expert. Imported by the worker only.

It proves the padding and the loading, on any device, and says nothing about AITER's kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.memory import CHUNK
from moe_preflight.smoke.quantize import Matrix, dequantize
from moe_preflight.smoke.reference import activate
from moe_preflight.smoke.weights import DTYPES, Stacked

GroupedMm = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(rows [m, k], weights [e, k, n], int32 ends [e]) -> [m, n]."""

_KINDS = {
    "none": "plain",
    "fp8_tensor": "tensor",
    "fp8_channel": "channel",
    "fp8_block": "block",
    "mxfp4": "mx",
    "mxfp4_a4": "mx",
}


def grouped_mm(device: torch.device, dtype: torch.dtype) -> tuple[str, GroupedMm] | None:
    """This build's grouped GEMM and its name, tried on a tiny problem; None when it has none for this device and dtype."""
    if (public := getattr(torch.nn.functional, "grouped_mm", None)) is not None:
        name, call = "torch.nn.functional.grouped_mm", public
    elif (private := getattr(torch, "_grouped_mm", None)) is not None:
        name, call = "torch._grouped_mm", private
    else:
        return None

    def run(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        out: Tensor = call(rows, weights, offs=ends)
        return out

    try:
        probe = run(
            torch.ones(3, 64, dtype=dtype, device=device),
            torch.ones(2, 64, 64, dtype=dtype, device=device).transpose(1, 2),
            torch.tensor([1, 3], dtype=torch.int32, device=device),
        )
        right = bool((probe == 64).all())
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return (name, run) if right else None


class TorchBackend:
    """launch() gives [tokens, model_dim_padded]. ``kernels`` names what it computes with."""

    def __init__(self, case: SmokeCase, device: torch.device) -> None:
        self._case, self._dtype = case, DTYPES[case.dtype]
        plain = case.scheme == "none" and not case.expert_bias
        self._grouped = grouped_mm(device, self._dtype) if plain else None
        self.kernels = [self._grouped[0] if self._grouped else "torch.nn.functional.linear, expert by expert"]
        self.notes: list[str] = []
        if case.scheme != "none":
            self.notes.append("torch unpacks quantized weights at every launch: its times say nothing about a kernel's")

    def launch(self, stacked: Stacked, hidden: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        case = self._case
        tokens, topk = ids.shape
        flat = self._local_ids(ids)
        order = flat.argsort(stable=True)
        if case.is_ep:
            order = order[int((flat < 0).sum()) :]  # ids of other ranks (-1) sort first
        experts = torch.arange(case.experts, device=flat.device)
        ends = torch.searchsorted(flat[order], experts, right=True).to(torch.int32)
        rows = torch.div(order, topk, rounding_mode="floor")
        scale = weights.reshape(-1)[order].to(torch.float32)[:, None]
        x = hidden[rows]
        y = self._experts(stacked, x, ends, scale if case.doweight_stage1 else None)
        scale = torch.ones_like(scale) if case.doweight_stage1 else scale
        if not case.deterministic:
            summed = torch.zeros(tokens, y.shape[-1], dtype=torch.float32, device=y.device)
            return summed.index_add_(0, rows, y.float() * scale).to(self._dtype)
        return _combine_in_order(y, scale, order, tokens, topk).to(self._dtype)

    def _local_ids(self, ids: Tensor) -> Tensor:
        """int64 [tokens x topk]: this rank's expert indexes, -1 for an expert of another rank."""
        case = self._case
        flat = ids.reshape(-1).long()
        local = case.experts - case.num_shared_fused
        shared = flat - case.router.experts + local
        return torch.where(flat < local, flat, torch.where((flat >= case.router.experts) & (shared < case.experts), shared, -1))

    def _experts(self, stacked: Stacked, x: Tensor, ends: Tensor, scale: Tensor | None) -> Tensor:
        half = stacked.w13.shape[1] // 2
        if self._grouped and x.shape[0]:
            run = self._grouped[1]
            h = run(x, stacked.w13.transpose(1, 2), ends)
            a = self._activate(h, half, scale)
            return run(a, stacked.w2.transpose(1, 2), ends)
        out = torch.empty(x.shape[0], stacked.w2.shape[1], dtype=self._dtype, device=x.device)
        start = 0
        for index, end in enumerate(ends.tolist()):
            if end == start:
                continue
            part, start = slice(start, end), end
            h = x[part] @ self._plain(stacked.w13, stacked.w13_scale, index).T
            if scale is not None:
                h = (h.float() * scale[part]).to(h.dtype)
            if stacked.bias13 is not None and stacked.bias2 is not None:
                h = (h.float() + stacked.bias13[index]).to(h.dtype)
            y = self._activate(h, half, None) @ self._plain(stacked.w2, stacked.w2_scale, index).T
            out[part] = y if stacked.bias2 is None else (y.float() + stacked.bias2[index]).to(y.dtype)
        return out

    def _activate(self, h: Tensor, half: int, scale: Tensor | None) -> Tensor:
        if scale is not None:
            h = (h.float() * scale).to(h.dtype)
        return activate(self._case, h[:, :half].float(), h[:, half:].float()).to(self._dtype)

    def _plain(self, weight: Tensor, scale: Tensor | None, index: int) -> Tensor:
        if scale is None:
            return weight[index]
        return dequantize(Matrix(weight[index], scale[index], _KINDS[self._case.scheme])).to(self._dtype)


def _combine_in_order(y: Tensor, scale: Tensor, order: Tensor, tokens: int, topk: int) -> Tensor:
    """float32 [tokens, n]: each token's experts added up slot by slot, so that the same input gives the same bits."""
    place = torch.full((tokens * topk,), -1, dtype=torch.long, device=y.device)
    place[order] = torch.arange(order.numel(), device=y.device)
    place = place.view(tokens, topk)
    out = torch.zeros(tokens, y.shape[-1], dtype=torch.float32, device=y.device)
    if not order.numel():
        return out
    for start in range(0, tokens, CHUNK):
        for slot in range(topk):
            at = place[start : start + CHUNK, slot]
            safe = at.clamp_min(0)
            out[start : start + CHUNK] += torch.where((at >= 0)[:, None], y[safe].float() * scale[safe], 0.0)
    return out
