"""Write moe_preflight/aiter/facts/ck_tiles.py and ck_instances.py from AITER trees of many releases.

    python tools/make_ck_facts.py v0.1.7.post2=/trees/v0.1.7.post2 v0.1.8=/trees/v0.1.8 ...

Give every release there is, oldest first; a table is written once, at the release that brought it. The trees are read
by the same code that reads a user's tree, so a release it refuses stops the run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from moe_preflight.aiter.ck import TileRule, brief_operations
from moe_preflight.aiter.extract_ck import heuristic_dispatch, instance_lists
from moe_preflight.aiter.sources import COMMON, GEN, Slot

FACTS = Path(__file__).parents[1] / "moe_preflight/aiter/facts"

TILES = '''"""CK's heuristic tiles in AITER, by family and stage, and the release each table came with.

Written by tools/make_ck_facts.py from csrc/ck_gemm_moe_2stages_codegen/gen_instances.py,
{trees}.
A table holds from its release until the next one. Each entry: release, line of the template in that release's
gen_instances.py, rules in the order they are tried: ``block_m[, condition on inter_dim]: instance`` where an instance is
BlockSize x MPerBlock x NPerBlock x KPerBlock _ MWaves x NWaves _ pipeline. A block_m without a rule raises
"Unsupported block_m value for moe heuristic dispatch".
"""

'''

INSTANCES = '''"""CK instances AITER compiles, by family and stage, and the release each list came with.

Written by tools/make_ck_facts.py from
csrc/ck_gemm_moe_2stages_codegen/gemm_moe_ck2stages_common.py, {trees}.
A list holds from its release until the next one. Each entry: release, line of the list in that release's file, instances.
"""

'''


def text(rule: TileRule) -> str:
    return f"{rule.block_m}{', ' if rule.when else ''}{rule.when}: {rule.instance or 'refused'}"


def table(name: str, history: Mapping[Slot, list[tuple[str, int, tuple[str, ...]]]]) -> str:
    out = [f"{name}: dict[tuple[str, int], tuple[tuple[str, int, tuple[str, ...]], ...]] = {{\n"]
    for slot, entries in history.items():
        out.append(f"    {slot!r}: (\n")
        for since, line, rows in entries:
            out.append(f"        ({since!r}, {line}, (\n")
            out += [f"            {row!r},\n" for row in rows]
            out.append("        )),\n")
        out.append("    ),\n")
    return "".join([*out, "}\n"])


def main(arguments: list[str]) -> None:
    tiles: dict[Slot, list[tuple[str, int, tuple[str, ...]]]] = {}
    instances: dict[Slot, list[tuple[str, int, tuple[str, ...]]]] = {}
    operations: list[tuple[str, dict[tuple[str, int, bool, bool], str]]] = []
    activations: list[tuple[str, tuple[str, ...]]] = []
    tags = [a.partition("=") for a in arguments]
    for tag, _, tree in tags:
        since = tag.removeprefix("v")
        dispatch = heuristic_dispatch(Path(tree, "csrc", GEN).read_text())
        lists = instance_lists(Path(tree, "csrc", COMMON).read_text())
        for slot, rules in dispatch.rules.items():
            rows = tuple(text(r) for r in rules)
            if not tiles.get(slot) or tiles[slot][-1][2] != rows:
                tiles.setdefault(slot, []).append((since, dispatch.lines[slot], rows))
        for slot, listed in lists.instances.items():
            if not instances.get(slot) or instances[slot][-1][2] != listed:
                instances.setdefault(slot, []).append((since, lists.lines[slot], listed))
        if not operations or operations[-1][1] != lists.operations:
            operations.append((since, lists.operations))
        if not activations or activations[-1][1] != dispatch.activations:
            activations.append((since, dispatch.activations))
    trees = f"tags {tags[0][0]} to {tags[-1][0]}"
    (FACTS / "ck_tiles.py").write_text(
        TILES.format(trees=trees)
        + table("TILES", tiles)
        + f"\nACTIVATIONS: tuple[tuple[str, tuple[str, ...]], ...] = {tuple(activations)!r}\n"
        '"""Activations the generator accepts; any other fails to build."""\n'
    )
    plain = tuple((since, brief_operations(chosen)) for since, chosen in operations)
    (FACTS / "ck_instances.py").write_text(
        INSTANCES.format(trees=trees)
        + table("INSTANCES", instances)
        + f"\nOPERATIONS: tuple[tuple[str, dict[str, str]], ...] = {plain!r}\n"
        '"""Element operation in kernel names by "tag stage", and where "weighted" or "splitk" change it; else TypeCast."""\n'
    )


if __name__ == "__main__":
    main(sys.argv[1:])
