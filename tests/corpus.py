"""Where the shared corpus is (golden answers, real configs, AITER tables), and a skip with a reason when it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared"
_ROOT = Path(os.environ["MOE_PREFLIGHT_CORPUS"]) if "MOE_PREFLIGHT_CORPUS" in os.environ else _BESIDE

CORPUS: Path | None = _ROOT if (_ROOT / "golden").is_dir() else None

needs_corpus = pytest.mark.skipif(CORPUS is None, reason="no shared corpus beside the checkout and MOE_PREFLIGHT_CORPUS not set")


def corpus(*parts: str) -> Path:
    """A path inside the corpus. Call it only inside tests marked ``needs_corpus``."""
    assert CORPUS is not None
    return CORPUS.joinpath(*parts)
