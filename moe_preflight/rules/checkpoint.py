"""Do the weights say the same of the experts as the config? Headers only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moe_preflight.errors import Unavailable
from moe_preflight.report.types import Evidence, Finding
from moe_preflight.rules.rule import Rule
from moe_preflight.rules.run import Run

if TYPE_CHECKING:
    from moe_preflight.model.checkpoint_check import CheckpointReport

MISMATCH = Rule(
    code="MP511",
    name="checkpoint-mismatch",
    severity="error",
    depends="--checkpoint",
    what="A tensor of the checkpoint does not have the shape, dtype or scales that the config promises.",
    why="The engine loads what is there, not what the config says: it fails at load, or computes with the wrong weights.",
    example="An FP8 config beside bf16 expert tensors, or 128 experts in the config and 120 in the files.",
    remedy="Check that config.json and the safetensors files are of one revision.",
    source="the safetensors headers; expected names and layouts by family in model/expert_tensors.py",
)

READ = Rule(
    code="MP512",
    name="checkpoint-read",
    severity="info",
    depends="--checkpoint",
    what="The safetensors headers were read and compared with the config.",
    why="The sizes judged here are those of the files, not only of the config.",
    example="All 192 experts of every MoE layer are there, one tensor each, bf16.",
    remedy="Nothing to do.",
    source="the safetensors headers",
)

BROKEN = Rule(
    code="MP513",
    name="checkpoint-broken",
    severity="error",
    depends="--checkpoint",
    what="A safetensors file is there and its header cannot be read.",
    why="The engine will fail to load it.",
    example="A truncated download.",
    remedy="Download the file again.",
    source="the file itself",
)

NOT_READ = Rule(
    code="MP514",
    name="checkpoint-not-read",
    severity="warning",
    depends="--checkpoint",
    what="There was no checkpoint to look at: no safetensors files, or the hub could not be reached.",
    why="Whether the weights match the config is unknown; the run is inconclusive, not green.",
    example="A folder with a config.json only.",
    remedy="Name a folder with the safetensors files, or a hub id with a network.",
    source="--",
)


def checkpoint(run: Run) -> Iterator[Finding]:
    """MP511 to MP514."""
    for entry in run.checkpoints:
        model = run.models[entry.model].model
        name = model.id if model is not None else run.models[entry.model].asked
        if entry.report is not None:
            yield from _compared(name, entry.report, entry.model)
        elif isinstance(entry.error, Unavailable):
            yield NOT_READ.finding(entry.error.message, remedy=entry.error.hint or None, confidence="read", model=entry.model)
        elif entry.error is not None:
            yield BROKEN.finding(entry.error.message, remedy=entry.error.hint or None, confidence="read", model=entry.model)


def _compared(name: str, r: CheckpointReport, model: int) -> Iterator[Finding]:
    for m in r.mismatches:
        yield MISMATCH.finding(
            f"{name}: {m.tensor}: {m.message}", confidence="read", model=model, evidence=[Evidence(m.tensor, None, m.kind)]
        )
    more = r.mismatch_count - len(r.mismatches)
    if more > 0:
        yield MISMATCH.finding(f"{name}: {more} more tensors do not match.", confidence="read", model=model)
    if not r.mismatch_count:
        kinds = "; ".join(
            f"{x.layer}: {x.experts} experts in each of {x.layers_found} layers, {x.stored}, {'/'.join(x.dtypes)}"
            for x in r.layouts
        )
        yield READ.finding(
            f"{name}: {r.files} files with {r.tensors:,} tensors, {r.expert_tensors:,} of them of experts, agree with the config. {kinds}.",
            confidence="read",
            model=model,
        )


RULES = (MISMATCH, READ, BROKEN, NOT_READ)
CHECKS = (checkpoint,)
