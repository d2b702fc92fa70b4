"""What AITER's own Python would choose for a key: the public face of the dispatch model.

``Dispatcher`` holds one release's rules, one GPU and one merged table; ``dispatch`` answers one key. Everything is pure:
the environment AITER would see is an argument. Proven against AITER's own code, release by release
(tests/acceptance/test_dispatch_golden.py and test_dispatch_differential.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from moe_preflight.aiter.csvtable import Value
from moe_preflight.aiter.dtypes import ACTS, DTYPES, QUANTS, SHORT, torch_name
from moe_preflight.aiter.entry import AiterRaises, Asked, asked
from moe_preflight.aiter.facts.dispatch_opus import OPUS
from moe_preflight.aiter.facts.dispatch_rules import Rules, is_verified, rules_for
from moe_preflight.aiter.heuristics import ONE_STAGE_BLOCK_M, block_size_m, env_int, k_split, one_stage
from moe_preflight.aiter.key import Dispatch, Key, Stage, TunedRow
from moe_preflight.aiter.lookup import Lookup, LookupKey, bucket
from moe_preflight.aiter.opus import accepts
from moe_preflight.aiter.paths import Ask, Choice, StageChoice, choose
from moe_preflight.aiter.tuned import TunedTable
from moe_preflight.aiter.version import Version

CACHE = 65536
"""Answers kept per dispatcher; the cache starts anew when it is full, so memory stays flat over any number of keys."""


ONE_STAGE, ONE_STAGE_FUNC = "1stage", "fused_moe_1stage"

Judged = tuple[int | None, int | None, bool | None, str, bool]
"""tile_n, tile_k, accepted, reason, and whether the named kernel is missing from what is built."""


class Judge(Protocol):
    """What fills the tiles of a stage (aiter/stage_judge.py)."""

    def __call__(self, kind: str, key: Key, q: Asked, block_m: int, kernel: str, ksplit: int = 0) -> Judged:
        """``kind`` is the stage's kind and number, such as ``ck1``, or ``1stage``."""


