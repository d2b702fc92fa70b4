"""The formats that say one thing for the whole checkpoint: fp8, mxfp4, mxfp8, GPTQ, AWQ and the rarer ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from moe_preflight.model.fields import wrong
from moe_preflight.model.moe import Quantization
from moe_preflight.model.quantization.patterns import Matcher, Modules
from moe_preflight.model.quantization.words import Raw, excluded


@dataclass(frozen=True, slots=True)
class Uniform:
    """One scheme, minus the modules named. ``by`` is how vLLM compares: ``container`` (an entry that contains the experts'
    name, fp8.py via quant_utils.py:684), ``substring`` (an entry inside the name, AWQ), ``never`` (it does not look)."""

    scheme: Quantization
    skip: tuple[str, ...] = ()
    by: str = "container"

    def of(self, modules: Modules, matcher: Matcher) -> Quantization:
        for entry in self.skip:
            if self.by == "container" and "experts" in entry and any(name in entry for name in modules.names):
                return excluded(self.scheme.method, len(self.skip))
            if self.by == "substring" and any(entry in name for name in modules.names):
                return excluded(self.scheme.method, len(self.skip))
        return self.scheme

    def overall(self) -> Quantization:
        return self.scheme


def fp8(raw: Raw, method: str) -> Uniform:
    """``fp8``: block scales with ``weight_block_size``, else one scale per tensor. ``store_dtype: mxfp4`` stores MXFP4."""
    skip = raw.names("ignored_layers", "modules_to_not_convert")
    block = raw.pair("weight_block_size")
    how = raw.text("activation_scheme")
    if how not in (None, "static", "dynamic"):
        raise wrong(f"{raw.path}.activation_scheme", how, "static or dynamic")
    detail = raw.keep("fmt", "scale_fmt", "activation_scheme", "store_dtype", "quant_algo")
    if raw.text("store_dtype") == "mxfp4":
        scheme = Quantization(method, "mxfp4", "fp4", weight_strategy="group", group_size=32)
    elif block is not None:
        scheme = Quantization(method, "fp8_block", "fp8", "fp8", "block", "group", True, block)
    else:
        dynamic = None if how is None else how == "dynamic"
        scheme = Quantization(method, "fp8_tensor", "fp8", "fp8", "tensor", "tensor", dynamic)
    return Uniform(replace(scheme, excluded_modules_count=len(skip), detail=detail), tuple(skip))


def deepseek_v4(raw: Raw, expert_dtype: object) -> Uniform:
    """DeepSeek-V4's fp8 files say elsewhere what the experts are: ``expert_dtype`` fp4 (the default) or fp8, and
    ``moe_quant_algo: NVFP4`` in ModelOpt's exports (models/deepseek_v4/quant_config.py:75)."""
    base = fp8(raw, "fp8")
    if expert_dtype is None:
        expert_dtype = "fp4"
    if expert_dtype not in ("fp4", "fp8"):
        raise wrong("expert_dtype", expert_dtype, "fp4 or fp8")
    detail = {**base.scheme.detail, "expert_dtype": expert_dtype}
    if expert_dtype == "fp8":
        return replace(base, scheme=replace(base.scheme, detail=detail))
    count = base.scheme.excluded_modules_count
    if (raw.text("moe_quant_algo") or "").upper() == "NVFP4":
        ignore = tuple(raw.names("ignored_layers", "modules_to_not_convert"))
        scheme = Quantization(
            "fp8", "nvfp4", "fp4", "fp4", "group", "group", True, group_size=16, excluded_modules_count=len(ignore),
            detail={**detail, "moe_quant_algo": "NVFP4"},
        )  # fmt: skip
        return Uniform(scheme, ignore)
    scheme = Quantization(
        "fp8", "mxfp4", "fp4", weight_strategy="group", group_size=32, excluded_modules_count=count, detail=detail
    )
    return Uniform(scheme, base.skip)


def mxfp4(raw: Raw, method: str) -> Uniform:
    """gpt-oss and its kind: only the experts are quantized, so the list of exceptions never names them (mxfp4.py:88)."""
    skip = raw.names("modules_to_not_convert", "ignored_layers")
    return Uniform(
        Quantization(method, "mxfp4", "fp4", weight_strategy="group", group_size=32, excluded_modules_count=len(skip)),
        tuple(skip),
        "never",
    )


