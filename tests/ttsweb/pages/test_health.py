"""Alive is not ready, and each part that is not ready says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from pytest_django import Settings

from tests.factories import make_worker

pytestmark = pytest.mark.usefixtures("storage_folder", "message_folder")


def make_engine(**fields: Any) -> None:
    """Make a worker with an engine that was seen a second ago."""
    usual: dict[str, Any] = {"model_fingerprint": "m" * 64, "seconds_ago": 1.0}
    make_worker(**(usual | fields))


def parts() -> tuple[int, dict[str, Any]]:
    response = Client().get("/readyz")
    return response.status_code, response.json()["parts"]


def bad(found: dict[str, Any]) -> list[str]:
    return [name for name, part in found.items() if not part["ok"]]


def test_alive_needs_no_database() -> None:
    # Without the django_db mark every query fails.
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_ready_with_a_worker_that_was_seen_just_now(storage_folder: Path) -> None:
    make_engine()
    status, found = parts()
    assert status == 200, found
    assert set(found) == {"database", "migrations", "storage", "broker", "worker"}
    assert found["worker"]["detail"] == "gpu-1"
    assert [path for path in storage_folder.rglob("*") if path.is_file()] == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    [
        {"seconds_ago": 61.0}, {"state": "warming"}, {"state": "draining"},
        {"role": "cpu", "model_fingerprint": ""},
    ],
)  # fmt: skip
def test_not_ready_without_a_ready_engine(fields: dict[str, Any]) -> None:
    make_engine(**fields)
    status, found = parts()
    assert (status, bad(found)) == (503, ["worker"])


@pytest.mark.django_db
def test_worker_that_has_unloaded_its_model_would_render_a_job() -> None:
    make_engine(state="unloaded")
    assert parts()[0] == 200


@pytest.mark.django_db
def test_parts_may_be_asked_for_alone_so_that_a_site_without_workers_gets_requests() -> None:
    answer = Client().get("/readyz", {"parts": "migrations,database"})
    assert (answer.status_code, set(answer.json()["parts"])) == (200, {"database", "migrations"})

    for given in ("database,engine", ""):
        answer = Client().get("/readyz", {"parts": given})
        assert answer.status_code == 400
        assert answer.json()["detail"].endswith(
            "the parts are database, migrations, storage, broker, worker."
        )


@pytest.mark.django_db
def test_not_ready_while_a_migration_is_missing() -> None:
    make_engine()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'synth'")
    status, found = parts()
    assert status == 503
    assert "./tts migrate" in found["migrations"]["detail"]


@pytest.mark.django_db
def test_not_ready_when_storage_and_messages_cannot_be_written(
    storage_folder: Path, message_folder: Path
) -> None:
    make_engine()
    storage_folder.write_text("a file where the folder should be")
    message_folder.rmdir()
    status, found = parts()
    assert (status, bad(found)) == (503, ["storage", "broker"])


@pytest.mark.django_db
def test_not_ready_when_redis_does_not_answer(use_broker: Callable[[str], Path]) -> None:
    make_engine()
    use_broker("redis://:secret@127.0.0.1:1/0")
    status, found = parts()
    assert (status, bad(found)) == (503, ["broker"])
    assert "secret" not in str(found)


@pytest.mark.django_db
@pytest.mark.redis
def test_ready_with_a_redis_that_answers(use_broker: Callable[[str], Path], redis_url: str) -> None:
    make_engine()
    use_broker(redis_url)
    assert parts()[0] == 200


@pytest.mark.django_db
def test_a_database_that_is_away_is_a_503_without_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise OperationalError("connection to postgresql://user:secret@host failed")

    monkeypatch.setattr("ttsweb.pages.health.connection.cursor", fail)
    status, found = parts()
    assert (status, found["database"]["ok"]) == (503, False)
    assert "secret" not in str(found)


def test_only_reading_is_served() -> None:
    assert Client().post("/healthz").status_code == 405
    assert Client().post("/readyz").status_code == 405


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_is_answered_whatever_host_it_names(path: str, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["tts.example.org"]
    assert Client().get(path, headers={"host": "127.0.0.1:8000"}).status_code in (200, 503)
    assert Client().get("/api/v1/jobs", headers={"host": "127.0.0.1:8000"}).status_code == 400
