"""Where vLLM stops before or beside the choice of a kernel: bad parallel sizes, missing architectures, bare assertions."""

from __future__ import annotations

from collections.abc import Mapping

from moe_preflight.engine.architecture import Found
from moe_preflight.engine.facts.vllm_blocks import Block
from moe_preflight.engine.facts.vllm_quantization import DEPRECATED, KNOWN, ROCM
from moe_preflight.engine.facts.vllm_releases import Release, at_least
from moe_preflight.engine.parallel import Split
from moe_preflight.engine.plan import Deployment, Note, Refusal
from moe_preflight.errors import UsageError
from moe_preflight.model.moe import ExpertLayer, MoEModel

# MoEBackend (vllm/config/kernel.py:122 of 0.33.0) with the release each name came in, None: before 0.30.0.
MOE_BACKENDS: dict[str, str | None] = {
    "auto": None, "triton": None, "batched_triton": None, "deep_gemm": None, "deep_gemm_mega_moe": None, "cutlass": None,
    "flashinfer_trtllm": None, "flashinfer_cutlass": None, "flashinfer_cutedsl": None, "flashinfer_moe_ep_cutedsl": "0.32.0",
    "flashinfer_b12x": None, "b12x": None, "flashinfer_moe_ep_mega_deep_gemm": None, "marlin": None, "humming": None,
    "triton_unfused": None, "aiter": None, "aiter_mega_moe": "0.32.0", "aiter_triton_mxfp4_bf16": "0.30.0",
    "aiter_triton_mxfp4_mxfp4": "0.33.0", "flydsl": None, "hpc": None, "emulation": None, "rdna3": "0.30.0",
}  # fmt: skip
ALL2ALL: dict[str, str | None] = {
    "naive": None, "pplx": None, "deepep_high_throughput": None, "deepep_low_latency": None, "deepep_v2": None,
    "mori_high_throughput": None, "mori_low_latency": None, "moonep": "0.31.0", "nixl_ep": None,
    "allgather_reducescatter": None, "flashinfer_all2allv": None, "flashinfer_nvlink_two_sided": None,
    "flashinfer_nvlink_one_sided": None, "passthrough": "0.32.0",
}  # fmt: skip

_EXPERT_FIELDS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


def usage(deployment: Deployment, release: Release) -> None:
    """A backend or all2all name this release does not have: its own argument parser refuses it."""
    for flag, value, known in (
        ("--moe-backend", deployment.moe_backend, MOE_BACKENDS),
        ("--all2all-backend", deployment.all2all, ALL2ALL),
    ):
        if value is None:
            continue
        names = [n for n, since in known.items() if since is None or at_least(release, since)]
        if value not in names:
            from difflib import get_close_matches

            close = get_close_matches(value, names, n=1)
            guess = f"Did you mean {close[0]}? " if close else ""
            raise UsageError(
                f"{flag} {value}: vLLM {release.version} has no such name.", hint=f"{guess}It has: {', '.join(names)}."
            )


def activation(layer: ExpertLayer, block: Block) -> str:
    """MoEActivation by vLLM's word: the file's own, or the checkpoint's; ``_no_mul`` when the experts are not gated."""
    word = layer.activation if block.activation == "config" else block.activation
    word = {"gelu_pytorch_tanh": "gelu_tanh"}.get(word, word)
    return word if layer.gated or word.endswith("_no_mul") else f"{word}_no_mul"


def passed_width(model: MoEModel, layer: ExpertLayer, block: Block, deployment: Deployment) -> int:
    """The expert width the model file passes on: Kimi-K3 / KimiLinear widens narrow shards itself (amd/linear.py:227)."""
    width, tp = layer.moe_intermediate_size, deployment.tp
    if block.name == "kimi_k3" and tp > 1:
        least = _text(model.config).get("min_moe_intermediate_per_partition", 256)
        least = least if isinstance(least, int) and not isinstance(least, bool) else 256
        if width // tp < least:
            return least * tp
    return width


