"""``moe-preflight gate`` as a user runs it: exit codes, formats, baseline, expiry, paths, and whatever a hostile file may hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.gate.load import load_gate
from moe_preflight.report import schema
from moe_preflight.report.formats import FORMATS
from tests.corpus import corpus, needs_corpus
from tests.hostile.fuzz import invoke

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "configs" / "gates").glob("*.toml"))
TODAY = "2026-11-30"
FINE = "experts=128,topk=8,hidden=4096,inter=1536"
BROKEN = "experts=192,topk=8,hidden=6144,inter=1792"  # 224 wide at TP8: CK has no tile for it, and vLLM 0.31.0 does not pad


def run(*args: str | Path, cwd: Path | None = None, hash_seed: str = "0", **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MOE_PREFLIGHT_")}
    done = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "gate", *map(str, args), "--today", TODAY],
        capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env=clean | {"PYTHONHASHSEED": hash_seed} | env,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def write(folder: Path, *deployments: str, root: str = "", name: str = "gate.toml") -> Path:
    """A gate on shapes: nothing is fetched, no table is read."""
    shared = 'gpus = "mi300x"\ntp = 8\ntuned = false\nengine_version = "0.31.0"\naiter = { version = "0.1.20.post1" }\n'
    file = folder / name
    file.write_text(f"{root}\n[defaults]\n{shared}" + "".join(f"[[deployment]]\n{d}\n" for d in deployments))
    return file


def shape(text: str, name: str, more: str = "") -> str:
    return f'name = "{name}"\nshape = "{text}"\n{more}'


def report(*args: str | Path, **more: Any) -> tuple[int, dict[str, Any]]:
    done = run(*args, "--format", "json", **more)
    return done.returncode, json.loads(done.stdout)


def codes(doc: dict[str, Any]) -> set[str]:
    return {f["code"] for f in doc["findings"] if f["severity"] == "error"}


# --- exit codes ------------------------------------------------------------------------------------------------------


def test_a_deployment_that_holds_is_0_and_one_that_does_not_is_1(tmp_path: Path) -> None:
    good = write(tmp_path, shape(FINE, "a", "require = { accepted = true, on_aiter = true }"), name="good.toml")
    code, doc = report(good)
    assert code == 0, doc["findings"]
    (a,) = doc["gate"]["deployments"]
    assert {r["key"]: r["met"] for r in a["requirements"]} == {"accepted": True, "on_aiter": True}
    bad = write(tmp_path, shape(FINE, "a"), shape(BROKEN, "b", "require = { accepted = true }"), name="bad.toml")
    code, doc = report(bad)
    assert code == 1
    assert codes(doc) == {"MP101", "MP811"}
    assert [d["verdict"] for d in doc["gate"]["deployments"]] == ["warn", "fail"]
    assert [d["targets"] for d in doc["gate"]["deployments"]] == [[0], [1]]
    assert {f["target"] for f in doc["findings"] if f["severity"] == "error"} == {1}
    assert run(bad, "--only", "a").returncode == 0
    assert run(bad, "--fail-on", "never").returncode == 0


def test_fail_on_is_the_flags_then_the_files(tmp_path: Path) -> None:
    file = write(tmp_path, shape(FINE, "a"), root='fail_on = "warning"\n[severity]\nMP602 = "warning"')
    assert run(file).returncode == 1
    assert run(file, "--fail-on", "error").returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no deployment"),
        ("select = []", "leave no rule"),
        ('select = ["MP1"]\n[severity]\nMP1 = "off"', "leave no rule"),
    ],
)
def test_a_gate_that_matches_nothing_is_not_green(text: str, said: str, tmp_path: Path) -> None:
    file = write(tmp_path, shape(FINE, "a"), root=text) if text else tmp_path / "gate.toml"
    file.write_text(file.read_text() if text else "")
    code, doc = report(file)
    assert code == 3
    assert doc["verdict"] == "inconclusive"
    assert said in doc["not_evaluated"][0]["why"]


def test_what_cannot_be_reached_is_3_and_what_is_malformed_2(tmp_path: Path) -> None:
    reach = write(tmp_path, 'model = "no/such-model-anywhere"', shape(FINE, "a"), name="reach.toml")
    code, doc = report(reach, "--offline")
    assert code == 3
    assert [d["verdict"] for d in doc["gate"]["deployments"]] == ["inconclusive", "warn"]
    tree = write(tmp_path, shape(FINE, "a", 'aiter = { tree = "no-such-tree" }'), shape(FINE, "b"), name="tree.toml")
    code, doc = report(tree)
    assert code == 3
    assert [n["what"] for n in doc["not_evaluated"]] == ["deployment a"]
    assert len(doc["targets"]) == 1
    (tmp_path / "broken.json").write_text('{"model_type": "mixtral", "num_local_experts": "many"}')
    broken = write(tmp_path, 'model = "broken.json"', shape(FINE, "b"), name="broken.toml", root='[severity]\nMP502 = "off"')
    code, doc = report(broken, "--fail-on", "never")
    assert code == 2
    assert doc["verdict"] == "fail"
    assert len(doc["targets"]) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["no-such.toml"], "no-such.toml: no such file"),
        (["/dev/null"], "not a regular file"),
        (["."], "not a regular file"),
        (["gate.toml", "--today", "2026-13-01"], "not a day"),
        (["gate.toml", "--today", "20261130"], "not a day"),
        (["gate.toml", "--only", "aa"], "Did you mean a?"),
        (["gate.toml", "--fail-on", "warn"], "--fail-on warn"),
        (["gate.toml", "--write-baseline", "gate.toml"], "a FILE of its own"),
        (["gate.toml", "--write-baseline", "-"], "no file named"),
        (["gate.toml", "--write-baseline", "x.json", "--output", "x.json"], "a FILE of its own"),
        (["gate.toml", "--write-baseline", "x.json", "--only", "a"], "holds every deployment"),
        (["gate.toml", "--format", "jsno"], "unknown format"),
    ],
)
def test_usage_is_2_and_one_line(args: list[str], said: str, tmp_path: Path) -> None:
    write(tmp_path, shape(FINE, "a"))
    clean = [sys.executable, "-m", "moe_preflight", "gate", *args]
    done = subprocess.run(clean, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {"gate.toml"}


def test_nonsense_only_the_check_can_see_names_its_place(tmp_path: Path) -> None:
    file = write(tmp_path, shape("experts=8", "a"), shape(FINE, "b", 'aiter = { version = "new" }'))
    done = run(file, "--only", "b")
    assert done.returncode == 2
    assert f"{file}: deployment[1]" in done.stderr
    assert "not a version" in done.stderr


# --- ignores ---------------------------------------------------------------------------------------------------------

IGNORE = '[[ignore]]\ncode = "MP101"\nreason = "another image next month"\nuntil = 2027-01-31\n'


def test_an_ignore_forgives_until_its_day_and_is_shown(tmp_path: Path) -> None:
    file = write(tmp_path, shape(BROKEN, "b", IGNORE))
    done = run(file)
    assert done.returncode == 0, done.stdout
    assert "Ignored" in done.stdout
    assert "another image next month, until 2027-01-31" in done.stdout
    _, doc = report(file)
    assert codes(doc) == set()
    (forgiven,) = doc["gate"]["suppressed"]
    assert (forgiven["finding"]["code"], forgiven["by"], forgiven["entry"]) == ("MP101", "ignore", "ignore[0]")
    late = subprocess.run(
        [sys.executable, "-m", "moe_preflight", "gate", str(file), "--today", "2027-02-01", "--format", "json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert late.returncode == 1
    assert codes(json.loads(late.stdout)) == {"MP101", "MP801"}


def test_an_expired_ignore_is_an_error_even_when_it_hides_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, shape(FINE, "a", IGNORE.replace("2027", "2026")))
    code, doc = report(file)
    assert code == 1
    assert codes(doc) == {"MP801"}
    assert report(file, "--only", "a")[0] == 1
    baseline = tmp_path / "b.json"
    assert run(file, "--write-baseline", baseline).returncode == 1  # nothing about the file itself is ever known
    assert json.loads(baseline.read_text())["findings"] == [] or "MP801" not in baseline.read_text()


# --- baseline --------------------------------------------------------------------------------------------------------


def test_a_baseline_fails_only_on_what_is_new(tmp_path: Path) -> None:
    sub = tmp_path / "gates"
    sub.mkdir()
    file = write(sub, shape(BROKEN, "b", "require = { accepted = true }"), root='baseline = "known.json"')
    missing = run(file)
    assert missing.returncode == 2
    assert "--write-baseline" in missing.stderr
    assert not missing.stdout
    known = sub / "known.json"
    written = run(file, "--write-baseline", known)
    assert written.returncode == 0
    first = known.read_bytes()
    for seed, cwd in (("1", tmp_path), ("77", sub)):
        again = run(os.path.relpath(file, cwd), "--write-baseline", os.path.relpath(known, cwd), cwd=cwd, hash_seed=seed)
        assert again.returncode == 0
        assert known.read_bytes() == first
    assert sorted(p.name for p in sub.iterdir()) == ["gate.toml", "known.json"]
    done = run(file)
    assert done.returncode == 0
    assert "Known" in done.stdout
    assert "no, forgiven" in done.stdout
    code, doc = report(file)
    assert doc["gate"]["baseline"] == {"file": "known.json", "known": len(doc["gate"]["suppressed"]), "gone": 0}
    assert {s["finding"]["code"] for s in doc["gate"]["suppressed"]} >= {"MP101", "MP811"}
    # One more deployment with the same trouble is new, by its own name.
    more = write(sub, shape(BROKEN, "b", "require = { accepted = true }"), shape(BROKEN, "c"), root='baseline = "known.json"')
    code, doc = report(more)
    assert code == 1
    assert {(f["code"], f["target"]) for f in doc["findings"] if f["severity"] == "error"} == {("MP101", 1)}
    # And what was mended is told.
    fixed = write(sub, shape(FINE, "b"), root='baseline = "known.json"')
    code, doc = report(fixed)
    assert code == 0
    (gone,) = [f for f in doc["findings"] if f["code"] == "MP803"]
    assert gone["severity"] == "info"
    assert "MP101" in gone["message"]
    assert report(fixed, "--only", "b")[1]["gate"]["baseline"]["gone"] >= 2


def test_known_may_not_get_worse(tmp_path: Path) -> None:
    few = shape(BROKEN, "b", 'tokens = "1-8"')
    file = write(tmp_path, few, root='baseline = "known.json"')
    assert run(file, "--write-baseline", tmp_path / "known.json").returncode == 0
    assert run(file).returncode == 0
    code, doc = report(write(tmp_path, shape(BROKEN, "b", 'tokens = "1-64"'), root='baseline = "known.json"'))
    assert code == 1
    (f,) = [f for f in doc["findings"] if f["code"] == "MP101"]
    assert "Worse than in the baseline: 4 rejected buckets then, 7 now." in f["message"]


def test_a_malformed_baseline_is_2(tmp_path: Path) -> None:
    file = write(tmp_path, shape(FINE, "a"), root='baseline = "known.json"')
    for text in ("", "[]", '{"findings": []}', "\0", '{"moe_preflight_baseline": 1, "findings": [{}]}'):
        (tmp_path / "known.json").write_text(text)
        done = run(file)
        assert done.returncode == 2
        assert not done.stdout
        assert done.stderr.count("\n") == 1
    (tmp_path / "known.json").unlink()
    (tmp_path / "known.json").symlink_to("known.json")
    assert run(file).returncode == 2


def test_the_baseline_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = write(tmp_path, shape(FINE, "a"))
    done = run(file, "--write-baseline", tmp_path / "no" / "b.json")
    assert done.returncode == 2
    assert "make it first" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["gate.toml"]


def test_a_baseline_with_holes_is_not_written(tmp_path: Path) -> None:
    """Written while something could not be looked at, it would lose what was known of it: the old file stays, and the run is not green."""
    seen, unseen = shape(BROKEN, "b"), 'name = "away"\nmodel = "no/such-model"\noffline = true'
    known = tmp_path / "known.json"
    for before in (None, b"what was known"):
        if before is not None:
            known.write_bytes(before)
        done = run(write(tmp_path, seen, unseen), "--write-baseline", known)
        assert done.returncode == 3
        assert "known.json: not written: away could not be looked at" in done.stderr
        assert (known.read_bytes() if known.exists() else None) == before
    (tmp_path / "config.json").write_text("[]")
    done = run(write(tmp_path, seen, 'name = "bad"\nmodel = "config.json"'), "--write-baseline", known)
    assert done.returncode == 2
    assert known.read_bytes() == b"what was known"


def test_an_entry_that_policy_sets_aside_is_not_called_gone(tmp_path: Path) -> None:
    assert run(write(tmp_path, shape(BROKEN, "b")), "--write-baseline", tmp_path / "known.json").returncode == 0
    root = 'baseline = "known.json"\n'
    ignore = '[[ignore]]\ncode = "MP101"\nreason = "r"\nuntil = 2027-01-01\n'
    for more in (ignore, '[severity]\nMP101 = "off"\n', 'select = ["MP2"]\n', '[severity]\nMP101 = "info"\n'):
        doc = report(write(tmp_path, shape(BROKEN, "b"), root=root + more))[1]
        assert not any("MP101" in f["message"] for f in doc["findings"] if f["code"] == "MP803"), more
    doc = report(write(tmp_path, shape(FINE, "b"), root=root + ignore))[1]
    assert any("MP101" in f["message"] for f in doc["findings"] if f["code"] == "MP803")


def test_order_is_no_news_and_another_name_is(tmp_path: Path) -> None:
    one, two = shape(BROKEN, "one", "tp = [8, 4]"), shape(BROKEN, "two", 'gpus = ["mi300x", "mi355x"]')
    root = 'baseline = "known.json"'
    known = tmp_path / "known.json"
    assert run(write(tmp_path, one, two), "--write-baseline", known).returncode == 0
    first = known.read_bytes()
    turned = (two.replace('"mi300x", "mi355x"', '"mi355x", "mi300x"'), one.replace("[8, 4]", "[4, 8]"))
    assert run(write(tmp_path, *turned, root=root)).returncode == 0
    assert run(write(tmp_path, *turned), "--write-baseline", known).returncode == 0
    assert known.read_bytes() == first
    code, doc = report(write(tmp_path, one.replace('"one"', '"uno"'), two, root=root))
    assert code == 1, "a renamed deployment has no past"
    assert ["one" in f["message"] for f in doc["findings"] if f["code"] == "MP803"] == [True]


def test_two_writers_leave_one_whole_baseline(tmp_path: Path) -> None:
    gates = [write(tmp_path, shape(BROKEN, name), name=f"{name}.toml") for name in ("a", "b")]
    alone = []
    for file in gates:
        assert run(file, "--write-baseline", tmp_path / "known.json").returncode == 0
        alone.append((tmp_path / "known.json").read_bytes())
    command = [
        sys.executable,
        "-m",
        "moe_preflight",
        "gate",
        "--today",
        TODAY,
        "--write-baseline",
        str(tmp_path / "known.json"),
        "-q",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    both = [subprocess.Popen([*command, str(g)], **quiet) for g in gates * 2]  # type: ignore[call-overload]
    assert [p.wait(timeout=60) for p in both] == [0] * 4
    assert (tmp_path / "known.json").read_bytes() in alone
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.toml", "b.toml", "known.json"]


def test_a_baseline_written_elsewhere_says_so(tmp_path: Path) -> None:
    sub = tmp_path / "gates"
    sub.mkdir()
    file = write(sub, shape(BROKEN, "b"), root='baseline = "known.json"')
    done = run("gates/gate.toml", "--write-baseline", "known.json", cwd=tmp_path)
    assert "holds to gates/known.json, not to this file" in done.stderr
    done = run(file, "--write-baseline", sub / "known.json")
    assert f"{sub / 'known.json'}: written.\n" in done.stderr
    done = run(write(sub, shape(BROKEN, "b")), "--write-baseline", sub / "known.json")
    assert "names no baseline" in done.stderr


@pytest.mark.parametrize("change", [{"moe_preflight_baseline": 2}, {"tool": "0.2.0"}, "twice"], ids=str)
def test_a_baseline_of_another_format_is_2(change: Any, tmp_path: Path) -> None:
    """One of a later format may mean more than we would read; one that holds an entry twice came out of a merge."""
    file = write(tmp_path, shape(BROKEN, "b"), root='baseline = "known.json"')
    known = tmp_path / "known.json"
    assert run(file, "--write-baseline", known).returncode == 0
    held = json.loads(known.read_text())
    held = held | ({"findings": [*held["findings"], held["findings"][0] | {"figure": 1e8}]} if change == "twice" else change)
    known.write_text(json.dumps(held))
    done = run(file)
    assert done.returncode == 2
    assert "--write-baseline" in done.stderr
    assert done.stderr.count("\n") == 1


# --- the day ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "UTC"])
def test_the_day_is_utcs_wherever_the_runner_stands(zone: str, tmp_path: Path) -> None:
    """+14 and -12 hours: between them there is always one place where the local day is another."""
    from datetime import UTC, datetime, timedelta

    for back, code in ((0, 0), (1, 1)):
        for _ in range(2):  # once more when midnight came between
            before = datetime.now(UTC).date()
            until = before - timedelta(days=back)
            file = write(tmp_path, shape(BROKEN, "b"), root=f'[[ignore]]\ncode = "MP1"\nreason = "r"\nuntil = {until}\n')
            done = subprocess.run(
                [sys.executable, "-m", "moe_preflight", "gate", str(file), "-q"],
                capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"TZ": zone},
            )  # fmt: skip
            if datetime.now(UTC).date() == before:
                break
        assert done.returncode == code, done.stdout


@pytest.mark.parametrize("day", ["2026-W01-1", "20261130", "2026-1-1", "2026-02-30", "2026-11-30T00:00", "today", ""])
def test_a_day_is_written_one_way(day: str, tmp_path: Path) -> None:
    done = invoke("gate", str(write(tmp_path, shape(FINE, "a"))), "--today", day)
    assert done.code == 2
    assert "Expected YYYY-MM-DD" in done.err


# --- formats, determinism, hostile files -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def all_sorts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New, known, ignored, expired and not evaluated in one gate, with a name that is trouble."""
    folder = tmp_path_factory.mktemp("sorts")
    name = "\\u001b[31m::error::\\u202ex%0A|`<b>##[error]"
    parts = (shape(BROKEN, "b", "require = { accepted = true, router_kernel = true }"), shape(FINE, name, "require = { aiter_is_pin = true }"),
             'model = "no/such-model"\noffline = true')  # fmt: skip
    root = 'baseline = "known.json"'
    first = write(folder, parts[0], root=root)
    assert run(first, "--write-baseline", folder / "known.json").returncode == 0
    return write(folder, *parts, shape(BROKEN, "c", IGNORE + IGNORE.replace("2027", "2025")), root=root)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_the_same_and_parses(name: str, all_sorts: Path) -> None:
    done = run(all_sorts, "--format", name)
    assert done.returncode == 1
    out = done.stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out + done.stderr)
    lines = out.splitlines()
    if name != "github":
        assert not [x for x in lines if x.lstrip().startswith("::") or re.search(r"##\w*\[", x)]
    if name == "json":
        doc = json.loads(out)
        jsonschema = pytest.importorskip("jsonschema")
        assert not list(jsonschema.Draft202012Validator(json.loads(schema.text())).iter_errors(doc))
        assert {s["by"] for s in doc["gate"]["suppressed"]} == {"baseline", "ignore"}
        assert {f["code"] for f in doc["findings"]} >= {"MP801", "MP817", "MP501"}
    if name == "sarif":
        results = json.loads(out)["runs"][0]["results"]
        forgiven = [r for r in results if "suppressions" in r]
        assert {s["justification"].partition(",")[0] for r in forgiven for s in r["suppressions"]} == {
            "another image next month", "known since known.json",
        }  # fmt: skip
        assert len({r["partialFingerprints"]["moePreflight/v1"] for r in results}) == len(results)
    if name == "junit":
        ET.fromstring(out)
    if name == "text":
        assert max(len(x) for x in lines if "\\x23#" not in x) <= 80  # an escaped ## is wider than it was
        assert lines[0].startswith("FAIL  ")
    if name in ("markdown", "html", "text"):
        assert "another image next month" in out
        assert "known since known.json" in out


