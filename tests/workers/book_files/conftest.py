"""Encodes that tests share, which do not count what is encoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.book_files.made_books import encoder
from workers.book_files.chapter_encodes import Encoder


@pytest.fixture(scope="session")
def encodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encodes")


@pytest.fixture
def work(encodes: Path) -> Encoder:
    """An encoder that has, beside its own, the encodes of the tests before."""
    return encoder(encodes)
