"""The built wheel and sdist hold what they must, and nothing they must not."""

from __future__ import annotations

import sys
import tarfile
import zipfile

WHEEL_MUST = (
    "moe_preflight/__main__.py", "moe_preflight/py.typed", "moe_preflight/configs/models/IFM__K2-Horizon-375B-A23B.json",
    "moe_preflight/configs/models/INDEX.toml", "moe_preflight/report/schema/report-v1.schema.json",
)  # fmt: skip
SDIST_MUST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "configs/models/INDEX.toml", "tests/__init__.py")
NEVER = ("__pycache__", ".git/", "shared/", ".venv")


def main() -> None:
    for path in sys.argv[1:]:
        if path.endswith(".whl"):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            missing = [m for m in WHEEL_MUST if m not in names]
            stray = [n for n in names if not n.startswith("moe_preflight")]
            stray = [n for n in stray if ".dist-info/" not in n]
        else:
            with tarfile.open(path) as archive:
                names = [m.name.split("/", 1)[-1] for m in archive.getmembers()]
            missing = [m for m in SDIST_MUST if m not in names]
            stray = []
        stray += [n for n in names if any(word in n for word in NEVER)]
        assert not missing, f"{path}: missing {missing}"
        assert not stray, f"{path}: stray {stray}"
        print(f"{path.rsplit('/', 1)[-1]}: {len(names)} entries")


main()