def config(model: MoEModel, deployment: Deployment, found: Found, release: Release) -> list[Refusal]:
    """Refusals of vLLM's configuration classes, in the order they would be met."""
    out: list[Refusal] = []
    for name, value in (
        ("tensor_parallel_size", deployment.tp), ("data_parallel_size", deployment.dp),
        ("prefill_context_parallel_size", deployment.pcp), ("pipeline_parallel_size", deployment.pp),
    ):  # fmt: skip
        if value < 1:
            out.append(
                Refusal(
                    "config",
                    "Input should be greater than or equal to 1",
                    f"{name}={value}: vLLM's ParallelConfig takes 1 or more.",
                    f"Give {name.replace('_', '-')} 1 or more.",
                    "vllm/config/parallel.py:140 (0.33.0)",
                )
            )
    if deployment.redundant_experts < 0:
        out.append(
            Refusal(
                "config",
                "Input should be greater than or equal to 0",
                f"num_redundant_experts={deployment.redundant_experts}: vLLM's EPLBConfig takes 0 or more.",
                "Give 0 or more redundant experts.",
                "vllm/config/parallel.py:77 (0.33.0)",
            )
        )
    out += _strict(model)
    if found.refusal is not None:
        out.append(found.refusal)
    out += _method(model)
    out += _ordering(model, release)
    heads, tp = model.num_attention_heads, deployment.tp
    if heads is not None and tp > 1 and heads % tp:
        fits = [str(n) for n in range(1, 17) if heads % n == 0]
        out.append(
            Refusal(
                "config",
                f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({tp}).",
                f"vLLM splits {heads} attention heads over the tensor parallel ranks; {tp} does not divide them.",
                f"Use a tensor parallel size that divides {heads}: {', '.join(fits)}.",
                "vllm/config/model.py:1559 (0.33.0)",
            )
        )
    if deployment.ep and not _counts_experts(model):
        out.append(
            Refusal(
                "config",
                "Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
                "vLLM looks for the expert count in the text config's top level only "
                f"({', '.join(_EXPERT_FIELDS)}) and finds none.",
                "Drop --enable-expert-parallel.",
                "vllm/config/model.py:1498 (0.33.0)",
            )
        )
    return out


def _method(model: MoEModel) -> list[Refusal]:
    """_verify_quantization (vllm/config/model.py:1383): a method vLLM does not know, does not run on ROCm, or gave up."""
    method = model.quantization.method
    if method is None or method == "mlx":  # MLX writes no quant_method at all
        return []
    where, remedy = "vllm/config/model.py:1464 (0.33.0)", "Use another checkpoint of this model."
    if method not in KNOWN:
        text = f"Unknown quantization method: {method}. Must be one of {list(KNOWN)}."
        return [Refusal("config", text, f"vLLM has no quantization method called {method}.", remedy, where)]
    if method not in ROCM:
        text = f"{method} quantization is currently not supported in rocm."
        return [
            Refusal("config", text, f"vLLM does not run {method} on AMD GPUs.", remedy, "vllm/platforms/rocm.py:668 (0.33.0)")
        ]
    if method in DEPRECATED:
        text = "The quantization method %s is deprecated and will be removed in future versions of vLLM."
        why = f"vLLM refuses {method} unless it is told otherwise."
        return [Refusal("config", text, why, "Add --allow-deprecated-quantization.", where)]
    return []


def _ordering(model: MoEModel, release: Release) -> list[Refusal]:
    """Group-wise activation ordering is gone with 0.30.0: GPTQ (gptq_utils.py:34) and compressed-tensors
    (compressed_tensors.py:336) both refuse the checkpoint while they read its config."""
    if not at_least(release, "0.30.0"):
        return []
    found = (model.quantization, *(layer.quantization for layer in model.layers))
    remedy = "Use a checkpoint without group-wise activation ordering, or vLLM 0.29."
    why = "the checkpoint's weights are ordered by activation within groups, and vLLM dropped the kernels for that."
    if any(q.method == "gptq" and q.detail.get("desc_act") is True and q.group_size not in (None, -1) for q in found):
        text = (
            "GPTQ group activation ordering (desc_act=True) is no longer supported. Use a checkpoint with static activation "
            "ordering or desc_act=False."
        )
        return [Refusal("config", text, why, remedy, "vllm/model_executor/layers/quantization/utils/gptq_utils.py:34 (0.33.0)")]
    orders = [q.detail.get("actorder") for q in found if q.method == "compressed-tensors"]
    order = next((o for o in orders if o in ("group", "dynamic")), None)
    if order is None:
        return []
    text = (
        f"Compressed-tensors group/dynamic activation ordering (actorder={order!r}) is no longer supported. Use a checkpoint with "
        "static/weight activation ordering or without activation ordering."
    )
    where = "vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py:340 (0.33.0)"
    return [Refusal("config", text, why, remedy, where)]


