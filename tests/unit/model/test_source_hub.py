"""The hub, with the real client against a loopback server. Each case runs in a process of its own: the client reads its
environment once, at import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hubserver import COMMIT, Hub, serve

MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 4,
    "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336, "torch_dtype": "bfloat16",
}  # fmt: skip
CODE = """
import json, sys
from moe_preflight.errors import PreflightError
from moe_preflight.model.source import load
args = json.loads(sys.argv[1])
try:
    m = load(**args)
    print(json.dumps({"source": m.source, "revision": m.revision, "notes": m.notes, "layers": len(m.layers),
                      "scheme": m.quantization.scheme, "imported": "huggingface_hub" in sys.modules}))
except PreflightError as e:
    print(json.dumps({"error": type(e).__name__, "exit": e.exit_code, "text": str(e)}))
"""
Asker = Callable[..., dict[str, Any]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as running:
        yield running


@pytest.fixture
def ask(hub: Hub, tmp_path: Path) -> Asker:
    """Load a model in a fresh process with its own cache; extra environment as keywords in capitals."""
    cards = tmp_path / "cards"
    cards.mkdir()
    (cards / "org__carded.json").write_text(json.dumps(MIXTRAL))

    def run(model: str, **settings: Any) -> dict[str, Any]:
        variables = {k: v for k, v in settings.items() if k.isupper()}
        args = {"model": model, "card_dir": str(cards), **{k: v for k, v in settings.items() if not k.isupper()}}
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING")) and "proxy" not in k.lower()}
        env = {**keep, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", **variables}
        env = {k: v for k, v in env.items() if v is not None}
        done = subprocess.run(
            [sys.executable, "-c", CODE, json.dumps(args)], env=env, capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        answer: dict[str, Any] = json.loads(done.stdout)
        assert "\n" not in answer.get("text", "")
        return answer

    return run


def test_a_config_is_fetched_and_its_commit_recorded(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", MIXTRAL)
    assert ask("org/m") == {
        "source": "hub", "revision": COMMIT, "notes": [], "layers": 1, "scheme": "none", "imported": False
    }  # fmt: skip


def test_a_warm_cache_costs_one_request(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", MIXTRAL)
    ask("org/m")
    hub.asked.clear()
    assert ask("org/m")["revision"] == COMMIT
    assert [(m, p.rsplit("/", 1)[1]) for m, p, _ in hub.asked] == [("HEAD", "config.json")]


def test_a_moved_branch_is_fetched_again(hub: Hub, ask: Asker) -> None:
    repo = hub.add("org/m", MIXTRAL)
    ask("org/m")
    repo.commit = "b" * 40
    repo.files["config.json"] = json.dumps({**MIXTRAL, "num_local_experts": 16}).encode()
    assert ask("org/m")["revision"] == "b" * 40
    assert ask("org/m", offline=True)["revision"] == "b" * 40


def test_a_cached_commit_needs_neither_network_nor_library(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", MIXTRAL)
    ask("org/m", revision=COMMIT)
    hub.asked.clear()
    again = ask("org/m", revision=COMMIT)
    assert again["revision"] == COMMIT
    assert again["imported"] is False
    assert hub.asked == []


@pytest.mark.parametrize("how", [{"offline": True}, {"HF_HUB_OFFLINE": "1"}, {"TRANSFORMERS_OFFLINE": "true"}])
def test_offline_reads_the_cache(hub: Hub, ask: Asker, how: dict[str, Any]) -> None:
    hub.add("org/m", MIXTRAL)
    ask("org/m")
    hub.asked.clear()
    assert ask("org/m", **how)["revision"] == COMMIT
    assert hub.asked == []


def test_offline_without_a_copy_uses_the_card_and_says_so(hub: Hub, ask: Asker) -> None:
    answer = ask("org/carded", offline=True)
    assert (answer["source"], answer["revision"], answer["imported"]) == ("bundled", None, False)
    assert "bundled card" in answer["notes"][0]
    assert hub.asked == []


def test_offline_without_copy_and_card_is_unavailable(ask: Asker) -> None:
    answer = ask("org/m", offline=True)
    assert (answer["error"], answer["exit"]) == ("ModelUnavailable", 3)
    assert "no bundled card" in answer["text"]


@pytest.mark.parametrize("cache", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"])
def test_the_cache_is_where_the_library_keeps_it(hub: Hub, ask: Asker, tmp_path: Path, cache: str) -> None:
    """The library writes, our own offline reader finds it; ``HF_HOME=None`` takes the variable away."""
    hub.add("org/m", MIXTRAL)
    where: dict[str, Any] = {cache: str(tmp_path / "elsewhere"), "HF_HOME": None}
    ask("org/m", **where)
    assert list((tmp_path / "elsewhere").rglob("config.json"))
    assert ask("org/m", offline=True, **where)["revision"] == COMMIT


def test_the_token_is_the_librarys(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", MIXTRAL, token="hf_secret")
    assert ask("org/m")["error"] == "ModelUnavailable"
    answer = ask("org/m", HF_TOKEN="hf_secret")
    assert answer["source"] == "hub"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("gated", "gated"),
        ("gated401", "gated"),
        ("private", "not on the hub, or private"),
        ("missing", "not on the hub, or private"),
        ("forbidden", "refused (403)"),
        ("disabled", "disabled"),
    ],
)
def test_a_refusal_is_never_papered_over(hub: Hub, ask: Asker, fault: str, says: str) -> None:
    """The card of org/carded would do; the hub's no counts."""
    hub.add("org/carded", MIXTRAL, fault=fault)
    answer = ask("org/carded")
    assert (answer["error"], answer["exit"]) == ("ModelUnavailable", 3)
    assert says in answer["text"]


