"""The bundled cards: each is a plain config, has its line in the index, and is read without a gap."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from moe_preflight.model import cards
from moe_preflight.model.source import load, resolve

IDS = cards.ids()


def test_there_are_cards_and_the_main_one_is_among_them() -> None:
    assert len(IDS) >= 50
    assert "IFM/K2-Horizon-375B-A23B" in IDS


def test_index_and_folder_agree() -> None:
    listed = cards.index()
    assert [c.id for c in listed] == sorted(IDS, key=str.lower)
    for card in listed:
        assert card.file == card.id.replace("/", "__") + ".json"
        assert card.source
        assert " /" not in f" {card.source}"  # public provenance, no path of somebody's disk


@pytest.mark.parametrize("repo_id", IDS)
def test_a_card_is_read_completely(repo_id: str) -> None:
    path = cards.find(repo_id)
    assert path is not None
    model = load(path)
    assert model.unknown == ()
    assert model.confidence == "read"
    assert model.layers
    assert model.layers[0].name == "main"


def test_k2_horizon_by_its_card() -> None:
    (layer,) = load(cards.find("IFM/K2-Horizon-375B-A23B") or "").layers
    assert (layer.experts, layer.topk, layer.model_dim, layer.moe_intermediate_size) == (192, 8, 6144, 1792)
    assert (layer.count, layer.first_layer, layer.scoring, layer.selection_bias) == (58, 3, "sigmoid", True)
    assert (layer.routed_scaling_factor, layer.n_group, layer.renormalize) == (2.5, None, True)


def test_ids_are_found_whatever_their_case_and_never_outside_the_folder() -> None:
    assert cards.find("ifm/k2-horizon-375b-a23b") == cards.find("IFM/K2-Horizon-375B-A23B")
    assert cards.find("../../pyproject") is None
    assert cards.find("nobody/nothing") is None


def test_finding_a_card_reads_no_index_and_imports_no_hub() -> None:
    code = (
        "import sys\nfrom moe_preflight.model.source import load\n"
        "m = load('openai/gpt-oss-120b', offline=True)\n"
        "assert m.source == 'bundled', m\n"
        "assert not {'tomllib', 'huggingface_hub', 'typer', 'rich'} & set(sys.modules), sys.modules.keys()"
    )
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("HF_")}, "HF_HOME": os.devnull}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_note_of_a_card_says_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", os.devnull)
    found = resolve("openai/gpt-oss-20b", offline=True)
    assert found.source == "bundled"
    assert "bundled card" in found.notes[0]


def test_models_lists_them_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    from moe_preflight.cli.models import models

    models(None, "text")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith(f"{len(IDS)} cards")
    assert any("K2-Horizon-375B-A23B" in line for line in lines)


def test_models_as_json_and_by_word(capsys: pytest.CaptureFixture[str]) -> None:
    from moe_preflight.cli.models import models

    models(["horizon"], "json")
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert (row["id"], row["layers"][0]["experts"]) == ("IFM/K2-Horizon-375B-A23B", 192)
    assert row["revision"]


def test_models_without_a_match_is_a_usage_error() -> None:
    from moe_preflight.cli.models import models
    from moe_preflight.errors import UsageError

    with pytest.raises(UsageError, match="no card"):
        models(["nosuchmodel"], "text")
