"""What a checkpoint says about its experts: the nouns of the model room. Nothing here knows an engine or AITER."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the *experts of one layer* are stored. A layer the checkpoint excludes from quantization has scheme ``none``.

    ``method`` is the checkpoint's own word (quant_method: fp8, compressed-tensors, quark, modelopt, mxfp4, gptq, awq ...;
    None when it has no quantization at all); ``scheme`` is ours, one of SCHEMES.
    ``weight_strategy`` / ``activation_strategy`` are tensor, channel, token, block, group or None; ``block_shape`` is
    (rows, columns) of one scale. ``activation_dynamic`` is None when activations are not quantized.
    """

    method: str | None = None
    scheme: str = "none"
    weight_dtype: str = "bf16"
    activation_dtype: str | None = None
    weight_strategy: str | None = None
    activation_strategy: str | None = None
    activation_dynamic: bool | None = None
    block_shape: tuple[int, int] | None = None
    group_size: int | None = None
    symmetric: bool = True
    excluded_modules_count: int = 0
    detail: Mapping[str, object] = field(default_factory=dict, hash=False)
    """What an engine rule still needs (format, actorder, quant_algo, desc_act, expert_dtype ...), by the checkpoint's words."""


SCHEMES = (
    "none", "fp8_tensor", "fp8_channel", "fp8_block", "mxfp4", "mxfp4_a4", "mxfp4_a8", "mxfp8", "mxfp6", "nvfp4",
    "nvfp4_a16", "int4", "int8_w8a16", "int8", "int4_fp8", "other",
)  # fmt: skip
"""fp8_tensor: per-tensor weights. fp8_channel: per-output-channel weights, dynamic per-token activations. fp8_block: block
scales. mxfp4: weight only (bf16 activations); mxfp4_a4: fp4 activations too; mxfp4_a8: fp8 activations. int4: weight only
(GPTQ, AWQ, pack-quantized). int8: W8A8. int4_fp8: Quark int4 weights, fp8 compute. other: named in ``detail``."""


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """One distinct *kind* of MoE layer; ``count`` layers of the model are alike.

    ``model_dim`` is K of the expert GEMM (the latent size where a model has one). ``topk`` counts routed experts only.
    ``n_group`` / ``topk_group`` are None when the config has no groups. ``layers`` are indexes in the decoder; MTP layers
    go on after the last one.
    """

    name: str
    count: int
    first_layer: int
    experts: int
    topk: int
    model_dim: int
    moe_intermediate_size: int
    activation: str = "silu"
    gated: bool = True
    n_shared: int = 0
    shared_intermediate_size: int = 0
    """Width of the whole shared expert MLP (n_shared already multiplied in); 0 when there is none."""
    scoring: str = "softmax"
    selection_bias: bool = False
    renormalize: bool = True
    n_group: int | None = None
    topk_group: int | None = None
    routed_scaling_factor: float = 1.0
    expert_bias: bool = False
    weight_on_input: bool = False
    zero_experts: int = 0
    hash_routed: bool = False
    quantization: Quantization = Quantization()
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MoEModel:
    """A model as its config tells it. ``layers`` is empty for a dense model, and when ``unknown`` leaves nothing to build one of.

    ``fields`` maps each value we used to the config path it was read from (``text_config.num_experts``, or ``default`` with
    the source of the default). ``unknown`` names fields the config does not hold and no sourced default supplies; an unknown
    size is 0 in its layer (see ``sizes_known``), and an unknown scoring reads softmax.
    ``confidence``: ``read`` for a family in our table, ``modelled`` for the generic aliases.
    ``config`` is the parsed config.json itself, for engine rules that read further fields.
    """

    id: str
    source: str
    revision: str | None
    architecture: str | None
    model_type: str | None
    hidden_size: int
    num_layers: int
    dtype: str
    num_attention_heads: int | None
    layers: tuple[ExpertLayer, ...]
    quantization: Quantization = Quantization()
    fields: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    confidence: str = "read"
    notes: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def sizes_known(self) -> bool:
        """Every number a plan needs is there. A layer with an unknown size must not be judged."""
        return not {"hidden_size", "num_layers", "experts", "topk", "moe_intermediate_size"} & set(self.unknown)

    @property
    def is_dense(self) -> bool:
        """The config says that there are no experts, which is not the same as not saying."""
        return not self.layers and not self.unknown
