"""Stand-ins for what AITER needs beside its Python and a machine without ROCm lacks: ROCm's tools, the compiled modules,
triton and flydsl. None of them takes part in a dispatch decision; they only have to be importable. Standard library only.

What is stood in for, and why (aiter/jit/utils/chip_info.py, cpp_extension.py; aiter/ops/enum.py; v0.1.7 to main of 2026-08-22):
``rocminfo`` says architecture and compute units, ``hipconfig`` a ROCm version, which the import of AITER asks for;
``module_aiter_core`` (``module_aiter_enum`` in v0.1.7) is the one compiled module imported with the package, for its enums.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

ROCM_VERSION = "7.0.51831"
_TOOLS = {
    "rocminfo": "cat <<'END'\nAgent 1\n  Name:                    {gfx}\n  Device Type:             GPU\n"
    "  Compute Unit:            {cu}\nEND\n",
    "rocm_agent_enumerator": "echo {gfx}\n",
    "hipconfig": "echo " + ROCM_VERSION + "-0\n",
    "hipcc": "exit 1\n",
    "amdclang++": "exit 1\n",
    "rocm-smi": "exit 1\n",
    "amd-smi": "exit 1\n",
}


def rocm(folder: Path, gfx: str, cu_num: int, env: MutableMapping[str, str] = os.environ) -> None:
    """A ROCm installation of a few scripts below ``folder``, for one GPU, put in front of the real one."""
    tools = folder / "rocm" / "bin"
    tools.mkdir(parents=True)
    for name, text in _TOOLS.items():
        path = tools / name
        path.write_text("#!/bin/sh\n" + text.format(gfx=gfx, cu=cu_num), encoding="ascii")
        path.chmod(0o755)
    (folder / "rocm" / ".info").mkdir()
    (folder / "rocm" / ".info" / "version").write_text(ROCM_VERSION + "\n", encoding="ascii")
    env["PATH"] = f"{tools}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["ROCM_HOME"] = env["ROCM_PATH"] = env["HIP_PATH"] = str(folder / "rocm")
    env["GPU_ARCHS"] = env["PYTORCH_ROCM_ARCH"] = env["FLYDSL_GPU_ARCH"] = gfx
    env["CU_NUM"] = str(cu_num)
    # A real GPU of another kind must not be asked instead; newer releases ask torch before rocminfo.
    env["HIP_VISIBLE_DEVICES"] = env["CUDA_VISIBLE_DEVICES"] = ""


# --- enums ------------------------------------------------------------------------------------------------------------

ENUMS: dict[str, dict[str, int]] = {
    "ActivationType": {"No": -1, "Silu": 0, "Gelu": 1, "Swiglu": 2, "Situv2": 3},
    "QuantType": {
        "No": 0,
        "per_Tensor": 1,
        "per_Token": 2,
        "per_1x32": 3,
        "per_1x128": 4,
        "per_128x128": 5,
        "per_256x128": 6,
        "per_1024x128": 7,
    },
    "MlaVersion": {"V32": 0, "V40": 1},
    "MxScaleRoundMode": {"RoundDown": 0, "RoundUp": 1, "Even": 2, "Ceil": 3},
    "MxDtype": {"FP4_E2M1": 0, "FP8_E4M3": 1, "FP8_E4M3_FNUZ": 2},
}
"""Members by enum, as of main of 2026-08-22 (csrc/include/aiter_enum.h, mx_quant_utils.h), for a tree without its headers."""

_HEADERS = ("aiter_enum.h", "mx_quant_utils.h")
_ENUM = re.compile(r"\benum\s+class\s+(\w{1,80})\s*(?::\s*\w{1,40}\s*)?\{([^{}]{1,8000})\}")
_COMMENT = re.compile(r"//[^\n]*|/\*[^*]*\*/")
_CONSTANT = re.compile(r"\bconstexpr\s+(\w{1,80})\s+(k\w{1,80})\s*=\s*\1::(\w{1,80})\s*;")
_MAX_HEADER = 1 << 20


def read_enums(include: Path) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Enums and enum-valued constants of AITER's own headers below ``include``; what they do not say is as in ENUMS."""
    enums, constants = dict(ENUMS), {"kDefaultMxScaleRoundMode": 1}
    for name in _HEADERS:
        try:
            with open(include / name, encoding="utf-8", errors="replace") as f:
                text = _COMMENT.sub("", f.read(_MAX_HEADER))
        except OSError:
            continue
        for found, body in _ENUM.findall(text):
            if members := _members(body):
                enums[found] = members
        for kind, constant, member in _CONSTANT.findall(text):
            if member in enums.get(kind, {}):
                constants[constant] = enums[kind][member]
    return enums, constants


def _members(body: str) -> dict[str, int] | None:
    """``A, B = 3, C`` as C++ counts it; None when a value is no plain number."""
    out: dict[str, int] = {}
    value = -1
    for item in filter(None, map(str.strip, body.split(","))):
        name, given, text = (part.strip() for part in item.partition("="))
        if not name.isidentifier():
            return None
        try:
            value = int(text, 0) if given else value + 1
        except ValueError:
            return None
        out[name] = value
    return out


