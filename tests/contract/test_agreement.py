"""README, helps, rule texts, example gates, schemas and the code say the same: what one of them loses or renames, a test here misses."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import moe_preflight
from moe_preflight.advisories.data import ALL as ADVISORIES
from moe_preflight.cli.app import COMMANDS, app
from moe_preflight.cli.rules import every_rule
from moe_preflight.gate.requirements import CODES
from moe_preflight.gate.spec import DEPLOYMENT, IGNORE, REQUIRE, ROOT
from moe_preflight.report import schema, types
from moe_preflight.report.audit_formats import FORMATS as AUDIT_FORMATS
from moe_preflight.report.formats import FORMATS
from moe_preflight.settings import DEFAULT_ENGINE_VERSIONS, Request
from tests.hostile.fuzz import invoke

HERE = Path(__file__).resolve().parents[2]
README = (HERE / "README.md").read_text(encoding="utf-8")
GATES = sorted((HERE / "configs" / "gates").glob("*.toml"))
PACKAGE = Path(moe_preflight.__file__).parent
RULES = every_rule()
CODES_KNOWN = {r.code for r in RULES}
SCHEMA: dict[str, Any] = json.loads(schema.text())
ALL_FORMATS = {*FORMATS, *AUDIT_FORMATS, "csv"}


@cache
def of(command: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.get_command(None, command)


@cache
def flags(command: str) -> frozenset[str]:
    """Every spelling of every option of a command."""
    return frozenset(
        {"--help", "-h", *(o for p in of(command).params for o in (*p.opts, *p.secondary_opts) if o.startswith("-"))}
    )


ANY_FLAG = frozenset({"--version", "--install-completion", "--show-completion"}).union(*(flags(c) for c in COMMANDS))


def said_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """(command, its words) of every ``moe-preflight COMMAND ...`` that is written out in a text, on one line or with a folded rest."""
    for m in re.finditer(r"(?:^|[\s`/(\"'])moe-preflight[ \t]+([a-z]+)\b([^`\n|&;]*)", text):
        if m[1] in COMMANDS:
            try:
                words = shlex.split(m[2].split(" #")[0].rstrip(".)"), posix=True)
            except ValueError:  # an apostrophe of the sentence around it
                words = m[2].split()
            yield m[1], words


def help_of(command: str) -> str:
    """What a command's --help says, before it is wrapped."""
    return "\n".join([of(command).help, *(getattr(p, "help", None) or "" for p in of(command).params)])


def texts() -> dict[str, str]:
    out = {"README": README} | {g.name: g.read_text(encoding="utf-8") for g in GATES}
    out |= {f"help of {c}": help_of(c) for c in COMMANDS}
    return out | {r.code: "\n".join((r.what, r.why, r.example, r.remedy)) for r in RULES}


TEXTS = texts()


@pytest.mark.parametrize("name", TEXTS)
def test_commands_that_are_written_out_exist_with_their_flags(name: str) -> None:
    for command, words in said_commands(TEXTS[name]):
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0].rstrip(",.:;") in flags(command), f"{command} has no {word}"
        for flag, value in pairwise(words):
            if flag == "--format" and not value.isupper():
                assert value.split("=")[0] in ALL_FORMATS, value


def test_there_is_something_to_see() -> None:
    assert len(list(said_commands(README))) > 10
    assert sum(len(list(said_commands(TEXTS[f"help of {c}"]))) >= 1 for c in COMMANDS) == len(COMMANDS), (
        "a help without its example"
    )


FOREIGN = {"--spec"}
"""Flags of other programs that our texts name: pipx's."""


@pytest.mark.parametrize("name", TEXTS)
def test_flags_that_are_named_exist(name: str) -> None:
    """In the prose too: `--ask-aiter` in the README, --fail-on in a rule."""
    text = re.sub(r"^.*(pytest|tests\.\w|pip install|sed |slurm|--export).*$", "", TEXTS[name], flags=re.M)
    unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)) - ANY_FLAG - FOREIGN
    assert not unknown


@pytest.mark.parametrize("name", TEXTS)
def test_codes_and_advisories_that_are_named_exist(name: str) -> None:
    assert set(re.findall(r"\bMP\d{3}\b", TEXTS[name])) <= CODES_KNOWN
    assert set(re.findall(r"\bMPA-\d{4}\b", TEXTS[name])) <= {a.id for a in ADVISORIES}


