"""One sentence of a finished book is edited: one take is rendered, one chapter encoded anew."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.audiobooks.start import start_book
from synth.models import RenderJob
from tests.factories import make_user
from tests.workers.books.test_book_jobs import epub, upload, wait_read
from tests.workers.pairs import Pair, new_voice, wait_encoded, wait_ended

pytestmark = [pytest.mark.thorough, pytest.mark.django_db(transaction=True)]
CHAPTERS = (
    ("Oxen of the Plain", "Ox one. Ox two."),
    ("Oxen of the Hill", "Ox three. Ox four."),
    ("Oxen of the Wood", "Ox five. Ox six."),
)


def takes_of(job: RenderJob) -> dict[int, object]:
    return dict(job.segments.values_list("pk", "take_id"))


def test_edit_of_one_sentence_renders_one_take_and_encodes_one_chapter(pair: Pair) -> None:
    pair.start_worker().wait_ready()
    wait_encoded(new_voice("Ada"))
    owner = make_user("owner")
    api = APIClient(HTTP_AUTHORIZATION=f"Bearer {create_key(owner, 'test')[1]}")
    book = wait_read(upload(owner, epub(*CHAPTERS), format="m4b"))
    job = start_book(book)
    wait_ended(job)
    made, before, rendered = job.exports.get(), takes_of(job), job.takes_rendered
    assert made.report["chapters_encoded"] == 3
    in_the_middle = job.segments.filter(chapter__index=1).exclude(text=CHAPTERS[1][0])
    segment = in_the_middle.order_by("-index")[0]
    path = f"/api/v1/jobs/{job.pk}/segments/{segment.pk}/render"

    answer = api.post(path, {"text": "A cow by the gate."})
    assert answer.status_code == 202, answer.content
    wait_ended(job)

    after, again = takes_of(job), job.exports.get()
    assert [pk for pk in before if before[pk] != after[pk]] == [segment.pk]
    assert job.takes_rendered == rendered + 1
    assert (again.report["chapters_encoded"], again.report["chapters_reused"]) == (1, 2)
    assert again.sha256 != made.sha256
    shown: dict[str, Any] = api.get(f"/api/v1/review/{segment.pk}").json()
    assert (shown["title"], shown["chapter"]["index"]) == ("Cattle", 1)
    assert shown["spoken_text"] == "A cow by the gate."
    assert api.get(f"/api/v1/books/{book.pk}").json()["status"] == "succeeded"
    assert api.get(f"/api/v1/books/{book.pk}/proof").json()["is_complete"]
