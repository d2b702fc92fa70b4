"""Observations for a reader, as plain lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moe_preflight.smoke.judge import Observation

_ROW = "{mark} {tokens:>7}  {status:<15} {err:>9}  {us:>10}  {native:>10}  {cost:>7}  {experts:<7} {detail}"
_GOOD = ("ok", "confirmed")


def lines(observations: Iterable[Observation]) -> Iterator[str]:
    """A block per layer and backend, a line per token count: error of the worst token, microseconds per launch padded and at the
    sizes before padding, what padding costs, and whether the experts chosen are right."""
    block = None
    for o in observations:
        key = (o["target"], o["layer"], o["backend"])
        if key != block:
            block = key
            gpu = o["machine"].get("gpu") or "CPU"
            where = f" on {gpu}" if o["machine"].get("torch") else ""
            yield f"{o['layer_name']}: {o['case']}{where}, backend {o['backend']}, {o['weights']} weights, seed {o['seed']}"
            yield _ROW.format(
                mark=" ", tokens="tokens", status="status", err="rel err", us="us", native="native us", cost="padding", experts="experts",
                detail="",
            ).rstrip()  # fmt: skip
        yield _row(o)
        yield from (f"          {note}" for note in _below(o))


def _row(o: Observation) -> str:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return _ROW.format(
        mark=" " if o["status"] in _GOOD and o["ran"] else "!",
        tokens=o["tokens"],
        status=o["status"],
        err=number(o["rel_err"], ".4f"),
        us=number(o["median_us"], ",.1f"),
        native=number(o["native_us"], ",.1f"),
        cost="-" if o["padding_cost_pct"] is None else f"{o['padding_cost_pct']:+.1f} %",
        experts={True: "right", False: "wrong", None: "-"}[o["experts_match"]],
        detail=o["detail"],
    ).rstrip()


def _below(o: Observation) -> Iterator[str]:
    if o["backend"] == "aiter" and o["ran"]:
        yield f"prediction: {o['prediction']['verdict']}: {o['prediction']['why']}"
    if o["tail_read"] is not None:
        yield (
            "poisoned padding reaches the output: the kernel reads the tail, so it must be zero"
            if o["tail_read"]
            else "poisoned padding does not reach the output"
        )
    if o["native_error"]:
        yield f"sizes before padding: {o['native_error'].splitlines()[0]}"
    if o["bit_identical"] is False:
        yield "the same launch gave other bits the second time (sums in another order)"
    if o["kernels"]:
        yield f"kernels: {', '.join(o['kernels'])}"
    yield from o["notes"]
    if o["status"] not in (*_GOOD, "refused"):
        yield from (f"| {line}" for line in o["output_tail"][-8:])