class Dispatcher:
    """AITER ``version`` on ``gfx`` with ``cu_num`` compute units.

    ``table`` is None when there is no tree: every lookup is then ``unknown`` and the heuristics answer. ``flydsl``:
    whether the FlyDSL package can be imported. ``env``: what AITER would read from the environment. ``rules``:
    overrides for a tree whose own text says otherwise. ``judge`` fills the stages' tiles.
    """

    def __init__(
        self,
        version: Version,
        gfx: str,
        cu_num: int,
        *,
        flydsl: bool = True,
        table: TunedTable | None = None,
        env: Mapping[str, str] | None = None,
        rules: Rules | None = None,
        judge: Judge | None = None,
        confidence: str | None = None,
    ) -> None:
        self.version, self.gfx, self.cu_num = version, gfx, cu_num
        self.table, self.env, self.judge = table, dict(env or {}), judge
        self.rules = rules or rules_for(version)
        self.flydsl = flydsl or not self.rules.flydsl_optional
        known = is_verified(version) and gfx in ("gfx942", "gfx950") and rules in (None, rules_for(version))
        self.confidence = confidence or ("verified" if known else "unverified")
        self.lookup = Lookup(table, self.rules, gfx) if table is not None else None
        self._names = {d: torch_name(d, gfx) for d in (*DTYPES, *SHORT)}
        self._buckets: dict[int, int] = {}
        self._cache: dict[Any, Dispatch] = {}

    def bucket(self, tokens: int) -> int:
        """The token count AITER looks up for ``tokens`` rows."""
        return bucket(tokens, self.rules.tiers)

    def dispatch(self, key: Key, *, padded: bool = True) -> Dispatch:
        """AITER's answer for ``key``. Never raises for a well-formed key: what AITER raises is ``Dispatch.error``.

        ``padded`` False asks get_2stage_cfgs with the raw token count, which ``fused_moe`` itself never does.
        """
        try:
            env = {**self.env, **dict(key.env)} if key.env else self.env
            q = asked(key, self.rules, self.gfx, env, self.flydsl)
        except AiterRaises as e:
            return self._failed(key, str(e))
        except ValueError as e:
            return self._failed(key, f"ValueError: {e}")
        token = self._buckets.get(key.token) if padded else key.token
        if token is None:
            if len(self._buckets) >= CACHE:
                self._buckets.clear()
            token = self._buckets[key.token] = bucket(key.token, self.rules.tiers)
        slot = (token, q)
        answer = self._cache.get(slot)
        if answer is None:
            if len(self._cache) >= CACHE:
                self._cache.clear()
            answer = self._cache[slot] = self._answer(key, token, q)
        return answer if answer.token == key.token else replace(answer, token=key.token)

    # --- one question -------------------------------------------------------------------------------------------------

    def _answer(self, key: Key, token: int, q: Asked) -> Dispatch:
        if self.rules.ep_topk and q.is_ep:
            q = q._replace(topk=q.topk - 1)
        slot = self._lookup_key(token, q)
        notes: list[str] = []
        row, tuned = (None, "unknown") if self.lookup is None else self._find(slot, q, notes)
        found = row
        try:
            if self.rules.bypass_env and row is not None and env_int(self.env, "AITER_BYPASS_TUNE_CONFIG", 0):
                row, tuned = None, "miss"
                notes.append("bypassed")
            ask = self._untuned(token, q) if row is None else self._tuned(token, q, row)
            choice = choose(ask)
            block_m, ksplit = _whole(choice.block_m), _whole(choice.ksplit)
        except AiterRaises as e:
            return self._failed(key, self._loads() or str(e), token, q, tuned, row)
        except (ZeroDivisionError, KeyError, ValueError, OverflowError) as e:
            return self._failed(key, self._loads() or f"{type(e).__name__}: {e}", token, q, tuned, row)
        if found is not None and row is not None:
            self._remark(slot, q, row, choice, notes)
        return Dispatch(
            token=key.token,
            lookup_token=token,
            q_dtype_a=q.q_dtype_a,
            path=_path(choice),
            stage1=self._stage(choice.stage1, 1, key, q, block_m, ksplit),
            stage2=None if choice.stage2 is None else self._stage(choice.stage2, 2, key, q, block_m, ksplit),
            block_m=block_m,
            ksplit=ksplit,
            run_1stage=choice.run_1stage,
            tuned=tuned,
            row=None if row is None or self.table is None else self.table.tuned_row(row),
            rows=self._rows(slot),
            confidence=self.confidence,
            error=self._loads(),
            notes=tuple(notes),
        )

    def _loads(self) -> str | None:
        """What AITER raises on its tables, which it reads before it looks at anything else."""
        return None if self.table is None else self.table.error

    def _lookup_key(self, token: int, q: Asked) -> LookupKey:
        n = self._names
        return (
            *(self.cu_num, token, q.model_dim, q.inter_dim, q.expert, q.topk),
            *(n[q.dtype], n[q.q_dtype_a], n[q.q_dtype_w], QUANTS[q.quant], q.g1u1, q.doweight),
        )

    def _find(self, slot: LookupKey, q: Asked, notes: list[str]) -> tuple[int | None, str]:
        """The tuned row, after everything that makes AITER discard it."""
        assert self.lookup is not None
        assert self.table is not None
        r = self.rules
        if r.blockscale_bypass and self._bypassed(int(slot[1] or 0), q):
            notes.append("blockscale-bypass")
            return None, "miss"
        row, tuned = self.lookup.find(slot, ACTS[q.act])
        if row is None:
            return None, tuned
        if r.opus and not self._opus_accepted(row, q):
            notes.append("opus-row-discarded")
            return None, "miss"
        if r.one_stage_acts and self._runs_one_stage(row) and q.act not in ("silu", "gelu"):
            notes.append("one-stage-row-discarded")
            return None, "miss"
        if r.flydsl_fallback and not self.flydsl and self._names_flydsl(row):
            stand_in = self.lookup.fallback(slot, ACTS[q.act])
            notes.append("flydsl-fallback-row" if stand_in is not None else "flydsl-row-discarded")
            return stand_in, "hit" if stand_in is not None else "miss"
        return row, tuned

    def _bypassed(self, token: int, q: Asked) -> bool:
        """Small fp8 block-scale problems that a release takes off their tuned rows (use_cfg, v0.1.9 to v0.1.12)."""
        if (q.act, q.dtype, q.q_dtype_a, q.q_dtype_w, q.quant) != ("silu", "bf16", "fp8", "fp8", "per_1x128"):
            return False
        return self.rules.blockscale_bypass == "always" or token * q.topk <= 128

    def _opus_accepted(self, row: int, q: Asked) -> bool:
        assert self.table is not None
        name1, name2 = ((self.table.name(row, c) or "").strip() for c in ("kernelName1", "kernelName2"))
        if self.rules.opus_guard:
            if not q.shuffled and (name1.startswith("opus_") or name2.startswith("opus_")):
                return False
            if name1.startswith("opus_") and q.act not in ("silu", "swiglu", "situv2"):
                return False
        if not name2.startswith("opus_"):
            return True
        block_m = self._setting("block_m", row)
        sort = None if block_m is None else int(block_m)
        table = OPUS[self.rules.opus]
        return accepts(table, name2, self.table.cells(row), sort, gfx=self.gfx, is_ep=q.is_ep, bias2=q.bias2)[0]

    def _names_flydsl(self, row: int) -> bool:
        assert self.table is not None
        return any((self.table.name(row, c) or "").startswith("flydsl_") for c in ("kernelName1", "kernelName2"))

    def _setting(self, column: str, row: int, absent: Value = None) -> Value:
        assert self.table is not None
        cells = self.table.settings[column]
        return absent if cells is None else cells[row]

    def _runs_one_stage(self, row: int) -> bool:
        # As Python judges the cell: an empty one is NaN, and NaN is true.
        cell = self._setting("run_1stage", row, False)
        return cell is None or bool(cell)

    def _tuned(self, token: int, q: Asked, row: int) -> Ask:
        """A question with a row: its settings, its kernel names."""
        assert self.table is not None
        for column in ("block_m", "ksplit", "kernelName1", "kernelName2"):
            if column not in self.table.columns:
                raise AiterRaises(f"KeyError: {column!r}")
        ask = self._ask(token, q)
        ask.block_m, ask.ksplit = self._setting("block_m", row), self._setting("ksplit", row)
        if self.rules.ksplit_env_zeroes and env_int(self.env, "AITER_KSPLIT", 0) == -1:
            ask.ksplit = 0
        ask.kernel1, ask.kernel2 = self.table.name(row, "kernelName1"), self.table.name(row, "kernelName2")
        ask.run_1stage = self._runs_one_stage(row)
        for column, read in (("xbf16", self.rules.xbf16), ("flat", self.rules.flat)):
            if read and ask.run_1stage and self._setting(column, row, 0) is None:
                raise AiterRaises("ValueError: cannot convert float NaN to integer")
        return ask

    def _untuned(self, token: int, q: Asked) -> Ask:
        """A question without a row: the heuristics."""
        r, ask = self.rules, self._ask(token, q)
        dtypes = (q.dtype, q.q_dtype_a, q.q_dtype_w)
        ask.run_1stage = one_stage(r, self.gfx, q.act, q.quant, dtypes, q.g1u1, q.doweight, token, q.inter_dim)
        if ask.run_1stage:
            ask.block_m = ONE_STAGE_BLOCK_M
        elif q.quant == "per_1x128":
            ask.block_m = 64 if token > 32 or r.blockscale_block_m == "64" else 16
        else:
            ask.block_m = block_size_m(token, q.topk, q.expert, q.inter_dim, self.cu_num)
        if not ask.run_1stage and (
            (r.ksplit == "mx" and q.quant in ("per_1x128", "per_1x32"))
            or (r.ksplit == "blockscale-2n" and q.quant == "per_1x128")
        ):
            ask.ksplit = ask.untuned_ksplit()
        if r.non_temporal:
            ask.non_temporal = self._non_temporal(token, q)
        return ask

    def _non_temporal(self, token: int, q: Asked) -> bool:
        forced = env_int(self.env, "AITER_USE_NT", -1)
        few = token * q.topk // q.expert < 64
        return bool(forced) if forced != -1 else few

    def _ask(self, token: int, q: Asked) -> Ask:
        width = q.inter_dim * (2 if self.rules.ksplit == "blockscale-2n" else 1)

        def split() -> int:
            return k_split(token, q.topk, q.expert, width, q.model_dim, self.cu_num, env_int(self.env, "AITER_KSPLIT", 0))

        forced = self.env.get("AITER_FLYDSL_FORCE", "1") == "1"
        return Ask(self.rules, self.gfx, self.flydsl, token, q, 0, 0, forced_flydsl=forced, untuned_ksplit=split)

    # --- the answer ---------------------------------------------------------------------------------------------------

    def _remark(self, slot: LookupKey, q: Asked, row: int, choice: Choice, notes: list[str]) -> None:
        assert self.lookup is not None
        assert self.table is not None
        if self.table.act[row] != ACTS[q.act]:
            notes.append("borrowed-activation")
        if self.lookup.contested(slot, row):
            notes.append("order-dependent")
        if self.table.conflict:
            notes.append("table-conflict")
        names = self.table.name(row, "kernelName1"), self.table.name(row, "kernelName2")
        used = choice.stage1.kernel, None if choice.stage2 is None else choice.stage2.kernel
        if choice.stage2 is not None and choice.stage1.kind != "cktile" and used[0] != names[0]:
            notes.append("row-kernels-not-used")

    def _rows(self, slot: LookupKey) -> tuple[TunedRow, ...]:
        held = () if self.lookup is None else self.lookup.held(slot)
        if not held or self.table is None:
            return ()
        return tuple(map(self.table.tuned_row, held))

    def _stage(self, s: StageChoice, number: int, key: Key, q: Asked, block_m: int, ksplit: int) -> Stage:
        kernel = s.kernel or ""
        if self.judge is None:
            return Stage(s.func, s.kind, kernel, None, None, None, "")
        kind = ONE_STAGE if s.func == ONE_STAGE_FUNC else f"{s.kind}{number}"
        return Stage(s.func, s.kind, kernel, *self.judge(kind, key, q, block_m, kernel, ksplit))

    def _failed(
        self, key: Key, error: str, token: int = 0, q: Asked | None = None, tuned: str = "unknown", row: int | None = None
    ) -> Dispatch:
        none = Stage("", "none", "", None, None, None, error)
        return Dispatch(
            token=key.token,
            lookup_token=token or bucket(key.token, self.rules.tiers),
            q_dtype_a="" if q is None else q.q_dtype_a,
            path="error",
            stage1=none,
            stage2=None,
            block_m=0,
            ksplit=0,
            run_1stage=False,
            tuned=tuned,
            row=None if row is None or self.table is None else self.table.tuned_row(row),
            rows=(),
            confidence=self.confidence,
            error=error,
        )


def _whole(value: Value) -> int:
    """A cell as the integer AITER makes of it in the end."""
    if value is None:
        raise AiterRaises("ValueError: cannot convert float NaN to integer")
    return int(value)


def _path(choice: Choice) -> str:
    if choice.stage2 is None:
        return "1stage"
    if choice.stage1.kind == "asm":
        return "asm+ck"
    kinds = {choice.stage1.kind, choice.stage2.kind}
    return next((k for k in ("opus", "flydsl", "cktile") if k in kinds), "ck2stages")
