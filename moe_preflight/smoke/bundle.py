"""An evidence file: versions, GPU, what was launched, what was seen. No token, host name or home path leaves the machine."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moe_preflight import __version__
from moe_preflight.errors import OutputError
from moe_preflight.smoke.case import SmokeCase
from moe_preflight.smoke.judge import Observation

_SECRETS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,80}|gh[pousr]_[A-Za-z0-9]{8,80}|sk-[A-Za-z0-9_-]{16,80}|AKIA[A-Z0-9]{12,20}|eyJ[A-Za-z0-9_-]{16,200})"
)
_USER_IN_URL = re.compile(r"(https?://)[^/\s:@]{1,100}:[^/\s@]{1,200}@")
_HOME = re.compile(r"/(?:home|Users)/[^/\s:'\"]{1,64}|/root(?=/|\b)")


class Scrubber:
    """Replaces what identifies a person or machine in any text."""

    def __init__(self, home: str | None = None, host: str | None = None, user: str | None = None) -> None:
        home = os.path.expanduser("~") if home is None else home
        host = platform.node() if host is None else host
        user = os.path.basename(home) if user is None else user
        words = [(home, "~")] if len(home) > 1 else []
        words += [(name, "<host>") for name in (host, host.partition(".")[0]) if len(name) > 2 and name != "localhost"]
        self._words = words
        self._user = re.compile(rf"\b{re.escape(user)}\b") if len(user) > 3 else None

    def text(self, value: str) -> str:
        for word, stand_in in self._words:
            value = value.replace(word, stand_in)
        value = _USER_IN_URL.sub(r"\1<login>@", _HOME.sub("~", _SECRETS.sub("<token>", value)))
        return self._user.sub("<user>", value) if self._user else value

    def value(self, value: Any) -> Any:
        """``value`` with every text in it scrubbed, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.value(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(v) for v in value]
        return value


def bundle(cases: Sequence[SmokeCase], observations: Sequence[Observation], scrubber: Scrubber | None = None) -> dict[str, Any]:
    """The evidence as one JSON object. A folder of real weights is told by its last name only."""
    scrubber = scrubber or Scrubber()
    described = []
    for case in cases:
        data = case.to_json()
        if data["weights"] is not None:
            data["weights"]["folder"] = Path(data["weights"]["folder"]).name
        described.append(data)
    evidence = {
        "schema_version": 1,
        "tool": {"name": "moe-preflight", "version": __version__},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "machine": observations[0]["machine"] if observations else None,
        "cases": described,
        "observations": list(observations),
    }
    return dict(scrubber.value(evidence))


def write(path: str, text: str) -> None:
    """Write ``text``, or raise OutputError naming the file."""
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    except OSError as e:
        raise OutputError(f"{path}: {e.strerror or e}", hint="Choose a file that can be written.") from None


def dump(evidence: Mapping[str, Any]) -> str:
    return json.dumps(evidence, indent=2, sort_keys=True, allow_nan=False) + "\n"