def bound_enum(name: str, members: Mapping[str, int]) -> type:
    """An enum class as pybind11 3 binds one: made from its value, equal to its own kind only, ``str`` is ``Type.Member``."""
    names = {number: member for member, number in members.items()}

    def init(self: Any, value: int) -> None:
        self._number = int(value)

    def same(self: Any, other: Any) -> bool:
        return type(other) is type(self) and bool(other._number == self._number)

    def text(self: Any) -> str:
        return f"{name}.{names.get(self._number, '???')}"

    body: dict[str, Any] = {
        "__init__": init,
        "__eq__": same,
        "__ne__": lambda self, other: not same(self, other),
        "__hash__": lambda self: hash(self._number),
        "__int__": lambda self: self._number,
        "__index__": lambda self: self._number,
        "__str__": text,
        "__repr__": lambda self: f"<{text(self)}: {self._number}>",
        "__doc__": "Members:\n\n" + "".join(f"  {m}\n\n" for m in members),
        "value": property(lambda self: self._number),
        "name": property(lambda self: names.get(self._number, "???")),
    }
    made = type(name, (), body)
    made.__members__ = {member: made(number) for member, number in members.items()}  # type: ignore[attr-defined]
    for member, bound in made.__members__.items():  # type: ignore[attr-defined]
        setattr(made, member, bound)
    return made


class CompiledModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every ``module_*`` of AITER is a module with the enums and nothing else: calling a kernel is an AttributeError."""

    def __init__(self, include: Path) -> None:
        enums, constants = read_enums(include)
        self._held: dict[str, Any] = {n: bound_enum(n, m) for n, m in enums.items()} | constants

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, last = fullname.rpartition(".")
        mine = last.startswith("module_") and package in ("", "aiter.jit")
        return importlib.machinery.ModuleSpec(fullname, self, origin="stand-in") if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__file__ = "stand-in"
        vars(module).update(self._held)


# --- packages that only have to be there ------------------------------------------------------------------------------


class _Anything(type):
    """The class of Anything: attribute, call, item and arithmetic all give Anything again; a decorator gives back what it decorates."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return Anything

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __contains__(cls, _: Any) -> bool:
        return True

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __bool__(cls) -> bool:
        return True

    def __int__(cls) -> int:
        return 0

    __index__ = __int__

    def _same(cls, *_: Any) -> Any:
        return cls

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = _same
    __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __lshift__ = __rshift__ = __and__ = __rand__ = __neg__ = __invert__ = _same
    __or__ = __ror__ = _same

    def __lt__(cls, _: Any) -> bool:
        return False

    __gt__ = __lt__

    def __le__(cls, _: Any) -> bool:
        return True

    __ge__ = __le__


class Anything(metaclass=_Anything):
    """What every attribute of a stood-in package is."""

    arch: str
    backend: str
    warp_size: int


class _Package(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - a package's

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything


class Packages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Whole packages (name to version), every submodule of which exists and holds Anything."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        self._versions = versions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        mine = fullname.partition(".")[0] in self._versions
        return importlib.machinery.ModuleSpec(fullname, self, origin="stand-in", is_package=True) if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        made = _Package(spec.name)
        made.__version__ = self._versions[spec.name.partition(".")[0]]  # type: ignore[attr-defined]
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


_WANTED_FLYDSL = re.compile(r"^_(?:REQUIRED|MIN)_FLYDSL_VERSION\s*=\s*[\w.(]{0,20}['\"]([0-9][\w.]{0,20})['\"]", re.MULTILINE)
_NEWEST = "99.0.0"


def wanted_flydsl(package: Path) -> str:
    """The FlyDSL version this AITER accepts, from aiter/ops/flydsl/__init__.py: some accept a single one."""
    try:
        with open(package / "ops" / "flydsl" / "__init__.py", encoding="utf-8", errors="replace") as f:
            found = _WANTED_FLYDSL.search(f.read(_MAX_HEADER))
    except OSError:
        found = None
    return found[1] if found else _NEWEST


def distribution(folder: Path, name: str, version: str) -> None:
    """Metadata of an installed distribution, for code that asks importlib.metadata."""
    info = folder / "site" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="ascii")
    sys.path.append(str(folder / "site"))


def install(folder: Path, root: Path, gfx: str, cu_num: int, *, flydsl: bool) -> None:
    """Everything above for one GPU, below ``folder``, for the AITER of ``root``. Call it after torch is imported: torch looks for
    the real triton."""
    rocm(folder, gfx, cu_num)
    versions = {"triton": _NEWEST}
    if flydsl:
        versions["flydsl"] = wanted_flydsl(root / "aiter")
        distribution(folder, "flydsl", versions["flydsl"])
    else:
        sys.modules["flydsl"] = None  # type: ignore[assignment]
    # triton's active driver, whose target AITER reads as it is imported.
    Anything.arch, Anything.backend, Anything.warp_size = gfx, "hip", 64
    sys.meta_path[:0] = [CompiledModules(include(root)), Packages(versions)]


def include(root: Path) -> Path:
    """AITER's C++ headers: at the root of a checkout, below aiter_meta in a wheel."""
    places = (root / "csrc" / "include", root / "aiter_meta" / "csrc" / "include")
    return next((p for p in places if p.is_dir()), places[0])
