"""The built wheel and sdist hold what they must and nothing else, say what pyproject.toml says, and come out the same twice.

    python .ci/check_dist.py SOURCE dist/*.whl dist/*.tar.gz [--again OTHER.whl]

SOURCE is the git checkout they were built from; OTHER a second wheel, built from it another way.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

MUST = (
    "moe_preflight/__main__.py", "moe_preflight/py.typed", "moe_preflight/configs/models/IFM__K2-Horizon-375B-A23B.json",
    "moe_preflight/configs/models/INDEX.toml", "moe_preflight/configs/gates/minimal.toml",
    *(f"moe_preflight/report/schema/{kind}-v1.schema.json" for kind in ("report", "audit", "tune", "advise", "dispatch", "baseline", "gate-toml")),
)  # fmt: skip
"""Named here too, so that a file that is lost from the checkout is missed."""
SDIST = ("moe_preflight/", "configs/", "tests/", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml")


def tracked(source: Path) -> list[str]:
    """The files git knows in the checkout."""
    return (
        subprocess.run(["git", "ls-files", "-z"], cwd=source, capture_output=True, text=True, check=True)
        .stdout.rstrip("\0")
        .split("\0")
    )


def same(found: set[str], wanted: set[str], where: Path) -> None:
    assert found == wanted, f"{where}: missing {sorted(wanted - found)[:9]}, stray {sorted(found - wanted)[:9]}"


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of the wheel; its RECORD must have the hash and size of each."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(names) == len(set(names)), f"{wheel}: a name twice"
        held = {name: archive.read(name) for name in names}
    (record,) = (name for name in held if name.endswith(".dist-info/RECORD"))
    rows = [line.rsplit(",", 2) for line in held[record].decode().splitlines()]
    same({row[0] for row in rows}, set(held), wheel)
    for name, digest, size in rows:
        if name != record:
            sha = base64.urlsafe_b64encode(hashlib.sha256(held[name]).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={sha}", str(len(held[name]))), f"{wheel}: RECORD is wrong about {name}"
    return held


def check_wheel(wheel: Path, source: Path) -> None:
    held = contents(wheel)
    files = tracked(source)
    wanted = {f for f in files if f.startswith("moe_preflight/")} | {
        f"moe_preflight/{f}" for f in files if f.startswith("configs/")
    }
    info = next(name.split("/")[0] for name in held if ".dist-info/" in name)
    same({name for name in held if not name.startswith(f"{info}/")}, wanted, wheel)
    missing = [name for name in MUST if name not in held]
    assert not missing, f"{wheel}: missing {missing}"
    same({name.removeprefix(f"{info}/") for name in held if name.startswith(f"{info}/")},
         {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}, wheel)  # fmt: skip
    assert b"Root-Is-Purelib: true" in held[f"{info}/WHEEL"]
    assert b"moe-preflight = moe_preflight.__main__:main" in held[f"{info}/entry_points.txt"]
    check_metadata(held[f"{info}/METADATA"], source, wheel)
    for name, data in held.items():
        if not name.startswith(info):
            asked = source / (name.removeprefix("moe_preflight/") if name.startswith("moe_preflight/configs/") else name)
            assert data == asked.read_bytes(), f"{wheel}: {name} is not the checkout's"
    print(f"{wheel.name}: {len(held)} entries")


def check_metadata(data: bytes, source: Path, wheel: Path) -> None:
    """What an index and pip read, against pyproject.toml and the package's own version."""
    said, project = message_from_bytes(data), tomllib.loads((source / "pyproject.toml").read_text())["project"]
    version = next(
        line.split('"')[1]
        for line in (source / "moe_preflight/__init__.py").read_text().splitlines()
        if line.startswith("__version__")
    )
    assert wheel.name == f"moe_preflight-{version}-py3-none-any.whl", wheel.name
    fields = ("Name", "Version", "Summary", "Requires-Python", "License-Expression", "License-File", "Description-Content-Type")
    values = (
        project["name"],
        version,
        project["description"],
        project["requires-python"],
        project["license"],
        "LICENSE",
        "text/markdown",
    )
    for field, value in zip(fields, values, strict=True):
        assert said.get_all(field) == [value], f"{field}: {said.get_all(field)}, not {value}"
    same(set(said.get_all("Provides-Extra", [])), set(project["optional-dependencies"]), wheel)
    same(set(said.get_all("Classifier", [])), set(project["classifiers"]), wheel)
    needed = [r for r in said.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert len(needed) == len(project["dependencies"]), needed
    assert any(r.startswith("typer") and "<0.29" in r for r in needed), needed
    assert str(said.get_payload()).strip() == (source / "README.md").read_text().strip(), "the description is not the README"


def check_sdist(sdist: Path, source: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = [m for m in archive.getmembers() if not m.isdir()]
        assert all(m.isreg() and not m.name.startswith("/") and ".." not in m.name for m in members), f"{sdist}: not plain files"
        names = {m.name.split("/", 1)[1] for m in members}
    wanted = {f for f in tracked(source) if f.startswith(SDIST)}
    same(names - {"PKG-INFO", ".gitignore"}, wanted, sdist)
    print(f"{sdist.name}: {len(names)} entries")


def main(source: Path, *given: str) -> None:
    again = Path(given[-1]) if "--again" in given else None
    paths = [Path(p) for p in given[: given.index("--again")] if p] if again else [Path(p) for p in given]
    wheels = [p for p in paths if p.suffix == ".whl"]
    sdists = [p for p in paths if p.name.endswith(".tar.gz")]
    assert (len(wheels), len(sdists)) == (1, 1), f"expected a wheel and an sdist, got {paths}"
    check_wheel(wheels[0], source)
    check_sdist(sdists[0], source)
    if again is not None:
        assert contents(again) == contents(wheels[0]), f"{again} and {wheels[0]} differ in contents"
        print(
            f"built twice, the same contents; {'byte for byte' if again.read_bytes() == wheels[0].read_bytes() else 'other packing'}"
        )


main(Path(sys.argv[1]), *sys.argv[2:])
