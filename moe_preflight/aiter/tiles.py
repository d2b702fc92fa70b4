"""Will CK accept this GEMM: the tile AITER picks for a stage, and the one rule that decides.

Stage 1 computes gate and up: N = inter_dim, K = model_dim. Stage 2 computes down: N = model_dim, K = inter_dim. CK's
IsSupportedArgument comes down to N % NPerBlock == 0 and K % KPerBlock == 0, because AITER always asks for the Default
specialisation, which never pads (device_moe_gemm.hpp:408 and gridwise CheckValidity). Checked against CK's own answer for
every compiled tile: 6417 of 6417 agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from moe_preflight.aiter.ck import PACK, CkModule, Instance
from moe_preflight.aiter.ck_facts import CkFacts, builtin, tag_of
from moe_preflight.aiter.kernel_names import parse
from moe_preflight.aiter.key import Confidence
from moe_preflight.aiter.version import Version

REJECTED = "wrong! device_gemm with the specified compilation parameters does not support this GEMM problem"
"""What AITER throws when CK rejects, the same for both stages (gemm_moe_ck2stages_common*.cuh)."""
NO_BLOCK_M = "Unsupported block_m value for moe heuristic dispatch: "
NO_CONFIG = "Unsupported kernel config for moe heuristic dispatch"


@dataclass(frozen=True, slots=True)
class TileVerdict:
    """CK's answer for one stage.

    ``tile_n`` and ``tile_k`` are the instance's NPerBlock and KPerBlock (for fp4, KPerBlock counts packed pairs); None
    where no kernel exists. ``accepted`` is None when it cannot be said. ``reason`` is in plain words. ``from_name`` says the
    tile is the tuned kernel's own; ``name_missing`` that a tuned name was given which the module does not hold, so AITER
    warns "ck kernel not found" and takes the heuristic tile. ``raises`` is the text AITER raises, empty when accepted.
    ``source`` is where the tile was read.
    """

    tile_n: int | None
    tile_k: int | None
    accepted: bool | None
    reason: str
    from_name: bool = False
    name_missing: bool = False
    raises: str = ""
    source: str = ""
    instance: str = ""
    confidence: Confidence = "modelled"


def judge_stage(
    version: Version | None,
    gfx: str,
    family: str | None,
    stage: int,
    block_m: int,
    model_dim: int,
    inter_dim: int,
    kernel_name: str = "",
    tree_facts: CkFacts | None = None,
    *,
    multi_arch: bool = False,
    module: CkModule | None = None,
    use_g1u1: bool = True,
    ksplit: int = 0,
) -> TileVerdict:
    """The tile of ``stage`` (1 or 2) and whether CK accepts it.

    ``family`` is ck.family()'s answer; None means AITER has no kernel for these operands. ``block_m`` is what the dispatch
    chose. ``kernel_name`` is the tuned row's name for this stage; ``module`` the JIT module it is looked up in (None: only
    what the instance list says is compared). ``tree_facts`` replaces the built-in tables of ``version``. ``multi_arch``
    stands for prebuilt modules of a build for several architectures. ``use_g1u1`` False halves N of stage 1, because AITER
    takes it as half the rows of w1 whatever they are (gemm_moe_ck2stages.cu:107, v0.1.20.post1). ``ksplit`` is the split of K
    in blockscale stage 1.
    """
    facts = tree_facts if tree_facts is not None else builtin(version)
    if family is None:
        return TileVerdict(None, None, False, "AITER compiles no CK kernel for these operand types", raises=NO_CONFIG)
    tag = tag_of(family, gfx, multi_arch=multi_arch and (module is None or module.prebuilt))
    width = inter_dim if use_g1u1 or stage == 2 else inter_dim // 2
    n, k = (width, model_dim) if stage == 1 else (model_dim, width)
    if module is not None and module.act not in facts.activations:
        return TileVerdict(
            None,
            None,
            False,
            f"AITER's CK code generator knows no activation {module.act}, so {module.name} cannot be built",
            raises=f"argument -act/--activation: invalid choice: '{module.act}'",
            confidence=facts.confidence,
        )

    source, confidence = facts.sources.get((tag, stage), ""), facts.confidence
    prefix, missing = "", False
    instance: Instance | None = None
    if kernel_name:
        name = parse(kernel_name)
        if name is not None and facts.holds_name(name, stage, tag, module):
            assert name.ck is not None
            instance, source = name.ck.instance, "the kernel's name"
        else:
            missing = True
            prefix = f"{kernel_name} is not in {module.name if module else 'the instance list'}: the heuristic tile is taken; "
    if instance is None:
        instance = facts.tile(tag, stage, block_m, width)
        if instance is None:
            reason = f"{prefix}there is no tile for block_m {block_m} in table {tag} stage {stage}"
            raised = f"{NO_BLOCK_M}{block_m}"
            return TileVerdict(None, None, False, reason, False, missing, raised, source, confidence=confidence)

    accepted, reason = accepts(instance, n, k, PACK.get(family, 1))
    raises = "" if accepted else REJECTED
    if accepted and stage == 1 and family == "a8w8blkscale" and (complaint := _split(k, instance.k, ksplit)):
        accepted, reason, raises = False, complaint, complaint
    return TileVerdict(
        instance.n,
        instance.k,
        accepted,
        prefix + reason,
        bool(kernel_name) and not missing,
        missing,
        raises,
        source,
        str(instance),
        confidence,
    )


def accepts(instance: Instance, n: int, k: int, pack: int = 1) -> tuple[bool, str]:
    """CK's rule for an N x K GEMM, and its reason in words. ``pack`` elements make one unit of the instance's K."""
    step = instance.k * pack
    unit = f"{instance.k} (packed pairs, {step} elements)" if pack > 1 else f"{step}"
    wrong = []
    if n % instance.n:
        wrong.append(f"{n} is not a multiple of tile N {instance.n}")
    if k % step:
        wrong.append(f"{k} is not a multiple of tile K {unit}")
    if wrong:
        return False, ", and ".join(wrong)
    return True, f"{n} is a multiple of tile N {instance.n} and {k} of tile K {unit}"


def _split(k: int, tile_k: int, ksplit: int) -> str:
    """AITER's own check when K is split (gemm_moe_ck2stages_common_blockscale.cuh:55-66, since v0.1.9); empty: it holds."""
    batch = k // (ksplit * tile_k) if ksplit > 1 else 1
    if batch > 1 and batch * tile_k * ksplit != k:
        return f"K({k}) must be a multiple of KPerBlock({tile_k}) * splitk({ksplit})."
    return ""
