"""Which questions a run has asked the prediction, one sheet per GPU: AITER holds its GPU for the life of a process. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from moe_preflight.aiter.facts.dispatch_rules import Rules
from moe_preflight.aiter.key import Dispatch
from moe_preflight.engine.plan import RankProblem
from moe_preflight.evaluate import TargetEvaluation, key_of
from moe_preflight.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Asked:
    """One bucket of one layer: what was predicted, and the number of the question on the GPU's sheet."""

    expected: Dispatch
    number: int


@dataclass(slots=True)
class Sheet:
    """All questions for one GPU under one environment, each once, however many targets and layers ask it. ``layers`` is keyed (target, layer)."""

    gpu: Gpu
    layers: dict[tuple[int, int], list[Asked]] = field(default_factory=dict)
    env: tuple[tuple[str, str], ...] = ()
    """AITER variables under which these questions are asked, over those of the run: the engine sets them itself."""
    _numbers: dict[str, int] = field(default_factory=dict)

    def ask(self, where: tuple[int, int], expected: Dispatch, question: dict[str, Any]) -> None:
        """Put a bucket's question on the sheet."""
        text = json.dumps(question, sort_keys=True)
        number = self._numbers.setdefault(text, len(self._numbers))
        self.layers.setdefault(where, []).append(Asked(expected, number))

    def __len__(self) -> int:
        return len(self._numbers)

    def lines(self) -> Iterator[str]:
        """The questions in order, a line of JSON each."""
        return (text + "\n" for text in self._numbers)


def question(problem: RankProblem, rules: Rules, token: int) -> dict[str, Any]:
    """What the engine calls fused_moe with at ``token`` tokens: the fields of aiter.key.Key and the two pads it passes along."""
    key = replace(key_of(problem, rules), token=token)
    fields = asdict(key)
    del fields["env"]  # the sheet's
    return fields | {"hidden_pad": problem.hidden_pad, "intermediate_pad": problem.intermediate_pad}


def sheets(targets: Iterable[TargetEvaluation], rules: Rules) -> list[Sheet]:
    """Every judged bucket of every layer whose experts reach AITER, by GPU in order of appearance."""
    out: dict[tuple[object, ...], Sheet] = {}
    for target in targets:
        gpu = target.plan.deployment.gpu
        for i, layer in enumerate(target.layers):
            for d in layer.dispatches:
                env = layer.plan.problem.aiter_env
                sheet = out.setdefault((gpu.gfx, gpu.cu_num, env), Sheet(gpu, env=env))
                sheet.ask((target.index, i), d, question(layer.plan.problem, rules, d.token))
    return list(out.values())