def mxfp8(raw: Raw, method: str) -> Uniform:
    skip = raw.names("ignored_layers", "modules_to_not_convert")
    scheme = Quantization(method, "mxfp8", "fp8", "fp8", "group", "group", True, group_size=32, excluded_modules_count=len(skip))
    return Uniform(scheme, tuple(skip))


@dataclass(frozen=True, slots=True)
class Gptq:
    """GPTQ; ``dynamic`` holds rules by regular expression: ``-:`` leaves a module out, ``+:`` (or nothing) overrides."""

    scheme: Quantization
    rules: tuple[tuple[str, Raw | None], ...]

    def of(self, modules: Modules, matcher: Matcher) -> Quantization:
        for pattern, override in self.rules:
            if any(matcher.regex(pattern, x) for x in (*modules.names, *modules.children())):
                if override is None:
                    return excluded(self.scheme.method, len(self.rules))
                return _weight_only(self.scheme, override)
        return self.scheme

    def overall(self) -> Quantization:
        return self.scheme


def gptq(raw: Raw, method: str) -> Gptq:
    rules: list[tuple[str, Raw | None]] = []
    dynamic = raw.inner("dynamic")
    for pattern in dynamic.data if dynamic is not None else ():
        assert dynamic is not None
        if pattern.startswith("-:"):
            rules.append((pattern[2:], None))
        else:
            rules.append((pattern.removeprefix("+:"), dynamic.inner(pattern)))
    base = Quantization(method, weight_strategy="group", symmetric=raw.flag("sym") is not False)
    scheme = _weight_only(base, raw)
    return Gptq(replace(scheme, excluded_modules_count=sum(1 for _, o in rules if o is None)), tuple(rules))


def awq(raw: Raw, method: str) -> Uniform:
    skip = raw.names("modules_to_not_convert")
    base = Quantization(method, weight_strategy="group", symmetric=raw.flag("zero_point") is False)
    return Uniform(replace(_weight_only(base, raw), excluded_modules_count=len(skip)), tuple(skip), "substring")


def _weight_only(base: Quantization, raw: Raw) -> Quantization:
    bits = raw.number("bits", 1, 16) or {"int4": 4, "int8": 8}.get(base.weight_dtype)
    size = raw.number("group_size", -1, 1 << 20)
    name = {4: "int4", 8: "int8_w8a16"}.get(bits or 0, "other")
    detail = {**base.detail, **raw.keep("bits", "desc_act", "version", "checkpoint_format", "packing_format", "zero_point")}
    return replace(
        base,
        scheme=name,
        weight_dtype=f"int{bits}" if bits else "unknown",
        weight_strategy="channel" if size == -1 else "group",
        group_size=size if size and size > 0 else None,
        detail=detail,
    )


def mlx(raw: Raw, _: str) -> Uniform:
    """MLX's {bits, group_size}: no engine we model reads it."""
    return Uniform(replace(_weight_only(Quantization("mlx"), raw), method="mlx", scheme="other"), (), "never")


def fp8_per_channel(raw: Raw, method: str) -> Uniform:
    """fbgemm_fp8, w8a8_fp8: a scale per output channel, activations per token at run time."""
    skip = raw.names("modules_to_not_convert", "ignored_layers")
    scheme = Quantization(method, "fp8_channel", "fp8", "fp8", "channel", "token", True, excluded_modules_count=len(skip))
    return Uniform(scheme, tuple(skip))


def int8_w8a8(raw: Raw, method: str) -> Uniform:
    return Uniform(Quantization(method, "int8", "int8", "int8", "channel", "token", True))


def int8_weights(raw: Raw, method: str) -> Uniform:
    return Uniform(Quantization(method, "int8_w8a16", "int8", weight_strategy="channel"))


def int4_fp8(raw: Raw, method: str) -> Uniform:
    return Uniform(
        Quantization(method, "int4_fp8", "int4", "fp8", "group", "token", True, group_size=raw.number("group_size", 1, 1 << 20))
    )


def other(raw: Raw, method: str) -> Uniform:
    """A method we can name but not size: bitsandbytes, torchao, GGUF ... What it says is kept for the reader."""
    words = raw.keep("bits", "group_size", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "quant_type", "fmt")
    return Uniform(Quantization(method, "other", "unknown", detail=words), (), "never")
