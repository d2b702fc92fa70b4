"""CK's grouped GEMM instances as AITER generates them: the nouns of tiles, and the modules they are compiled into.

One *instance* is a tile with its pipeline. A *family* is a list of instances that AITER's code generator keeps for a
kind of operands; some families have a twin for gfx950. A *module* is one shared object: the code generator is run for
one combination of dtypes, quantisation, activation and routing-weight stage, and only names of that combination are
in it (csrc/ck_gemm_moe_2stages_codegen/gen_instances.py, aiter/ops/moe_op.py get_moe_stage_module).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

FAMILIES = ("a16w16", "a8w8", "a8w8blkscale", "a8w4", "a4w4", "a4w4_bns")
"""As AITER spells them, without the ``_gfx950`` twins."""

TWINS = frozenset({"a16w16", "a8w8"})
"""Families that have a separate table for gfx950 (gemm_moe_ck2stages_common.py:374-458, v0.1.20.post1)."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One compiled tile. ``m``, ``n``, ``k`` are MPerBlock, NPerBlock, KPerBlock in elements of the operand type, so a
    packed fp4 pair counts once; ``pipeline`` is CK's block GEMM pipeline version (1 or 3)."""

    block_size: int
    m: int
    n: int
    k: int
    m_waves: int
    n_waves: int
    pipeline: int

    @classmethod
    @lru_cache(maxsize=512)
    def parse(cls, text: str) -> Instance:
        """From ``256x32x64x64_1x4_v1``. Raises ValueError."""
        tile, waves, pipeline = text.split("_")
        block_size, m, n, k = map(int, tile.split("x"))
        m_waves, n_waves = map(int, waves.split("x"))
        return cls(block_size, m, n, k, m_waves, n_waves, int(pipeline.removeprefix("v")))

    def __str__(self) -> str:
        return f"{self.block_size}x{self.m}x{self.n}x{self.k}_{self.m_waves}x{self.n_waves}_v{self.pipeline}"


@dataclass(frozen=True, slots=True)
class TileRule:
    """One line of the heuristic dispatch: for ``block_m``, and where ``when`` holds, AITER takes ``instance``.

    ``when`` is empty or a comparison of inter_dim such as ``inter_dim <= 192``. ``block_m`` 0 stands for any, an empty
    ``instance`` for a refusal. The first rule that holds wins.
    """

    block_m: int
    when: str
    instance: str

    def holds(self, block_m: int, inter_dim: int) -> bool:
        return self.block_m in (0, block_m) and (not self.when or compare(self.when, inter_dim))


@lru_cache(maxsize=64)
def _condition(when: str) -> tuple[str, int]:
    """(operator, number) of ``inter_dim <= 192`` or ``inter_dim % 256 == 0``. Raises ValueError."""
    match when.split():
        case ["inter_dim", ("<=" | "<" | ">=" | ">") as op, n]:
            return op, int(n)
        case ["inter_dim", "%", n, "==", "0"] if int(n) > 0:
            return "%", int(n)
    raise ValueError(f"not a condition on inter_dim: {when!r}")


def compare(when: str, inter_dim: int) -> bool:
    """Whether ``inter_dim`` meets a condition such as ``inter_dim <= 192`` or ``inter_dim % 256 == 0``."""
    op, n = _condition(when)
    return _OPERATORS[op](inter_dim, n)


_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<=": int.__le__,
    "<": int.__lt__,
    ">=": int.__ge__,
    ">": int.__gt__,
    "%": lambda value, n: value % n == 0,
}


def operation_of(operations: Mapping[str, str], tag: str, stage: int, weighted: bool, splitk: bool) -> str:
    """The element operation in a kernel's name, from the brief table of facts/ck_instances.py.

    ``weighted`` is whether this stage multiplies by the routing weight. gfx950 tables keep the default, TypeCast,
    because the generator compares the table's whole name.
    """
    base = operations.get(f"{tag} {stage}", "TypeCast")
    if splitk:
        base = operations.get(f"{tag} {stage} splitk", base)
    return operations.get(f"{tag} {stage} weighted", base) if weighted else base


def brief_operations(chosen: Mapping[tuple[str, int, bool, bool], str]) -> dict[str, str]:
    """The brief table operation_of() reads, from every (tag, stage, weighted, splitk). Raises ValueError where the brief form
    cannot say it, which is where split-k and the routing weight change the name together."""
    out = {}
    for (tag, stage, weighted, splitk), operation in chosen.items():
        base = chosen[tag, stage, False, False]
        if not weighted and not splitk:
            out[f"{tag} {stage}"] = operation
        elif weighted != splitk and operation != base:
            out[f"{tag} {stage} {'weighted' if weighted else 'splitk'}"] = operation
    for (tag, stage, weighted, splitk), operation in chosen.items():
        if operation != operation_of(out, tag, stage, weighted, splitk):
            raise ValueError(f"{tag} stage {stage}: split-k and the routing weight change the kernel's name together")
    return {k: v for k, v in out.items() if v != "TypeCast"}