STRICT: dict[tuple[str, str], type] = {("llama4_text", "attn_temperature_tuning"): bool}
"""(model_type, field) whose type transformers' config class enforces and published configs get wrong (5.16 - 5.20)."""


def _strict(model: MoEModel) -> list[Refusal]:
    """transformers' strict config classes refuse a field of the wrong type before vLLM looks at it."""
    text = _text(model.config)
    out: list[Refusal] = []
    for (model_type, name), expected in STRICT.items():
        value = text.get(name)
        if text.get("model_type") != model_type or value is None or type(value) is expected:
            continue
        got = type(value).__name__
        out.append(
            Refusal(
                "config",
                f"Validation error for field '{name}':\n    TypeError: Field '{name}' expected {expected.__name__}, got {got} "
                f"(value: {value!r})",
                f"transformers 5.16 - 5.20, which this vLLM needs, checks {name} of {model_type} strictly.",
                f"Set {name} to {'true' if value else 'false'} in the config.",
                "transformers 5.20 Llama4TextConfig (strict dataclass)",
            )
        )
    return out


def _counts_experts(model: MoEModel) -> bool:
    """is_moe: an expert count under vLLM's alias list, in the text config (model_arch_config_convertor.py:179)."""
    if not model.config:
        return bool(model.layers)
    text = _text(model.config)
    for name in _EXPERT_FIELDS:
        value = text.get(name)
        if isinstance(value, list):
            value = value[0] if value else 0
        if value is not None:
            if value:
                return True
            break
    blocks = text.get("block_configs")
    return isinstance(blocks, list) and any(isinstance(b, Mapping) and b.get("block_type") == "moe" for b in blocks)


def text_config(model_: MoEModel) -> Mapping[str, object]:
    """The part of the config that describes the decoder."""
    return _text(model_.config)


def _text(config: Mapping[str, object]) -> Mapping[str, object]:
    for name in ("text_config", "language_config", "llm_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return _text(inner) if "text_config" in inner else inner
    return config


def model(model_: MoEModel, layer_: ExpertLayer, block: Block, deployment: Deployment, release: Release) -> list[Refusal]:
    """Refusals of the model file while it builds the block of ``layer_``."""
    out: list[Refusal] = []
    tp, experts = deployment.tp, layer_.experts
    if block.tp_within_experts and tp > experts:
        out.append(
            Refusal(
                "model",
                f"Tensor parallel size {tp} is greater than the number of experts {experts}.",
                "this model file refuses more tensor parallel ranks than experts.",
                f"Use a tensor parallel size of at most {experts}.",
                f"vllm/model_executor/models/{block.line} (0.33.0)",
            )
        )
    kv = _kv_heads(model_)
    if kv and tp > 1 and (kv % tp if kv >= tp else tp % kv):
        out.append(
            Refusal(
                "model",
                "AssertionError",
                f"the attention asserts that its {kv} key-value heads divide by the tensor parallel size {tp}, or the reverse.",
                f"Use a tensor parallel size that divides {kv} or is a multiple of it.",
                "vllm/model_executor/layers/linear.py QKVParallelLinear (0.33.0)",
            )
        )
    if block.name == "deepseek_v4" and tp > 0 and experts % tp:
        out.append(
            Refusal(
                "model",
                "AssertionError",
                f"DeepSeek-V4 asserts that its {experts} experts divide by the tensor parallel size ({tp}), EP or not.",
                f"Use a tensor parallel size that divides {experts}.",
                "vllm/models/deepseek_v4/amd/model.py:714 (0.33.0)",
            )
        )
    return out


def _kv_heads(model_: MoEModel) -> int:
    """Key-value heads of a model with ordinary attention; 0 where it has none, or compresses them (MLA)."""
    text = _text(model_.config)
    if text.get("kv_lora_rank") or text.get("q_lora_rank"):
        return 0
    for name in ("num_key_value_heads", "num_kv_heads", "num_attention_groups"):
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, value)
    return 0


