"""Books whose segments are spoken by tones, and a worker of files in miniature."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from tests.factories import make_user, make_voice
from tests.workers.books.spoken_book import SpokenBook, speak, start, store_epub
from tests.workers.conftest import MiniatureProcess


@pytest.fixture
def owner(settings: Settings, tmp_path: Path) -> User:
    """A user with a voice; messages go to a folder that nobody reads."""
    folder = tmp_path / "messages"
    for name in ("in", "done"):
        (folder / name).mkdir(parents=True)
    make_voice("Ada", shared=True)
    return make_user("owner")


@pytest.fixture
def worker() -> MiniatureProcess:
    """A worker of files, without an engine."""
    return MiniatureProcess(None, role="cpu")


@pytest.fixture
def spoken(owner: User, worker: MiniatureProcess, tmp_path: Path) -> SpokenBook:
    """A book that is spoken to its end and has its M4B."""
    book = start(store_epub(owner, tmp_path), owner, worker)
    speak()
    book.work()
    assert book.job.status == "succeeded", book.job.error_message
    return book
