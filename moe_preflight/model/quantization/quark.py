"""AMD Quark: a global scheme, overrides by layer name or pattern, and a list of modules left out.

Matching follows vLLM 0.33.0 (quark/quark.py:724, quark/utils.py:31): ``exclude`` takes the experts out when it names them or
any child of theirs; ``layer_quant_config`` keys are globs, ``re:`` patterns, or names that contain the layer's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moe_preflight.model.fields import wrong
from moe_preflight.model.moe import Quantization
from moe_preflight.model.quantization.patterns import Matcher, Modules
from moe_preflight.model.quantization.words import Raw, excluded

METHOD = "quark"


@dataclass(frozen=True, slots=True)
class Quark:
    fallback: Quantization
    by_layer: tuple[tuple[str, Quantization], ...]
    exclude: tuple[str, ...]

    def of(self, modules: Modules, matcher: Matcher) -> Quantization:
        children = list(modules.children())
        for pattern in self.exclude:
            if pattern.startswith("re:"):
                if any(matcher.target(pattern, x) for x in (*modules.names, *children)):
                    return excluded(METHOD, len(self.exclude))
            elif any(pattern == name or pattern.startswith(name + ".") for name in modules.names):
                return excluded(METHOD, len(self.exclude))
        for pattern, scheme in self.by_layer:
            if self._names(pattern, modules, children, matcher):
                return scheme
        return self.fallback

    @staticmethod
    def _names(pattern: str, modules: Modules, children: list[str], matcher: Matcher) -> bool:
        if pattern.startswith("re:"):
            return any(matcher.target(pattern, x) for x in (*children, *modules.names))
        if "*" in pattern:
            return any(matcher.glob(pattern, x) for x in (*modules.names, *children))
        return any(name in pattern for name in modules.names)

    def overall(self) -> Quantization:
        return self.fallback


def read(raw: Raw, _: str) -> Quark:
    exclude = tuple(raw.names("exclude"))
    export = raw.inner("export")
    pack = export.text("pack_method") if export is not None else None
    world = raw.inner("global_quant_config")
    fallback = _scheme(world, pack, len(exclude)) if world is not None else excluded(METHOD, len(exclude))
    layers = raw.inner("layer_quant_config")
    by_layer: list[tuple[str, Quantization]] = []
    for pattern in layers.data if layers is not None else ():
        assert layers is not None
        scheme = layers.inner(pattern)
        if scheme is not None:
            by_layer.append((pattern, _scheme(scheme, pack, len(exclude))))
    return Quark(fallback, tuple(by_layer), exclude)


def _scheme(raw: Raw, pack: str | None, count: int) -> Quantization:
    weight, inputs = _tensors(raw, "weight"), _tensors(raw, "input_tensors")
    if not weight:
        return excluded(METHOD, count)
    found = _pair(weight, inputs)
    detail: dict[str, object] = weight[0].keep("qscheme", "scale_format", "scale_type")
    if pack:
        detail["pack_method"] = pack
    return replace(found, method=METHOD, excluded_modules_count=count, detail=detail)


def _tensors(raw: Raw, key: str) -> list[Raw]:
    """One quantized tensor is an object; two-level schemes (int4 over fp8, NVFP4) are a list of two."""
    value = raw.data.get(key)
    if value is None:
        return []
    if isinstance(value, list):
        holder = Raw({str(i): x for i, x in enumerate(value[:4])}, f"{raw.path}.{key}")
        return [x for x in (holder.inner(str(i)) for i in range(len(value[:4]))) if x is not None]
    inner = raw.inner(key)
    return [inner] if inner is not None else []


def _pair(weight: list[Raw], inputs: list[Raw]) -> Quantization:
    w, a = weight[0], inputs[0] if inputs else None
    dtype, qscheme = w.text("dtype", ""), w.text("qscheme", "")
    group, block = (
        w.number("group_size", -1, 1 << 20),
        w.pair("block_size") if isinstance(w.data.get("block_size"), list) else None,
    )
    a_dtype, a_scheme = (a.text("dtype"), a.text("qscheme")) if a is not None else (None, None)
    common = Quantization(
        scheme="other",
        weight_dtype={"fp8_e4m3": "fp8", "uint4": "int4"}.get(dtype or "", dtype or "unknown"),
        activation_dtype={"fp8_e4m3": "fp8"}.get(a_dtype or "", a_dtype),
        weight_strategy=_STRATEGY.get(qscheme or ""),
        activation_strategy=_activation(a_scheme),
        activation_dynamic=bool(a.flag("is_dynamic")) if a is not None else None,
        block_shape=block,
        group_size=group if group and group > 0 else None,
        symmetric=w.flag("symmetric") is not False,
    )
    second = weight[1].text("dtype") if len(weight) > 1 else None
    if second == "int4" and dtype == "fp8_e4m3":
        return replace(common, scheme="int4_fp8", weight_dtype="int4", weight_strategy="channel")
    if second == "fp8_e4m3" and dtype == "fp4" and group == 16:
        return replace(common, scheme="nvfp4" if a is not None else "nvfp4_a16")
    if len(weight) > 1:
        return common
    mx = qscheme == "per_group" and group == 32 and w.text("scale_format") == "e8m0"
    if dtype == "fp4" and mx:
        name = {None: "mxfp4", "fp4": "mxfp4_a4", "fp8_e4m3": "mxfp4_a8"}.get(a_dtype, "other")
        return replace(common, scheme=name)
    if dtype in ("fp6_e3m2", "fp6_e2m3") and mx:
        return replace(common, scheme="mxfp6")
    if dtype == "fp8_e4m3":
        if mx or (qscheme == "per_block" and block is not None and block[1] == 32):
            return replace(common, scheme="mxfp8")
        name = {"per_tensor": "fp8_tensor", "per_channel": "fp8_channel", "per_block": "fp8_block"}.get(qscheme or "", "other")
        return replace(common, scheme=name)
    if dtype in ("int4", "uint4") and a is None:
        return replace(common, scheme="int4")
    if dtype == "int8":
        return replace(common, scheme="int8" if a_dtype == "int8" else "int8_w8a16" if a is None else "other")
    if dtype == "":
        raise wrong(f"{w.path}.dtype", None, "a dtype such as fp8_e4m3 or fp4")
    return common


_STRATEGY = {"per_tensor": "tensor", "per_channel": "channel", "per_block": "block", "per_group": "group"}


def _activation(qscheme: str | None) -> str | None:
    """Per channel of an activation is per token."""
    return "token" if qscheme == "per_channel" else _STRATEGY.get(qscheme or "")
