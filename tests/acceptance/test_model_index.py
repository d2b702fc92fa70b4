"""Every config of the corpus is read to the values its index says are right."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from moe_preflight.model.moe import ExpertLayer, MoEModel
from moe_preflight.model.read import read_config
from moe_preflight.model.strict_json import load_object
from tests.corpus import CORPUS, corpus, needs_corpus

pytestmark = [needs_corpus, pytest.mark.corpus]


def rows() -> list[dict[str, str]]:
    if CORPUS is None:
        return []
    with corpus("hf-configs", "INDEX.tsv").open(newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def read(row: dict[str, str]) -> MoEModel:
    path: Path = corpus("hf-configs", row["file"])
    beside = path.with_suffix(".hf_quant_config.json")
    quant = load_object(beside.read_bytes(), beside.name) if beside.exists() else None
    return read_config(load_object(path.read_bytes(), path.name), id=row["repo_id"], hf_quant_config=quant)


def listed(cell: str) -> list[int]:
    """``8``, ``[64]*2``, ``[1536,512]`` or ``[8]*32``: the distinct values, in order."""
    inner, _, _ = cell.partition("]*")
    return list(dict.fromkeys(int(x) for x in inner.strip("[]").split(",")))


def values(layers: list[ExpertLayer], attribute: str) -> list[int]:
    return list(dict.fromkeys(getattr(x, attribute) for x in layers))


SIZES = {
    "num_experts": "experts",
    "topk": "topk",
    "model_dim": "model_dim",
    "moe_intermediate_size": "moe_intermediate_size",
    "n_shared": "n_shared",
    "n_group": "n_group",
    "topk_group": "topk_group",
}
METHODS = {"mlx": "mlx", "?": "mlx"}


@pytest.mark.parametrize("row", rows(), ids=lambda r: r["file"])
def test_values_of_the_index(row: dict[str, str]) -> None:
    model = read(row)
    layers = [x for x in model.layers if not x.name.startswith("mtp")]
    if row["num_experts"] == "0":
        assert model.layers == ()
        assert not model.unknown
        return
    if row["hidden_size"]:
        assert model.hidden_size == int(row["hidden_size"])
    for column, attribute in SIZES.items():
        if row[column]:
            assert values(layers, attribute) == listed(row[column]), column
    if row["scoring_func"]:
        assert {x.scoring for x in layers} == {row["scoring_func"]}
    if "(shared_" in row["notes"] and "shared width 0" in row["notes"]:
        assert {x.shared_intermediate_size for x in layers} == {0}


@pytest.mark.parametrize("row", rows(), ids=lambda r: r["file"])
def test_only_incomplete_files_have_unknown_fields(row: dict[str, str]) -> None:
    model = read(row)
    if row["completeness"] == "full":
        assert model.unknown == ()
        assert model.confidence == "read"
    if not row["moe_intermediate_size"] and row["completeness"] == "partial" and model.layers:
        known = {x.moe_intermediate_size for x in model.layers} - {0}
        assert not known or "ffn_hidden_size" in model.fields["moe_intermediate_size"]


@pytest.mark.parametrize("row", [r for r in rows() if r["quant_method"]], ids=lambda r: r["file"])
def test_quantization_method_is_the_checkpoints_word(row: dict[str, str]) -> None:
    """The index writes ``method (details)``; a file of ModelOpt's beside the config counts when the config has nothing."""
    word = row["quant_method"].split()[0].rstrip(";")
    method = read(row).quantization.method
    if word == "hf_quant_config.json:":
        assert method == "modelopt"
    else:
        assert method == METHODS.get(word, word)
