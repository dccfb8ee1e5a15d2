"""Whose worker is used: one that runs, or one of our own, and never two of ours."""

from __future__ import annotations

import datetime as dt
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.utils import timezone
from pytest_django import Settings

from synth.models import WorkerStatus
from workers.local import local_worker
from workers.local.embedded import Child
from workers.local.local_worker import LOCK_NAME, LocalWorker

pytestmark = pytest.mark.django_db


class IdleChild(Child):
    """A child that is never started: what is tested here is whether it would be."""

    def start(self) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.WORKER_NAME = "ours"
    monkeypatch.setattr(local_worker, "Child", IdleChild)


@pytest.fixture
def worker() -> Iterator[LocalWorker]:
    made = LocalWorker()
    yield made
    made.close()


def make_status(name: str, *, role: str = "all", state: str = "ready", age: float = 0) -> None:
    """Write what a worker said of itself `age` seconds ago."""
    seen = timezone.now() - dt.timedelta(seconds=age)
    WorkerStatus.objects.create(
        name=name, role=role, state=state, started_at=seen, last_seen_at=seen
    )


def is_locked() -> bool:
    """Say whether somebody holds the lock of the embedded worker."""
    descriptor = os.open(django_settings.DATA_DIR / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_worker_is_started_where_none_is(worker: LocalWorker) -> None:
    worker.keep()

    assert worker.child is not None
    assert is_locked()
    assert not worker.is_ready()


@pytest.mark.parametrize("state", ["starting", "warming", "ready"])
def test_worker_that_runs_elsewhere_is_used(worker: LocalWorker, state: str) -> None:
    make_status("another-host", state=state)

    worker.keep()

    assert worker.child is None
    assert worker.is_ready() == (state == "ready")
    assert not is_locked()


def test_gpu_and_cpu_workers_together_are_enough(worker: LocalWorker) -> None:
    make_status("gpu-1", role="gpu")
    make_status("cpu-1", role="cpu")

    worker.keep()

    assert worker.child is None


@pytest.mark.parametrize(
    ("role", "state", "age"),
    [("gpu", "ready", 0), ("all", "failed", 0), ("all", "draining", 0), ("all", "ready", 60)],
)
def test_worker_that_cannot_do_it_all_is_not_relied_on(
    worker: LocalWorker, role: str, state: str, age: float
) -> None:
    make_status("another-host", role=role, state=state, age=age)

    worker.keep()

    assert worker.child is not None


def test_row_of_our_killed_worker_is_no_worker(worker: LocalWorker) -> None:
    make_status("ours-embedded", age=1)

    worker.keep()

    assert worker.child is not None
    assert not worker.is_ready()


def test_second_command_starts_none_beside_the_first_and_takes_over_after_it(
    worker: LocalWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_worker, "LOOK_EVERY_SECONDS", 0.0)
    second = LocalWorker()
    worker.keep()

    second.keep()
    beside = second.child
    worker.close()
    second.keep()

    assert beside is None
    assert second.child is not None
    second.close()


def test_looks_at_the_database_are_spaced(worker: LocalWorker) -> None:
    make_status("another-host")
    worker.keep()
    WorkerStatus.objects.all().delete()

    worker.keep()

    assert worker.child is None


def test_log_of_the_worker_is_kept_in_the_given_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "worker.log"

    made = LocalWorker(log_path=path)
    made.close()

    assert path.exists()
