"""Give tests of jobs a storage, a broker and a checkpoint card of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from django.contrib.auth.models import User
from django.db import connection
from pytest_django import DjangoDbBlocker, Settings
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from tests.factories import RIGHTS_OF_PEOPLE, make_user
from tests.synth.served import Served, serving
from tests.workers.pairs import Pair
from ttsweb.configuration.builders import broker_settings, database_settings

Result = TypeVar("Result")
NUM_THREADS = 6


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The project on a real server, in a process of its own."""
    with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def job_services(
    storage_folder: Path, message_folder: Path, settings: Settings, tmp_path: Path
) -> None:
    """A storage and a broker of this test alone, and a card with known numbers."""
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
def operator(job_services: None) -> User:
    """A user who may use the API."""
    return make_user("operator")


@pytest.fixture
def client_of() -> Callable[[User], APIClient]:
    """A function that makes an API client with a key that has all rights of a user."""

    def make(user: User) -> APIClient:
        scopes = RIGHTS_OF_PEOPLE if user.is_superuser else None
        _, key = create_key(user, "test", scopes=scopes)
        return APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")

    return make


@pytest.fixture
def api(operator: User, client_of: Callable[[User], APIClient]) -> APIClient:
    """An API client with a key of the operator."""
    return client_of(operator)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(
    request: pytest.FixtureRequest,
    settings: Settings,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
    job_services: None,
) -> Iterator[str]:
    """A database of its own that this test's threads reach by connections of their own."""
    url = request.getfixturevalue("migrated_postgres_url") if request.param == "postgres" else None
    data_dir = tmp_path / "data"
    pair = Pair(
        environment={},
        data_dir=data_dir,
        database=database_settings(url, data_dir=data_dir),
        broker=broker_settings(None, data_dir=data_dir),
    )
    with django_db_blocker.unblock(), pair.entered(settings):
        yield request.param


def at_once(work: Callable[[int], Result], count: int = NUM_THREADS) -> list[Result]:
    """Call `work` with 0, 1, … from as many threads that start together."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Result:
        barrier.wait()
        try:
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
