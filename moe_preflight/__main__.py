"""``python -m moe_preflight`` and the ``moe-preflight`` script."""

from __future__ import annotations

import sys


def main() -> None:
    """Start the command line. ``--version`` alone is answered without loading it: scripts ask it often."""
    if sys.argv[1:] == ["--version"]:
        from moe_preflight import __version__

        print(f"moe-preflight {__version__}")
        return
    from moe_preflight.cli.app import run

    run()


if __name__ == "__main__":
    main()
