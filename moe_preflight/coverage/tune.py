"""What to hand to AITER's tuner: the keys that were missed, in the columns it reads; and the keys no tuning can help. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from moe_preflight.aiter.ck import PACK, family
from moe_preflight.aiter.ck_facts import builtin, tag_of
from moe_preflight.aiter.dispatch import Dispatcher
from moe_preflight.aiter.dtypes import ACTS, QUANTS, torch_name
from moe_preflight.aiter.entry import QUANT_REMAP
from moe_preflight.aiter.key import Dispatch, Key
from moe_preflight.aiter.version import Version
from moe_preflight.coverage.lint.run import UNTUNED_COLUMNS
from moe_preflight.engine.plan import EnginePlan
from moe_preflight.evaluate import key_of

Line = tuple[str, ...]
"""One row of untuned_fmoe.csv, in the order of its columns."""

COLUMNS = UNTUNED_COLUMNS


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Buckets of one layer that no tuned row can help, and why."""

    model: str
    target: str
    layer: str
    tokens: tuple[int, ...]
    reason: str
    source: str


@dataclass(slots=True)
class Wanted:
    """``lines`` holds every missed key once, in order of models, then tokens; ``served`` counts buckets that have a row already.
    ``off`` are (model, target, reason) that never reach AITER, ``refused`` how many of them the engine does not start at all, ``unknown``
    buckets whose tables could not be looked at."""

    lines: dict[Line, None] = field(default_factory=dict)
    hopeless: list[Hopeless] = field(default_factory=list)
    off: list[tuple[str, str, str]] = field(default_factory=list)
    refused: int = 0
    served: int = 0
    unknown: int = 0

    def add(self, model: str, plan: EnginePlan, dispatcher: Dispatcher, buckets: Sequence[int], name: str) -> None:
        """The missed keys of one target; ``name`` is the target's, such as ``TP8 MI300X``."""
        refused = next((r.error for r in plan.refusals), None)
        for layer in plan.layers:
            refusal = refused or next((r.error for r in layer.refusals), None)
            p = layer.problem
            if refusal or not layer.backend.on_aiter or p.q_type is None or p.q_dtype_w is None:
                reason = f"the engine refuses: {refusal}" if refusal else f"{layer.backend.name}: {layer.backend.reason}"
                self.off.append((model, name, reason))
                self.refused += bool(refusal)
                continue
            hopeless: dict[tuple[str, str], list[int]] = {}
            for token, d in _both_ends(key_of(p, dispatcher.rules), dispatcher, buckets):
                if d.tuned in ("hit", "tier") and not d.error:
                    self.served += 1
                elif d.tuned == "unknown" and not d.error:
                    self.unknown += 1
                elif why := _beyond_help(key_of(p, dispatcher.rules), d, dispatcher):
                    tokens = hopeless.setdefault(why, [])
                    if token not in tokens:
                        tokens.append(token)
                elif d.tuned == "miss":
                    lookup_topk = p.topk - int(p.is_ep and dispatcher.rules.ep_topk)
                    self.lines[_line(key_of(p, dispatcher.rules), d, lookup_topk, dispatcher.gfx)] = None
            for (reason, source), tokens in hopeless.items():
                self.hopeless.append(Hopeless(model, name, layer.layer.name, tuple(tokens), reason, source))


def _both_ends(key: Key, dispatcher: Dispatcher, buckets: Sequence[int]) -> Iterator[tuple[int, Dispatch]]:
    """Each bucket's answer at its largest token count, and at its smallest where AITER takes another activation dtype there."""
    for bucket in buckets:
        top = dispatcher.dispatch(replace(key, token=bucket))
        yield bucket, top
        low = _smallest(bucket, dispatcher)
        if low != bucket:
            bottom = dispatcher.dispatch(replace(key, token=low))
            if bottom.q_dtype_a != top.q_dtype_a:
                yield bucket, bottom


def _smallest(bucket: int, dispatcher: Dispatcher) -> int:
    """The smallest token count that is looked up as ``bucket``."""
    low, high = 1, bucket
    while low < high:
        middle = (low + high) // 2
        if dispatcher.bucket(middle) < bucket:
            low = middle + 1
        else:
            high = middle
    return low


def _line(key: Key, d: Dispatch, topk: int, gfx: str) -> Line:
    quant = QUANTS[QUANT_REMAP.get(key.q_type, key.q_type)]
    dtypes = (torch_name(x, gfx) for x in (key.dtype, d.q_dtype_a, key.q_dtype_w))
    sizes = (d.lookup_token, key.model_dim, key.inter_dim, key.expert, topk)
    return (*map(str, sizes), ACTS[key.act], *dtypes, quant, str(int(key.use_g1u1)), str(int(key.doweight_stage1)))


