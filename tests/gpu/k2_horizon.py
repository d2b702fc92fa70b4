"""K2-Horizon-375B's experts at TP8 (224 -> 256) and TP4 (448 -> 512) on this machine's GPU, torch backend.

Run by hand from the root of a checkout; needs torch only::

    python -m tests.gpu.k2_horizon [--device 0] [--tokens 1,64,4096] [--json FILE]

Prints the figures a reader needs: error of the worst token, microseconds per launch at the padded sizes and at those before
padding, and the GPU's name. Ends with 1 when the arithmetic does not hold.
"""

from __future__ import annotations

import argparse
import sys

from moe_preflight.smoke.bundle import bundle, dump, write
from moe_preflight.smoke.case import RouterSpec, SmokeCase
from moe_preflight.smoke.parent import SmokeOptions, outcome, run_smoke
from moe_preflight.smoke.text import lines

ROUTER = RouterSpec("biased_grouped_topk", 192, 8, 8, 8, scoring="sigmoid", bias=True, scaling_outside=2.5)
"""192 experts, 8 groups all kept: sigmoid, selection bias, renormalized, times 2.5."""

SPLITS = ((8, 224, 256), (4, 448, 512))
"""TP, inter_dim before and after vLLM's padding (moe_intermediate_size 1792; facts: vLLM 0.33.0 unquantized rule)."""


def cases(tokens: list[int]) -> list[SmokeCase]:
    return [
        SmokeCase(
            tokens=n,
            model_dim=6144,
            inter_dim=inter,
            inter_dim_padded=padded,
            experts=192,
            topk=8,
            router=ROUTER,
            layer=index,
            layer_name=f"K2-Horizon TP{tp}",
            poison=True,
        )
        for index, (tp, inter, padded) in enumerate(SPLITS)
        for n in tokens
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--tokens", default="1,64,4096")
    parser.add_argument("--json")
    args = parser.parse_args()
    wanted = cases([int(n) for n in args.tokens.split(",")])
    options = SmokeOptions(backend="torch", device=args.device, timeout=180.0)
    seen = run_smoke(wanted, options, lambda text: print(text, file=sys.stderr, flush=True))
    for o in seen[:1]:
        print(f"torch {o['machine']['torch']}, CUDA {o['machine']['cuda']}, HIP {o['machine']['hip']}, {o['machine']['gpu']}")
    print("\n".join(lines(seen)))
    for o in seen:
        print(
            f"device kernels at {o['tokens']} tokens, {o['layer_name']}: {', '.join(k[:60] for k in o['device_kernels'][:4]) or 'not seen'}"
        )
    if args.json:
        write(args.json, dump(bundle(wanted, seen)))
    return outcome(seen).exit_code


if __name__ == "__main__":
    sys.exit(main())