def test_same_gate_same_bytes(all_sorts: Path) -> None:
    runs = [
        run(all_sorts, "--format", "json", hash_seed=seed, LANG=lang).stdout for seed, lang in (("0", "C.UTF-8"), ("4242", "C"))
    ]
    assert runs[0] == runs[1]


def test_reports_go_where_a_checks_would(all_sorts: Path, tmp_path: Path) -> None:
    done = run(all_sorts, "--format", f"json={tmp_path / 'r.json'}", "--format", f"junit={tmp_path / 'r.xml'}", "-q")
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL")
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "fail"
    assert {p.name for p in tmp_path.iterdir()} == {"r.json", "r.xml"}


def test_paths_are_relative_to_the_gate_file(tmp_path: Path) -> None:
    config = {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "num_local_experts": 8, "num_experts_per_tok": 2,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "config.json").write_text(json.dumps(config))
    file = write(tmp_path, 'model = "models"', 'model = "models/config.json"')
    for cwd in (Path("/"), tmp_path, tmp_path / "models"):
        code, doc = report(os.path.relpath(file, cwd), cwd=cwd)
        assert code == 0, doc["findings"]
        assert [d["name"] for d in doc["gate"]["deployments"]] == ["models", "models/config.json"]
        assert len(doc["targets"]) == 2
    done = run(write(tmp_path, 'model = "./modles"'))
    assert done.returncode == 2
    assert "no such file" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"a=" + b"[" * 50_000,
        b"a." * 50_000,
        b"\0",
        b"[[deployment]]\nmodel = '\x1b[31m'",
        b"deployment = 1",
        b"[tool]",
    ],
    ids=["utf-16", "deep", "dots", "zero", "escape", "type", "key"],
)
def test_hostile_files_are_2_and_one_clean_line(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_bytes(data)
    done = run(tmp_path / "gate.toml")
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.count("\n") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stderr)


