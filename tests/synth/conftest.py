"""Give tests of jobs a storage, a broker and a checkpoint card of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.models import ApiKey
from tests.factories import make_user
from ttsweb.configuration.builders import broker_settings
from workers.celery import app, make_app


@pytest.fixture
def storage_folder(tmp_path: Path, settings: Settings) -> Path:
    """The folder that objects are written to."""
    folder = tmp_path / "storage"
    settings.STORAGES = settings.STORAGES | {
        "default": settings.STORAGES["default"] | {"OPTIONS": {"location": folder}}
    }
    return folder


@pytest.fixture
def message_folder(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    """The folder of a real file broker that belongs to this test alone."""
    settings.CELERY = broker_settings(None, data_dir=tmp_path)
    own_app = make_app()
    own_app.set_default()
    own_app.set_current()
    yield tmp_path / "queue" / "messages"
    own_app.close()
    app.set_default()
    app.set_current()


@pytest.fixture
def job_services(
    storage_folder: Path, message_folder: Path, settings: Settings, tmp_path: Path
) -> None:
    """All of the above, and a card with known numbers."""
    settings.CHECKPOINT = tmp_path / "checkpoint"
    settings.CHECKPOINT.mkdir()
    card = {
        "name": "Tiny",
        "licence": "CC0",
        "segment_chars": 60,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
    }
    (settings.CHECKPOINT / "card.json").write_text(json.dumps(card))


@pytest.fixture
def sent_tasks(message_folder: Path) -> Callable[[str], list[str]]:
    """A function that lists the arguments of the messages of one task, as they are printed."""

    def read(task: str) -> list[str]:
        arguments = []
        for path in sorted(message_folder.iterdir()):
            headers = json.loads(path.read_text())["headers"]
            if headers["task"] == f"workers.{task}":
                arguments.append(headers["argsrepr"])
        return arguments

    return read


@pytest.fixture
def stored_objects(storage_folder: Path) -> Callable[[], list[str]]:
    """A function that lists the names of all objects in the storage."""

    def read() -> list[str]:
        files = storage_folder.rglob("*") if storage_folder.exists() else []
        return sorted(str(p.relative_to(storage_folder)) for p in files if p.is_file())

    return read


@pytest.fixture
def operator(job_services: None) -> User:
    """A user who may use the API."""
    return make_user("operator")


@pytest.fixture
def client_of() -> Callable[[User], APIClient]:
    """A function that makes an API client with a key that has all rights of a user."""

    def make(user: User) -> APIClient:
        scopes = ApiKey.Scope.values if user.is_superuser else None
        _, key = create_key(user, "test", scopes=scopes)
        return APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")

    return make


@pytest.fixture
def api(operator: User, client_of: Callable[[User], APIClient]) -> APIClient:
    """An API client with a key of the operator."""
    return client_of(operator)
