"""The router in plain torch, and the comparison of a kernel's choice with it. Imported by the worker only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from moe_preflight.smoke.case import RouterSpec

TIE = 2e-5
"""Scores nearer than this (relative to the largest score or bias) are a tie: kernels use approximate exp and reciprocal."""

WEIGHT_TOLERANCE = 5e-3


def scores_of(spec: RouterSpec, logits: Tensor) -> Tensor:
    """float32 scores [tokens, experts] before any bias."""
    wide = logits.float()
    if spec.scoring == "sqrtsoftplus":
        return torch.nn.functional.softplus(wide).sqrt()
    return wide.sigmoid() if spec.scoring == "sigmoid" else wide.softmax(dim=-1)


def _choice_scores(spec: RouterSpec, logits: Tensor, bias: Tensor | None) -> Tensor:
    scores = scores_of(spec, logits)
    # The engine casts the bias to the dtype of the logits before it hands both to the kernel.
    return scores if bias is None else scores + bias.to(logits.dtype).float()


def _group_scores(spec: RouterSpec, choice: Tensor) -> Tensor:
    """[tokens, groups]: the best two of a group added up when there is a bias, else its best one (DeepSeek-V3's rule)."""
    grouped = choice.view(choice.shape[0], spec.groups, -1)
    if spec.bias:
        return grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(-1)
    return grouped.amax(-1)


def weights_for(spec: RouterSpec, logits: Tensor, ids: Tensor) -> Tensor:
    """float32 routing weights [tokens, topk] of the experts in ``ids``, scaling included."""
    weights = scores_of(spec, logits).gather(1, ids.long())
    if spec.renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * (spec.scaling_inside * spec.scaling_outside)


def route(spec: RouterSpec, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """(weights float32, ids int32), each [tokens, topk], by the textbook: groups first, then experts inside them."""
    choice = _choice_scores(spec, logits, bias)
    if spec.topk_group < spec.groups and spec.experts % spec.groups == 0:
        kept = _group_scores(spec, choice).topk(spec.topk_group, dim=-1).indices
        mask = torch.zeros(choice.shape[0], spec.groups, dtype=torch.bool, device=choice.device).scatter_(1, kept, True)
        mask = mask.repeat_interleave(spec.experts // spec.groups, dim=1)
        choice = choice.masked_fill(~mask, float("-inf"))
    ids = choice.topk(spec.topk, dim=-1).indices
    return weights_for(spec, logits, ids), ids.int()


@dataclass(frozen=True, slots=True)
class Comparison:
    """``valid``: ids in range and none twice. ``match``: the same experts up to ties. ``wrong_tokens`` of how many tokens.
    ``weight_err`` is the largest relative error of a routing weight; None when ids are not valid."""

    valid: bool
    match: bool
    wrong_tokens: int
    weight_err: float | None


def compare(spec: RouterSpec, logits: Tensor, bias: Tensor | None, weights: Tensor, ids: Tensor) -> Comparison:
    """Judge a kernel's ``weights`` and ``ids`` [tokens, topk] against the torch router, ties accounted for.

    A token is right when no expert left out scores above one taken by more than a tie, and, with groups, when every group
    used could have been among the best ``topk_group`` and every group that must be in was considered.
    """
    tokens = ids.shape[0]
    wide = ids.long()
    ordered = wide.sort(-1).values
    bad = ((wide < 0) | (wide >= spec.experts)).any(-1) | (ordered[:, 1:] == ordered[:, :-1]).any(-1)
    if bool(bad.any()):
        return Comparison(False, False, int(bad.sum()), None)
    choice = _choice_scores(spec, logits, bias)
    eps = TIE * max(1.0, float(choice.abs().max()))
    taken = torch.zeros_like(choice, dtype=torch.bool).scatter_(1, wide, True)
    eligible = torch.ones_like(taken)
    wrong = torch.zeros(tokens, dtype=torch.bool, device=ids.device)
    if spec.topk_group < spec.groups and spec.experts % spec.groups == 0:
        per = spec.experts // spec.groups
        group_scores = _group_scores(spec, choice)
        kth = group_scores.topk(spec.topk_group, dim=-1).values[:, -1:]
        used = taken.view(tokens, spec.groups, per).any(-1)
        wrong |= (used & (group_scores < kth - eps)).any(-1) | (used.sum(-1) > spec.topk_group)
        eligible = (used | (group_scores > kth + eps)).repeat_interleave(per, dim=1)
    worst_in = choice.masked_fill(~taken, float("inf")).amin(-1)
    best_out = choice.masked_fill(taken | ~eligible, float("-inf")).amax(-1)
    wrong |= best_out > worst_in + eps
    expected = weights_for(spec, logits, ids)
    error = ((weights.float() - expected).abs() / expected.abs().clamp_min(1e-6)).amax()
    weight_err = float(error) if bool(torch.isfinite(error)) else float("inf")
    return Comparison(True, not bool(wrong.any()), int(wrong.sum()), weight_err)
