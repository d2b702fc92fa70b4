"""``--shape experts=192,topk=8,hidden=6144,inter=1792``: a model that has no config yet."""

from __future__ import annotations

from moe_preflight.errors import UsageError
from moe_preflight.model.moe import ExpertLayer, MoEModel, Quantization
from moe_preflight.model.quantization.flags import from_flag

_NUMBERS = {
    "experts": (1, 1 << 16), "topk": (1, 1 << 16), "hidden": (1, 1 << 22), "inter": (1, 1 << 22), "n_group": (1, 1 << 16),
    "topk_group": (1, 1 << 16), "layers": (1, 4096), "shared": (0, 1 << 10), "bias": (0, 1),
}  # fmt: skip
_WORDS = {
    "act": ("silu", "gelu", "gelu_tanh", "swigluoai", "swigluoai_uninterleave", "swiglustep", "situ", "relu2_no_mul"),
    "scoring": ("softmax", "sigmoid", "sqrtsoftplus"),
    "dtype": ("bf16", "fp16"),
}
_REQUIRED = ("experts", "topk", "hidden", "inter")
_EXAMPLE = "experts=192,topk=8,hidden=6144,inter=1792"


def parse_shape(text: str, *, quant: str | Quantization = "none") -> MoEModel:
    """The model ``--shape`` describes: one kind of layer, ``layers`` of it, router and activation as given.

    ``quant`` is the name ``--quant`` was given, or a Quantization. Keys: experts, topk, hidden, inter (required), n_group,
    topk_group, act, scoring, bias (the router's selection bias), layers, shared (shared experts as wide as a routed one),
    dtype. Raises UsageError for anything else.
    """
    given = _pairs(text)
    missing = [k for k in _REQUIRED if k not in given]
    if missing:
        raise UsageError(f"--shape: {', '.join(missing)} missing.", hint=f"Example: --shape {_EXAMPLE}")
    number = {key: _number(key, given[key]) for key in _NUMBERS if key in given}
    word = {key: _word(key, given[key]) for key in _WORDS if key in given}
    experts, topk = number["experts"], number["topk"]
    if topk > experts:
        raise UsageError(f"--shape: topk={topk} is more than experts={experts}.")
    if ("n_group" in number) != ("topk_group" in number):
        raise UsageError("--shape: n_group and topk_group belong together; give both or none.")
    if number.get("topk_group", 1) > number.get("n_group", 1):
        raise UsageError(f"--shape: topk_group={number['topk_group']} is more than n_group={number['n_group']}.")
    quantization = from_flag(quant) if isinstance(quant, str) else quant
    activation, count, shared = word.get("act", "silu"), number.get("layers", 1), number.get("shared", 0)
    layer = ExpertLayer(
        name="main",
        count=count,
        first_layer=0,
        experts=experts,
        topk=topk,
        model_dim=number["hidden"],
        moe_intermediate_size=number["inter"],
        activation=activation,
        gated=not activation.endswith("_no_mul"),
        n_shared=shared,
        shared_intermediate_size=shared * number["inter"],
        scoring=word.get("scoring", "softmax"),
        selection_bias=bool(number.get("bias", 0)),
        n_group=number.get("n_group"),
        topk_group=number.get("topk_group"),
        quantization=quantization,
        layers=tuple(range(count)),
    )
    return MoEModel(
        id=f"shape:{text}",
        source="shape",
        revision=None,
        architecture=None,
        model_type=None,
        hidden_size=number["hidden"],
        num_layers=count,
        dtype=word.get("dtype", "bf16"),
        num_attention_heads=None,
        layers=(layer,),
        quantization=quantization,
        fields=dict.fromkeys(given, "--shape"),
    )


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (x.strip() for x in part.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"--shape: {part.strip()[:60]!r} is not key=value.", hint=f"Example: --shape {_EXAMPLE}")
        if key not in _NUMBERS and key not in _WORDS:
            from difflib import get_close_matches

            close = get_close_matches(key, (*_NUMBERS, *_WORDS), n=1)
            guess = f"Did you mean {close[0]}? " if close else ""
            raise UsageError(f"--shape: unknown key {key[:40]!r}.", hint=f"{guess}Known: {', '.join((*_NUMBERS, *_WORDS))}.")
        if key in found:
            raise UsageError(f"--shape: {key} is given twice.")
        found[key] = value
    return found


def _number(key: str, value: str) -> int:
    low, high = _NUMBERS[key]
    if not (value.isascii() and value.isdigit() and len(value) <= 10) or not low <= int(value) <= high:
        raise UsageError(f"--shape: {key}={value[:40]} is not valid; expected a whole number from {low} to {high}.")
    return int(value)


def _word(key: str, value: str) -> str:
    if value not in _WORDS[key]:
        raise UsageError(f"--shape: {key}={value[:40]} is not valid; expected one of {', '.join(_WORDS[key])}.")
    return value
