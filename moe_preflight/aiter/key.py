"""What AITER's ``fused_moe`` is asked, and what it would do: the two nouns of the aiter room.

Words are AITER's (aiter/fused_moe.py): ``model_dim`` is K of stage 1, ``inter_dim`` the width of one expert on one
rank, ``expert`` the experts on this rank, ``topk`` the columns of topk_ids, ``token`` the rows of the activation.
"""

from __future__ import annotations

from dataclasses import dataclass

Confidence = str
"""``verified`` | ``read`` | ``modelled`` | ``unverified`` | ``measured`` (DESIGN section 4)."""


NOT_READ = "not looked at: "
"""Begins a Stage's reason when its verdict is open because a list of kernels could not be read."""


@dataclass(frozen=True, slots=True)
class Key:
    """One question to ``fused_moe``. dtypes are short names: bf16 fp16 fp8 i8 fp4x2 i4x2 u32; ``q_type`` is No,
    per_Tensor, per_Token, per_1x32, per_1x128 or per_128x128; ``act`` silu, gelu, swiglu, situv2, gelutanh or no."""

    token: int
    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    act: str = "silu"
    dtype: str = "bf16"
    q_dtype_w: str = "bf16"
    q_type: str = "No"
    use_g1u1: bool = True
    doweight_stage1: bool = False
    q_dtype_a: str | None = None
    is_shuffled: bool = True
    gate_mode: str = "separated"
    is_ep: bool = False
    """An expert mask is given. From v0.1.16 AITER then takes the last column of topk_ids for a dummy and looks up topk - 1."""
    bias2: bool = False
    """Stage 2 has a per-expert bias."""
    env: tuple[tuple[str, str], ...] = ()
    """AITER variables the calling engine has set in its own process, over those of the run."""


@dataclass(frozen=True, slots=True)
class TunedRow:
    """One row of a tuned table. ``file`` is relative to the AITER tree (or as in AITER_CONFIG_FMOE), ``line`` 1-based."""

    file: str
    line: int
    kernel1: str
    kernel2: str
    us: float | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One GEMM of the two. ``func`` is AITER's own function name, ``kind`` asm | ck | cktile | flydsl | opus | none."""

    func: str
    kind: str
    kernel: str
    tile_n: int | None
    tile_k: int | None
    accepted: bool | None
    reason: str
    name_missing: bool = False
    """The tuned row's kernel is not among those that are built, so another tile was judged."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """AITER's answer for one key at one token bucket.

    ``path`` is 1stage, ck2stages, cktile, flydsl, opus or asm+ck. ``tuned`` is hit, tier, miss or unknown (no table).
    ``stage2`` is None for a one-stage path. ``error`` holds the text AITER itself would raise while choosing.
    ``notes`` are short codes of things worth a finding (``kernel-not-in-instance-list``, ``borrowed-activation`` ...).
    """

    token: int
    lookup_token: int
    q_dtype_a: str
    path: str
    stage1: Stage
    stage2: Stage | None
    block_m: int
    ksplit: int
    run_1stage: bool
    tuned: str
    row: TunedRow | None
    rows: tuple[TunedRow, ...]
    confidence: Confidence
    error: str | None = None
    notes: tuple[str, ...] = ()
