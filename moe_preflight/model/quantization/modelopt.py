"""NVIDIA ModelOpt: one algorithm for the checkpoint, or MIXED_PRECISION with one per module; globs take modules out.

Two spellings: ``hf_quant_config.json`` has {producer, quantization {quant_algo, exclude_modules, quantized_layers}}, a
config.json has the same fields flat (``ignore`` for the globs). Matching follows vLLM 0.33.0 modelopt.py:176 and :1748.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from moe_preflight.model.fields import wrong
from moe_preflight.model.moe import Quantization
from moe_preflight.model.quantization.patterns import Matcher, Modules
from moe_preflight.model.quantization.words import Raw, excluded

METHOD = "modelopt"

_FP8 = Quantization(
    scheme="fp8_tensor", weight_dtype="fp8", activation_dtype="fp8", weight_strategy="tensor", activation_strategy="tensor",
    activation_dynamic=False,
)  # fmt: skip
_NVFP4 = Quantization(
    scheme="nvfp4", weight_dtype="fp4", activation_dtype="fp4", weight_strategy="group", activation_strategy="group",
    activation_dynamic=True, group_size=16,
)  # fmt: skip
_BLOCK = Quantization(
    scheme="fp8_block", weight_dtype="fp8", activation_dtype="fp8", weight_strategy="block", activation_strategy="group",
    activation_dynamic=True, block_shape=(128, 128),
)  # fmt: skip
_INT4 = Quantization(scheme="int4", weight_dtype="int4", weight_strategy="group")

ALGOS: dict[str, Quantization] = {
    "FP8": _FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": replace(
        _FP8, scheme="fp8_channel", weight_strategy="channel", activation_strategy="token", activation_dynamic=True
    ),
    "FP8_PB_WO": _BLOCK,
    "FP8_BLOCK_SCALES": _BLOCK,
    "NVFP4": _NVFP4,
    "NVFP4_AWQ": _NVFP4,
    "W4A16_NVFP4": replace(_NVFP4, scheme="nvfp4_a16", activation_dtype=None, activation_strategy=None, activation_dynamic=None),
    "MXFP8": Quantization(
        scheme="mxfp8", weight_dtype="fp8", activation_dtype="fp8", weight_strategy="group", activation_strategy="group",
        activation_dynamic=True, group_size=32,
    ),
    "W4A16_AWQ": _INT4,
    "INT4_AWQ": _INT4,
    "W4A8_AWQ": replace(_INT4, scheme="int4_fp8", activation_dtype="fp8", activation_strategy="tensor", activation_dynamic=False),
    "W4A16_MXFP4": Quantization(scheme="mxfp4", weight_dtype="fp4", weight_strategy="group", group_size=32),
    "W4A8_MXFP4_FP8": Quantization(
        scheme="mxfp4_a8", weight_dtype="fp4", activation_dtype="fp8", weight_strategy="group", activation_strategy="tensor",
        activation_dynamic=False, group_size=32,
    ),
    "W8A16": Quantization(scheme="int8_w8a16", weight_dtype="int8", weight_strategy="channel"),
}  # fmt: skip
"""quant_algo, as ModelOpt writes it, and what it means for experts. vLLM 0.33.0 serves the first eight (modelopt.py:114)."""


_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class ModelOpt:
    """``cut``: the per-module map holds something that is not a module, so it is not the whole map."""

    algo: str
    exclude: tuple[str, ...]
    by_module: dict[str, str]
    group_size: int | None
    cut: bool = False
    _near: dict[str, list[str]] = field(default_factory=dict)

    def of(self, modules: Modules, matcher: Matcher) -> Quantization:
        if any(self._excluded(name, matcher) for name in modules.names):
            return excluded(METHOD, len(self.exclude))
        if self.algo != "MIXED_PRECISION":
            return self.overall()
        found = self._resolve(modules)
        return excluded(METHOD, len(self.exclude)) if found is None else self._scheme(found)

    def overall(self) -> Quantization:
        if self.algo != "MIXED_PRECISION":
            return self._scheme(self.algo)
        for module, algo in self.by_module.items():
            if "expert" in module or ".ffn" in module or ".mlp" in module:
                return self._scheme(algo)
        return next((self._scheme(algo) for algo in self.by_module.values()), self._scheme(self.algo))

    def _scheme(self, algo: str) -> Quantization:
        known = ALGOS.get(algo, Quantization(scheme="other", weight_dtype="unknown"))
        size = self.group_size if known.group_size is not None and self.group_size else known.group_size
        return replace(
            known, method=METHOD, group_size=size, excluded_modules_count=len(self.exclude), detail={"quant_algo": algo}
        )

    def _excluded(self, name: str, matcher: Matcher) -> bool:
        """By the whole name, by containing it (``experts`` entries), as a substring, or as a glob.

        A glob ``path*`` without a dot before the star counts as ``path`` and ``path.*``, and a plain entry counts wherever it
        occurs in the name: so ``model.layers.1*`` takes out layer 10 as well, in vLLM as here.
        """
        for entry in self._candidates(name):
            star = len(entry) >= 2 and entry[-1] == "*" and entry[-2] != "."
            plain = entry[:-1] if star else entry
            if "experts" in plain and name in plain:
                return True
            if plain and "*" not in plain and plain in name:
                return True
            if matcher.glob(entry, name):
                return True
        return False

    def _candidates(self, name: str) -> list[str]:
        """The few entries that can match at all: with every number written alike, the entry's literal parts are in the name,
        or the name in the entry. Remembered by the name's shape, as layers differ in their number only."""
        shape = _DIGITS.sub("#", name)
        if shape not in self._near:
            self._near[shape] = [
                x
                for x in self.exclude
                if shape in (plain := _DIGITS.sub("#", x)) or "[" in x or all(part in shape for part in re.split(r"[*?]", plain))
            ]
        return self._near[shape]

    def _resolve(self, modules: Modules) -> str | None:
        for name in modules.names:
            if name in self.by_module:
                return self.by_module[name]
        for name in modules.names:
            for module, algo in self.by_module.items():
                if module.startswith(name + "."):
                    return algo
        for name in modules.names:
            if name.endswith(".experts"):
                parent = name.removesuffix("experts")
                for module, algo in self.by_module.items():
                    if module.startswith(parent):
                        return algo
        if self.cut:
            return next((algo for module, algo in self.by_module.items() if ".experts" in module), "unknown")
        return None


def read(raw: Raw, _: str) -> ModelOpt:
    inner = raw.inner("quantization") if isinstance(raw.data.get("quantization"), dict) else None
    at = inner if inner is not None else raw
    algo = at.text("quant_algo")
    if algo is None:
        raise wrong(f"{at.path}.quant_algo", None, "a ModelOpt algorithm such as FP8 or NVFP4")
    exclude = at.names("exclude_modules") if inner is not None else at.names("ignore", "exclude_modules")
    layers = at.inner("quantized_layers")
    by_module: dict[str, str] = {}
    cut = False
    for module in layers.data if layers is not None else ():
        assert layers is not None
        if not isinstance(layers.data[module], dict):
            cut = True
        else:
            entry = layers.inner(module)
            found = entry.text("quant_algo") if entry is not None else None
            if found is not None:
                by_module[module] = found.upper()
    return ModelOpt(algo.upper(), tuple(exclude), by_module, at.number("group_size", 1, 1 << 20), cut)
