"""Which decoder layers hold experts: one small rule per way a config says it.

A rule takes the fields and the number of layers, and gives the layer indexes with the path they were read from, or None
when the config does not speak its language. Families list the rules they understand in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from moe_preflight.errors import ConfigError
from moe_preflight.model.fields import MISSING, Fields, Value, as_int, as_list, as_str, wrong

MAX_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class Layers:
    """Indexes of the layers that hold experts, and where the config says so."""

    indexes: tuple[int, ...]
    path: str


Rule = Callable[[Fields, int], Layers | None]


def every(_: Fields, n: int) -> Layers | None:
    """All layers (the last rule of most families)."""
    return Layers(tuple(range(n)), "every layer")


def typed(path: str, *names: str) -> Rule:
    """A list with one word per layer (``mlp_layer_types``: sparse / dense; ``layers_block_type``: moe ...)."""

    def rule(f: Fields, n: int) -> Layers | None:
        value = f.given(path)
        if value.missing or value.raw is None:
            return None
        words = as_list(value, MAX_LAYERS)
        for i, word in enumerate(words):
            if not isinstance(word, str):
                raise wrong(f"{value.path}[{i}]", word, "a string")
        _long_enough(value, words, n)
        return Layers(tuple(i for i, word in enumerate(words[:n]) if word in names), value.path)

    return rule


def switches(path: str) -> Rule:
    """A list of 0 / 1 per layer, or Megatron's spelling of one: ``[0]*3+[1]*58``. A single number is another rule's."""

    def rule(f: Fields, n: int) -> Layers | None:
        value = f.given(path)
        if isinstance(value.raw, str):
            value = Value(_repeated(value), value.path)
        if not isinstance(value.raw, list):
            return None
        flags = as_list(value, MAX_LAYERS)
        for i, flag in enumerate(flags):
            if flag not in (0, 1):
                raise wrong(f"{value.path}[{i}]", flag, "0 or 1")
        _long_enough(value, flags, n)
        return Layers(tuple(i for i, flag in enumerate(flags[:n]) if flag), value.path)

    return rule


def after_dense(first: str = "first_k_dense_replace", step: str = "moe_layer_freq", *, counted_from_first: bool = False) -> Rule:
    """Layers from ``first`` on, those whose index (``counted_from_first``: counted from there) is a multiple of ``step``.

    DeepSeek's way. Many model files that borrowed the field look at ``first`` alone: for them ``step`` is empty.
    """

    def rule(f: Fields, n: int) -> Layers | None:
        dense = f.find(first)
        if dense.missing or dense.raw is None:
            return None
        start = as_int(dense, 0, MAX_LAYERS)
        every_nth = f.find(step) if step else Value(MISSING, "")
        nth = 1 if every_nth.missing or every_nth.raw is None else as_int(every_nth, 1, MAX_LAYERS)
        zero = start if counted_from_first else 0
        return Layers(tuple(i for i in range(start, n) if (i - zero) % nth == 0), dense.path)

    return rule


def every_nth(path: str) -> Rule:
    """``(i + 1) % step == 0`` (Arctic's ``moe_layer_frequency``)."""

    def rule(f: Fields, n: int) -> Layers | None:
        value = f.find(path)
        if value.missing or value.raw is None:
            return None
        nth = as_int(value, 1, MAX_LAYERS)
        return Layers(tuple(i for i in range(n) if (i + 1) % nth == 0), value.path)

    return rule


def sparse_step(f: Fields, n: int) -> Layers | None:
    """Qwen's way: not in ``mlp_only_layers``, and ``(i + 1) % decoder_sparse_step == 0``."""
    step, dense = f.find("decoder_sparse_step"), f.find("mlp_only_layers")
    if step.missing and dense.missing:
        return None
    nth = 1 if step.missing or step.raw is None else as_int(step, 1, MAX_LAYERS)
    skip = set() if dense.missing or dense.raw is None else set(_indexes(dense, -MAX_LAYERS))  # a negative one is no layer
    path = dense.path if skip else step.path if not step.missing else dense.path
    return Layers(tuple(i for i in range(n) if i not in skip and (i + 1) % nth == 0), path)


def interleaved(f: Fields, n: int) -> Layers | None:
    """Llama 4: ``(i + 1) % interleave_moe_layer_step == 0``; a list ``moe_layers`` says the same in full."""
    step, listed = f.find("interleave_moe_layer_step"), f.given("moe_layers")
    if not step.missing and step.raw is not None:
        nth = as_int(step, 0, MAX_LAYERS)
        return Layers(tuple(i for i in range(n) if nth and (i + 1) % nth == 0), step.path)
    if isinstance(listed.raw, list):
        return Layers(tuple(i for i in sorted(set(_indexes(listed))) if i < n), listed.path)
    return None


def period(f: Fields, n: int) -> Layers | None:
    """Jamba: every ``expert_layer_period``-th layer from ``expert_layer_offset`` on."""
    every_nth, start = f.find("expert_layer_period"), f.find("expert_layer_offset")
    if every_nth.missing or start.missing:
        return None
    nth, offset = as_int(every_nth, 1, MAX_LAYERS), as_int(start, 0, MAX_LAYERS)
    return Layers(tuple(i for i in range(n) if (i - offset) % nth == 0), every_nth.path)


def start_end(f: Fields, n: int) -> Layers | None:
    """ERNIE: from ``moe_layer_start_index`` to ``moe_layer_end_index``, every ``moe_layer_interval``-th.

    Either bound may be a list, one per population of experts; the widest span counts here.
    """
    first, last, step = f.find("moe_layer_start_index"), f.given("moe_layer_end_index"), f.find("moe_layer_interval")
    if first.missing:
        return None
    low = min(_one_or_list(first))
    high = n - 1 if last.missing or last.raw in (None, -1) else max(_one_or_list(last))
    nth = 1 if step.missing or step.raw is None else as_int(step, 1, MAX_LAYERS)
    return Layers(tuple(i for i in range(n) if low <= i <= high and (i + 1) % nth == 0), first.path)


def enumerated(path: str = "moe_layers_enum") -> Rule:
    """A string of indexes and ranges: ``3,4,5`` or ``3-60`` (Step 3); a list of numbers is taken too."""

    def rule(f: Fields, n: int) -> Layers | None:
        value = f.given(path)
        if value.missing or value.raw is None:
            return None
        found = set(_indexes(value) if isinstance(value.raw, list) else _ranges(value))
        return Layers(tuple(i for i in sorted(found) if i < n), value.path)

    return rule


def pattern(path: str, letter: str) -> Rule:
    """One letter per layer (nemotron_h: ``MEMEM*EME``, E for experts)."""

    def rule(f: Fields, n: int) -> Layers | None:
        value = f.given(path)
        if value.missing or value.raw is None:
            return None
        text = as_str(value)
        if len(text) > MAX_LAYERS or not re.fullmatch(r"[A-Z*\-|]+", text):
            raise wrong(value.path, value.raw, "one letter per layer, such as MEM*E")
        text = text.replace("|", "")
        _long_enough(value, text, n)
        return Layers(tuple(i for i, c in enumerate(text[:n]) if c == letter), value.path)

    return rule


def skipped(f: Fields, n: int) -> Layers | None:
    """Hunyuan: the first ``moe_layer_num_skipped`` layers are dense."""
    value = f.given("moe_layer_num_skipped")
    if value.missing or value.raw is None:
        return None
    return Layers(tuple(range(as_int(value, 0, MAX_LAYERS), n)), value.path)


def _indexes(value: Value, low: int = 0) -> list[int]:
    return [as_int(Value(x, f"{value.path}[{i}]"), low, MAX_LAYERS) for i, x in enumerate(as_list(value, MAX_LAYERS))]


def _one_or_list(value: Value) -> list[int]:
    if isinstance(value.raw, list):
        found = _indexes(value)
        if not found:
            raise wrong(value.path, value.raw, "at least one layer index")
        return found
    return [as_int(value, 0, MAX_LAYERS)]


def _ranges(value: Value) -> list[int]:
    text = as_str(value)
    expected = "layer indexes such as 3,4,5 or 3-60"
    if len(text) > 8 * MAX_LAYERS:
        raise wrong(value.path, value.raw, expected)
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isascii() and low.isdigit()) or (dash and not (high.isascii() and high.isdigit())) or len(part) > 24:
            raise wrong(value.path, value.raw, expected)
        a, b = int(low), int(high) if dash else int(low)
        if b >= MAX_LAYERS or a > b:
            raise wrong(value.path, value.raw, expected)
        found.extend(range(a, b + 1))
    return found


