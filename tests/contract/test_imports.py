"""The import contract: data flows one way, and everything between source and report is pure (DESIGN section 2)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "moe_preflight"
if not PACKAGE.is_dir():  # the tests run beside an installed wheel
    import moe_preflight

    PACKAGE = Path(moe_preflight.__file__).parent

# A room may import rooms before it, never after it.
ORDER = ("model", "engine", "aiter", "advisories", "rules", "coverage", "report", "gate", "smoke", "ask", "cli")
# Nouns that every room may use, wherever they live.
SHARED = {"moe_preflight.aiter.version", "moe_preflight.report.types", "moe_preflight.report.sanitise"}

HEAVY = {"typer", "rich", "huggingface_hub", "torch", "aiter", "transformers", "pandas", "numpy", "safetensors"}
IMPURE = {"time", "datetime", "random", "socket", "subprocess", "urllib", "http", "threading", "tempfile", "shutil"}

# The modules whose job is to touch the world: reading a model, finding a tree, asking AITER or the machine.
TOUCHES_WORLD = {
    "model/source.py", "model/hub.py", "model/hub_line.py", "model/hub_child.py",
    "model/local.py", "model/checkpoint.py", "model/cards.py", "model/files.py",
    "aiter/tree.py", "aiter/wheel.py", "aiter/basis.py",
    "model/fields.py",  # reads the package's own facts file
    "gate/keys.py",  # knows TOML's dates; the day itself is handed in
}  # fmt: skip
PURE_ROOMS = ("model", "engine", "aiter", "advisories", "rules", "coverage", "gate")


def modules(*rooms: str) -> list[Path]:
    return sorted(p for room in rooms for p in (PACKAGE / room).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """(module name, is it at module level) of every import in the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(n) for n in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.name, id(node) in top) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or "", id(node) in top


def rel(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", modules(*ORDER), ids=rel)
def test_rooms_import_backwards_only(path: Path) -> None:
    room = ORDER.index(rel(path).split("/")[0])
    for name, _ in imported(path):
        if name.startswith("moe_preflight.") and name not in SHARED:
            other = name.split(".")[1]
            if other in ORDER:
                assert ORDER.index(other) <= room, f"{rel(path)} imports {name}, which comes after it"


@pytest.mark.parametrize("path", modules(*PURE_ROOMS), ids=rel)
def test_between_source_and_report_is_pure(path: Path) -> None:
    if rel(path) in TOUCHES_WORLD:
        return
    for name, _ in imported(path):
        root = name.split(".")[0]
        assert root not in HEAVY | IMPURE, f"{rel(path)} imports {name}"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            assert node.attr not in ("environ", "getenv", "system", "open"), f"{rel(path)} touches os.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "eval", "exec", "input", "print"), f"{rel(path)} calls {node.func.id}()"


@pytest.mark.parametrize("path", sorted(p for p in PACKAGE.rglob("*.py") if "smoke" not in p.parts), ids=rel)
def test_heavy_libraries_are_never_imported_at_module_level(path: Path) -> None:
    allowed = {"typer"} if rel(path).startswith("cli/") else set()
    for name, top in imported(path):
        if top:
            assert name.split(".")[0] not in HEAVY - allowed, f"{rel(path)} imports {name} at module level"


def test_check_of_a_local_config_imports_nothing_heavy(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "num_local_experts": 8,'
        ' "num_experts_per_tok": 2, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,'
        ' "torch_dtype": "bfloat16"}'
    )
    code = (
        "import sys\n"
        "from moe_preflight.cli.app import run\n"
        f"sys.argv = ['moe-preflight', 'check', {str(config)!r}, '--no-tuned', '--fail-on', 'never', '--output', {str(tmp_path / 'out')!r}]\n"
        "try:\n    run()\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "heavy = {'torch', 'aiter', 'huggingface_hub', 'transformers', 'pandas', 'numpy', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