# --- what no tuner can help ------------------------------------------------------------------------------------------


def _beyond_help(key: Key, d: Dispatch, dispatcher: Dispatcher) -> tuple[str, str] | None:
    """(why, source) when a tuned row for this key could not help; None when it could, or that cannot be said."""
    if d.error and d.row is not None:
        where = f"{d.row.file}:{d.row.line}"
        return f'the row {where} makes AITER raise "{d.error}": mend or remove it first, a new row would stand beside it', where
    if d.error:
        return f'AITER raises before it takes any kernel: "{d.error}"', "aiter/fused_moe.py"
    if "blockscale-bypass" in d.notes:
        return (
            "this release bypasses its tuned rows for such small block-scale problems",
            "aiter/fused_moe.py use_cfg (v0.1.9 to v0.1.12)",
        )
    if "bypassed" in d.notes:
        return "AITER_BYPASS_TUNE_CONFIG=1 bypasses every tuned row", "aiter/fused_moe.py get_2stage_cfgs"
    if key.q_dtype_w == "u32":
        return (
            "AITER's tuner writes torch.int4 for these weights and its lookup asks for torch.uint32, so a tuned row is never found",
            "aiter/fused_moe.py get_2stage_cfgs MainFunc (v0.1.20.post1:2229-2240)",
        )
    return _no_kernel(key, d.q_dtype_a, dispatcher.version, dispatcher.gfx)


def _no_kernel(key: Key, q_dtype_a: str, version: Version, gfx: str) -> tuple[str, str] | None:
    """Whether no instance of CK takes the sizes, for operands that only CK has kernels for: gated 16-bit and block-scale fp8.

    Block-scale fp8 also has assembly kernels; those want the same multiple of 128 (asm_fmoe.cu fmoe_fp8_blockscale_g1u1,
    asm_moe_2stage.cu tile_n 128), so a width that is none has no kernel at all.
    """
    quant = QUANT_REMAP.get(key.q_type, key.q_type)
    name = family(quant, q_dtype_a, key.q_dtype_w, key.is_shuffled)
    only_ck = name == "a16w16" and key.use_g1u1
    if name is None or not (only_ck or (name == "a8w8blkscale" and key.inter_dim % 128)):
        return None
    facts, tag, pack = builtin(version), tag_of(name, gfx), PACK.get(name, 1)
    for stage, n, k in ((1, key.inter_dim, key.model_dim), (2, key.model_dim, key.inter_dim)):
        tiles = sorted({(i.n, i.k * pack) for i in facts.instances[tag, stage]})
        if not any(n % tile_n == 0 and k % tile_k == 0 for tile_n, tile_k in tiles):
            what = "inter_dim x model_dim" if stage == 1 else "model_dim x inter_dim"
            shown = ", ".join(f"{a}x{b}" for a, b in tiles)
            return (
                f"no stage {stage} kernel of {tag} divides {what} {n} x {k} (its tiles: {shown})",
                "csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py; device_moe_gemm.hpp:408",
            )
    return None


# --- the tuner -------------------------------------------------------------------------------------------------------

_SCRIPTS = (
    ("0.1.10", "{csrc}/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py"),
    ("0", "{hsa}/{gfx}/fmoe_2stages/tune.py"),
)
"""Where the fMoE tuner is, by the release it moved in (get_2stage_cfgs MainFunc of v0.1.7.post2 to v0.1.20.post1)."""


def script(version: Version, gfx: str, *, csrc: str = "csrc", hsa: str = "hsa") -> str:
    """The tuner's path, relative to the tree."""
    place = next(path for since, path in _SCRIPTS if version >= Version.of(since))
    return place.format(csrc=csrc, hsa=hsa, gfx=gfx)


def command(
    version: Version, gfx: str, root: str | None, untuned: str, tuned: str, *, csrc: str = "csrc", hsa: str = "hsa"
) -> str:
    """What to run on the GPU, as a shell line."""
    from shlex import quote

    path = script(version, gfx, csrc=csrc, hsa=hsa)
    return f"python3 {quote(f'{root}/{path}' if root else path)} -i {quote(untuned)} -o {quote(tuned)}"


def as_csv(lines: Iterable[Line]) -> str:
    """untuned_fmoe.csv: the header and one key a line."""
    return "\n".join([",".join(COLUMNS), *(",".join(line) for line in lines)]) + "\n"
