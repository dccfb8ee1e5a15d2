"""Speak one small book on a pair of services, and tell what must be alike in every run of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from safetensors.numpy import load_file

from synth.audiobooks.proof import proof_of
from synth.models import BookSource, RenderJob, Segment, Take
from tests.workers.books.test_book_jobs import epub, upload
from tests.workers.pairs import Pair, RunningWorker, wait_for

FAULTY = "tests/workers/faulty_worker.py"
PATIENCE_SECONDS = 400.0  # a machine that runs all tests at once starts torch slowly
# Segments do not depend on each other in one bit. Workers come back under their own names, so that
# nobody waits for a lease; a short one would be lost on a busy machine, and the work done twice.
STRICT = {"TTS_LEASE_SECONDS": 60, "TTS_ENGINE_STRICT": 1}
# Short, for speed, and each unlike the others, so that every segment is a take of its own.
CHAPTERS = tuple(
    (title, "\n".join(f"Ox {10 * number + line}." for line in range(3)))
    for number, title in enumerate(("Oxen", "Cows", "Rams"))
)


class Outcome(NamedTuple):
    """What a run of the book leaves: of takes, by the words said, digests of codes and of the audio
    file, and that of the book's file.
    """

    takes: dict[str, tuple[str, str]]
    file: str
    seconds: float


class Asked(NamedTuple):
    """A rendering that the engine was asked for, and whether its take was stored by then."""

    content_key: str
    is_stored: bool


def start_strict(pair: Pair, role: str, **options: Any) -> RunningWorker:
    """Start a worker that dies at the moments which the test names, and is started again."""
    options = STRICT | {"TTS_TEST_FAULT": "moments"} | options
    return pair.start_worker(role, entry=FAULTY, role=role, **options)


def deaths(pair: Pair) -> int:
    """Return how often workers were killed so far."""
    path = pair.data_dir / "deaths.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def upload_to_speak(owner: User) -> BookSource:
    """Upload the book, to be started as soon as it is planned."""
    return upload(owner, epub(*CHAPTERS), start=True, format="m4b")


def wait_spoken(book: BookSource) -> RenderJob:
    """Return the book's job once it has ended."""
    ended = RenderJob.objects.filter(book=book.pk, status__in=RenderJob.FINAL)
    job: RenderJob = wait_for(ended.first, what="the book has ended", seconds=PATIENCE_SECONDS)
    return job


def assert_spoken_once(pair: Pair, book: BookSource) -> Outcome:
    """Assert that a book is whole and none of its takes was made or counted twice; tell of it."""
    job = RenderJob.objects.get(book=book.pk)
    segments = list(Segment.objects.filter(job=job).select_related("take"))
    proof = proof_of(BookSource.objects.get(pk=book.pk))

    assert job.status == RenderJob.Status.SUCCEEDED, (job.error_code, job.error_message)
    assert proof["is_balanced"] and proof["is_complete"], proof
    assert proof["spoken_chars"] + proof["skipped_chars"] == proof["spine_chars"]
    assert {segment.status for segment in segments} == {"done"}
    assert (job.segments_done, job.segments_failed) == (job.segments_total, 0)
    assert job.segments_total == len(segments) == Take.objects.count()
    assert job.takes_rendered + job.takes_reused == job.segments_total
    assert not [one for one in asked(pair) if one.is_stored], "a stored take was rendered again"

    storage = pair.data_dir / "storage"
    takes = {
        segment.text: (_codes(storage / take.codes_key), _digest(storage / take.audio_key))
        for segment in segments
        if (take := segment.take) is not None
    }
    export = job.exports.get()
    assert export.status == "done"
    assert _digest(storage / export.key) == export.sha256
    return Outcome(takes, export.sha256, round(job.audio_seconds, 6))


def asked(pair: Pair) -> list[Asked]:
    """Return what engines were asked to render, in order; `faulty_worker` writes it down."""
    path = pair.data_dir / "asked.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Asked(key, stored == "1") for key, stored in map(str.split, lines)]


def visible(pair: Pair, folder: str) -> list[str]:
    """Return the keys of a folder's objects; what is still being written is none."""
    storage = pair.data_dir / "storage"
    paths = [path for path in (storage / folder).rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(storage)) for path in paths if path.suffix != ".part")


def _codes(path: Path) -> str:
    """Return the digest of codes; the texts beside them are in no order."""
    return hashlib.sha256(load_file(path)["codes"].tobytes()).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
