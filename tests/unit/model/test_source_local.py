"""Files, folders and stdin as sources: what is there is read, what is not gets one line that helps."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from moe_preflight.errors import ConfigError, InputError, PreflightError, UsageError
from moe_preflight.model.source import load, resolve

MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 4,
    "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336,
}  # fmt: skip
NVFP4 = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


def put(path: Path, value: Any = MIXTRAL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def refusal(model: str, kind: type[PreflightError], **how: Any) -> str:
    with pytest.raises(kind) as e:
        resolve(model, **how)
    assert type(e.value) is kind
    assert len(str(e.value).splitlines()) == 1
    assert e.value.exit_code == 2
    return str(e.value)


def test_a_folder_a_file_and_any_file_name(here: Path) -> None:
    put(here / "m" / "config.json")
    put(here / "odd name.txt")
    for model in ("m", "./m", str(here / "m"), "m/config.json", "odd name.txt"):
        found = load(model)
        assert (found.source, found.id, found.layers[0].experts) == ("local", model, 8)


def test_what_exists_here_is_local_even_when_it_could_be_a_hub_id(here: Path) -> None:
    put(here / "openai" / "gpt-oss-120b" / "config.json")
    assert load("openai/gpt-oss-120b").source == "local"


def test_a_folder_without_config_says_what_it_is(here: Path) -> None:
    (here / "openai").mkdir()
    (here / "openai" / "gpt-oss-120b").mkdir()
    assert "a folder without a config.json" in refusal("openai/gpt-oss-120b", InputError)


def test_modelopts_file_beside(here: Path) -> None:
    put(here / "m" / "config.json")
    put(here / "m" / "hf_quant_config.json", NVFP4)
    put(here / "org__m.json")
    put(here / "org__m.hf_quant_config.json", NVFP4)
    for model in ("m", "m/config.json", "org__m.json"):
        assert load(model).layers[0].quantization.scheme == "nvfp4"


def test_modelopts_file_beside_does_not_count_when_the_config_says_its_own(here: Path) -> None:
    put(here / "m" / "config.json", {**MIXTRAL, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}})
    put(here / "m" / "hf_quant_config.json", b"not even json")
    assert load("m").layers[0].quantization.scheme == "fp8_tensor"


def test_a_broken_file_beside_is_named(here: Path) -> None:
    put(here / "m" / "config.json")
    put(here / "m" / "hf_quant_config.json", b"{")
    assert "m/hf_quant_config.json" in refusal("m", ConfigError)


@pytest.mark.parametrize("model", ["./nosuch", "/nosuch/x", "~/nosuch", "a/b/c", "conf.json", "nosuch/", "..\\x"])
def test_a_path_that_is_not_there(model: str) -> None:
    assert "no such file or folder" in refusal(model, UsageError)


def test_a_mistyped_path_is_put_right(here: Path) -> None:
    put(here / "models" / "config.json")
    assert "Did you mean ./models?" in refusal("./model", UsageError)


@pytest.mark.parametrize("model", ["", " ", "a\0b"])
def test_no_model_at_all(model: str) -> None:
    assert "empty" in refusal(model, UsageError)


def test_pipes_devices_and_loops_do_not_hold_us(here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "a").symlink_to(here / "b")
    (here / "b").symlink_to(here / "a")
    (here / "gone").symlink_to(here / "nowhere")
    (here / "m").mkdir()
    (here / "m" / "config.json").symlink_to(here / "m" / "config.json")
    for model in ("pipe", "/dev/null", "/dev/zero"):
        assert "not a regular file" in refusal(model, InputError)
    for model in ("a", "gone", "m"):
        assert "cannot be opened" in refusal(model, InputError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(here: Path) -> None:
    put(here / "config.json").chmod(0)
    assert "Permission denied" in refusal("config.json", InputError)


def test_a_file_too_large_is_not_read(here: Path) -> None:
    with (here / "big.json").open("wb") as f:
        f.truncate(5 << 30)
    assert "5,368,709,120 bytes" in refusal("big.json", ConfigError)


def test_a_name_that_would_break_the_line_is_escaped(here: Path) -> None:
    put(here / "x\ny\x1b[31m.json", b"[]")
    message = refusal("x\ny\x1b[31m.json", ConfigError)
    assert "\\n" in message
    assert "\x1b" not in message
    broken = os.fsdecode(b"caf\xe9.json")
    refusal(broken, UsageError).encode()


class _Stdin:
    def __init__(self, data: bytes, *, terminal: bool = False, closed: bool = False) -> None:
        self.buffer, self._terminal, self.closed = io.BytesIO(data), terminal, closed

    def isatty(self) -> bool:
        return self._terminal


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin(json.dumps(MIXTRAL).encode()))
    model = load("-")
    assert (model.id, model.source, model.layers[0].experts) == ("stdin", "stdin", 8)
    assert "empty" in refusal("-", ConfigError)


@pytest.mark.parametrize(
    ("stdin", "kind", "says"),
    [
        (_Stdin(b"", terminal=True), UsageError, "terminal"),
        (_Stdin(b"", closed=True), UsageError, "closed"),
        (None, UsageError, "closed"),
        (_Stdin(b"[]"), ConfigError, "stdin: holds an array"),
        (_Stdin(b"\xff\xfe{"), ConfigError, "stdin: UTF-16"),
    ],
)
def test_stdin_that_is_no_config(monkeypatch: pytest.MonkeyPatch, stdin: Any, kind: type[PreflightError], says: str) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    assert says in refusal("-", kind)
