"""``[tool.moe-preflight]`` of a TOML file as defaults of ``check``: flag, then environment, then this table.

A repository's file may say how its models are deployed. It may name no file to write and start no process, for it is often read
in somebody else's checkout.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from moe_preflight.errors import SettingsError
from moe_preflight.gate import keys as k
from moe_preflight.settings import DEFAULT_ENGINE_VERSIONS

PYPROJECT = "pyproject.toml"
TABLE = "moe-preflight"

_MENTION = re.compile(rb"""(?m)^[ \t]*\[?[ \t]*["']?tool["']?[ \t]*(?:\.[ \t]*["']?moe-preflight|\]|=)""")
"""How a file looks that may hold the table; only such a file is parsed."""

_DEGREE = k.integer(1, 65536)


def _one_format(value: object, where: str) -> list[str]:
    name = k.text(value, where)
    if "=" in name:
        raise SettingsError(f"{where}: {k.shown(name)} names a file.", hint="Files are for the command line: --format X=FILE.")
    return [name]


def _listed(kind: k.Kind) -> k.Kind:
    return lambda value, where: [str(v) for v in k.many(kind)(value, where)]


KEYS: dict[str, k.Kind] = {
    "tp": _listed(_DEGREE),
    "dp": _DEGREE,
    "pcp": _DEGREE,
    "pp": _DEGREE,
    "ep": k.boolean,
    "redundant_experts": k.integer(0, 65536),
    "gpu": _listed(k.text),
    "engine": k.choice(*DEFAULT_ENGINE_VERSIONS),
    "engine_version": k.text,
    "engine_env": lambda value, where: [f"{name}={v}" for name, v in k.strings(value, where).items()],
    "moe_backend": k.text,
    "all2all_backend": k.text,
    "enable_lora": k.boolean,
    "aiter": k.text,
    "aiter_version": k.text,
    "no_tuned": k.boolean,
    "flydsl": k.boolean,
    "multi_arch": k.boolean,
    "tokens": k.text,
    "max_num_batched_tokens": k.integer(1),
    "revision": k.text,
    "offline": k.boolean,
    "checkpoint": k.boolean,
    "format": _one_format,
    "fail_on": k.choice("error", "warning", "never"),
    "select": _listed(k.text),
    "ignore": _listed(k.text),
    "color": k.choice("auto", "always", "never"),
    "quiet": k.boolean,
    "verbose": k.boolean,
}
"""The flags of check that a table may set, by their long names."""

_PARAMETER = {"all2all_backend": "all2all", "enable_lora": "lora"}


def load(file: str | None) -> tuple[str, dict[str, Any]]:
    """(the file, its table checked, by parameter name): ``file``, or ./pyproject.toml when there is one that holds the table.

    Raises SettingsError: a file named that holds none, a file that cannot be read or is no TOML, an unknown key, a wrong type."""
    from moe_preflight.aiter.tree import read_regular
    from moe_preflight.errors import FileUnreadable
    from moe_preflight.gate.toml import MAX_BYTES, parse

    name = PYPROJECT if file is None else file
    try:
        data = read_regular(name, MAX_BYTES)
    except FileUnreadable as e:
        raise SettingsError(f"{name}: {e.reason}.", hint="Name a TOML file with --config, or mend this one.") from None
    if file is None and (TABLE.encode() not in data or not _MENTION.search(data)):
        return name, {}
    tool = parse(data, name).get("tool", {})
    if not isinstance(tool, dict) or TABLE not in tool:
        if file is None:
            return name, {}
        raise SettingsError(f"{name}: holds no [tool.{TABLE}] table.", hint="Put the defaults under that heading.")
    given = k.read(tool[TABLE], f"{name}: tool.{TABLE}", KEYS)
    if given.get("aiter", "auto") != "auto":
        given["aiter"] = os.path.join(os.path.dirname(name), os.path.expanduser(given["aiter"]))
    return name, {_PARAMETER.get(key, key): v for key, v in given.items()}


def apply(context: Any, file: str | None) -> None:
    """Make the table the defaults of the command of ``context``, and say on stderr which it sets."""
    name, given = load(file)
    if any(word == "--gfx" or word.startswith("--gfx=") for word in sys.argv):
        given.pop("gpu", None)  # a GPU by hand stands for the one by name
    if given:
        from moe_preflight.report.output import say
        from moe_preflight.report.sanitise import clean

        context.default_map = {**(context.default_map or {}), **given}
        say(f"moe-preflight: defaults from {clean(name)}: {', '.join(sorted(given))}")
