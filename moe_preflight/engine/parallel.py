"""How vLLM splits experts over ranks: tp, dp, pcp, ep, pp -> sizes per rank (FusedMoEParallelConfig.make, config.py:1117)."""

from __future__ import annotations

from typing import NamedTuple

from moe_preflight.engine.plan import Deployment

ALL2ALL_DEFAULT = "allgather_reducescatter"
SOURCE = "vllm/model_executor/layers/fused_moe/config.py:1198 (0.33.0)"

# use_sequence_parallel_moe (vllm/config/parallel.py:768).
_SEQUENCE_PARALLEL = frozenset(
    (
        "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency", "deepep_v2", "flashinfer_nvlink_one_sided",
        "passthrough", "mori_high_throughput", "mori_low_latency", "nixl_ep",
    )
)  # fmt: skip


ATOM_BYTES = 512
LOW_LATENCY_SIZES = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)


class Split(NamedTuple):
    """Sizes of one MoE layer's parallel groups. ``flat`` = tp x dp x pcp, the GPUs that hold one copy of a layer's experts."""

    flat: int
    moe_tp: int
    ep_size: int
    use_ep: bool
    sequence_parallel: bool
    all2all: str
    dp: int
    pcp: int
    eplb: bool

    @property
    def uses_all2all(self) -> bool:
        """use_all2all_kernels (config.py:1035)."""
        return self.use_ep and (self.dp > 1 or self.pcp > 1 or self.sequence_parallel)

    @property
    def batched(self) -> bool:
        """The batched activation format of the low-latency all2all kernels (config.py:1066)."""
        return self.uses_all2all and self.all2all in ("deepep_low_latency", "nixl_ep")

    @property
    def nvlink(self) -> bool:
        """FlashInfer's NVLink all2all, which no kernel on ROCm takes."""
        return self.uses_all2all and self.all2all.startswith("flashinfer_")

    @property
    def mori(self) -> bool:
        return self.uses_all2all and self.all2all.startswith("mori_")

    def hidden_dim(self, hidden: int, element_bytes: int = 2) -> int | None:
        """The hidden size as the all2all kernels need it; None when they have none as large (all2all_utils.py:147).

        DeepEP's high-throughput and v2 kernels copy 512 bytes at a time (prepare_finalize/deepep_ht.py:51); the low-latency
        ones and NIXL's are compiled for a few sizes (deepep_ll.py:57, nixl_ep.py:54).
        """
        if self.uses_all2all and self.all2all in ("deepep_high_throughput", "deepep_v2"):
            unit = ATOM_BYTES // element_bytes
            return -(-hidden // unit) * unit
        if self.batched:
            return next((size for size in LOW_LATENCY_SIZES if size >= hidden), None)
        return hidden

    def inter_dim(self, moe_intermediate_size: int) -> int:
        """One expert's width on one rank; at least 1, so that a refused split can still be shown."""
        return max(1, moe_intermediate_size // self.moe_tp)

    def local_experts(self, experts: int) -> int:
        """Experts of the fullest rank: the first ``experts % ep`` ranks hold one more (expert_map_manager.py:65)."""
        return -(-experts // self.ep_size)


def split(deployment: Deployment) -> Split:
    """The groups of one MoE layer. Sizes below 1 count as 1 here; the refusal is said elsewhere."""
    tp, dp, pcp = (max(1, n) for n in (deployment.tp, deployment.dp, deployment.pcp))
    flat = tp * dp * pcp
    use_ep = deployment.ep and flat > 1
    all2all = deployment.all2all or ALL2ALL_DEFAULT
    return Split(
        flat=flat,
        moe_tp=1 if use_ep else flat,
        ep_size=flat if use_ep else 1,
        use_ep=use_ep,
        sequence_parallel=all2all in _SEQUENCE_PARALLEL and deployment.ep and tp > 1 and dp > 1,
        all2all=all2all,
        dp=dp,
        pcp=pcp,
        eplb=deployment.redundant_experts > 0,
    )


def pipeline_partition(num_layers: int, pp: int) -> tuple[int, ...]:
    """Decoder layers of each pipeline rank (get_pp_indices, vllm/distributed/utils.py:198): an even share, the rest one each
    from the last but one rank backwards."""
    share, rest = divmod(num_layers, pp)
    parts = [share] * pp
    for i in range(2, rest + 2):
        parts[-i] += 1
    return tuple(parts)


def given_partition(text: str, num_layers: int, pp: int) -> tuple[tuple[int, ...] | None, str]:
    """The shares of VLLM_PP_LAYER_PARTITION, or None and vLLM's error (vllm/distributed/utils.py:216)."""
    parts = text.split(",")
    if not all(p.strip().isdecimal() and len(p) < 10 for p in parts):
        return None, f"Invalid partition string: {text}"
    shares = tuple(int(p) for p in parts)
    if len(shares) != pp:
        return None, f"len(partitions)={len(shares)} does not match pp_size={pp}."
    if sum(shares) != num_layers:
        return None, f"sum(partitions)={sum(shares)} does not match num_hidden_layers={num_layers}."
    return shares, ""


def most_on_one_rank(layers: tuple[int, ...], count: int, num_layers: int, pp: int, shares: tuple[int, ...] | None = None) -> int:
    """The most of ``layers`` (decoder indexes) any pipeline rank owns; MTP layers, numbered after the last decoder layer,
    live on the last rank. Without indexes an even share of ``count``. ``shares`` replace vLLM's own partition."""
    if pp <= 1:
        return count
    if not layers:
        return -(-count // pp)
    ends: list[int] = []
    total = 0
    for part in shares or pipeline_partition(num_layers, pp):
        total += part
        ends.append(total)
    owned = [0] * pp
    for index in layers:
        rank = next((r for r, end in enumerate(ends) if index < end), pp - 1)
        owned[rank] += 1
    return max(owned)
