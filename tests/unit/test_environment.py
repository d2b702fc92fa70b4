"""`--env`: what a support engineer asks first, and no secret."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest

from moe_preflight import __version__
from moe_preflight.environment import PACKAGES, describe
from moe_preflight.report.sanitise import clean_document
from moe_preflight.report.text import render
from tests.unit.report.documents import full, run


def test_versions_of_what_is_installed_and_nothing_of_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "amd-aiter":
            return "0.1.20"
        if name == "torch":
            raise OSError("unreadable metadata")
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    report: Any = SimpleNamespace(run=run())
    said = describe(report)
    assert said["moe_preflight"] == __version__
    assert said["packages"] == {"amd-aiter": "0.1.20"}
    assert {"amd-aiter", "vllm", "sglang", "torch"} <= set(PACKAGES)
    assert "hf_secret" not in str(said)


@pytest.mark.parametrize(
    ("value", "line"),
    [({"vllm": "0.33.0", "torch": "2.9"}, "  packages: vllm=0.33.0, torch=2.9"), ({}, "  packages: none")],
)
def test_pairs_are_shown_in_words(value: dict[str, str], line: str) -> None:
    text = render(clean_document({**full(), "environment": {"packages": value}}))
    assert line in text.splitlines()