def test_a_missing_revision_and_a_missing_config_are_refusals_too(hub: Hub, ask: Asker) -> None:
    hub.add("org/carded", MIXTRAL)
    answer = ask("org/carded", revision="v9")
    assert (answer["exit"], "no revision v9" in answer["text"]) == (3, True)
    hub.add("org/carded")
    answer = ask("org/carded")
    assert (answer["exit"], "has no config.json" in answer["text"]) == (3, True)


@pytest.mark.parametrize("fault", ["broken", "down", "nohub"])
def test_a_broken_hub_lets_the_card_stand_in(hub: Hub, ask: Asker, fault: str) -> None:
    hub.add("org/carded", MIXTRAL, fault=fault)
    answer = ask("org/carded")
    assert answer["source"] == "bundled"
    assert "could not be reached" in answer["notes"][0]


def test_a_broken_hub_without_card_is_unavailable(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", MIXTRAL, fault="broken")
    answer = ask("org/m")
    assert (answer["exit"], "500" in answer["text"]) == (3, True)


def test_a_broken_hub_falls_back_to_the_cache_first(hub: Hub, ask: Asker) -> None:
    repo = hub.add("org/carded", MIXTRAL)
    ask("org/carded")
    repo.fault = "broken"
    answer = ask("org/carded")
    assert (answer["source"], answer["revision"]) == ("hub", COMMIT)
    assert "read from the hub cache" in answer["notes"][0]


def test_a_card_stands_for_no_other_revision(hub: Hub, ask: Asker) -> None:
    hub.add("org/carded", MIXTRAL, fault="broken")
    answer = ask("org/carded", revision="v2")
    assert (answer["exit"], "revision v2" in answer["text"]) == (3, True)


def test_no_network_and_a_card_end_within_three_seconds(ask: Asker, hub: Hub) -> None:
    """The wait is what is bounded; what a loaded machine takes just to start is measured beside it."""
    hub.add("org/carded", MIXTRAL, fault="slow", delay=20.0)
    started = time.monotonic()
    ask("org/carded", offline=True)
    start_up = time.monotonic() - started
    for endpoint in (hub.url, "http://127.0.0.1:9"):
        started = time.monotonic()
        answer = ask("org/carded", HF_ENDPOINT=endpoint)
        assert answer["source"] == "bundled"
        assert time.monotonic() - started < 3.0 + 4 * start_up


def test_no_network_and_no_card_is_one_line(ask: Asker) -> None:
    answer = ask("org/m", HF_ENDPOINT="http://127.0.0.1:9")
    assert answer["exit"] == 3
    assert "could not be reached" in answer["text"]
    assert "refused" in answer["text"]


def test_a_renamed_repository_is_followed(hub: Hub, ask: Asker) -> None:
    hub.add("org/new", MIXTRAL)
    hub.add("org/old", fault="redirect", moved_to="org/new")
    assert ask("org/old")["revision"] == COMMIT


def test_modelopts_own_file_counts_when_the_config_has_none(hub: Hub, ask: Asker) -> None:
    quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": []}}
    repo = hub.add("org/m", MIXTRAL)
    repo.files["hf_quant_config.json"] = json.dumps(quant).encode()
    assert ask("org/m")["scheme"] == "nvfp4"
    assert ask("org/m", offline=True)["scheme"] == "nvfp4"


def test_modelopts_own_file_is_not_asked_for_when_the_config_says_it(hub: Hub, ask: Asker) -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    hub.add("org/m", {**MIXTRAL, "quantization_config": block})
    assert ask("org/m")["scheme"] == "fp8_block"
    assert set(hub.files_asked("HEAD")) == {"config.json"}


def test_an_enormous_file_is_not_fetched(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", MIXTRAL, says_size=5 << 30)
    answer = ask("org/m")
    assert (answer["error"], answer["exit"]) == ("ConfigError", 2)
    assert hub.files_asked("GET") == []


def test_a_config_that_is_no_config_names_the_repository(hub: Hub, ask: Asker) -> None:
    hub.add("org/m", b"version https://git-lfs.github.com/spec/v1")
    answer = ask("org/m")
    assert (answer["error"], "org/m/config.json" in answer["text"]) == ("ConfigError", True)


@pytest.mark.parametrize("model", ["a--b", "org/na me", "org/.x", "org/x.git", "https://huggingface.co/org/m", "org/m\n"])
def test_a_malformed_id_is_a_usage_error_and_asks_nobody(hub: Hub, ask: Asker, model: str) -> None:
    answer = ask(model)
    assert (answer["error"], answer["exit"]) == ("UsageError", 2)
    assert hub.asked == []


def test_a_cache_that_cannot_be_written_says_what_to_do(hub: Hub, ask: Asker, tmp_path: Path) -> None:
    hub.add("org/m", MIXTRAL)
    blocked = tmp_path / "file"
    blocked.write_text("")
    answer = ask("org/m", HF_HOME=str(blocked))
    assert answer["exit"] == 3


def test_a_mistyped_id_of_a_known_model_is_put_right(hub: Hub, ask: Asker) -> None:
    assert "Did you mean org/carded?" in ask("org/cardedd")["text"]
