"""The steps of a launch on the aiter backend, in this process, against the stand-in module."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'moe-preflight[smoke]')")

from moe_preflight.smoke import launch as launch_module  # noqa: E402
from moe_preflight.smoke.case import RouterSpec, SmokeCase  # noqa: E402
from moe_preflight.smoke.judge import observe  # noqa: E402
from moe_preflight.smoke.launch import Launch  # noqa: E402
from moe_preflight.smoke.process import Ended  # noqa: E402
from moe_preflight.smoke.wire import Stop, Wire  # noqa: E402
from tests.unit.smoke.cases import small  # noqa: E402

pytestmark = pytest.mark.torch
STANDIN = Path(__file__).parent / "standin"
MACHINE = {"gpus": 0, "gfx": None, "free": None, "torch": "x", "aiter": "0.1.20.post1"}

Go = Callable[..., dict[str, Any]]


class Kept(Wire):
    """Events in a list instead of on a descriptor."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.events: list[dict[str, Any]] = []

    def send(self, event: str, **data: Any) -> None:
        self.events.append({"event": event, **data})


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Go]:
    """Launch a case with the stand-in in some mode; the answer is its observation."""
    for name in ("AITER_CONFIG_FMOE", "AITER_JIT_DIR", "AITER_ONLINE_TUNE", "AITER_LOG_LEVEL", "AITER_BF16_FP8_MOE_BOUND"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(shutil, "copy", shutil.copy)
    monkeypatch.setattr(launch_module, "MOST_LAUNCHES", 2)
    monkeypatch.setattr(launch_module, "WARM_UP", 1)
    monkeypatch.syspath_prepend(str(STANDIN))
    before = dict(os.environ)

    def run(mode: str, case: SmokeCase, patch: Callable[[Any], None] | None = None) -> dict[str, Any]:
        os.environ["MOE_STANDIN"] = mode
        wire = Kept()
        order = {"backend": "aiter", "folder": str(tmp_path), "device": "cpu"}
        launch = Launch(case, order, dict(MACHINE), wire)
        if patch is not None:
            import aiter.fused_moe

            patch(aiter.fused_moe)
        end = {"event": "end", "status": "done", "text": ""}
        try:
            launch.run()
        except Stop as stop:
            end = {"event": "end", "status": stop.status, "text": stop.text}
        return observe(case, "aiter", Ended(0, False, 1.0, [{"event": "machine", **MACHINE}, *wire.events, end]), 300)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    os.environ.clear()
    os.environ.update(before)
    for name in [n for n in sys.modules if n == "aiter" or n.startswith("aiter.")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": "fp16"},
        {"activation": "gelu"},
        {"activation": "swiglu", "swiglu_limit": 7.0},
        {"scheme": "fp8_tensor"},
        {"scheme": "fp8_channel"},
        {"scheme": "fp8_block"},
        {"scheme": "mxfp4_a4"},
        {"experts": 4, "is_ep": True},
        {"engine": "sglang"},
        {"router": RouterSpec("topk_softmax", 16, 4), "experts": 17, "topk": 5, "num_shared_fused": 1},
        {"router": RouterSpec("torch", 16, 4, 4, 2, scoring="sigmoid", bias=True)},
    ],
    ids=str,
)
def test_every_kind_of_layer(go: Go, changes: dict[str, Any]) -> None:
    o = go("ok", small(native=False, **changes))
    assert o["detail"] == ""
    assert o["ran"]
    assert o["rel_err"] <= o["tolerance"]
    assert o["experts_match"] in (True, None)
    assert o["status"] == "not-observable"  # nothing was predicted


@pytest.mark.parametrize(
    ("mode", "status", "words"),
    [
        ("wrong", "failed", "relative error 1"),
        ("nan", "failed", "1 tokens have NaN"),
        ("router-wrong", "failed", "other experts"),
        ("router-garbage", "failed", "other experts"),
        ("ck", "failed", "does not support this GEMM problem"),
    ],
)
def test_ways_to_be_wrong(go: Go, mode: str, status: str, words: str) -> None:
    o = go(mode, small(native=False))
    assert o["status"] == status
    assert words in o["detail"]


