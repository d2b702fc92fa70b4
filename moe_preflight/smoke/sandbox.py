"""What a child process may see: a folder of its own and an environment without secrets. Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])

_SECRET = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|CREDENTIALS?)(?:_|$)", re.IGNORECASE)
"""Environment variables of such names stay with the parent: a child needs none of them."""


def environment(folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with ``extra`` laid over it and no secrets; temporary files go to ``folder``, and nothing is
    imported from it. AITER's online tuning is off whatever ``extra`` says."""
    env = {k: v for k, v in os.environ.items() if not _SECRET.search(k)}
    env.update(extra)
    env["PYTHONPATH"] = os.pathsep.join(p for p in (env.get("PYTHONPATH", ""), _PACKAGE_ROOT) if p)
    env["PYTHONSAFEPATH"] = "1"
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["TMPDIR"] = str(folder)
    env["AITER_ONLINE_TUNE"] = "0"
    return env


class Folder:
    """A temporary folder of one run, gone afterwards whatever is in it."""

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose

    def __enter__(self) -> Path:
        import tempfile

        self._path = Path(tempfile.mkdtemp(prefix=f"moe-preflight-{self._purpose}-"))
        return self._path

    def __exit__(self, *_: object) -> None:
        import shutil

        shutil.rmtree(self._path, ignore_errors=True)
