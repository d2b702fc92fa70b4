"""How the experts of each layer are stored, read from the checkpoint's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from moe_preflight.model.family import Family
from moe_preflight.model.fields import Fields, wrong
from moe_preflight.model.moe import Quantization
from moe_preflight.model.quantization.patterns import Matcher, Modules
from moe_preflight.model.quantization.words import NONE, Format, Raw

_STANDARD_PARTS = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))

METHODS: dict[str, str] = {
    "fp8": "simple.fp8",
    "deepseek_v4_fp8": "simple.fp8",
    "fbgemm_fp8": "simple.fp8_per_channel",
    "w8a8_fp8": "simple.fp8_per_channel",
    "mxfp4": "simple.mxfp4",
    "gpt_oss_mxfp4": "simple.mxfp4",
    "mxfp8": "simple.mxfp8",
    "gptq": "simple.gptq",
    "gptq_marlin": "simple.gptq",
    "auto_gptq": "simple.gptq",
    "auto-round": "simple.gptq",
    "intel/auto-round": "simple.gptq",
    "inc": "simple.gptq",
    "awq": "simple.awq",
    "awq_marlin": "simple.awq",
    "auto_awq": "simple.awq",
    "moe_wna16": "simple.awq",
    "w4afp8": "simple.int4_fp8",
    "w8a8_int8": "simple.int8_w8a8",
    "int8": "simple.int8_w8a8",
    "experts_int8": "simple.int8_weights",
    "mlx": "simple.mlx",
    "compressed-tensors": "compressed_tensors.read",
    "quark": "quark.read",
    "modelopt": "modelopt.read",
}
"""quant_method, and who reads the rest (imported when asked for). One not here is kept by name as scheme ``other``."""


def _read(method: str, raw: Raw) -> Format:
    module, _, function = METHODS.get(method, "simple.other").partition(".")
    read: Callable[[Raw, str], Format] = getattr(import_module(f"{__name__}.{module}"), function)
    return read(raw, method)


@dataclass(slots=True)
class Reader:
    """Answers for one layer's experts at a time; ``matcher`` keeps what the patterns cost."""

    format: Format | None
    path: str = ""
    matcher: Matcher = field(default_factory=Matcher)
    said: list[str] = field(default_factory=list)

    def of(self, names: Sequence[str], parts: Sequence[str]) -> Quantization:
        if self.format is None:
            return NONE
        spellings = (tuple(parts), *(x for x in _STANDARD_PARTS if x != tuple(parts)))
        return self.format.of(Modules(tuple(names), spellings), self.matcher)

    def overall(self) -> Quantization:
        return NONE if self.format is None else self.format.overall()

    @property
    def unsure(self) -> bool:
        """A pattern could not be tried, so a layer may be taken for quantized that is not."""
        return bool(self.matcher.refused)

    def notes(self) -> tuple[str, ...]:
        tried = [
            f"{self.path}: pattern {p[:60]!r} is too complex to evaluate safely, taken as no match" for p in self.matcher.refused
        ]
        cut = (
            [f"{self.path}: quantized_layers is cut; layers it does not name are taken to be like those it does"]
            if getattr(self.format, "cut", False)
            else []
        )
        return (*self.said, *cut, *tried)


def reader(config: Mapping[str, object], f: Fields, family: Family, hf_quant_config: Mapping[str, object] | None) -> Reader:
    """The reader for this checkpoint. vLLM looks at the config's quantization_config, then the text section's, then
    compression_config (model_arch_config_convertor.py:285); ModelOpt's own file counts when the config has none
    (transformers_utils/config.py:957) or says MIXED_PRECISION without the per-module map (weight_utils.py:269)."""
    raw = _find(config, f)
    if raw is None:
        if hf_quant_config is None:
            return Reader(None)
        return Reader(_read("modelopt", Raw(hf_quant_config, "hf_quant_config.json")), "hf_quant_config.json")
    method = _method(raw)
    if method is None:
        return Reader(None, raw.path, said=[f"{raw.path}: no quant_method, and nothing else that names a format"])
    if method == "modelopt" and hf_quant_config is not None and _lacks_map(raw):
        return Reader(_read("modelopt", Raw(hf_quant_config, "hf_quant_config.json")), "hf_quant_config.json")
    if family.name == "deepseek_v4" and method in ("fp8", "deepseek_v4_fp8") and f.model_type != "deepseek_ref":
        dtype = config.get("expert_dtype", f.config.get("expert_dtype", raw.data.get("expert_dtype")))
        from moe_preflight.model.quantization.simple import deepseek_v4

        return Reader(deepseek_v4(raw, dtype), raw.path)
    return Reader(_read(method, raw), raw.path)


def _find(config: Mapping[str, object], f: Fields) -> Raw | None:
    places = [(config, "quantization_config", "quantization_config")]
    if f.section:
        places.append((f.config, "quantization_config", f"{f.section}.quantization_config"))
    places += [(config, "compression_config", "compression_config"), (config, "quantization", "quantization")]
    for holder, key, path in places:
        raw = holder.get(key)
        if raw is None or raw == {}:
            continue
        if not isinstance(raw, Mapping):
            raise wrong(path, raw, "an object")
        return Raw(raw, path)
    return None


def _method(raw: Raw) -> str | None:
    """The checkpoint's word, or what else gives the format away."""
    word = raw.text("quant_method")
    if word:
        low = word.lower().replace("compressed_tensors", "compressed-tensors")
        return "modelopt" if low.startswith("modelopt") else low
    producer = raw.data.get("producer")
    if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return "modelopt"
    if raw.has("quant_algo"):
        return "modelopt"
    if raw.has("config_groups"):
        return "compressed-tensors"
    if raw.has("bits") and raw.has("group_size"):
        return "mlx"
    if raw.flag("load_in_4bit") or raw.flag("load_in_8bit"):
        return "bitsandbytes"
    return None


def _lacks_map(raw: Raw) -> bool:
    inner = raw.data.get("quantization")
    holder = inner if isinstance(inner, Mapping) else raw.data
    return str(holder.get("quant_algo")).upper() == "MIXED_PRECISION" and "quantized_layers" not in holder
