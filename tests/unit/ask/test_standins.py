"""What stands in for AITER's compiled parts behaves as they do, as far as an import and a dispatch look at them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from moe_preflight.ask import standins


def test_enums_are_pybinds() -> None:
    kind = standins.bound_enum("ActivationType", {"No": -1, "Silu": 0, "Gelu": 1})
    other = standins.bound_enum("QuantType", {"No": 0})
    assert kind(1) == kind.Gelu
    assert type(kind.Gelu)(-1) == kind.No
    assert kind.Silu != "ActivationType.Silu"
    assert kind.Silu != 0
    assert kind.Silu != other.No
    assert hash(kind.Gelu) == 1
    assert (str(kind.Silu), repr(kind.Silu), kind.Silu.name, kind.Silu.value) == (
        "ActivationType.Silu",
        "<ActivationType.Silu: 0>",
        "Silu",
        0,
    )
    assert list(kind.__members__) == ["No", "Silu", "Gelu"]
    assert {(kind.Silu, 1): "row"}[kind(0), 1] == "row"


def test_enums_are_read_from_the_trees_headers(tmp_path: Path) -> None:
    (tmp_path / "aiter_enum.h").write_text(
        "// enum class Not : int { A }\n"
        "enum class ActivationType : int\n{\n    No = -1, // none\n    Silu = 0,\n    Gelu,\n    GeluTanh = 0x7, /* newer */\n};\n"
        "enum class QuantType : int { No, per_Tensor, per_Token = 1 << 3 };\n"
    )
    (tmp_path / "mx_quant_utils.h").write_text(
        "enum class MxScaleRoundMode : int { RoundDown = 0, RoundUp = 1, Even = 2 };\n"
        "constexpr MxScaleRoundMode kDefaultMxScaleRoundMode = MxScaleRoundMode::Even;\n"
    )
    enums, constants = standins.read_enums(tmp_path)
    assert enums["ActivationType"] == {"No": -1, "Silu": 0, "Gelu": 1, "GeluTanh": 7}
    assert enums["QuantType"] == standins.ENUMS["QuantType"]  # a value that is no number: not half an enum
    assert constants == {"kDefaultMxScaleRoundMode": 2}
    assert "Not" not in enums
    assert standins.read_enums(tmp_path / "none") == (standins.ENUMS, {"kDefaultMxScaleRoundMode": 1})


def _imported(finder: object, name: str) -> ModuleType:
    spec = finder.find_spec(name)  # type: ignore[attr-defined]
    assert spec is not None
    module: ModuleType = spec.loader.create_module(spec) or ModuleType(name)
    spec.loader.exec_module(module)
    return module


def test_only_aiters_modules_are_stood_in_for(tmp_path: Path) -> None:
    finder = standins.CompiledModules(tmp_path)
    for name in ("module_aiter_core", "module_aiter_enum", "aiter.jit.module_aiter_enum"):
        assert str(_imported(finder, name).ActivationType.Swiglu) == "ActivationType.Swiglu"
    for name in ("aiter", "aiter.jit.core", "other.module_x", "modules"):
        assert finder.find_spec(name) is None
    with pytest.raises(AttributeError):
        _ = _imported(finder, "module_moe_ck2stages").ck_moe_stage1


def test_a_stood_in_package_takes_what_module_level_code_does() -> None:
    finder = standins.Packages({"triton": "9.9"})
    assert finder.find_spec("tritonish") is None
    triton, language = _imported(finder, "triton"), _imported(finder, "triton.language")
    assert triton.__version__ == "9.9"

    @triton.jit
    def plain(x: int) -> int:
        return x + 1

    @triton.autotune(configs=[triton.Config({"B": 64}, num_warps=4)], key=["n"])
    @triton.heuristics({"EVEN": lambda args: True})
    def tuned(x: int) -> int:
        return x

    assert (plain(1), tuned(2)) == (2, 2)

    class Kernel(triton.Base):  # type: ignore[name-defined, misc]
        width = language.constexpr(4) * 2 + 1

    assert Kernel.width
    assert list(triton.targets) == []
    assert "gfx" in triton.known
    with pytest.raises(AttributeError):
        _ = triton.__wrapped__


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('_REQUIRED_FLYDSL_VERSION = "0.1.2"\n', "0.1.2"),
        ('_MIN_FLYDSL_VERSION = Version("0.2.4")\n', "0.2.4"),
        ("nothing\n", "99.0.0"),
        ('x = 1; _MIN_FLYDSL_VERSION = "1"\n', "99.0.0"),
    ],
)
def test_flydsl_has_the_version_that_aiter_takes(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "ops" / "flydsl").mkdir(parents=True)
    (tmp_path / "ops" / "flydsl" / "__init__.py").write_text(text)
    assert standins.wanted_flydsl(tmp_path) == version


def test_rocm_tools_speak_for_the_gpu_asked_about(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    standins.rocm(tmp_path, "gfx950", 256, env)
    said = subprocess.run([tmp_path / "rocm" / "bin" / "rocminfo"], env=env, capture_output=True, text=True, check=True).stdout
    assert "gfx950" in said
    assert "Compute Unit:            256" in said
    assert env["PATH"].startswith(str(tmp_path))
    assert env["CU_NUM"] == "256"
    assert env["HIP_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] == ""


GUARDED = """
import os, pathlib, shutil, sys
from moe_preflight.ask import guard
mine, theirs = map(pathlib.Path, sys.argv[1:])
(mine / "link").symlink_to(theirs / "file")
refused = []
guard.confine(refused, str(mine), shell=False)
def denied(act, *args):
    try:
        act(*args)
    except PermissionError as e:
        return True
    print("was allowed:", act, args)
    return False
ok = [
    denied(open, theirs / "new", "w"), denied(open, theirs / "file", "r+"), denied(open, str(mine / "link"), "a"),
    denied(os.open, theirs / "new", os.O_CREAT | os.O_WRONLY), denied((theirs / "d").mkdir), denied(os.remove, theirs / "file"),
    denied(os.rename, theirs / "file", mine / "file"), denied(os.replace, mine / "x", theirs / "y"),
    denied(os.symlink, "a", theirs / "b"), denied(os.truncate, theirs / "file", 0), denied(os.chmod, theirs / "file", 0o777),
    denied(shutil.rmtree, theirs), denied(os.system, "true"), denied(open, mine / ".." / "theirs" / "new", "w"),
]
(mine / "new").write_text("x")
(mine / "d").mkdir()
os.replace(mine / "new", mine / "renamed")
assert open(theirs / "file").read() == "kept"
open(os.devnull, "w").close()
assert all(ok) and len(refused) == len(ok), (ok, refused)
print("held")
"""


def test_the_child_writes_only_where_it_may(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    (theirs / "file").write_text("kept")
    done = subprocess.run([sys.executable, "-c", GUARDED, mine, theirs], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "held\n", done.stdout + done.stderr
    assert [p.name for p in theirs.iterdir()] == ["file"]
    assert (theirs / "file").read_text() == "kept"
