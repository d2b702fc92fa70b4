from __future__ import annotations

import pytest

from moe_preflight.aiter.version import Version

IN_ORDER = ["v0.1.7.post1", "0.1.7.post2", "v0.1.12", "v0.1.13-rc1", "v0.1.13", "v0.1.13.post1", "v0.1.16.post4", "0.1.20", "0.2"]


def test_order() -> None:
    versions = [Version.of(t) for t in IN_ORDER]
    assert versions == sorted(versions)
    assert len(set(versions)) == len(versions)


@pytest.mark.parametrize("text", ["0.1.7.post2.dev18", "v0.1.7.post2", "0.1.7.post2+g1234abc", "v0.1.7.post2-18-gdeadbee"])
def test_dev_and_local_parts_do_not_count(text: str) -> None:
    assert Version.of(text) == Version.of("0.1.7.post2")


@pytest.mark.parametrize("text", ["", "main", "v", "1.x", "99999999999.1", "0.1 x", "latest"])
def test_what_is_no_version(text: str) -> None:
    assert Version.parse(text) is None
    with pytest.raises(ValueError, match="not a version"):
        Version.of(text)


def test_trailing_zeros_do_not_count() -> None:
    assert Version.of("0.33") == Version.of("0.33.0")