def test_a_fifo_does_not_hold_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate.toml")
    assert run(tmp_path / "gate.toml").returncode == 2


# --- the examples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda p: p.name)
def test_the_examples_are_read(file: Path) -> None:
    assert load_gate(str(file)).held


def test_there_are_examples() -> None:
    assert {p.name for p in EXAMPLES} >= {"minimal.toml", "fleet.toml"}


@needs_corpus
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda p: p.name)
def test_the_examples_hold(file: Path) -> None:
    done = run(file, "--offline", "--aiter", corpus("aiter-trees", "v0.1.20.post1"))
    assert done.returncode == 0, done.stdout


@needs_corpus
def test_several_trees_in_one_report(tmp_path: Path) -> None:
    """Rows and roots of two AITERs are told apart."""
    text = "[[deployment]]\nname='{0}'\nmodel='deepseek-ai/DeepSeek-R1'\ngpus='mi355x'\ntp=8\ntokens='decode'\noffline=true\n"
    text += "engine_env={{VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS='1'}}\naiter={{tree='{1}', version='{2}'}}\n"
    trees = [("a", "v0.1.20.post1", "0.1.20.post1"), ("b", "v0.1.16.post4", "0.1.16.post4")]
    trees = [t for t in trees if corpus("aiter-trees", t[1]).is_dir()] or trees[:1]
    if len(trees) < 2:
        pytest.skip("the corpus has one tree")
    (tmp_path / "gate.toml").write_text("".join(text.format(name, corpus("aiter-trees", tree), v) for name, tree, v in trees))
    _, doc = report(tmp_path / "gate.toml")
    assert doc["aiter"]["root"] is None
    assert [d["aiter"]["version"] for d in doc["gate"]["deployments"]] == [v for _, _, v in trees]
    rows = [b["row"]["file"] for t in doc["targets"] for x in t["layers"] for b in x["buckets"] if b["row"]]
    assert rows
    assert all(r.startswith(str(corpus("aiter-trees").resolve())) for r in rows)
