"""What a gate itself may find: a requirement that is not met, an ignore that lapsed or hides nothing. Judged in gate/."""

from __future__ import annotations

from moe_preflight.rules.rule import Check, Rule

_FILE = "the gate file itself"

EXPIRED = Rule(
    code="MP801",
    name="ignore-expired",
    severity="error",
    depends="a gate with [[ignore]] entries",
    what="An [[ignore]] entry of the gate is past its `until` date. What it hid counts again.",
    why="Somebody promised to look again by that day.",
    example='code = "MP301", reason = "tuning run booked", until = 2026-09-30, and today is 2026-10-01.',
    remedy="Mend what it hid, or give it a new date and a reason that still holds.",
    source=_FILE,
)

UNMATCHED = Rule(
    code="MP802",
    name="ignore-matched-nothing",
    severity="warning",
    depends="a gate with [[ignore]] entries",
    what="An [[ignore]] entry of the gate hides no finding.",
    why="It is out of date, or its filter is wrong; left there, it will one day hide something nobody meant.",
    example='code = "MP111", tp = 16, while no deployment has TP 16.',
    remedy="Remove the entry, or mend its filter.",
    source=_FILE,
)

GONE = Rule(
    code="MP803",
    name="baseline-entry-gone",
    severity="info",
    depends="a gate with a baseline",
    what="An entry of the baseline no longer occurs.",
    why="It was mended; while its entry stays, it may come back unseen.",
    example="The tuned rows of one deployment were added.",
    remedy="Write the baseline anew: moe-preflight gate GATE.toml --write-baseline FILE.",
    source="the baseline file",
)

REFUSED = Rule(
    code="MP810",
    name="required-of-refused-deployment",
    severity="error",
    depends="a gate with requirements",
    what="The gate requires something of a deployment the engine refuses to start.",
    why="Nothing can be reached by an engine that stops.",
    example="TP 7 of a model with 8 key-value heads.",
    remedy="See the engine's own text in the other finding about this deployment.",
    source=_FILE,
)

ACCEPTED = Rule(
    code="MP811",
    name="required-acceptance",
    severity="error",
    depends="[require] accepted",
    what="The gate requires every token bucket to be accepted, and one is not.",
    why="A rejected bucket stops the worker the first time such a batch arrives.",
    example="accepted = true, and CK rejects stage 1 from 512 tokens up.",
    remedy="See MP101 or MP102 for the same deployment: they say what to change.",
    source=_FILE,
)

ON_AITER = Rule(
    code="MP812",
    name="required-aiter",
    severity="error",
    depends="[require] on_aiter, accepted or min_tuned_decode_pct",
    what="The gate requires something of AITER's expert kernels, and the experts do not reach AITER.",
    why="A requirement with nothing to look at is not met.",
    example="on_aiter = true, and vLLM runs these experts on TRITON.",
    remedy="Read why in the deployment's backend line; choose the backend you mean, or drop the requirement.",
    source=_FILE,
)

TUNED = Rule(
    code="MP813",
    name="required-tuned-share",
    severity="error",
    depends="[require] min_tuned_decode_pct, and tuned tables were read",
    what="Fewer decode buckets have a tuned row than the gate requires. A row of a larger token tier counts as tuned.",
    why="Decode is where latency is felt; an untuned bucket runs AITER's heuristic choice.",
    example="min_tuned_decode_pct = 80, and 5 of 9 buckets have a row.",
    remedy="Tune the missing keys (MP301 names them), or lower the number.",
    source=_FILE,
)

PADDING = Rule(
    code="MP814",
    name="required-padding-limit",
    severity="error",
    depends="[require] max_padding_pct",
    what="The engine's padding costs more expert arithmetic than the gate allows.",
    why="Every token of every request pays for it.",
    example="max_padding_pct = 10, and 224 -> 256 costs 14.3 %.",
    remedy="Use a split that needs no padding (MP111 names one), or raise the limit.",
    source=_FILE,
)

ROUTER = Rule(
    code="MP815",
    name="required-router-kernel",
    severity="error",
    depends="[require] router_kernel",
    what="The gate requires an AITER routing kernel at every reachable batch size, and there is none at some.",
    why="A fallback is right but slower; a kernel that does not exist stops the worker.",
    example="288 experts give 9 groups of 32: the engine routes in torch.",
    remedy="See MP201 or MP202 for the same deployment.",
    source=_FILE,
)

ADVISORY = Rule(
    code="MP816",
    name="required-no-advisory",
    severity="error",
    depends="[require] no_advisories_from",
    what="The gate allows no known-bad combination at or above a level, and one matches.",
    why="Somebody has met this trouble in public with this combination.",
    example='no_advisories_from = "warning", and an advisory of that level matches.',
    remedy="Read the advisory (moe-preflight advisories ID); when it does not apply to you, ignore it with a reason and a date.",
    source=_FILE,
)

PIN = Rule(
    code="MP817",
    name="required-pin",
    severity="error",
    depends="[require] aiter_is_pin",
    what="The gate requires the AITER that the engine's image pins, and another one was judged.",
    why="The deployment would run other tables and other rules than those judged.",
    example="An AITER 0.1.20.post1 tree under vLLM 0.33.0, which pins v0.1.26.",
    remedy="Point aiter at a checkout of the pinned release, or drop the requirement when you build your own image.",
    source=_FILE,
)

VERIFIED = Rule(
    code="MP818",
    name="required-verified",
    severity="error",
    depends="[require] dispatch_verified or engine_verified",
    what="The gate requires facts compared with the sources of this very AITER or engine, and they were not.",
    why="The prediction rests on the nearest release known.",
    example="dispatch_verified = true with an AITER newer than the newest one read.",
    remedy="Point aiter at the tree that will run; update this tool; or drop the requirement.",
    source=_FILE,
)

RULES = (
    EXPIRED, UNMATCHED, GONE, REFUSED, ACCEPTED, ON_AITER, TUNED, PADDING, ROUTER, ADVISORY, PIN, VERIFIED,
)  # fmt: skip
CHECKS: tuple[Check, ...] = ()
