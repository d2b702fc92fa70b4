"""The matrix and its formats, on a small table and shapes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from moe_preflight.aiter.basis import open_basis
from moe_preflight.cli.expand import expand
from moe_preflight.coverage.audit import Audit
from moe_preflight.engine import plan
from moe_preflight.errors import InputError, UsageError
from moe_preflight.evaluate import judged_buckets
from moe_preflight.hardware import GPUS
from moe_preflight.model.shape import parse_shape
from moe_preflight.preflight import deployment
from moe_preflight.report.audit_document import document
from moe_preflight.report.audit_formats import FORMATS
from moe_preflight.report.heatmap import common_folder, render, summary
from moe_preflight.report.style import Style
from moe_preflight.report.types import NotEvaluated
from moe_preflight.settings import Request, Split, Tokens
from tests.browser import CONTRAST, drive, needs_browser
from tests.unit.coverage.tables import row, table, tree

SHAPES = {
    "tuned": "experts=128,topk=8,hidden=4096,inter=192",
    "untuned": "experts=64,topk=8,hidden=4096,inter=256",
    "=1+1|<script>alert(1)</script>": "experts=32,topk=4,hidden=2048,inter=256",
}
TOKENS = (1, 2, 64, 256, 512, 32768)


@pytest.fixture
def doc(tmp_path: Path) -> dict:  # type: ignore[type-arg]
    rows = [row(token=str(t), us=str(t)) for t in TOKENS]
    basis = open_basis(str(tree(tmp_path, x_tuned_fmoe=table(*rows))), asked_version="0.1.20.post1", pin=None, tuned=True)
    request = Request(engine="aiter", engine_version="")
    gpu = GPUS["mi300x"]
    dispatcher = basis.dispatcher(gpu)
    audit = Audit(judged_buckets(dispatcher, Tokens("all"), None))
    for name, shape in SHAPES.items():
        audit.add(name, plan(parse_shape(shape, quant="none"), deployment(request, Split(), gpu)), dispatcher, "TP1 MI300X")
    return document(audit, basis.facts, [NotEvaluated("model x", "not there", "Look again.")])


def test_cells_shares_and_order(doc: dict) -> None:  # type: ignore[type-arg]
    assert [r["model"] for r in doc["rows"]] == ["untuned", "=1+1|<script>alert(1)</script>", "tuned"], (
        "worst first, ties as asked"
    )
    best = doc["rows"][2]
    assert {b["token"]: b["tuned"] for b in best["buckets"] if b["tuned"] != "miss"} == {
        **dict.fromkeys(TOKENS, "hit"),
        131072: "tier",
    }
    assert best["coverage"] == {"hit": 6, "tier": 1, "miss": 10, "unknown": 0}
    assert (best["decode_hit_pct"], best["prefill_hit_pct"]) == (44.4, 25.0)
    assert best["files"] == [{"file": "aiter/configs/model_configs/x_tuned_fmoe.csv", "tokens": [*TOKENS, 131072]}]
    hit = next(b for b in best["buckets"] if b["token"] == 64)
    assert (hit["row"]["file"], hit["row"]["line"], hit["row"]["us"]) == ("aiter/configs/model_configs/x_tuned_fmoe.csv", 4, 64.0)
    assert doc["verdict"] == "inconclusive"
    assert summary(doc).endswith("3 on AITER: 0 fully tuned, 1 in part, 2 untuned, 1 not evaluated")


def test_text_is_one_line_a_row_and_colour_only_where_asked(doc: dict) -> None:  # type: ignore[type-arg]
    plain = render(doc)
    assert "##....#.# #.....#+   44   25  TP1 MI300X, tuned" in plain
    assert "\x1b" not in plain
    assert "\x1b[32m##\x1b[0m" in render(doc, Style(True))
    assert "x_tuned_fmoe.csv: 1, 2, 64, 256, 512, 32,768, 131,072" in " ".join(render(doc, verbose=True).split())
    assert "Not evaluated: model x: not there" in plain


def test_csv_has_a_column_per_bucket_and_no_formula(doc: dict) -> None:  # type: ignore[type-arg]
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](doc))))
    assert [r["model"][:2] for r in rows] == ["un", "'=", "tu"]
    assert (rows[2]["tokens_64"], rows[2]["tokens_4"], rows[2]["tokens_131072"]) == ("hit", "miss", "tier")
    assert (rows[2]["inter_dim"], rows[2]["decode_hit_pct"]) == ("192", "44.4")


def test_json_is_stable_and_complete(doc: dict) -> None:  # type: ignore[type-arg]
    text = FORMATS["json"](doc)
    assert text == FORMATS["json"](doc)
    back = json.loads(text)
    assert (back["kind"], len(back["rows"]), back["buckets"][0], back["buckets"][-1]) == ("audit", 3, 1, 131072)


def test_markdown_shows_names_and_does_nothing(doc: dict) -> None:  # type: ignore[type-arg]
    text = FORMATS["markdown"](doc)
    assert "<script>" not in text
    assert "| TP1 MI300X | 44 % | 25 % | `##....#.# #.....#+` |" in text
    bad = next(line for line in text.splitlines() if "alert" in line)
    assert bad.replace("\\|", "").count("|") == 7


def test_html_is_one_file_that_loads_nothing(doc: dict) -> None:  # type: ignore[type-arg]
    page = FORMATS["html"](doc)
    assert "<script>alert" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert len(data["rows"]) == 3


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_works_and_is_readable_in_a_browser(doc: dict, tmp_path: Path, dark: bool) -> None:  # type: ignore[type-arg]
    """Sorting, filtering and drill-down under the page's own policy; WCAG AA contrast for every kind of cell, light and dark."""
    script = (
        CONTRAST
        + """
    (function(){
      var rows=function(){return [].slice.call(document.querySelectorAll('#matrix tbody tr')).filter(function(r){return !r.hidden})};
      var names=function(){return rows().map(function(r){return r.cells[0].textContent})};
      var out={first:names()};
      var decode=document.querySelector('#matrix thead th:nth-child(3) button');
      decode.click();decode.click();out.sorted=names();
      rows()[0].querySelector('button.open').click();
      var box=document.getElementById('detail');
      out.open=!box.hidden;out.lines=[].slice.call(box.querySelectorAll('tbody tr')).map(function(r){return r.cells[3].textContent});
      box.querySelector('button').click();out.closed=box.hidden;
      var find=document.getElementById('find');find.value='k8 untuned';find.dispatchEvent(new Event('input'));out.found=names();
      find.value='';find.dispatchEvent(new Event('input'));
      var seen=['.c.h','.c.t','.c.m','.c.x','.c.u','h1','.lead','.facts li','#matrix thead th','#matrix tbody td','.open','#matrix code','footer'];
      out.contrast={};seen.forEach(function(s){out.contrast[s]=Math.round(contrast(document.querySelector(s))*10)/10});
      out.background=getComputedStyle(document.body).backgroundColor;
      out.wide=document.documentElement.scrollWidth<=window.innerWidth;
      document.title=JSON.stringify(out);
    })();"""
    )
    out = drive(FORMATS["html"](doc), script, tmp_path, dark=dark)
    assert out["first"][-1] == "tuned"
    assert out["sorted"][0] == "tuned"
    assert out["open"] is True
    assert out["closed"] is True
    assert out["lines"][6] == "aiter/configs/model_configs/x_tuned_fmoe.csv:4"
    assert out["lines"][2] == ""
    assert out["found"] == ["untuned"]
    assert {s: c for s, c in out["contrast"].items() if c < 4.5} == {}
    assert (out["background"] == "rgb(15, 19, 24)") == dark
    assert out["wide"] is True


