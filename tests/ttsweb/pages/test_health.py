"""Alive is not ready, and each part that is not ready says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from pytest_django import Settings

from tests.factories import make_worker
from ttsweb.configuration.builders import broker_settings
from workers.celery import app, make_app


@pytest.fixture(autouse=True)
def storage_folder(tmp_path: Path, settings: Settings) -> Path:
    folder = tmp_path / "storage"
    options = {"OPTIONS": {"location": folder}}
    settings.STORAGES = settings.STORAGES | {"default": settings.STORAGES["default"] | options}
    return folder


def use_broker(settings: Settings, redis_url: str | None, folder: Path) -> None:
    """Make an app with this broker the current one."""
    settings.CELERY = broker_settings(redis_url, data_dir=folder)
    own_app = make_app()
    own_app.set_default()
    own_app.set_current()


@pytest.fixture(autouse=True)
def broker(tmp_path: Path, settings: Settings) -> Any:
    """Use a file broker of this test alone."""
    use_broker(settings, None, tmp_path)
    yield
    app.set_default()
    app.set_current()


def make_engine(**fields: Any) -> None:
    """Make a worker with an engine that was seen a second ago."""
    usual: dict[str, Any] = {"model_fingerprint": "m" * 64, "seconds_ago": 1.0}
    make_worker(**(usual | fields))


def parts() -> tuple[int, dict[str, Any]]:
    response = Client().get("/readyz")
    return response.status_code, response.json()["parts"]


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
    left = [path for path in storage_folder.rglob("*") if path.is_file()]
    assert left == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    [
        {"seconds_ago": 61.0},
        {"state": "warming"},
        {"state": "draining"},
        {"role": "cpu", "model_fingerprint": ""},
    ],
)
def test_not_ready_without_a_ready_engine(fields: dict[str, Any]) -> None:
    make_engine(**fields)
    status, found = parts()
    assert status == 503
    assert [name for name, part in found.items() if not part["ok"]] == ["worker"]


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
    storage_folder: Path, tmp_path: Path
) -> None:
    make_engine()
    storage_folder.write_text("a file where the folder should be")
    (tmp_path / "queue" / "messages").rmdir()
    status, found = parts()
    assert status == 503
    assert [name for name, part in found.items() if not part["ok"]] == ["storage", "broker"]


@pytest.mark.django_db
def test_not_ready_when_redis_does_not_answer(settings: Settings, tmp_path: Path) -> None:
    make_engine()
    use_broker(settings, "redis://:secret@127.0.0.1:1/0", tmp_path)
    status, found = parts()
    assert (status, found["broker"]["ok"]) == (503, False)
    assert "secret" not in str(found)


@pytest.mark.django_db
@pytest.mark.redis
def test_ready_with_a_redis_that_answers(
    settings: Settings, tmp_path: Path, redis_url: str
) -> None:
    make_engine()
    use_broker(settings, redis_url, tmp_path)
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