def _repeated(value: Value) -> list[int]:
    """``([0]*3+[1]*58)``: sums of repeated lists and nothing else."""
    text = as_str(value).replace(" ", "").removeprefix("(").removesuffix(")")
    flags: list[int] = []
    for term in text.split("+")[: MAX_LAYERS + 1]:
        m = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?", term)
        if not m:
            raise wrong(value.path, value.raw, "0 / 1 per layer, such as [0]*3+[1]*58")
        flags += [int(x) for x in m[1].split(",")] * int(m[2] or 1)
        if len(flags) > MAX_LAYERS:
            raise wrong(value.path, value.raw, f"at most {MAX_LAYERS} layers")
    return flags


def _long_enough(value: Value, entries: list[object] | str, n: int) -> None:
    if len(entries) < n:
        raise ConfigError(f"{value.path}: {len(entries)} entries for {n} layers; expected one entry per layer.")


def layer_count(f: Fields, *paths: str) -> Value:
    """How many decoder layers there are: a number, or the length of a list or pattern that has one entry per layer."""
    value = f.given(*paths)
    if not value.missing and value.raw is not None:
        return Value(as_int(value, 1, MAX_LAYERS), value.path)
    for path in ("layers_block_type", "layer_types", "mlp_layer_types"):
        listed = f.given(path)
        if isinstance(listed.raw, list) and listed.raw:
            return Value(len(as_list(listed, MAX_LAYERS)), listed.path)
    text = f.given("hybrid_override_pattern")
    if isinstance(text.raw, str) and 0 < len(text.raw) <= MAX_LAYERS:
        return Value(len(text.raw.replace("|", "")), text.path)
    return Value(MISSING, value.path)