PACK = {"a4w4": 2, "a4w4_bns": 2}
"""Elements in one unit of an instance's K: fp4 is stored in pairs, and K of the instance counts pairs."""

_EIGHT = frozenset({"fp8", "i8"})
_FOUR = frozenset({"i4x2", "u32"})


def family(q_type: str, dtype_a: str, dtype_w: str, is_shuffled: bool = True) -> str | None:
    """The CK family that serves these operands, or None when AITER generates no kernel for them.

    None is what AITER answers with "Unsupported kernel config for moe heuristic dispatch": the code generator takes the
    activation dtype from the weight dtype alone (gen_instances.py, end of file), so a module built for bf16 x fp4 or
    fp8 x fp4 holds kernels of another activation dtype and none matches.
    """
    if dtype_w in ("bf16", "fp16"):
        return "a16w16" if dtype_a == dtype_w else None
    if dtype_w in _EIGHT:
        if dtype_a != dtype_w:
            return None
        return "a8w8blkscale" if q_type in ("per_1x128", "per_128x128", "per_1x32") else "a8w8"
    if dtype_w in _FOUR:
        return "a8w4" if dtype_a == "fp8" else None
    if dtype_w == "fp4x2" and dtype_a == "fp4x2":
        return "a4w4" if is_shuffled else "a4w4_bns"
    return None


_CK_DTYPE = {"bf16": "b16", "fp16": "f16", "fp8": "f8", "i8": "i8", "i4x2": "i4", "u32": "i4", "fp4x2": "fp4x2"}
_QUANT_NUMBER = {"No": 0, "per_Tensor": 1, "per_Token": 2, "per_1x32": 3, "per_1x128": 4, "per_128x128": 4}


@dataclass(frozen=True, slots=True)
class CkModule:
    """One JIT module ``module_moe_ck2stages_*``: what its instances share. dtypes are short names (bf16, fp8, ...)."""

    dtype_a: str
    dtype_w: str
    dtype_out: str
    act: str
    q_type: str
    doweight_stage1: bool = False
    is_shuffled: bool = True
    splitk: bool = False

    @property
    def family(self) -> str | None:
        return family(self.q_type, self.dtype_a, self.dtype_w, self.is_shuffled)

    @property
    def weight_stage(self) -> int:
        """The stage that multiplies by the routing weight."""
        return 1 if self.doweight_stage1 else 2

    @property
    def quant(self) -> int:
        """AITER's QuantType as the number in kernel names; per_128x128 is remapped to per_1x128."""
        return _QUANT_NUMBER[self.q_type]

    @property
    def codes(self) -> tuple[str, str, str]:
        """CK's names of the three dtypes, as in kernel names but in lower case."""
        return _CK_DTYPE[self.dtype_a], _CK_DTYPE[self.dtype_w], _CK_DTYPE[self.dtype_out]

    @property
    def name(self) -> str:
        """The module's name: what has to be built or prebuilt (aiter/ops/moe_op.py:567-579, v0.1.20.post1)."""
        a, w, out = self.codes
        quant = {"per_128x128": "per_1x128"}.get(self.q_type, self.q_type).lower()
        shuffle = "preshuffle_on" if self.is_shuffled else "preshuffle_off"
        parts = ["module_moe_ck2stages", a, w, shuffle, out, self.act, quant, f"mulWeightStage{self.weight_stage}"]
        return "_".join(parts + ["splitk"] * self.splitk)

    @property
    def prebuilt(self) -> bool:
        """Whether a build with prebuilt kernels holds this module, where it has a gfx950 twin.

        Such a build compiles a module for each combination its own tuned tables name (aiter/jit/utils/moe_recipes.py,
        since v0.1.13); for 16-bit and plain 8-bit operands these are, in every release read, the ones below. Any other is
        compiled on the machine that runs it.
        """
        plain = self.dtype_out == "bf16" and self.is_shuffled and self.act in ("silu", "gelu")
        if self.dtype_w == "i8":
            return plain and self.q_type == "per_Tensor" and self.act == "silu" and not self.doweight_stage1
        return plain and (self.dtype_w, self.q_type) in (("bf16", "No"), ("fp8", "per_Tensor"), ("fp8", "per_Token"))
