"""Write moe_preflight/aiter/facts/fingerprints.py from AITER trees whose dispatch has been checked.

    python tools/make_fingerprints.py v0.1.7.post2=/trees/v0.1.7.post2 ... 0.1.20.post2=/trees/main

Give a release only once its dispatch agrees with ours (tests/acceptance): a fingerprint in this file means verified.
"""

from __future__ import annotations

import sys
from pathlib import Path

from moe_preflight.aiter.digest import digest
from moe_preflight.aiter.fingerprint import ABSENT, PARTS, file_hash
from moe_preflight.aiter.sources import COMMON, GEN, KERNEL

TARGET = Path(__file__).parents[1] / "moe_preflight/aiter/facts/fingerprints.py"

HEAD = '''"""Fingerprints of the dispatch code of checked releases, and hashes of whole files that need no parsing.

Written by tools/make_fingerprints.py. 0.1.20.post2 stands for AITER's main branch at e4048607.
"""

FILES: dict[str, dict[str, str]] = '''


def main(arguments: list[str]) -> None:
    files: dict[str, dict[str, str]] = {name: {} for name in PARTS}
    digests: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in PARTS}
    sources: dict[str, dict[str, str]] = {name: {} for name in (GEN, COMMON, KERNEL)}
    for tag, _, tree in (a.partition("=") for a in arguments):
        release = tag.removeprefix("v")
        for name in PARTS:
            path = Path(tree, name)
            found = digest(path.read_text(), name) if path.exists() else ABSENT
            if path.exists():
                files[name][file_hash(path.read_bytes())] = found
            digests[name][found] = (*digests[name].get(found, ()), release)
        for name, known in sources.items():
            known.setdefault(file_hash(Path(tree, "csrc", name).read_bytes()), release)
    TARGET.write_text(
        f'{HEAD}{files!r}\n"""Fingerprint by hash of the whole file."""\n\n'
        f"DIGESTS: dict[str, dict[str, tuple[str, ...]]] = {digests!r}\n"
        '"""Releases by fingerprint."""\n\n'
        f"SOURCES: dict[str, dict[str, str]] = {sources!r}\n"
        '"""The first release with these very bytes, for files below csrc whose facts are built in."""\n'
    )


if __name__ == "__main__":
    main(sys.argv[1:])
