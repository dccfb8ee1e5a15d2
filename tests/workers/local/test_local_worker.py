"""Whose worker is used: one that runs, or one of our own, and never two of ours."""

from __future__ import annotations

import datetime as dt
import fcntl
import io
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from pytest_django import Settings

from synth.models import RenderJob, Segment, WorkerStatus
from tests.factories import make_export, make_job, make_version, make_voice
from ttsweb.commands.base import StepError
from ttsweb.commands.terminal import Progress
from workers.local import local_worker
from workers.local.children import Child
from workers.local.local_worker import (
    LOCK_NAME,
    LocalWorker,
    save_audio,
    summary,
    wait_encoded,
    wait_ended,
)

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


@pytest.mark.parametrize("roles", [("all",), ("gpu", "cpu")])
@pytest.mark.parametrize("state", ["starting", "warming", "ready"])
def test_workers_that_run_elsewhere_are_used(
    worker: LocalWorker, state: str, roles: tuple[str, ...]
) -> None:
    for role in roles:
        make_status(f"{role}-1", role=role, state=state)
    worker.keep()
    assert worker.child is None
    assert worker.is_ready() == (state == "ready")
    assert not is_locked()


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


class NoWorker(LocalWorker):
    """A worker that is there and is nobody's business here."""

    def __init__(self) -> None:
        """Open nothing."""

    def keep(self) -> None:
        """Start nothing."""
        raise AssertionError("nothing had to be waited for")


@pytest.fixture
def progress() -> Progress:
    return Progress(io.StringIO())


@pytest.mark.parametrize("status", ["succeeded", "failed", "partial", "cancelled", None])
def test_job_that_has_ended_is_returned_or_says_why_it_failed(
    progress: Progress, status: str | None
) -> None:
    job = make_job(segments=2)
    RenderJob.objects.filter(pk=job.pk).update(status=status or "succeeded")
    bad = {"error_code": "bad", "error_message": "It is bad."}
    if status == "failed":
        RenderJob.objects.filter(pk=job.pk).update(**bad)
    if status == "partial":  # what failed in it
        Segment.objects.filter(pk=job.segments.all()[1].pk).update(status="failed", **bad)
    if status == "succeeded":
        assert wait_ended(job.pk, NoWorker(), progress) == job
        return
    with pytest.raises(StepError) as caught:
        wait_ended(job.pk if status else uuid.uuid4(), NoWorker(), progress)
    expected = {"cancelled": "job_cancelled", None: "job_deleted"}.get(status, "bad")
    assert caught.value.code == expected
    assert expected != "bad" or str(caught.value) == "It is bad."


def test_failed_version_gives_its_code_and_sentence_and_one_that_is_gone_is_told(
    progress: Progress,
) -> None:
    version = make_version(
        make_voice(versions=0), status="failed", error_code="clip_silent", error_message="Silence."
    )

    with pytest.raises(StepError, match=r"Silence\.") as caught:
        wait_encoded(version.pk, NoWorker(), progress)
    assert caught.value.code == "clip_silent"
    with pytest.raises(StepError) as caught:
        wait_encoded(uuid.uuid4(), NoWorker(), progress)
    assert caught.value.code == "voice_deleted"


def test_file_is_written_whole_over_an_older_one(tmp_path: Path) -> None:
    job = make_job()
    key = default_storage.save("exports/a.wav", ContentFile(b"new " * 1000))
    make_export(job, key=key)
    target = tmp_path / "folder" / "out.wav"
    target.parent.mkdir()
    target.write_bytes(b"old")

    save_audio(job, target)

    assert target.read_bytes() == b"new " * 1000
    assert [path.name for path in target.parent.iterdir()] == ["out.wav"]


def test_older_file_stays_when_the_new_one_is_missing_or_cannot_be_read(tmp_path: Path) -> None:
    job = make_job()
    target = tmp_path / "out.wav"
    target.write_bytes(b"old")

    with pytest.raises(StepError) as caught:
        save_audio(job, target)
    assert caught.value.code == "audio_missing"
    make_export(job, key="exports/gone.wav")
    with pytest.raises(StepError, match=r"out\.wav could not be written") as caught:
        save_audio(job, target)
    assert caught.value.code == "file_not_written"
    assert [path.read_bytes() for path in tmp_path.glob("*out.wav*")] == [b"old"]


def test_summary_compares_with_the_playing_time() -> None:
    started = timezone.now()
    job = make_job(segments=2)
    job.segments_done, job.audio_seconds = 2, 6.0
    job.started_at, job.finished_at = started, started + dt.timedelta(seconds=4)
    assert summary(job) == "2/2 segments, 1.5x real time"
