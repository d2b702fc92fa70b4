"""What holds for every rule: one code, one name, and text a reader can act on."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from moe_preflight.cli.rules import every_rule
from moe_preflight.report.types import SEVERITIES
from moe_preflight.rules.rule import Rule

RULES = every_rule()


def test_codes_and_names_are_unique() -> None:
    assert len({r.code for r in RULES}) == len(RULES)
    assert len({r.name for r in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_a_rule_says_everything(rule: Rule) -> None:
    assert re.fullmatch(r"MP\d{3}|[a-z][a-z-]+", rule.code)
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.name)
    assert rule.severity in SEVERITIES
    for text in (rule.what, rule.why, rule.example, rule.remedy):
        assert len(text) > 10, text
        assert text.endswith((".", '"', ")", "?")), text
    assert rule.source


def rule(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moe_preflight", "rule", *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_rule_command() -> None:
    one = rule("MP101")
    assert one.returncode == 0
    assert "ck-rejects-shape" in one.stdout
    assert max(map(len, one.stdout.splitlines())) <= 80
    assert rule("ck-rejects-shape").stdout == one.stdout == rule("mp101").stdout
    everything = rule("--all", "--format", "json")
    assert {r["code"] for r in json.loads(everything.stdout)} == {r.code for r in RULES}


@pytest.mark.parametrize(
    ("args", "said"),
    [((), "give one code"), (("MP101", "--all"), "give one code"), (("ck-reject-shape",), "Did you mean ck-rejects-shape")],
)
def test_rule_command_refuses_in_one_line(args: tuple[str, ...], said: str) -> None:
    done = rule(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
