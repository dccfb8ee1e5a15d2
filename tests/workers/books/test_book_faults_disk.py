"""A real disk that fills up while a book gets its files: they wait, and none is ever half there."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.files.storage import default_storage

from synth.audiobooks.files import delete_file, request_file
from synth.jobs.submit import Sender
from synth.models import BookFile, BookSource, RenderJob, Segment, WorkerStatus
from tests.factories import make_user
from tests.workers.books.disturbed_book import (
    PATIENCE_SECONDS,
    upload_to_speak,
    visible,
    wait_spoken,
)
from tests.workers.books.spoken_book import SpokenBook
from tests.workers.pairs import Pair, RunningWorker, new_voice, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.django_db(transaction=True)]

DISK_BYTES = 48_000_000
KINDS = ("m4b", "wav", "mp3", "chapters", "shelf", "read_along", "srt")
ROOMS = (0.05, 0.5, 0.9)  # of what a file needs while it is made


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB where the data folder of the test will be."""
    folder = tmp_path / "data"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or str(error)
        pytest.skip(f"no small file system can be mounted here: {reason.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def room(disk: Path, num_bytes: int) -> Iterator[None]:
    """Leave only so much room on a disk, to the next page, until the block ends."""
    ballast = disk / "ballast"
    left = free(disk) - num_bytes
    with ballast.open("wb") as file:
        file.write(bytes(max(0, left)))
    try:
        yield
    finally:
        ballast.unlink()


def free(disk: Path) -> int:
    """Return the bytes that can still be written."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize("kind", KINDS)
def test_file_is_whole_or_waits_however_much_room_there_is(
    small_disk: Path, spoken: SpokenBook, kind: str
) -> None:
    before = free(small_disk)
    answer = spoken.made(kind)
    needed = before - free(small_disk) + answer["size_bytes"]  # it is copied into the storage
    first, outcomes = answer["sha256"], []
    for share in ROOMS:
        spoken.api.delete(f"{spoken.path}/files/{answer['id']}")
        shutil.rmtree(small_disk / "cache")
        stored = objects(small_disk)
        with room(small_disk, round(share * needed)):
            answer = spoken.ask(kind).json()
            spoken.work()
            row = spoken.row(answer)
            outcomes.append(row.status)
            if row.status != "done":
                assert (row.status, row.attempts, row.key) == ("queued", 0, ""), row.error_message
                assert objects(small_disk) == stored
            assert list(spoken.process.scratch.iterdir()) == []
            assert list(small_disk.rglob("*.part")) == []
        spoken.work_again()

        made = spoken.row(answer)
        assert (made.status, made.attempts) == ("done", 1), made.error_message
        with default_storage.open(made.key) as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == made.sha256
        assert made.sha256 == first or kind == "read_along"  # which says when it was made
    assert "queued" in outcomes, "the disk was never full"


def objects(disk: Path) -> list[Path]:
    """Return the objects of people's files, and whatever else lies beside them."""
    return sorted(path for path in (disk / "storage" / "exports").rglob("*") if path.is_file())


def start(pair: Pair, role: str) -> RunningWorker:
    """Start a worker that keeps its claims on a busy machine and works on a small disk, too."""
    return pair.start_worker(role, role=role, TTS_LEASE_SECONDS=60, MIN_FREE_BYTES=0)


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_book_on_a_full_disk_waits_and_ends_as_it_would_have(small_disk: Path, pair: Pair) -> None:
    new_voice("Ada")
    start(pair, "gpu")
    reader = start(pair, "cpu")
    book = upload_to_speak(make_user("owner"))
    wait_for(lambda: RenderJob.objects.exists(), what="it starts", seconds=PATIENCE_SECONDS)
    reader.stop()
    spoken = Segment.objects.filter(status=Segment.Status.DONE)
    most = Segment.objects.count()
    wait_for(lambda: spoken.count() == most, what="it is spoken", seconds=PATIENCE_SECONDS)
    book.refresh_from_db()
    rows = BookFile.objects.filter(pk=request_file(book, "wav", {}, Sender(book.owner))[0].pk)

    with room(small_disk, 200_000):  # of 5 MB
        maker = start(pair, "cpu")
        says = WorkerStatus.objects.filter(pk="cpu", detail__contains="disk is full")
        wait_for(says.exists, what="the worker says so", seconds=PATIENCE_SECONDS)
        with room(small_disk / "storage", 0):  # not even the database can grow
            time.sleep(2)
        waiting = RenderJob.objects.get(book=book.pk).exports.get()
        assert (waiting.key, rows.get().key) == ("", "")
        assert {waiting.status, rows.get().status} <= {"queued", "claimed"}
        assert visible(pair, "exports") == []
    job = wait_spoken(book)
    wait_for(lambda: rows.get().status == "done", what="the file", seconds=PATIENCE_SECONDS)
    assert maker.popen.poll() is None, "the worker ended"

    made, asked_for = job.exports.get(), rows.get()
    assert (made.attempts, asked_for.attempts) == (1, 1)
    shutil.rmtree(small_disk / "cache")
    assert [file_of(pair, book, kind) for kind in ("m4b", "wav")] == [made.sha256, asked_for.sha256]


def file_of(pair: Pair, book: BookSource, kind: str) -> str:
    """Return the digest of a file that is made anew, of nothing that was encoded before."""
    for row in BookFile.objects.filter(kind=kind):
        delete_file(row)
    rows = BookFile.objects.filter(pk=request_file(book, kind, {}, Sender(book.owner))[0].pk)
    wait_for(lambda: rows.get().status == "done", what=f"the {kind}", seconds=PATIENCE_SECONDS)
    return rows.get().sha256
