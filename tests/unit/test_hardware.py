from __future__ import annotations

from pathlib import Path

import pytest

from moe_preflight.errors import DeviceUnavailable, UsageError
from moe_preflight.hardware import GPUS, by_hand, detect, named

EXPECTED = {
    "mi300x": ("gfx942", 304), "mi325x": ("gfx942", 304), "mi308x": ("gfx942", 80), "mi300a": ("gfx942", 228),
    "mi350x": ("gfx950", 256), "mi355x": ("gfx950", 256),
}  # fmt: skip


def test_named_gpus() -> None:
    assert {g.name: (g.gfx, g.cu_num) for g in GPUS.values()} == EXPECTED
    assert named("MI300X") is GPUS["mi300x"]


def test_unknown_gpu_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean mi355x"):
        named("mi355")


@pytest.mark.parametrize(
    ("gfx", "cu"), [("gfx942", 0), ("gfx942", -1), ("gfx942", 5000), ("sm90", 132), ("gfx", 1), ("gfx942 ", 304)]
)
def test_by_hand_refuses(gfx: str, cu: int) -> None:
    with pytest.raises(UsageError):
        by_hand(gfx, cu)


def node(root: Path, name: str, **props: int) -> None:
    (root / name).mkdir()
    (root / name / "properties").write_text("".join(f"{k} {v}\n" for k, v in props.items()))


def test_detect_reads_the_kernels_topology(tmp_path: Path) -> None:
    node(tmp_path, "0", cpu_cores_count=96, simd_count=0, gfx_target_version=0)
    node(tmp_path, "1", simd_count=1216, simd_per_cu=4, gfx_target_version=90402)
    gpu = detect(str(tmp_path))
    assert (gpu.gfx, gpu.cu_num) == ("gfx942", 304)
    assert gpu.memory_bytes is not None


def test_detect_prints_stepping_in_hex(tmp_path: Path) -> None:
    node(tmp_path, "1", simd_count=440, simd_per_cu=4, gfx_target_version=90010)
    assert detect(str(tmp_path)).gfx == "gfx90a"


@pytest.mark.parametrize("make", [False, True])
def test_detect_without_a_gpu_is_never_silent(tmp_path: Path, make: bool) -> None:
    if make:
        node(tmp_path, "0", simd_count=0)
    with pytest.raises(DeviceUnavailable, match="no AMD GPU"):
        detect(str(tmp_path / ("." if make else "absent")))
