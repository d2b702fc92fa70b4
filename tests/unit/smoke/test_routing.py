from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'moe-preflight[smoke]')")

from moe_preflight.smoke.case import RouterSpec  # noqa: E402
from moe_preflight.smoke.routing import WEIGHT_TOLERANCE, compare, route, scores_of  # noqa: E402

pytestmark = pytest.mark.torch

DEEPSEEK = RouterSpec("biased_grouped_topk", 256, 8, 8, 4, scoring="sigmoid", bias=True, scaling_inside=2.5)
K2 = RouterSpec("biased_grouped_topk", 192, 8, 8, 8, scoring="sigmoid", bias=True, scaling_outside=2.5)
SPECS = [
    DEEPSEEK, K2, replace(K2, experts=96), replace(K2, experts=64, groups=2, topk_group=1),
    RouterSpec("grouped_topk", 160, 6, 8, 3), RouterSpec("topk_softmax", 128, 8), RouterSpec("topk_softmax", 60, 4, renormalize=False),
    RouterSpec("torch", 384, 6, scoring="sqrtsoftplus", bias=True, scaling_outside=1.5),
]  # fmt: skip
ids_of = pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.kernel}-{s.experts}-{s.groups}-{s.topk_group}")


def drawn(spec: RouterSpec, tokens: int = 200, seed: int = 0) -> tuple:  # type: ignore[type-arg]
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, spec.experts, generator=gen).to(torch.bfloat16)
    return logits, torch.randn(spec.experts, generator=gen) * 0.1 if spec.bias else None


def by_hand(spec: RouterSpec, logits, bias, token: int) -> set[int]:  # type: ignore[no-untyped-def]
    """The textbook, in Python floats."""
    scores = scores_of(spec, logits)[token].tolist()
    choice = [s + (float(bias.to(logits.dtype)[e]) if bias is not None else 0.0) for e, s in enumerate(scores)]
    per = spec.experts // spec.groups
    groups = [sorted(choice[g * per : (g + 1) * per], reverse=True) for g in range(spec.groups)]
    value = [sum(g[:2]) if spec.bias else g[0] for g in groups]
    kept = sorted(range(spec.groups), key=lambda g: -value[g])[: spec.topk_group]
    allowed = [e for e in range(spec.experts) if e // per in kept]
    return set(sorted(allowed, key=lambda e: -choice[e])[: spec.topk])


@ids_of
def test_route_is_the_textbook(spec: RouterSpec) -> None:
    spec = replace(spec, logits_dtype="fp32")
    logits, bias = drawn(spec)
    logits = logits.float() + torch.rand(logits.shape, generator=torch.Generator().manual_seed(9)) * 1e-2
    weights, ids = route(spec, logits, bias)
    for token in range(0, 200, 17):
        assert set(ids[token].tolist()) == by_hand(spec, logits, bias, token)
    if spec.renormalize:
        torch.testing.assert_close(weights.sum(-1), torch.full((200,), spec.scaling_inside * spec.scaling_outside))


@ids_of
def test_a_router_agrees_with_itself_in_any_order(spec: RouterSpec) -> None:
    logits, bias = drawn(spec)
    weights, ids = route(spec, logits, bias)
    found = compare(spec, logits, bias, weights.flip(1), ids.flip(1))
    assert found.match
    assert found.weight_err is not None
    assert found.weight_err <= WEIGHT_TOLERANCE


@ids_of
def test_another_expert_is_seen(spec: RouterSpec) -> None:
    logits, bias = drawn(spec)
    weights, ids = route(spec, logits, bias)
    worst = scores_of(spec, logits).argmin(-1).int()
    ids[50, -1] = worst[50]
    found = compare(spec, logits, bias, weights, ids)
    assert (found.valid, found.match, found.wrong_tokens) == (True, False, 1)


def test_keeping_every_group_is_the_ungrouped_choice() -> None:
    for experts in (192, 96, 160, 72):
        spec = replace(K2, experts=experts)
        logits, bias = drawn(spec, tokens=500)
        weights, ids = route(replace(spec, groups=1, topk_group=1), logits, bias)
        assert compare(spec, logits, bias, weights, ids).match


def test_ties_may_fall_either_way() -> None:
    spec = RouterSpec("topk_softmax", 8, 2)
    logits = torch.tensor([[3.0, 1.0, 1.0, 0, 0, 0, 0, 0]])
    for second in (1, 2):
        ids = torch.tensor([[0, second]], dtype=torch.int32)
        weights = scores_of(spec, logits).gather(1, ids.long())
        assert compare(spec, logits, None, weights / weights.sum(), ids).match
    assert not compare(spec, logits, None, torch.ones(1, 2), torch.tensor([[0, 3]], dtype=torch.int32)).match


def test_group_ties_may_fall_either_way() -> None:
    spec = RouterSpec("grouped_topk", 6, 1, 3, 1)
    logits = torch.tensor([[2.0, 0.0, 2.0, 0.0, 1.0, 1.0]])
    for expert, right in ((0, True), (2, True), (4, False), (1, False)):
        ids = torch.tensor([[expert]], dtype=torch.int32)
        assert compare(spec, logits, None, torch.ones(1, 1), ids).match is right


def test_groups_scored_from_a_part_of_their_experts_are_seen() -> None:
    """ROCm/aiter#2153: with 4 groups a wave of 64 scored each group from its first lane only."""
    spec = replace(DEEPSEEK, groups=4, topk_group=2)
    logits, bias = drawn(spec)
    choice = scores_of(spec, logits) + bias.to(logits.dtype).float()
    first = choice.view(200, 4, 64)[:, :, :4].topk(2, -1).values.sum(-1).topk(2, -1).indices
    mask = torch.zeros(200, 4, dtype=torch.bool).scatter_(1, first, True).repeat_interleave(64, 1)
    ids = choice.masked_fill(~mask, float("-inf")).topk(8, -1).indices.int()
    found = compare(spec, logits, bias, torch.ones(200, 8), ids)
    assert found.valid
    assert found.wrong_tokens > 100


def test_a_forgotten_scaling_factor_is_seen() -> None:
    logits, bias = drawn(DEEPSEEK)
    weights, ids = route(DEEPSEEK, logits, bias)
    found = compare(DEEPSEEK, logits, bias, weights / 2.5, ids)
    assert found.match
    assert found.weight_err == pytest.approx(0.6, rel=1e-3)


@pytest.mark.parametrize("bad", [-1, 192, 2**31 - 1, "twice"])
def test_ids_that_cannot_be_launched(bad: object) -> None:
    logits, bias = drawn(K2)
    weights, ids = route(K2, logits, bias)
    ids[3, 0] = ids[3, 1] if bad == "twice" else bad
    found = compare(K2, logits, bias, weights, ids)
    assert (found.valid, found.match, found.wrong_tokens, found.weight_err) == (False, False, 1, None)


def test_a_nan_weight_is_without_bound() -> None:
    logits, bias = drawn(K2)
    weights, ids = route(K2, logits, bias)
    weights[0, 0] = float("nan")
    assert compare(K2, logits, bias, weights, ids).weight_err == float("inf")
