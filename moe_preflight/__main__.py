"""``python -m moe_preflight`` and the ``moe-preflight`` script."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Start the command line. ``--version`` alone is answered without loading it: scripts ask it often."""
    if sys.argv[1:] == ["--version"]:
        from moe_preflight import __version__

        try:
            print(f"moe-preflight {__version__}", flush=True)
        except OSError as e:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more at the end
            sys.exit(0 if isinstance(e, BrokenPipeError) else 2)
        return
    from moe_preflight.cli.app import run

    run()


if __name__ == "__main__":
    main()
