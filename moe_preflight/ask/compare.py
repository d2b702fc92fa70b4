"""AITER's own answers against the predicted ones, as observations of the report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moe_preflight.aiter.key import Dispatch
from moe_preflight.aiter.rawkey import answer as in_words
from moe_preflight.ask.questions import Asked

Answer = dict[str, Any]
Observation = dict[str, Any]

BACKEND = "ask-aiter"

FIELDS = (
    *("asked_token", "q_dtype_a", "tuned", "stage1", "kernelName1", "stage2", "kernelName2", "block_m", "ksplit"),
    "run_1stage",
)
"""What must agree, in the words of ``moe-preflight dispatch`` and in the order AITER settles it."""

_WORDS = {
    "asked_token": "token bucket",
    "q_dtype_a": "activation dtype",
    "tuned": "tuned row found",
    "kernelName1": "stage 1 kernel",
    "kernelName2": "stage 2 kernel",
    "stage1": "stage 1",
    "stage2": "stage 2",
    "run_1stage": "one stage",
}
_NO_NAME = (None, "", "nan", "None", "Null")


def differing(expected: Dispatch, said: Mapping[str, Any], gfx: str) -> dict[str, tuple[Any, Any]]:
    """The fields in which the two disagree: (predicted, AITER's). Two refusals agree when they raise the same exception."""
    if expected.error is not None or "error" in said:
        mine, theirs = expected.error, said.get("error")
        return {} if _exception(mine) == _exception(theirs) else {"error": (mine, theirs)}
    words = in_words({}, expected, gfx)
    out = {}
    for name in FIELDS:
        if name == "tuned" and (expected.tuned == "unknown" or said.get("tuned") is None):
            continue
        if _plain(name, words[name]) != _plain(name, said.get(name)):
            out[name] = (words[name], said.get(name))
    return out


def _exception(text: str | None) -> str | None:
    return None if text is None else text.partition(":")[0]


def _plain(name: str, value: Any) -> Any:
    return None if name in ("kernelName1", "kernelName2") and value in _NO_NAME else value


def observe(
    where: tuple[int, int],
    layer_name: str,
    asked: Sequence[Asked],
    answers: Mapping[int, Answer],
    gfx: str,
    *,
    aiter: str,
    confidence: str,
    ended: tuple[str, str] | None,
    told: Mapping[str, Any],
) -> Observation:
    """One layer of one target. ``ended`` is (status, why) when the child did not get to its end, ``told`` what it said of itself.

    ``prediction`` and ``answer`` hold the fields that differ at the first bucket that does, ``differences`` all of them.
    """
    differences: list[dict[str, Any]] = []
    unanswered = [a.expected.token for a in asked if a.number not in answers]
    for a in asked:
        if a.number in answers and (found := differing(a.expected, answers[a.number], gfx)):
            differences.append({"token": a.expected.token, "fields": found})
    status = "contradicted" if differences else (ended or ("error", ""))[0] if unanswered else "confirmed"
    first = differences[0] if differences else None
    names = [answers[a.number].get(k) for a in asked if a.number in answers for k in ("kernelName1", "kernelName2")]
    return {
        "target": where[0],
        "layer": where[1],
        "layer_name": layer_name,
        "backend": BACKEND,
        "tokens": [a.expected.token for a in asked],
        "status": status,
        "detail": _detail(status, asked, differences, unanswered, ended, aiter, confidence, told),
        "prediction": None if first is None else {"token": first["token"]} | {k: v[0] for k, v in first["fields"].items()},
        "answer": None if first is None else {"token": first["token"]} | {k: v[1] for k, v in first["fields"].items()},
        "differences": [
            {"token": d["token"]} | {k: {"predicted": v[0], "answer": v[1]} for k, v in d["fields"].items()} for d in differences
        ],
        "unanswered": unanswered,
        "kernels": list(dict.fromkeys(n for n in names if n not in _NO_NAME)),
        "aiter": aiter,
        "standins": told.get("standins"),
    }


def _detail(
    status: str,
    asked: Sequence[Asked],
    differences: Sequence[Mapping[str, Any]],
    unanswered: Sequence[int],
    ended: tuple[str, str] | None,
    aiter: str,
    confidence: str,
    told: Mapping[str, Any],
) -> str:
    how = "its compiled parts stood in for" if told.get("standins") else "on this machine's GPU"
    parts = []
    if status == "confirmed":
        parts.append(f"{aiter}'s own dispatch ({how}) agrees at all {len(asked)} token buckets.")
        if confidence == "unverified":
            parts.append("The prediction for this version is unverified as such; here AITER itself answered.")
    if differences:
        first = differences[0]
        said = ", ".join(
            f"{_WORDS.get(k, k)} {_shown(p)} predicted, {_shown(a)} answered" for k, (p, a) in first["fields"].items()
        )
        parts.append(
            f"{aiter}'s own dispatch ({how}) differs at {len(differences)} of {len(asked)} token buckets, first at "
            f"{first['token']:,}: {said}."
        )
    if unanswered:
        why = ended[1] if ended else "it gave no answer"
        parts.append(f"No answer at {len(unanswered)} of {len(asked)} token buckets, from {unanswered[0]:,}: {why}.")
    if told.get("flydsl_differs"):
        parts.append(told["flydsl_differs"])
    if told.get("refused"):
        parts.append(f"AITER tried to write outside its own folder and was not let: {', '.join(told['refused'][:3])}.")
    return " ".join(parts)


def _shown(value: Any) -> str:
    return "none" if value in (None, "") else "yes" if value is True else "no" if value is False else str(value)
