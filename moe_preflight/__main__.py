"""``python -m moe_preflight`` and the ``moe-preflight`` script."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Start the command line. Ctrl-C at any moment, while modules are still being loaded too, ends it without a word with 130."""
    try:
        _start()
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one, while the interpreter ends, would be told as a traceback
        sys.exit(130)


def _start() -> None:
    """``--version`` alone is answered without loading the command line: scripts ask it often."""
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