def test_memory_of_the_gpu_running_out_is_no_wrong_number(go: Go) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        go("torch-oom", small())


def test_ids_that_would_fault_are_not_launched(go: Go) -> None:
    o = go("router-garbage", small(native=False))
    assert any("not safe to launch" in n for n in o["notes"])
    assert o["rel_err"] <= o["tolerance"]


def test_a_factor_the_router_forgot(go: Go) -> None:
    spec = RouterSpec("biased_grouped_topk", 16, 4, 4, 4, scoring="sigmoid", bias=True, scaling_inside=2.5)
    o = go("router-unscaled", small(router=spec, native=False))
    assert o["status"] == "failed"
    assert "off by up to 0.6" in o["detail"]
    assert go("ok", small(router=spec, native=False))["detail"] == ""


def test_a_group_count_without_a_kernel(go: Go) -> None:
    spec = RouterSpec("biased_grouped_topk", 192, 8, 6, 6, scoring="sigmoid", bias=True)
    o = go("ok", small(router=spec, experts=192, topk=8, model_dim=32, native=False))
    assert o["status"] == "failed"
    assert "Unsupported num_expert_group: 6" in o["detail"]
    assert o["experts_match"] is False
    assert o["rel_err"] <= o["tolerance"]  # the experts ran all the same, on the torch router's choice


def test_what_this_release_lacks_is_said(go: Go) -> None:
    o = go("ok", small(activation="situv2"))
    assert (o["status"], "ActivationType.Situv2" in o["detail"]) == ("refused", True)
    o = go("ok", small(router=RouterSpec("topk_softmax", 16, 4), native=False))
    assert any("five arguments" in n for n in o["notes"])


def test_an_old_signature_is_reported_not_a_crash(go: Go) -> None:
    def older(module: Any) -> None:
        now = module.fused_moe

        def fused_moe(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask=None, activation=0, quant_type=0,  # type: ignore[no-untyped-def]
                      doweight_stage1=False, w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_size_M=None,
                      num_local_tokens=None, moe_sorting_dispatch_policy=0, dtype=None, hidden_pad=0, intermediate_pad=0,
                      bias1=None, bias2=None):  # fmt: skip
            return now(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask, activation, quant_type)

        module.fused_moe = fused_moe

    o = go("ok", small(native=False), older)
    assert o["rel_err"] <= o["tolerance"]
    assert any("no parameter swiglu_limit" in n for n in o["notes"])
    o = go("ok", small(native=False, activation="swiglu", swiglu_limit=7.0), older)
    assert (o["status"], "swiglu_limit" in o["detail"]) == ("refused", True)


def test_unshuffled_weights_are_seen(go: Go) -> None:
    def plain(module: Any) -> None:
        import aiter.ops.shuffle

        def shuffle_weight(x: Any, layout: Any) -> Any:
            return x.clone()

        aiter.ops.shuffle.shuffle_weight = shuffle_weight  # type: ignore[attr-defined]

    o = go("ok", small(native=False), plain)
    assert o["status"] == "failed"
    assert "relative error" in o["detail"]


def test_device_words(go: Go) -> None:
    launch = Launch(small(), {"backend": "torch", "folder": "/tmp", "device": "1"}, dict(MACHINE), Kept())
    with pytest.raises(Stop, match="sees no GPU"):
        launch.run()
    launch = Launch(small(), {"backend": "torch", "folder": "/tmp", "device": "4"}, MACHINE | {"gpus": 2}, Kept())
    with pytest.raises(Stop, match="2 GPUs"):
        launch.run()


def test_memory_is_refused_with_the_number_before_anything_is_allocated() -> None:
    case = small(tokens=1 << 31, model_dim=1 << 20)
    wire = Kept()
    launch = Launch(case, {"backend": "torch", "folder": "/tmp", "device": "cpu"}, MACHINE | {"free": 1 << 30}, wire)
    with pytest.raises(Stop, match=r"needs .* GiB .*free memory: 1.0 GiB") as stop:
        launch.run()
    assert stop.value.status == "refused"
    assert wire.events == []