def test_a_rejected_bucket_is_an_error_and_an_x(tmp_path: Path) -> None:
    basis = open_basis(str(tree(tmp_path)), asked_version="0.1.20.post1", pin=None, tuned=True)
    gpu = GPUS["mi300x"]
    audit = Audit(judged_buckets(basis.dispatcher(gpu), Tokens("all"), None))
    request = Request(engine="aiter", engine_version="")
    audit.add(
        "m",
        plan(parse_shape("experts=128,topk=8,hidden=4096,inter=224", quant="none"), deployment(request, Split(), gpu)),
        basis.dispatcher(gpu),
        "TP1",
    )
    doc = document(audit, basis.facts, [])
    assert doc["verdict"] == "fail"
    assert doc["rows"][0]["severity"] == "error"
    assert "xxxxxxxxx xxxxxxxx" in render(doc)
    assert "224 is not a multiple of tile N" in " ".join(render(doc, verbose=True).split())


class TestExpand:
    def test_folders_lists_and_cards(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "config.json").write_text("{}")
        (tmp_path / "many").mkdir()
        for name in ("b.json", "a.json", "a.hf_quant_config.json", "notes.txt"):
            (tmp_path / "many" / name).write_text("{}")
        listed = tmp_path / "list.txt"
        listed.write_text(f"# ours\norg/model  # the big one\n\n{tmp_path / 'one'}\norg/model\n")
        assert expand([str(tmp_path / "one")]) == [str(tmp_path / "one")]
        assert [Path(p).name for p in expand([str(tmp_path / "many")])] == ["a.json", "b.json"]
        assert [Path(p).name for p in expand([str(tmp_path)])] == ["one"]
        assert expand([f"@{listed}"]) == ["org/model", str(tmp_path / "one")]
        assert len(expand([], cards=True)) > 10

    def test_refusals(self, tmp_path: Path) -> None:
        (tmp_path / "bin").write_bytes(b"\xff\xfe")
        for word, error in (
            ("@", UsageError),
            ("@" + str(tmp_path / "none"), InputError),
            ("@" + str(tmp_path / "bin"), InputError),
        ):
            with pytest.raises(error):
                expand([word])


def test_common_folder() -> None:
    assert common_folder(["/a/b/x.json", "/a/b/y.json"]) == len("/a/b/")
    assert common_folder(["/a/b/x.json", "/a/c/y.json"]) == len("/a/")
    assert common_folder(["/a/b.json"]) == 0
    assert common_folder(["org/a", "org/b"]) == 0
