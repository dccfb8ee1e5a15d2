"""Work of any kind survives kills that came from beside it; what kills by itself fails alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from synth.audiobooks.files import request_file
from synth.audiobooks.start import start_book
from synth.models import BookFile, BookSource, Export, RenderJob, Segment
from tests.factories import make_user
from tests.workers.books.disturbed_book import FAULTY, deaths
from tests.workers.books.test_book_jobs import epub, upload, wait_read
from tests.workers.pairs import (
    Pair,
    assert_whole,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from ttsweb.leases import LOSSES_BESIDE_OTHERS
from voices.models import Voice, VoiceVersion

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("pair", ["files"], indirect=True)]
BOOK = epub(("Oxen", "Ox one. Ox two."))


class Victim(NamedTuple):
    """A kind of work: words of its row's text form, what gets all ready and returns what makes such
    a row, and how it is found.
    """

    words: str
    prepare: Callable[[Voice], Callable[[], Any]]
    find: Callable[[], Any]
    good: str


def spoken_book(voice: Voice) -> Callable[[], Any]:
    """Speak a book; return what asks for a file of it."""
    source = wait_read(upload(make_user("owner"), BOOK, format="wav"))
    job = start_book(source)
    wait_ended(job)
    source.refresh_from_db()
    return partial(request_file, source, "srt", {})


VICTIMS = {
    "version": Victim(
        "Ill v1",
        lambda voice: partial(new_voice, "Ill"),
        lambda: VoiceVersion.objects.filter(voice__name="Ill").values_list("status", "error_code"),
        "ready",
    ),
    "export": Victim(
        ".flac",
        lambda voice: partial(submit, voice, first=900, format="flac"),
        lambda: Export.objects.filter(format="flac").values_list("status", "error_code"),
        "done",
    ),
    "book": Victim(
        "ill.epub",
        lambda voice: partial(upload, make_user("owner"), BOOK, name="ill.epub"),
        lambda: BookSource.objects.values_list("state", "error_code"),
        "planned",
    ),
    "file": Victim(
        " srt", spoken_book, lambda: BookFile.objects.values_list("status", "error_code"), "done"
    ),
}


def run(pair: Pair, victim: Victim, **environment: Any) -> tuple[str, str]:
    """Do a piece of work beside a long job; return the state and error code that it ends with."""
    pair.start_worker(
        "w1", entry=FAULTY, TTS_TEST_FAULT="row", TTS_TEST_ROW=victim.words, **environment
    ).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    begin = victim.prepare(voice)
    others = submit(voice, sentences=120, priority=RenderJob.Priority.BULK)
    wait_for(Segment.objects.filter(job=others, status="done").exists, what="the job is rendered")
    begin()

    def ended() -> tuple[str, str] | None:
        row: tuple[str, str] | None = victim.find().first()
        return row if row and row[0] in (victim.good, "failed") else None

    found: tuple[str, str] = wait_for(ended, what="the work ended")
    wait_ended(others)
    assert_whole(others)
    return found


@pytest.mark.parametrize("kind", VICTIMS)
def test_what_was_beside_every_kill_is_done_once_it_is_alone(pair: Pair, kind: str) -> None:
    assert run(pair, VICTIMS[kind], TTS_TEST_BESIDE=1) == (VICTIMS[kind].good, "")
    assert deaths(pair) == LOSSES_BESIDE_OTHERS


@pytest.mark.parametrize("kind", VICTIMS)
def test_what_kills_its_worker_alone_too_fails_and_nothing_else_does(pair: Pair, kind: str) -> None:
    assert run(pair, VICTIMS[kind]) == ("failed", "worker_lost")
    assert deaths(pair) == LOSSES_BESIDE_OTHERS + 3
