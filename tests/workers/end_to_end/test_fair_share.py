"""A real worker shares its engine between users."""

from __future__ import annotations

import pytest

from synth.jobs.planning import Order
from synth.jobs.submit import submit_job
from synth.models import Segment
from tests.factories import make_user
from tests.workers.pairs import (
    Pair,
    assert_whole,
    new_voice,
    submit,
    text_of,
    wait_encoded,
    wait_ended,
    wait_for,
)

pytestmark = pytest.mark.thorough

BOOKS, SENTENCES = 8, 5


def test_sentence_of_one_user_ends_long_before_the_books_of_another(pair: Pair) -> None:
    voice = new_voice()
    worker = pair.start_worker(TTS_ENGINE_SLOTS=1).wait_ready()
    wait_encoded(voice)
    books = [submit(voice, sentences=SENTENCES, first=100 * n) for n in range(BOOKS)]
    of_books = Segment.objects.filter(job__in=books)
    wait_for(of_books.filter(status="done").exists, what=f"{worker.name} renders the books")
    before = of_books.filter(status="done").count()

    sentence, _ = submit_job(
        Order(text=text_of(1, first=9_000), voice=voice), owner=make_user("other")
    )
    wait_ended(sentence)
    segment = sentence.segments.get()
    meanwhile = of_books.filter(
        finished_at__gt=sentence.created_at, finished_at__lt=segment.finished_at
    ).count()

    assert_whole(sentence)
    assert before < BOOKS * SENTENCES / 4, "the books were nearly done already"
    assert meanwhile < BOOKS * SENTENCES / 2
