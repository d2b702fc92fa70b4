"""One case, step by step, in the child process. Imported by the worker only.

Each step is announced before it is done, and what counts is told before anything riskier is tried, so that a crash, a hang or a
GPU fault loses only what came after.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moe_preflight.smoke import isolate
from moe_preflight.smoke.aiter_backend import AiterBackend, CannotLaunch
from moe_preflight.smoke.case import BLOCK, SmokeCase, tolerance
from moe_preflight.smoke.checkpoint import CheckpointProblem, RealSource
from moe_preflight.smoke.memory import refusal
from moe_preflight.smoke.reference import Distance, distance, expected
from moe_preflight.smoke.routing import WEIGHT_TOLERANCE, compare, route
from moe_preflight.smoke.torch_backend import TorchBackend
from moe_preflight.smoke.weights import DTYPES, RandomSource, Source, Stacked, stack
from moe_preflight.smoke.wire import TEXT, Stop, Wire, is_out_of_memory

WARM_UP, MOST_LAUNCHES, TIMING_BUDGET_S = 3, 25, 3.0
"""Launches before timing, launches timed at most, and seconds after which no further one is timed."""


class Launch:
    """One case, step by step."""

    def __init__(self, case: SmokeCase, order: dict[str, Any], machine: dict[str, Any], wire: Wire) -> None:
        self.case, self.wire = case, wire
        self.backend_name: str = order["backend"]
        self.folder = Path(order["folder"])
        self.device_name: str = order["device"]
        self.machine, self.notes = machine, list[str]()

    def _padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Launch, judge and time what the engine would launch. Returns (hidden, routing weights, ids)."""
        wire, case = self.wire, self.case
        found = self.machine
        self.device = self._device(found)
        self.fnuz = bool(found["gfx"] and found["gfx"].startswith("gfx94")) and self.backend_name == "aiter"
        self._check_memory(found["free"])
        self._start_backend(found)
        wire.enter("weights")
        self.source = self._source()
        stacked = self._stack()
        hidden, logits, bias = self._inputs()
        wire.enter("route")
        weights, ids, routed = self._route(logits, bias)
        wire.enter("launch")
        out = self._launch(stacked, hidden, weights, ids)
        wire.enter("judge")
        distance = self._judge(out, hidden, weights, ids)
        same = self._same_bits(out, stacked, hidden, weights, ids, distance)
        del out
        wire.enter("time")

        def again() -> Tensor:
            return self._launch(stacked, hidden, weights, ids, checked=False)

        median = self._median_us(again)
        wire.send(
            "result",
            rel_err=distance.rel_err,
            nonfinite=distance.nonfinite,
            worst_token=distance.worst_token,
            within=distance.within(tolerance(case, self.backend_name)),
            median_us=median,
            bit_identical=same,
            kernels=self.backend.kernels,
            log=self._log(),
            notes=self._notes(),
            **routed,
        )
        wire.enter("kernels")
        wire.send("kernels", names=self._device_kernels(again))
        return hidden, weights, ids

    def run(self) -> None:
        """Everything that was asked for, the sure things first; weights of one step are freed before the next."""
        torch.set_grad_enabled(False)
        torch.backends.cuda.matmul.allow_tf32 = False
        inputs = self._padded()
        if self.case.poison and self.case.padded:
            self._poison(*inputs)
        if self.case.native and self.case.padded:
            self._native(*inputs)

    def _device(self, found: dict[str, Any]) -> torch.device:
        if self.device_name == "cpu" or not found["gpus"]:
            if self.device_name not in ("cpu", "auto"):
                raise Stop("refused", f"device {self.device_name}: torch {found['torch']} sees no GPU here")
            return torch.device("cpu")
        index = 0 if self.device_name == "auto" else int(self.device_name)
        if index >= found["gpus"]:
            raise Stop("refused", f"device {index}: torch sees {found['gpus']} GPUs, numbered from 0")
        torch.cuda.set_device(index)
        return torch.device("cuda", index)

    def _check_memory(self, free: int | None) -> None:
        where = "free on the GPU" if self.device.type == "cuda" else "free memory"
        if text := refusal(self.case, self.backend_name, free, where):
            raise Stop("refused", text)

    def _start_backend(self, found: dict[str, Any]) -> None:
        self.backend: AiterBackend | TorchBackend
        if self.backend_name == "torch":
            self.backend = TorchBackend(self.case, self.device)
            return
        package = isolate.aiter_package()
        if package is None:
            raise Stop("refused", "AITER (amd-aiter) is not installed where this Python looks")
        self.wire.enter("import aiter")
        self.notes += isolate.prepare(package, self.folder, found["gfx"] or "")
        try:
            self.backend = AiterBackend(self.case)
        except CannotLaunch as e:
            raise Stop("refused", str(e)) from None

    def _source(self) -> Source:
        if self.case.weights is None:
            return RandomSource(self.case, self.device)
        try:
            return RealSource(self.case, self.device)
        except CheckpointProblem as e:
            raise Stop("refused", str(e)) from None

    def _stack(self, *, padded: bool = True, poison: bool = False) -> Stacked:
        try:
            plain = stack(self.case, self.source, self.device, padded=padded, poison=poison, fnuz=self.fnuz)
        except CheckpointProblem as e:
            raise Stop("refused", str(e)) from None
        return self.backend.prepare(plain) if isinstance(self.backend, AiterBackend) else plain

    def _inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Seeded hidden states (padding columns zero, as the engine pads them), router logits and selection bias."""
        case, spec = self.case, self.case.router
        generator = torch.Generator(device=self.device).manual_seed(case.seed * 1_000_003)
        hidden = torch.zeros(case.tokens, case.model_dim_padded, dtype=DTYPES[case.dtype], device=self.device)
        hidden[:, : case.model_dim] = torch.randn(
            case.tokens, case.model_dim, generator=generator, device=self.device, dtype=torch.float32
        ).to(hidden.dtype)
        logits = torch.randn(case.tokens, spec.experts, generator=generator, device=self.device)
        logits = logits.to(DTYPES.get(spec.logits_dtype, torch.float32))
        bias = None
        if spec.bias:
            bias = torch.randn(spec.experts, generator=generator, device=self.device) * 0.1
        return hidden, logits, bias

    def _route(self, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Route by the engine's kernel, judge it, and go on with ids that are safe to launch."""
        spec = self.case.router
        own_weights, own_ids = route(spec, logits, bias)
        routed: dict[str, Any] = {
            "router_kernel": "torch",
            "experts_match": None,
            "router_weight_err": None,
            "wrong_tokens": 0,
            "router_right": True,
            "router_error": None,
        }
        weights, ids = own_weights, own_ids
        if isinstance(self.backend, AiterBackend) and spec.kernel != "torch":
            routed["router_kernel"] = spec.kernel
            try:
                weights, ids = self.backend.route(logits, bias)
                self._sync()
            except CannotLaunch as e:
                raise Stop("refused", str(e)) from None
            except RuntimeError as e:
                routed.update(experts_match=False, router_right=False, router_error=f"{spec.kernel}: {e}"[:TEXT])
                self.notes.append("the router kernel stopped; the experts ran on the torch router's choice")
                return self._with_shared(own_weights, own_ids, routed)
        elif self.backend_name == "torch" and spec.groups > 1 and spec.topk_group == spec.groups:
            # With every group kept the choice must be the ungrouped one: that is why an engine may pick the group count freely.
            weights, ids = route(replace(spec, groups=1, topk_group=1), logits, bias)
        else:
            return self._with_shared(weights, ids, routed)
        judged = compare(spec, logits, bias, weights, ids)
        right = judged.weight_err is not None and judged.weight_err <= WEIGHT_TOLERANCE
        err = judged.weight_err if judged.weight_err is not None and judged.weight_err != float("inf") else None
        routed.update(experts_match=judged.match, wrong_tokens=judged.wrong_tokens, router_weight_err=err, router_right=right)
        if not judged.valid or not bool(torch.isfinite(weights).all()):
            self.notes.append(
                "the router kernel's ids or weights are not safe to launch; the experts ran on the torch router's choice"
            )
            weights, ids = own_weights, own_ids
        return self._with_shared(weights, ids, routed)

    def _with_shared(self, weights: Tensor, ids: Tensor, routed: dict[str, Any]) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Append the fused shared experts, as the engine does: ids after the routed ones, one fixed weight."""
        case = self.case
        if case.num_shared_fused:
            shared = torch.arange(case.num_shared_fused, device=ids.device, dtype=torch.int32) + case.router.experts
            ids = torch.cat((ids, shared.expand(ids.shape[0], -1)), 1)
            extra = torch.full((ids.shape[0], case.num_shared_fused), case.shared_weight, device=ids.device)
            weights = torch.cat((weights, extra), 1)
        return weights.contiguous(), ids.contiguous(), routed

    def _launch(
        self, stacked: Stacked, hidden: Tensor, weights: Tensor, ids: Tensor, *, padded: bool = True, checked: bool = True
    ) -> Tensor:
        """One launch. ``checked`` waits for it and turns whatever it raises into the end of this case."""
        if not checked:
            return self._ask(stacked, hidden, weights, ids, padded)
        try:
            out = self._ask(stacked, hidden, weights, ids, padded)
            self._sync()
        except CannotLaunch as e:
            raise Stop("refused", str(e)) from None
        except Exception as e:
            if is_out_of_memory(e):
                raise
            self.wire.send("log", log=self._log(), notes=self._notes())
            raise Stop("launch-failed", f"{type(e).__name__}: {e}") from None
        return out

    def _ask(self, stacked: Stacked, hidden: Tensor, weights: Tensor, ids: Tensor, padded: bool) -> Tensor:
        if isinstance(self.backend, AiterBackend):
            return self.backend.launch(stacked, hidden, weights, ids, padded=padded)
        return self.backend.launch(stacked, hidden, weights, ids)

    def _judge(self, out: Tensor, hidden: Tensor, weights: Tensor, ids: Tensor) -> Distance:
        if tuple(out.shape) != (hidden.shape[0], hidden.shape[1]):
            raise Stop("launch-failed", f"the output has shape {tuple(out.shape)}, expected {tuple(hidden.shape)}")
        return distance(self.case, out, expected(self.case, self.source, hidden, weights, ids))

    def _same_bits(
        self, out: Tensor, stacked: Stacked, hidden: Tensor, weights: Tensor, ids: Tensor, distance: Distance
    ) -> bool | None:
        """Does the same launch give the same bits again? None when an output is not finite."""
        if distance.nonfinite:
            return None
        return bool(torch.equal(out, self._launch(stacked, hidden, weights, ids, checked=False)))

    def _sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _median_us(self, call: Callable[[], Tensor]) -> float:
        """Median microseconds of one launch: device events on a GPU, the clock on a CPU."""
        cuda: Any = torch.cuda
        for _ in range(WARM_UP):
            call()
        self._sync()
        times: list[float] = []
        end = time.monotonic() + TIMING_BUDGET_S
        while len(times) < MOST_LAUNCHES and (time.monotonic() < end or not times):
            if self.device.type == "cuda":
                before, after = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
                before.record()
                call()
                after.record()
                after.synchronize()
                times.append(before.elapsed_time(after) * 1e3)
            else:
                t = time.perf_counter()
                call()
                times.append((time.perf_counter() - t) * 1e6)
        return round(statistics.median(times), 2)

    def _device_kernels(self, call: Callable[[], Tensor]) -> list[str]:
        """Names of the GPU kernels one launch runs, the longest first, as torch's profiler sees them; empty where it cannot."""
        if self.device.type != "cuda":
            return []
        try:
            from torch.profiler import ProfilerActivity, profile

            with profile(activities=[ProfilerActivity.CUDA]) as session:
                call()
                self._sync()
            spent = {a.key: float(getattr(a, "device_time_total", 0.0)) for a in session.key_averages()}
        except (RuntimeError, ImportError, AttributeError):
            return []
        return [name[:300] for name in sorted(spent, key=lambda n: -spent[n]) if spent[name] > 0][:16]

    def _poison(self, hidden: Tensor, weights: Tensor, ids: Tensor) -> None:
        """Once more with NaN in the padding: a kernel that reads it answers NaN."""
        self.wire.enter("poison")
        stacked = self._stack(poison=True)
        try:
            out = self._launch(stacked, hidden, weights, ids, checked=False)
            self._sync()
        except RuntimeError as e:
            self.wire.send("poison", error=str(e)[:TEXT])
            return
        broken = int((~torch.isfinite(out[:, : self.case.model_dim].float()).all(-1)).sum())
        self.wire.send("poison", nonfinite=broken)

    def _native(self, hidden: Tensor, weights: Tensor, ids: Tensor) -> None:
        """The sizes before padding, for what padding costs; that they are rejected is an answer too."""
        self.wire.enter("native")
        if self.case.scheme == "fp8_block" and (self.case.inter_dim % BLOCK or self.case.model_dim % BLOCK):
            self.wire.send("native", error=f"the sizes before padding are not whole {BLOCK}x{BLOCK} blocks")
            return
        try:
            stacked = self._stack(padded=False)
            x = hidden[:, : self.case.model_dim].contiguous()
            out = self._launch(stacked, x, weights, ids, padded=False, checked=False)
            self._sync()
            right = self._judge(out, x, weights, ids).within(tolerance(self.case, self.backend_name))
            del out
            median = self._median_us(lambda: self._launch(stacked, x, weights, ids, padded=False, checked=False))
        except (RuntimeError, AssertionError, ValueError, CannotLaunch, Stop) as e:
            self.wire.send("native", error=f"{e}"[:TEXT])
            return
        self.wire.send("native", median_us=median, within=right)

    def _log(self) -> list[str]:
        return list(getattr(self.backend, "log", []))[-60:]

    def _notes(self) -> list[str]:
        return self.notes + list(getattr(self.backend, "notes", []))
