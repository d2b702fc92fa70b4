"""CK's own answers: its IsSupportedArgument, compiled for the host and asked for every tile (ck_acceptance.tsv)."""

from __future__ import annotations

import csv
from pathlib import Path

from moe_preflight.aiter.ck import PACK, Instance
from moe_preflight.aiter.ck_facts import builtin
from moe_preflight.aiter.tiles import accepts
from moe_preflight.aiter.version import Version
from tests.corpus import corpus, needs_corpus

pytestmark = needs_corpus
MODEL_DIMS = (4096, 7168, 2880)


def rows() -> list[dict[str, str]]:
    path: Path = corpus("golden", "ck_acceptance.tsv")
    with path.open() as f:
        return list(csv.DictReader(f, delimiter="\t"))


def test_all_6417_answers_of_ck_are_met() -> None:
    asked = 0
    for row in rows():
        instance = Instance(256, int(row["tile_m"]), int(row["tile_n"]), int(row["tile_k"]), 1, 4, 1)
        pack = PACK.get(row["family"], 1)
        for model_dim in MODEL_DIMS:
            inter_dim = int(row["inter_dim"])
            n, k = (inter_dim, model_dim) if row["stage"] == "1" else (model_dim, inter_dim)
            accepted, reason = accepts(instance, n, k, pack)
            assert accepted == (row[f"model_dim_{model_dim}"] == "1"), (row, reason)
            asked += 1
    assert asked == 6417


def test_every_tile_ck_was_asked_about_is_one_we_know() -> None:
    known = {
        (tag.removesuffix("_gfx950"), stage, i.m, i.n, i.k)
        for text in ("0.1.7.post2", "0.1.20.post1")
        for (tag, stage), listed in builtin(Version.of(text)).instances.items()
        for i in listed
    }
    for row in rows():
        family = row["family"].removesuffix("_gfx950")
        assert (family, int(row["stage"]), int(row["tile_m"]), int(row["tile_n"]), int(row["tile_k"])) in known, row
