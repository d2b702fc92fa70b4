"""How the experts of one layer are stored, read from the checkpoint's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moe_preflight.model.family import Family
from moe_preflight.model.fields import Fields, wrong
from moe_preflight.model.moe import Quantization


@dataclass(frozen=True, slots=True)
class Reader:
    plain: Quantization

    def overall(self) -> Quantization:
        return self.plain

    def of(self, names: Sequence[str], parts: Sequence[str]) -> Quantization:
        return self.plain

    def notes(self) -> tuple[str, ...]:
        return ()


def reader(config: Mapping[str, object], f: Fields, family: Family, hf_quant: Mapping[str, object] | None) -> Reader:
    raw = config.get("quantization_config") or f.config.get("quantization_config")
    if raw is None:
        return Reader(Quantization())
    if not isinstance(raw, Mapping):
        raise wrong("quantization_config", raw, "an object")
    method = str(raw.get("quant_method"))
    if method == "mxfp4":
        return Reader(Quantization("mxfp4", "mxfp4", "fp4", None, "group", group_size=32))
    if method == "fp8" and raw.get("weight_block_size"):
        b = raw["weight_block_size"]
        return Reader(Quantization("fp8", "fp8_block", "fp8", "fp8", "block", "group", True, (b[0], b[1])))  # type: ignore[index]
    return Reader(Quantization(method, "other", "other"))
