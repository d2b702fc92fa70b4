"""The text of what an upgrade can change."""

from __future__ import annotations

from moe_preflight.rules.rule import Rule

_BOTH = "both sides could be evaluated"
_SOURCE = "the two evaluations; each change names what was read"

REFUSED = Rule(
    code="MP741", name="engine-outcome-changed", severity="error", depends=_BOTH,
    what="The engine refuses, or no longer refuses, this model under this split; or the experts go to another backend.",
    why="A refusal means the deployment does not start after the upgrade; another backend means another speed.",
    example="vLLM 0.33.0 refuses block-scale FP8 widths that 0.31.0 still served.",
    remedy="Stay on the old release for this deployment, or change what the engine names in its text.",
    source=_SOURCE,
)  # fmt: skip
ACCEPTANCE = Rule(
    code="MP742", name="acceptance-changed", severity="error", depends=_BOTH,
    what="A kernel rejects a shape, or AITER's dispatch raises, on one side and not on the other.",
    why="Requests of these batch sizes fail after the upgrade, or work at last.",
    example="inter_dim 192: rejected up to v0.1.7, accepted from v0.1.8.",
    remedy="Change the split, or stay on the old release.",
    source=_SOURCE,
)  # fmt: skip
HITS = Rule(
    code="MP743", name="tuned-coverage-changed", severity="warning", depends="tuned tables were read on both sides",
    what="Token buckets have a tuned row on one side and none, or only a tier fallback, on the other.",
    why="Untuned buckets run AITER's heuristic choice, which may be far from the fastest.",
    example="A table was dropped, or the engine pads to a width nobody tuned.",
    remedy="Tune the keys that were lost: moe-preflight tune.",
    source=_SOURCE,
)  # fmt: skip
PATH = Rule(
    code="MP744", name="kernel-choice-changed", severity="info", depends=_BOTH,
    what="The same key takes another path, or other kernels, at some token buckets.",
    why="Speed and rounding can differ: measure before rolling out.",
    example="v0.1.13 took a one-stage assembly kernel where v0.1.20 takes FlyDSL.",
    remedy="Measure these batch sizes on both.",
    source=_SOURCE,
)  # fmt: skip
ROUTER = Rule(
    code="MP745", name="router-changed", severity="warning", depends=_BOTH,
    what="Routing runs another kernel, one that does not exist, or one with a known defect that the other side does not have.",
    why="A router kernel that is not compiled, or goes wrong, fails or changes the answers of every layer.",
    example="From v0.1.12 more than 32 experts per group stay on the HIP kernel at any batch size.",
    remedy="See the change; moe-preflight check names the defect.",
    source=_SOURCE,
)  # fmt: skip
PADDING = Rule(
    code="MP746", name="padding-changed", severity="warning", depends=_BOTH,
    what="The engine hands AITER other expert sizes than before.",
    why="Padding costs arithmetic and memory, and decides which tuned rows are found.",
    example="vLLM 0.32.0 pads an unquantized width of 224 to 256, 0.31.0 does not.",
    remedy="Weigh the padding: moe-preflight check prints its cost; choose a split whose width needs none.",
    source=_SOURCE,
)  # fmt: skip
KEY = Rule(
    code="MP747", name="question-changed", severity="info", depends=_BOTH,
    what="The engine asks AITER another question for the same model: experts, topk, dtypes, quantization or activation.",
    why="Tuned rows of the old question do not answer the new one.",
    example="Fused shared experts turn 256 experts top-8 into 257 top-9.",
    remedy="Tune the new key if it has no row.",
    source=_SOURCE,
)  # fmt: skip

RULES: tuple[Rule, ...] = (REFUSED, ACCEPTANCE, HITS, PATH, ROUTER, PADDING, KEY)
