"""A site, a line and a home for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.pairs import Pair
from tests.workers.remote.sites import RemoteSetting, remote_setting


@pytest.fixture
def lease() -> str:
    """The seconds of a lease at the site: no test of a fault within it is to be lost by load."""
    return "60"


@pytest.fixture
def setting(
    pair: Pair, clean_env: dict[str, str], tmp_path: Path, lease: str
) -> Iterator[RemoteSetting]:
    pair.environment["TTS_LEASE_SECONDS"] = lease
    with remote_setting(pair, clean_env, tmp_path / "home") as made:
        yield made
