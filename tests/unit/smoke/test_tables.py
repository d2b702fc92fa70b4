from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from moe_preflight.smoke import isolate
from moe_preflight.smoke.tables import merge, tables_of

STANDIN = Path(__file__).parent / "standin" / "aiter"


def test_tables_are_aiter_s_own_in_its_order() -> None:
    assert [p.name for p in tables_of(STANDIN, None)] == ["tuned_fmoe.csv", "other_tuned_fmoe.csv"]
    assert [str(p) for p in tables_of(STANDIN, "/a.csv:/b.csv")] == ["/a.csv", "/b.csv"]


def test_merge_fills_columns_and_keeps_the_fastest(tmp_path: Path) -> None:
    target = tmp_path / "merged.csv"
    notes = merge([*tables_of(STANDIN, None), tmp_path / "gone.csv"], target, "gfx942")
    with open(target, newline="") as f:
        rows = list(csv.DictReader(f))
    assert [r["kernelName1"] for r in rows] == ["k1", "k3"]
    assert [r["gfx"] for r in rows] == ["gfx942", "gfx950"]
    assert [r["flat"] for r in rows] == ["0", "1"]
    assert any("gone.csv" in n for n in notes)
    assert any("1 rows" in n for n in notes)


def test_prepare_sends_every_write_to_the_run_s_folder(tmp_path: Path) -> None:
    package = tmp_path / "tree" / "aiter"
    shutil.copytree(STANDIN, package)
    (package / "jit" / "flydsl_cache").mkdir(parents=True)
    (package / "jit" / "module_x.so").write_bytes(b"prebuilt")
    (package / "jit" / "flydsl_cache" / "a.bin").write_bytes(b"cached")
    (package / "configs" / "a8w8_tuned_gemm.csv").write_text("x\n")
    copy = shutil.copy
    try:
        env = {"PYTHONSAFEPATH": "1"}
        (tmp_path / "run").mkdir()
        isolate.prepare(package, tmp_path / "run", "gfx942", env)
        assert env["AITER_ONLINE_TUNE"] == "0"
        assert "PYTHONSAFEPATH" not in env
        assert env["AITER_CONFIG_FMOE"] == str(tmp_path / "run" / "tuned_fmoe.csv")
        assert env["AITER_CONFIG_GEMM_A8W8"] == str(package / "configs" / "a8w8_tuned_gemm.csv")
        jit = Path(env["AITER_JIT_DIR"])
        assert (jit / "module_x.so").read_bytes() == b"prebuilt"
        # AITER installs what it builds with shutil.copy: the tree's own file must not be written through the link.
        (tmp_path / "module_x.so").write_bytes(b"rebuilt")
        shutil.copy(str(tmp_path / "module_x.so"), str(jit))
        assert (jit / "module_x.so").read_bytes() == b"rebuilt"
        assert (package / "jit" / "module_x.so").read_bytes() == b"prebuilt"
        assert (Path(env["FLYDSL_RUNTIME_CACHE_DIR"]) / "a.bin").read_bytes() == b"cached"
    finally:
        shutil.copy = copy


def test_a_jit_folder_the_user_chose_is_kept(tmp_path: Path) -> None:
    env = {"AITER_JIT_DIR": "/mine"}
    isolate.prepare(STANDIN, tmp_path, "gfx942", env)
    assert env["AITER_JIT_DIR"] == "/mine"
    assert not (tmp_path / "jit").exists()


def test_locks_of_a_killed_build_are_dropped(tmp_path: Path) -> None:
    build = tmp_path / "jit" / "build"
    build.mkdir(parents=True)
    (build / "lock_module_x").touch()
    isolate.drop_locks(tmp_path)
    assert not list(build.iterdir())
    isolate.drop_locks(tmp_path / "nowhere")


def test_version_of_a_tree(tmp_path: Path) -> None:
    (tmp_path / "_version.py").write_text("__version__ = version = '0.1.16.post4'\n")
    assert isolate.aiter_version(tmp_path) == "0.1.16.post4"


def test_modules_an_engine_built_beside_a_read_only_tree_are_the_ones_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tree" / "aiter"
    home = tmp_path / "home" / ".aiter" / "jit"
    for folder, text in ((package / "jit", "shipped"), (home, "rebuilt")):
        folder.mkdir(parents=True)
        (folder / "module_x.so").write_text(text)
    monkeypatch.setattr(isolate.os, "access", lambda *_: False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shutil, "copy", shutil.copy)
    env: dict[str, str] = {}
    isolate.prepare(package, tmp_path, "gfx942", env)
    assert (Path(env["AITER_JIT_DIR"]) / "module_x.so").read_text() == "rebuilt"
