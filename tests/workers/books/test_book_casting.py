"""A cast book through real worker processes: voices by role, credits, and pauses changed later."""

from __future__ import annotations

import io
from typing import Any

import av
import pytest
from django.contrib.auth.models import User

from synth.audiobooks.changes import set_pauses
from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.models import BookSource, RenderJob, Take
from tests.factories import make_user
from tests.workers.books.test_book_jobs import epub, upload, wait_read
from tests.workers.pairs import Pair, new_voice, wait_encoded, wait_ended

pytestmark = [pytest.mark.thorough, pytest.mark.django_db(transaction=True)]

WAIT_SECONDS = 400.0  # of a machine that does much else
CASTING: dict[str, Any] = {"dialogue": "detect", "dialogue_voice": "Bob"}
CREDITS = {"opening_credits": "{title}.", "closing_credits": "It ends."}
CHAPTERS = (("Oxen", "“Ox one!” he said.\nOx two."),)


@pytest.fixture
def shelf(pair: Pair) -> tuple[Pair, User]:
    """A pair of services with a worker that is ready, a user, and two voices that were encoded."""
    pair.start_worker().wait_ready()
    for name in ("Ada", "Bob"):
        wait_encoded(new_voice(name))
    return pair, make_user("owner")


def test_cast_book_is_whole_and_other_pauses_render_nothing(shelf: tuple[Pair, User]) -> None:
    pair, owner = shelf
    book = wait_read(upload(owner, epub(*CHAPTERS)))
    BookSource.objects.filter(pk=book.pk).update(casting=CASTING, production=CREDITS)
    book = BookSource.objects.get(pk=book.pk)

    job = start_book(book)
    wait_ended(job, seconds=WAIT_SECONDS)

    assert job.segments_done == job.segments_total, job.error_message
    assert dict(job.voices.values_list("speaker", "role")) == {0: "narrator", 1: "dialogue"}
    said = job.segments.get(speaker=1)
    assert (said.text, said.take is not None) == ("“Ox one!”", True)
    proof = proof_of(BookSource.objects.get(pk=book.pk))
    titles = [one["title"] for one in proof["chapters"]]
    assert titles == ["Opening credits", "Oxen", "Closing credits"]
    assert (proof["is_balanced"], proof["failed_chars"], proof["open_chars"]) == (True, 0, 0)
    rendered, takes = job.takes_rendered, set(job.segments.values_list("take_id", flat=True))
    before = _seconds(pair, job)

    set_pauses(BookSource.objects.get(pk=book.pk), {"chapter": 5000, "heading": 2000})
    wait_ended(job, seconds=WAIT_SECONDS)

    assert job.segments_done == job.segments_total
    assert (job.takes_rendered, Take.objects.count()) == (rendered, len(takes))
    assert set(job.segments.values_list("take_id", flat=True)) == takes
    # Two ends of chapters are 3 s longer, one title 1.1 s.
    assert _seconds(pair, job) - before == pytest.approx(2 * 3 + 1.1, abs=0.01)

    again = wait_read(upload(owner, epub(*CHAPTERS)))
    BookSource.objects.filter(pk=again.pk).update(casting=CASTING, production=CREDITS)
    same = start_book(BookSource.objects.get(pk=again.pk))
    wait_ended(same, seconds=WAIT_SECONDS)
    assert (same.takes_rendered, same.takes_reused) == (0, same.segments_total)


def _seconds(pair: Pair, job: RenderJob) -> float:
    """Return how long a job's file is, by its samples."""
    content = (pair.data_dir / "storage" / job.exports.get().key).read_bytes()
    with av.open(io.BytesIO(content), "r") as file:
        stream = file.streams.audio[0]
        samples: int = sum(frame.samples for frame in file.decode(stream))
        return samples / stream.rate
