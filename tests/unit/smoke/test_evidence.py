"""The reproducer's text, the evidence file and the lines for a reader."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.errors import DeviceUnavailable, OutputError, UsageError
from moe_preflight.smoke import repro
from moe_preflight.smoke.bundle import Scrubber, bundle, dump, write
from moe_preflight.smoke.case import RealWeights, RouterSpec
from moe_preflight.smoke.judge import refused
from moe_preflight.smoke.parent import SmokeOptions, _environment, choose
from moe_preflight.smoke.text import lines
from tests.unit.smoke.cases import small
from tests.unit.smoke.test_judge import CK, MISS, done, ended, failed, result, seen


@pytest.mark.parametrize("scheme", ["none", "fp8_tensor", "fp8_channel", "fp8_block", "mxfp4_a4"])
@pytest.mark.parametrize("kernel", ["biased_grouped_topk", "grouped_topk", "topk_softmax"])
def test_the_script_is_python_and_needs_nothing_of_ours(scheme: str, kernel: str) -> None:
    case = small(scheme=scheme, router=RouterSpec(kernel, 16, 4, 4, 4))
    assert repro.unfit(case) == ""
    text = repro.script(case, seen(failed(CK)))
    roots = {a.name.split(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import) for a in n.names}
    roots |= {str(n.module).split(".")[0] for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
    assert roots == {"sys", "torch", "aiter"}
    assert "H, H_PAD, I, I_PAD = 256, 256, 96, 128" in text
    assert len(text.splitlines()) < 110
    assert text.isascii()


def test_a_hostile_log_cannot_leave_the_docstring() -> None:
    o = seen(failed('"""\nimport os; os.system("x")\n\\"""\x1b[31m\u202e'))
    text = repro.script(small(), o)
    calls = {n.func.attr for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    assert "system" not in calls


def test_what_the_script_does_not_cover_is_said() -> None:
    for changes in ({"scheme": "mxfp4"}, {"activation": "situv2"}, {"is_ep": True, "experts": 4}, {"expert_bias": True}):
        assert repro.unfit(small(**changes)) != ""


def test_the_first_failing_case_is_reproduced() -> None:
    cases = [small(tokens=n) for n in (1, 2, 3)]
    seen_ = [seen(done()), seen(failed(CK)), seen(done(nonfinite=1))]
    found = repro.worst(seen_, cases)
    assert found is not None
    assert found[0].tokens == 2
    assert repro.worst(seen_[:1], cases[:1]) is None


def test_no_name_leaves_the_machine() -> None:
    scrub = Scrubber(home="/home/jane", host="node17.example.org", user="jane")
    secrets = "hf_abcdefghijkl", "ghp_0123456789abcdef", "sk-abcdefghijklmnopqrst", "AKIAABCDEFGHIJKLMNOP"
    text = scrub.text(
        f"/home/jane/x /home/bob/y on node17.example.org (node17) by jane, {' '.join(secrets)}, https://u:pw@host/x"
    )
    assert text == "~/x ~/y on <host> (<host>) by <user>, <token> <token> <token> <token>, https://<login>@host/x"
    assert scrub.value({"jane": ["/root/a", 1, None, True]}) == {"<user>": ["~/a", 1, None, True]}


def test_bundle(tmp_path: Path) -> None:
    case = small(weights=RealWeights("/srv/secret-project/K2", 3, 0, 1792))
    o = seen(ended(returncode=-6, tail=["abort in /home/jane/aiter, token hf_abcdefghijkl"]))
    text = dump(bundle([case], [o], Scrubber(home="/home/jane", host="node17", user="jane")))
    for word in ("jane", "node17", "hf_abc", "secret-project"):
        assert word not in text
    evidence = json.loads(text)
    assert evidence["cases"][0]["weights"]["folder"] == "K2"
    assert evidence["observations"][0]["status"] == "crashed"
    assert evidence["machine"]["gpu"] == "MI300X"
    write(str(tmp_path / "e.json"), text)
    assert (tmp_path / "e.json").read_text() == text
    with pytest.raises(OutputError, match="nowhere"):
        write(str(tmp_path / "nowhere" / "e.json"), text)


def test_lines_for_a_reader() -> None:
    events: list[dict[str, Any]] = [
        result(),
        {"event": "poison", "nonfinite": 33},
        {"event": "native", "median_us": 100.0},
        {"event": "end", "status": "done"},
    ]
    crash = ended(returncode=-6, tail=["Memory access fault by GPU node-1"])
    text = "\n".join(lines([seen(ended(*events), poison=True), seen(crash), refused(small(), "aiter", "needs 9 GiB")]))
    assert "E16 top4 256 x 96->128 bf16 on MI300X, backend aiter, random weights, seed 0" in text
    assert "114.0       100.0  +14.0 %  right" in text
    assert "the kernel reads the tail" in text
    assert "prediction: confirmed: AITER took 2-stage heuristic" in text
    assert "| Memory access fault by GPU node-1" in text
    assert "needs 9 GiB" in text


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (
            {"torch": "2.13.0+cpu", "hip": None, "gpus": 0, "aiter_found": False},
            ["a ROCm build of torch (this one, 2.13.0+cpu, is not)", "amd-aiter"],
        ),
        ({"torch": "2.9", "hip": "7.0", "gpus": 0, "aiter_found": True}, ["an AMD GPU"]),
        ({"torch": "2.9", "hip": "7.0", "gpus": 8, "aiter_found": False}, ["AITER (the distribution amd-aiter)"]),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "aiter"])
def test_auto_says_what_is_missing(machine: dict[str, Any], words: list[str], backend: str) -> None:
    with pytest.raises(DeviceUnavailable) as stop:
        choose(SmokeOptions(backend=backend), machine)
    assert stop.value.exit_code == 3
    assert all(w in stop.value.message for w in words)
    assert choose(SmokeOptions(backend="torch"), machine) == "torch"


def test_auto_on_rocm_is_aiter() -> None:
    assert choose(SmokeOptions(), {"torch": "2.9", "hip": "7.0", "gpus": 1, "aiter_found": True}) == "aiter"


@pytest.mark.parametrize(
    "bad",
    [{"backend": "cuda"}, {"device": "-1"}, {"device": "gpu"}, {"device": "1e9"}, {"timeout": 0.0}, {"timeout": float("nan")}],
)
def test_options_that_make_no_sense(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad)).replace("_", "-")):
        SmokeOptions(**bad)


def test_prediction_words_are_kept() -> None:
    o = seen(done(), MISS)
    assert set(o["prediction"]) == {
        "verdict", "why", "path", "stages", "tuned", "kernels", "row", "accepted", "native_accepted", "aiter_version", "observed",
    }  # fmt: skip


def test_secrets_stay_with_the_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "my_password"):
        monkeypatch.setenv(name, "x")
    kept = ("TOKENIZERS_PARALLELISM", "HIP_VISIBLE_DEVICES", "AITER_KSPLIT")
    for name in kept:
        monkeypatch.setenv(name, "0")
    env = _environment(SmokeOptions(env={"AITER_ONLINE_TUNE": "1", "EXTRA": "y"}), tmp_path)
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "my_password"} & set(env)
    assert set(kept) <= set(env)
    assert (env["AITER_ONLINE_TUNE"], env["EXTRA"], env["TMPDIR"]) == ("0", "y", str(tmp_path))