def test_codes_in_the_sources_exist() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        named = set(re.findall(r"\bMP\d{3}\b", path.read_text(encoding="utf-8")))
        assert named <= CODES_KNOWN, f"{path.name}: {named - CODES_KNOWN}"


# --- exit codes, verdicts, severities ---------------------------------------------------------------------------------


def test_the_exit_codes_of_the_readme_are_the_codes() -> None:
    table = README[README.index("| code | meaning |") : README.index("The first of 2, 1, 3, 0")]
    assert re.findall(r"^\| (\d) \|", table, re.M) == ["0", "1", "2", "3"]
    assert [types.EXIT_OK, types.EXIT_FINDING, types.EXIT_INPUT, types.EXIT_INCONCLUSIVE] == [0, 1, 2, 3]


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"rule", "advisories", "models", "dispatch"}))
def test_every_judging_command_tells_its_exit_codes(command: str) -> None:
    said = of(command).help
    assert re.findall(r"(?:: |; |;\n)(\d) ", said[said.index("Exit codes:") :]) == ["0", "1", "2", "3"], said


def test_verdicts_of_the_readme() -> None:
    said = README[README.index("The verdict in the report") :].split(")")[0]
    assert re.findall(r"`(\w+)`", said) == list(types.VERDICTS)


def test_confidences_of_the_readme() -> None:
    said = README[README.index("Each statement carries a confidence") :].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", said) == SCHEMA["$defs"]["confidence"]["enum"]


# --- gate -------------------------------------------------------------------------------------------------------------


def test_the_readme_names_every_key_of_a_gate() -> None:
    table = README[README.index("| what it may say | |") : README.index("A mistyped key is an error")]
    rows = {cells[1]: cells[2] for line in table.splitlines()[2:] if (cells := line.split("|")) and len(cells) > 2}
    (required,) = (text for head, text in rows.items() if "[require]" in head)
    assert set(re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", required))) == set(REQUIRE)
    (ignore,) = (text for head, text in rows.items() if "[[ignore]]" in head)
    assert set(re.findall(r"`([a-z]+)`", ignore)) == set(IGNORE)
    (deployment,) = (text for head, text in rows.items() if "[[deployment]]" in head)
    assert set(re.findall(r"`([a-z0-9_]+)`", deployment)) - {"defaults"} <= set(DEPLOYMENT)
    for key in set(ROOT) - {"defaults", "require"}:
        assert key in table, key


def test_the_readme_names_the_codes_of_requirements() -> None:
    first, last = re.search(r"\((MP8\d\d) to (MP8\d\d)\)", README).groups()  # type: ignore[union-attr]
    found = {c for codes in CODES.values() for c in codes}
    assert (min(found), max(found)) == (first, last)


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_enumerations_of_the_schema_are_the_codes_own() -> None:
    defs = SCHEMA["$defs"]
    assert defs["verdict"]["enum"] == list(types.VERDICTS)
    assert defs["severity"]["enum"] == list(types.SEVERITIES)
    assert defs["deployment"]["properties"]["engine"]["enum"] == list(DEFAULT_ENGINE_VERSIONS)
    assert Request().engine in defs["deployment"]["properties"]["engine"]["enum"]


def test_every_code_is_one_the_schema_takes() -> None:
    code, name = (SCHEMA["$defs"]["finding"]["properties"][key] for key in ("code", "name"))
    for rule in RULES:
        for value, allowed in ((rule.code, code), (rule.name, name)):
            assert "enum" not in allowed
            assert re.search(allowed.get("pattern", ""), value), value


@pytest.mark.parametrize("command", ["audit", "tune", "advise"])
def test_formats_of_the_help_are_those_that_are_known(command: str) -> None:
    (said,) = (p.help for p in of(command).params if p.name == "format")
    done = invoke(command, "x", "--format", "nothing")
    known = re.search(r"Known: ([^;]*);", done.err)
    assert known, done.err
    assert set(re.findall(r"[a-z]+", said.split(";")[0].replace(" or ", " "))) == set(known[1].split(", "))


def test_every_format_of_the_readme() -> None:
    for name in FORMATS:
        assert re.search(rf"\b{name}\b", README, re.I), name