VISION_TOWERS = frozenset(
    ("ernie45_vl", "glm4_1v", "kimi_k25", "kimi_vl", "qwen3_5", "qwen3_omni_moe_thinker", "qwen3_vl_moe", "vllm.models.kimi_k3")
)
"""Files whose vision tower splits its heads by the tensor parallel size unless --mm-encoder-tp-mode data is given."""


def vision_note(model_: MoEModel, file: str | None, deployment: Deployment) -> Note | None:
    """A bare assertion of the vision tower, which one flag lifts: a note, not a refusal of the experts."""
    tower = model_.config.get("vision_config")
    if file not in VISION_TOWERS or not isinstance(tower, Mapping) or deployment.tp <= 1:
        return None
    for name in ("num_heads", "vt_num_attention_heads", "num_attention_heads"):
        heads = tower.get(name)
        if isinstance(heads, int) and not isinstance(heads, bool) and heads > 0 and heads % deployment.tp:
            text = (
                f"The vision tower has {heads} heads: vLLM asserts '{heads} is not divisible by {deployment.tp}' unless it is started "
                "with --mm-encoder-tp-mode data. The experts are not affected."
            )
            source = "vllm/model_executor/models/glm4_1v.py:292 (0.33.0)"
            return Note("vision-tower-heads", text, source, {"heads": heads, "tp": deployment.tp})
    return None


def pipeline_note(model_: MoEModel, deployment: Deployment) -> Note | None:
    """More pipeline ranks than layers: some ranks own none. What vLLM then does was not run."""
    if deployment.pp <= model_.num_layers or not model_.num_layers:
        return None
    text = f"{deployment.pp} pipeline ranks share {model_.num_layers} layers: some own none (unverified what vLLM does then)."
    return Note("pipeline-ranks-without-layers", text, "vllm/distributed/utils.py:225 (0.33.0)", {"layers": model_.num_layers})


def layer(layer_: ExpertLayer, width: int, split: Split, deployment: Deployment) -> list[Refusal]:
    """Refusals of the MoE layer itself, before a backend is chosen."""
    out: list[Refusal] = []
    experts = layer_.experts + deployment.redundant_experts
    if deployment.redundant_experts > 0:
        if not deployment.ep:
            out.append(
                Refusal(
                    "config",
                    "enable_expert_parallel must be True to use EPLB.",
                    "redundant experts belong to the expert load balancer, which needs expert parallelism.",
                    "Add --enable-expert-parallel, or drop the redundant experts.",
                    "vllm/config/parallel.py:575 (0.33.0)",
                )
            )
        elif split.use_ep and experts % split.ep_size:
            out.append(
                Refusal(
                    "layer",
                    "EPLB currently only supports even distribution of experts across ranks. "
                    f"Got {experts} experts and {split.ep_size} EP ranks.",
                    f"{layer_.experts} experts and {deployment.redundant_experts} spare ones do not divide by {split.ep_size}.",
                    "Choose the redundant experts so that the sum divides by the expert parallel size.",
                    "vllm/model_executor/layers/fused_moe/layer.py:262 (0.33.0)",
                )
            )
    if width % split.moe_tp:
        out.append(
            Refusal(
                "layer",
                "AssertionError",
                f"the expert width {width} does not divide by the {split.moe_tp} ranks it is split over "
                "(a bare assertion of FusedMoEConfig).",
                "Use a split that divides the expert width, or --enable-expert-parallel, which leaves it whole.",
                "vllm/model_executor/layers/fused_moe/config.py:1352 (0.33.0)",
            )
        )
    return out
