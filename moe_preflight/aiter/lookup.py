"""Token buckets and the tuned row AITER would find for a key.

Source: get_padded_M and the lookup half of get_2stage_cfgs in aiter/fused_moe.py; by release in facts/dispatch_rules.py.
"""

from __future__ import annotations

from moe_preflight.aiter.csvtable import Value
from moe_preflight.aiter.facts.dispatch_rules import PADDING, Rules, Tiers
from moe_preflight.aiter.tuned import ANY_GFX, TunedTable

FALLBACK_TAG = "flydsl_fallback"

LookupKey = tuple[Value, ...]
"""As tuned.KEY_COLUMNS: cu_num, token, model_dim, inter_dim, expert, topk, dtype, q_dtype_a, q_dtype_w, q_type,
use_g1u1, doweight_stage1 - dtypes and q_type as AITER writes them."""


def next_pow2(n: int) -> int:
    """1, 2, 4 ... not less than ``n``."""
    return 1 if n <= 1 else 1 << (n - 1).bit_length()


def bucket(tokens: int, padding: str | Tiers) -> int:
    """The token count a row is looked up by (get_padded_M); ``padding`` as in Rules.padding or spelled out."""
    for below, value in PADDING[padding] if isinstance(padding, str) else padding:
        if below is None or tokens < below:
            return value if isinstance(value, int) else next_pow2(tokens)
    raise ValueError(f"padding without an end: {padding}")


def buckets(padding: str | Tiers) -> tuple[int, ...]:
    """Every bucket of a scheme that some batch of one token or more is looked up by, ascending."""
    found: set[int] = set()
    start = 1
    for below, value in PADDING[padding] if isinstance(padding, str) else padding:
        if below is not None and below <= start:
            continue
        if isinstance(value, int):
            found.add(value)
        elif below is not None:
            step = next_pow2(start)
            while step < next_pow2(below - 1):
                found.add(step)
                step *= 2
            found.add(step)
        start = below or start
    return tuple(sorted(found))


class Lookup:
    """Finds rows of one table for one GPU. ``find`` answers (row number, hit | tier), or (None, miss)."""

    def __init__(self, table: TunedTable, rules: Rules, gfx: str) -> None:
        self.table, self.rules, self.gfx = table, rules, gfx

    def usable(self, row: int) -> bool:
        """Whether a row survives AITER's tag filter and belongs to this architecture."""
        t = self.table
        if row in t.dropped:
            return False
        tag = t.tag[row]
        if self.rules.tag == "untagged" and tag not in (None, ""):
            return False
        if self.rules.tag == "not-fallback" and tag == FALLBACK_TAG:
            return False
        return not self.rules.gfx_in_key or t.gfx[row] in (self.gfx, ANY_GFX)

    def held(self, key: LookupKey) -> list[int]:
        """Every row with this key, whatever its activation and tag."""
        return self.table.index.get(key, [])

    def at(self, key: LookupKey, act: str) -> int | None:
        """The row AITER takes for exactly this token count."""
        rows = self.table.index.get(key)
        if not rows:
            return None
        mode = self.rules.act
        acts = self.table.act
        if mode not in ("ignored", "any-non-ck"):
            for r in rows:
                if acts[r] == act and self.usable(r):
                    return r
            if mode == "exact":
                return None
        spared = mode in ("exact-else-any-non-ck", "any-non-ck")
        for r in rows:
            if self.usable(r) and not (spared and "moe_ck2stages" in (self.table.name(r, "kernelName1") or "")):
                return r
        return None

    def find(self, key: LookupKey, act: str) -> tuple[int | None, str]:
        """As at(), then the smaller tier for a token count above 32768."""
        row = self.at(key, act)
        if row is not None:
            return row, "hit"
        token = key[1]
        if self.rules.tier and isinstance(token, int) and token > self.rules.tier:
            row = self.at((key[0], self.rules.tier, *key[2:]), act)
            if row is not None:
                return row, "tier"
        return None, "miss"

    def fallback(self, key: LookupKey, act: str) -> int | None:
        """The row tagged flydsl_fallback that stands in when FlyDSL is missing (v0.1.11 to v0.1.17)."""
        for r in self.held(key):
            if (
                r in self.table.dropped
                or self.table.tag[r] != FALLBACK_TAG
                or (self.rules.gfx_in_key and self.table.gfx[r] not in (self.gfx, ANY_GFX))
            ):
                continue
            if self.rules.act != "exact" or self.table.act[r] == act:
                return r
        return None

    def contested(self, key: LookupKey, row: int) -> bool:
        """Whether another model file holds this key with other kernels, so that the folder's order decides.

        Files of model_configs are merged in directory order; the default file is always first.
        """
        if self.rules.act == "exact" or len(self.held(key)) < 2:
            return False
        mine, _ = self.table.place(row)
        if mine is self.table.files[0]:
            return False
        act = self.table.act[row]
        names = self.table.name(row, "kernelName1"), self.table.name(row, "kernelName2")
        for r in self.held(key):
            rival = self.rules.act == "ignored" or self.table.act[r] != act
            other = rival and self.usable(r) and self.table.place(r)[0] is not mine
            if other and (self.table.name(r, "kernelName1"), self.table.name(r, "kernelName2")) != names:
                return True
        return False
