"""Small tuned tables and an in-memory tree to put them in."""

from __future__ import annotations

from moe_preflight.aiter.facts.dispatch_rules import Rules, rules_for
from moe_preflight.aiter.tuned import CONFIGS, DEFAULT, MODEL_CONFIGS, UNTUNED, TunedTable, load
from moe_preflight.aiter.version import Version
from moe_preflight.errors import FileUnreadable

KEYS = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1"
OLD = [*f"cu_num,{KEYS},block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw".split(",")]
TAGGED = [*OLD, "_tag"]
NEW = ["gfx", *OLD[:-2], "xbf16", "flat", *OLD[-2:], "_tag"]

CK1, CK2 = "moe_ck2stages_gemm1_A", "moe_ck2stages_gemm2_A"
_CELLS = {
    "gfx": "gfx942",
    "cu_num": 304,
    "token": 16,
    "model_dim": 4096,
    "inter_dim": 256,
    "expert": 64,
    "topk": 8,
    "act_type": "ActivationType.Silu",
    "dtype": "torch.bfloat16",
    "q_dtype_a": "torch.bfloat16",
    "q_dtype_w": "torch.bfloat16",
    "q_type": "QuantType.No",
    "use_g1u1": 1,
    "doweight_stage1": 0,
    "block_m": 32,
    "ksplit": 0,
    "us1": 1,
    "kernelName1": CK1,
    "err1": "0.0%",
    "us2": 1,
    "kernelName2": CK2,
    "err2": "0.0%",
    "us": 10.5,
    "run_1stage": 0,
    "tflops": 1,
    "bw": 1,
    "xbf16": 0,
    "flat": 0,
    "_tag": "",
}


def row(header: list[str], **cells: object) -> str:
    """One line under ``header``, plain but for ``cells``."""
    have = {**_CELLS, **cells}
    return ",".join(str(have.get(c, "")) for c in header)


def table(header: list[str], *rows: str) -> str:
    return "\n".join([",".join(header), *rows]) + "\n"


class MemoryTree:
    """The part of a tree that tables are read through."""

    root = "memory"

    def __init__(self, files: dict[str, str | bytes]) -> None:
        self.files = {k: v.encode() if isinstance(v, str) else v for k, v in files.items()}
        self.files.setdefault(UNTUNED, f"{KEYS}\n".encode())

    def names(self, under: str, suffix: str = "") -> list[str]:
        return sorted(n for n in self.files if n.startswith(f"{under}/") and n.endswith(suffix))

    def read_bytes(self, name: str) -> bytes:
        if name not in self.files:
            raise FileUnreadable(name, "no such file or directory")
        return self.files[name]

    def exists(self, name: str) -> bool:
        return name in self.files or any(n.startswith(f"{name}/") for n in self.files)


def tree(default: str | bytes, **models: str | bytes) -> MemoryTree:
    """A tree with a default table and ``model_configs/NAME_tuned_fmoe.csv`` files."""
    return MemoryTree({DEFAULT: default, **{f"{MODEL_CONFIGS}/{n}_tuned_fmoe.csv": t for n, t in models.items()}})


def rules(version: str) -> Rules:
    return rules_for(Version.of(version))


def read(version: str, default: str | bytes, **models: str | bytes) -> TunedTable:
    """The table a release makes of these files."""
    return load(tree(default, **models), rules(version))


__all__ = [
    "CK1",
    "CK2",
    "CONFIGS",
    "DEFAULT",
    "MODEL_CONFIGS",
    "NEW",
    "OLD",
    "TAGGED",
    "MemoryTree",
    "read",
    "row",
    "rules",
    "table",
    "tree",
]
