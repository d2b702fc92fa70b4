"""One question to AITER's own ``fused_moe``, cut off where it has made its choice. Child only: imports torch and AITER.

``fused_moe`` is called as an engine calls it, on tensors of the right shape and dtype with one element of storage. Its
``get_2stage_cfgs`` (aiter/fused_moe.py) is wrapped: the choice it returns is the answer, and nothing after it runs.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Mapping
from typing import Any

from moe_preflight.aiter.dtypes import PACK
from moe_preflight.smoke import aiter_log

TEXT = 600
"""Characters of an error that cross to the parent."""


class _Chosen(BaseException):
    """Carries AITER's choice out of its own code; no ``except Exception`` there swallows it."""


class Listener:
    """AITER, imported, with its choice tapped. ``ask`` answers one question."""

    def __init__(self, torch: Any, aiter: Any, fused_moe: Any) -> None:
        self._torch, self._aiter, self._module = torch, aiter, fused_moe
        self._choose = inspect.unwrap(fused_moe.get_2stage_cfgs)
        self._signature = inspect.signature(self._choose)
        fused_moe.get_2stage_cfgs = self._tapped
        self._asked: dict[str, Any] = {}
        self._log: list[str] = []
        _listen(self._log)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """AITER's answer, in the words of ``moe-preflight dispatch``; ``error`` instead when AITER raises."""
        self._asked.clear()
        self._log.clear()
        try:
            self._call(question)
        except _Chosen as chosen:
            return self._said(chosen.args[0])
        except Exception as e:
            return {"error": f"{type(e).__name__}: {e}"[:TEXT]} | self._question_seen()
        return {"error": "fused_moe returned without asking get_2stage_cfgs"}

    def _tapped(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        self._asked.update(bound.arguments)
        raise _Chosen(self._choose(*args, **kwargs))

    def _call(self, q: Mapping[str, Any]) -> None:
        torch, m = self._torch, q["token"]
        weights, pack = self._dtype(q["q_dtype_w"]), PACK.get(q["q_dtype_w"], 1)
        experts, k, n = q["expert"], q["model_dim"], q["inter_dim"]
        w1 = self._tensor((experts, n * (2 if q["use_g1u1"] else 1), k // pack), weights)
        w2 = self._tensor((experts, k, n // pack), weights)
        w1.is_shuffled = w2.is_shuffled = bool(q["is_shuffled"])
        options = {
            "activation": self._member("ActivationType", q["act"]),
            "quant_type": self._member("QuantType", q["q_type"]),
            "doweight_stage1": bool(q["doweight_stage1"]),
        }
        if q["is_ep"]:
            options["expert_mask"] = torch.ones(experts, dtype=torch.int32)
        if q["bias2"]:
            options["bias2"] = self._tensor((experts, k), torch.float32)
        options |= {name: q[name] for name in ("hidden_pad", "intermediate_pad") if q[name]}
        if q["gate_mode"] != "separated":
            options["gate_mode"] = q["gate_mode"]
        self._module.fused_moe(
            self._tensor((m, k), self._dtype(q["dtype"])),
            w1,
            w2,
            self._tensor((m, q["topk"]), torch.float32),
            self._tensor((m, q["topk"]), torch.int32),
            **options,
        )

    def _tensor(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """One element, shown as often as the shape says."""
        return self._torch.empty_strided(shape, (0,) * len(shape), dtype=dtype)

    def _dtype(self, short: str) -> Any:
        """AITER's own word for it: which fp8 there is depends on the GPU."""
        return getattr(self._aiter.dtypes, short)

    def _member(self, enum: str, name: str) -> Any:
        kind = getattr(self._aiter, enum)
        for member, value in kind.__members__.items():
            if member.lower() == name.lower():
                return value
        raise AttributeError(f"this AITER's {enum} has no {name}")

    # --- the answer ---------------------------------------------------------------------------------------------------

    def _question_seen(self) -> dict[str, Any]:
        """What fused_moe made of the call before it asked for a choice; empty when it did not get that far."""
        if not self._asked:
            return {}
        return {"asked_token": self._asked["token"], "q_dtype_a": str(self._asked["q_dtype_a"])}

    def _said(self, metadata: Any) -> dict[str, Any]:
        stage1, kernel1 = _stage(metadata.stage1)
        stage2, kernel2 = _stage(getattr(metadata, "stage2", None))
        return self._question_seen() | {
            "tuned": self._found_a_row(),
            "stage1": stage1,
            "kernelName1": kernel1,
            "stage2": stage2,
            "kernelName2": kernel2,
            "block_m": int(metadata.block_m),
            "ksplit": int(metadata.ksplit),
            "run_1stage": bool(metadata.run_1stage),
        }

    def _found_a_row(self) -> bool | None:
        """From AITER's own log. A row that AITER_BYPASS_TUNE_CONFIG put aside is logged with two empty names."""
        said = aiter_log.read(self._log)
        if said is None:
            return None
        return not said.default and not any("kernelName1='', kernelName2=''" in line for line in self._log)


def _stage(f: Any) -> tuple[str | None, str | None]:
    """The function's name and the kernel name bound to it."""
    bound: dict[str, Any] = {}
    while isinstance(f, functools.partial):
        bound = {**f.keywords, **bound}
        f = f.func
    kernel = bound.get("kernelName")
    # An empty cell of a table is a NaN.
    named = kernel is not None and kernel == kernel
    return (None if f is None else str(getattr(f, "__name__", f))), (str(kernel) if named else None)


def _listen(lines: list[str]) -> None:
    """AITER's log goes into ``lines`` and nowhere else."""
    logger = logging.getLogger("aiter")
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage()[: aiter_log.MAX_LINE])  # type: ignore[method-assign]
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
