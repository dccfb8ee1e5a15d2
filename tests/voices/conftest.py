"""Keep what these tests write, objects and messages, in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from tests.factories import make_user
from ttsweb.configuration.builders import broker_settings
from workers.celery import app, make_app


@pytest.fixture(autouse=True)
def storage_folder(tmp_path: Path, settings: Settings) -> Path:
    """Return the folder that clips and codes are written to."""
    folder = tmp_path / "storage"
    settings.STORAGES = settings.STORAGES | {
        "default": settings.STORAGES["default"] | {"OPTIONS": {"location": folder}}
    }
    return folder


@pytest.fixture(autouse=True)
def message_folder(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    """Return the folder of a real file broker that belongs to this test alone."""
    settings.CELERY = broker_settings(None, data_dir=tmp_path)
    own_app = make_app()
    own_app.set_default()
    own_app.set_current()
    yield tmp_path / "queue" / "messages"
    own_app.close()
    app.set_default()
    app.set_current()


@pytest.fixture
def sent_encodings(message_folder: Path) -> Callable[[], list[str]]:
    """Return a function that lists the encode messages."""

    def read() -> list[str]:
        bodies = []
        for path in sorted(message_folder.iterdir()):
            headers = json.loads(path.read_text())["headers"]
            if headers["task"] == "workers.encode_voice_version":
                bodies.append(headers["task"])
        return bodies

    return read


@pytest.fixture
def stored_objects(storage_folder: Path) -> Callable[[], list[str]]:
    """Return a function that lists the names of all objects in the storage."""

    def read() -> list[str]:
        files = storage_folder.rglob("*") if storage_folder.exists() else []
        return sorted(str(p.relative_to(storage_folder)) for p in files if p.is_file())

    return read


@pytest.fixture
def operator() -> User:
    return make_user("operator")


@pytest.fixture
def client(operator: User) -> APIClient:
    _, key = create_key(operator, "tests")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {key}")
    return client
