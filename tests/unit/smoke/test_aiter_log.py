from __future__ import annotations

import pytest

from moe_preflight.smoke.aiter_log import Choice, clean, is_rejection, read

KEY = "('gfx942', 304, 64, 6144, 256, 192, 8, 'ActivationType.Silu', 'torch.bfloat16')"


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        (f"[fused_moe] using 2stage default for {KEY} ", Choice(2, True, ("", ""))),
        (f"[fused_moe] using 1stage xbf16 (kernelName1='asm_k', kernelName2=nan) for {KEY} ", Choice(1, False, ("asm_k", ""))),
        (f"[aiter] [fused_moe] using 2stage (kernelName1='a', kernelName2='b') for {KEY}", Choice(2, False, ("a", "b"))),
        (f"[fused_moe] using 1stage (kernelName1='a', kernelName2='Null') for {KEY}", Choice(1, False, ("a", ""))),
    ],
)
def test_the_line_of_every_release(line: str, choice: Choice) -> None:
    assert read(["noise", line]) == choice


def test_a_kernel_aiter_could_not_find_is_kept() -> None:
    lines = [f"[fused_moe] using 2stage (kernelName1='a', kernelName2='b') for {KEY}", "ck kernel not found: a"]
    assert read(lines) == Choice(2, False, ("a", "b"), ("a",))


def test_nothing_understood_is_nothing() -> None:
    assert read(["[fused_moe] using warp drive", ""]) is None
    assert read([]) is None


def test_a_hostile_line_is_read_in_linear_time() -> None:
    assert read(["[fused_moe] using 2stage (kernelName1=" * 100_000]) is None


def test_clean() -> None:
    assert [clean(n) for n in ("'k'", "nan", "None", "Null", "", " k ")] == ["k", "", "", "", "", "k"]


def test_rejections() -> None:
    assert is_rejection("wrong! device_gemm with the specified compilation parameters does not support this GEMM problem")
    assert is_rejection("Unsupported num_expert_group: 6")
    assert not is_rejection("HIP error: invalid device function")
