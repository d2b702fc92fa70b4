from __future__ import annotations

from pathlib import Path

from moe_preflight.smoke.case import RouterSpec, SmokeCase
from moe_preflight.smoke.memory import free_ram, gib, refusal, required, weight_bytes
from tests.unit.smoke.cases import small


def k2(**changes: object) -> SmokeCase:
    fields: dict[str, object] = {
        "tokens": 4096, "model_dim": 6144, "inter_dim": 224, "inter_dim_padded": 256, "experts": 192, "topk": 8,
        "router": RouterSpec("biased_grouped_topk", 192, 8, 8, 8, scoring="sigmoid", bias=True),
    }  # fmt: skip
    return SmokeCase(**{**fields, **changes})  # type: ignore[arg-type]


def test_weights_of_k2_at_tp8() -> None:
    assert weight_bytes(k2(), padded=True) == (192 * 512 * 6144 * 2, 192 * 6144 * 256 * 2)
    assert weight_bytes(k2(), padded=False) == (192 * 448 * 6144 * 2, 192 * 6144 * 224 * 2)


def test_scales_count() -> None:
    w13, w2 = weight_bytes(small(scheme="fp8_block"), padded=True)
    assert (w13, w2) == (16 * (256 * 256 + 2 * 2 * 4), 16 * (256 * 128 + 2 * 1 * 4))
    assert weight_bytes(small(scheme="mxfp4"), padded=True)[0] == 16 * (256 * 256 // 2 + 256 * 256 // 32)


def test_the_peak_covers_its_parts_and_grows_with_tokens() -> None:
    for backend in ("aiter", "torch"):
        need = required(k2(), backend)
        assert need["total"] >= sum(need[k] for k in ("weights", "copies", "activations", "reference"))
        assert required(k2(tokens=1 << 20), backend)["total"] > 100 * (1 << 30)


def test_refusal_names_the_numbers() -> None:
    text = refusal(k2(), "torch", 1 << 30, "--memory-limit")
    assert "--memory-limit: 1.0 GiB" in text
    assert gib(required(k2(), "torch")["total"]) in text
    assert refusal(k2(), "torch", 1 << 40, "x") == ""
    assert refusal(k2(), "torch", None, "x") == ""


def test_no_size_overflows() -> None:
    huge = k2(tokens=1 << 31, model_dim=1 << 31, inter_dim=1 << 31, inter_dim_padded=1 << 31)
    assert "GiB" in refusal(huge, "aiter", 1 << 40, "free")


def test_free_ram_is_the_lesser_of_machine_and_cgroup(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 99 kB\nMemAvailable:   2048 kB\n")
    assert free_ram(str(meminfo), str(tmp_path / "none")) == 2048 * 1024
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("48576\n")
    assert free_ram(str(meminfo), str(tmp_path)) == 1000000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_ram(str(meminfo), str(tmp_path)) == 2048 * 1024
    assert free_ram(str(tmp_path / "no"), str(tmp_path / "no")) is None
