"""Books through real worker processes: read, planned, spoken, killed in the middle, and reused."""

from __future__ import annotations

import io
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.audiobooks.changes import delete_book, set_pauses, upload_book
from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.jobs.submit import Sender
from synth.models import BookSource, RenderJob, Take
from tests.factories import make_user
from tests.synth.books.documents import Epub, page
from tests.workers.pairs import Pair, new_voice, wait_encoded, wait_ended, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.django_db(transaction=True)]

OPTIONS: dict[str, Any] = {"format": "wav", "priority": "bulk", "voice": "Ada", "max_retakes": 0}
FIRST, SECOND = "Ox one. Ox two.", "Ox three. Ox four."
BOTH = (("Oxen of the Plain", FIRST), ("Oxen of the Hill", SECOND))
PATIENCE_SECONDS = 400.0  # of a machine that does much else


CATTLE = (
    '<dc:identifier id="uid">x</dc:identifier><dc:title>Cattle</dc:title>'
    "<dc:creator>A. Drover</dc:creator><dc:language>en</dc:language>"
)


def epub(*chapters: tuple[str, str]) -> bytes:
    """Return an EPUB with these chapters; each paragraph of a text is a line of it."""
    bodies = [
        f"<h1>{title}</h1>{''.join(f'<p>{line}</p>' for line in text.splitlines())}"
        for title, text in chapters
    ]
    pages = {f"c{n}.xhtml": page(body) for n, body in enumerate(bodies)}
    return Epub(pages, metadata=CATTLE).bytes()


def upload(
    owner: User, content: bytes, *, start: bool = False, name: str = "b.epub", **options: Any
) -> BookSource:
    asked = {
        "file": SimpleUploadedFile(name, content),
        "start": start,
        "policies": {},
        "options": OPTIONS | options,
    }
    return upload_book(asked, Sender(owner))[0]


def wait_read(book: BookSource) -> BookSource:
    def is_read() -> bool:
        book.refresh_from_db()
        return book.state != BookSource.State.IMPORTING

    wait_for(is_read, what="the book is read")
    return book


@pytest.fixture
def shelf(pair: Pair) -> tuple[Pair, User]:
    """A pair of services with a worker that is ready, a user, and a voice that was encoded."""
    pair.start_worker().wait_ready()
    wait_encoded(new_voice("Ada"))
    return pair, make_user("owner")


def spoken(owner: User, *chapters: tuple[str, str], **options: Any) -> RenderJob:
    """Return the ended job of a book that was uploaded, read and started."""
    job = start_book(wait_read(upload(owner, epub(*chapters), **options)))
    wait_ended(job, seconds=PATIENCE_SECONDS)
    return job


def test_second_edition_with_a_new_sentence_renders_and_encodes_that_one_alone(
    shelf: tuple[Pair, User],
) -> None:
    pair, owner = shelf
    book = wait_read(upload(owner, epub(*BOTH), start=True, format="m4b"))
    wait_for(lambda: BookSource.objects.get(pk=book.pk).job_id, what="the book is started")
    book.refresh_from_db()
    first = book.job
    assert first is not None
    wait_ended(first)
    assert (book.title, book.authors) == ("Cattle", ["A. Drover"])
    assert first.takes_rendered == first.segments_total
    proof = proof_of(book)
    assert proof["is_balanced"]
    assert proof["spoken_chars"] + proof["skipped_chars"] == proof["spine_chars"]

    same = spoken(owner, *BOTH, format="m4b")
    edited = f"{SECOND}\nA new paragraph of many more oxen than before."
    second = spoken(owner, BOTH[0], (BOTH[1][0], edited), format="m4b")

    assert (same.takes_rendered, same.takes_reused) == (0, first.segments_total)
    assert (second.takes_rendered, second.takes_reused) == (1, first.segments_total)
    made, equal, again = (job.exports.get() for job in (first, same, second))
    assert equal.sha256 == made.sha256
    encoded = [(one.report["chapters_encoded"], one.report["chapters_reused"])
               for one in (made, equal, again)]  # fmt: skip
    assert encoded == [(2, 0), (0, 2), (1, 1)]
    with av.open(str(pair.data_dir / "storage" / again.key)) as opened:
        found = opened.chapters()
        assert [one["metadata"]["title"] for one in found] == [title for title, _ in BOTH]
        assert (opened.metadata["title"], opened.metadata["artist"]) == ("Cattle", "A. Drover")
        starts = [float(one["start"] * (one["time_base"] or 0)) for one in found]
    answer = [row["start_seconds"] for row in again.report["chapters"]]
    assert starts == pytest.approx(answer, abs=0.01)
    cues = again.cues.cues
    assert len(cues) == second.segments_done
    assert all(one[2] <= two[1] for one, two in pairwise(cues))
    assert again.cues.sample_rate == again.report["sample_rate"]


def test_paused_book_starts_nothing_until_it_is_resumed(shelf: tuple[Pair, User]) -> None:
    from synth.transitions.files import pause_job, resume_job

    pair, owner = shelf
    book = wait_read(upload(owner, epub(("Oxen", FIRST))))
    pair.workers[-1].kill()
    job = start_book(book)
    assert pause_job(job.pk)
    pair.start_worker(name="second").wait_ready()
    # The worker does other work meanwhile, which shows that it has looked.
    other = wait_read(upload(owner, epub(("Horses", "A horse."))))
    faster = start_book(other)
    wait_ended(faster)
    assert set(job.segments.values_list("status", flat=True)) == {"queued"}
    assert resume_job(job.pk)
    wait_ended(job)
    assert job.segments_done == job.segments_total


def test_deleted_book_leaves_no_files(shelf: tuple[Pair, User]) -> None:
    pair, owner = shelf
    job = spoken(owner, ("Oxen", FIRST))
    folders = [pair.data_dir / "storage" / name for name in ("books", "exports", "takes")]
    assert all(_files(folder) for folder in folders)
    delete_book(BookSource.objects.get(job=job.pk))
    deadline = time.monotonic() + 20
    while any(_files(folder) for folder in folders) and time.monotonic() < deadline:
        pass
    assert [_files(folder) for folder in folders] == [[], [], []]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


CASTING: dict[str, Any] = {"dialogue": "detect", "dialogue_voice": "Bob"}
CREDITS = {"opening_credits": "{title}.", "closing_credits": "It ends."}


def cast_book(owner: User) -> RenderJob:
    """Return the ended job of a book with a voice for its dialogue, and with credits."""
    book = wait_read(upload(owner, epub(("Oxen", "“Ox one!” he said.\nOx two."))))
    BookSource.objects.filter(pk=book.pk).update(casting=CASTING, production=CREDITS)
    job = start_book(BookSource.objects.get(pk=book.pk))
    wait_ended(job, seconds=PATIENCE_SECONDS)
    return job


def test_cast_book_is_whole_and_other_pauses_render_nothing(shelf: tuple[Pair, User]) -> None:
    pair, owner = shelf
    wait_encoded(new_voice("Bob"))
    job = cast_book(owner)
    book = BookSource.objects.get(job=job.pk)

    assert job.segments_done == job.segments_total, job.error_message
    assert dict(job.voices.values_list("speaker", "role")) == {0: "narrator", 1: "dialogue"}
    said = job.segments.get(speaker=1)
    assert (said.text, said.take is not None) == ("“Ox one!”", True)
    proof = proof_of(book)
    titles = [one["title"] for one in proof["chapters"]]
    assert titles == ["Opening credits", "Oxen", "Closing credits"]
    assert (proof["is_balanced"], proof["failed_chars"], proof["open_chars"]) == (True, 0, 0)
    rendered, takes = job.takes_rendered, set(job.segments.values_list("take_id", flat=True))
    before = _seconds(pair, job)

    set_pauses(BookSource.objects.get(pk=book.pk), {"chapter": 5000, "heading": 2000})
    wait_ended(job, seconds=PATIENCE_SECONDS)

    assert job.segments_done == job.segments_total
    assert (job.takes_rendered, Take.objects.count()) == (rendered, len(takes))
    assert set(job.segments.values_list("take_id", flat=True)) == takes
    # Two ends of chapters are 3 s longer, one title 1.1 s.
    assert _seconds(pair, job) - before == pytest.approx(2 * 3 + 1.1, abs=0.01)

    same = cast_book(owner)
    assert (same.takes_rendered, same.takes_reused) == (0, same.segments_total)


def _seconds(pair: Pair, job: RenderJob) -> float:
    """Return how long a job's file is, by its samples."""
    content = (pair.data_dir / "storage" / job.exports.get().key).read_bytes()
    with av.open(io.BytesIO(content), "r") as file:
        stream = file.streams.audio[0]
        samples: int = sum(frame.samples for frame in file.decode(stream))
        return samples / stream.rate


def takes_of(job: RenderJob) -> dict[int, object]:
    return dict(job.segments.values_list("pk", "take_id"))


def test_edit_of_one_sentence_renders_one_take_and_encodes_one_chapter(
    shelf: tuple[Pair, User],
) -> None:
    _, owner = shelf
    api = APIClient(HTTP_AUTHORIZATION=f"Bearer {create_key(owner, 'test')[1]}")
    chapters = (*BOTH, ("Oxen of the Wood", "Ox five. Ox six."))
    job = spoken(owner, *chapters, format="m4b")
    made, before, rendered = job.exports.get(), takes_of(job), job.takes_rendered
    assert made.report["chapters_encoded"] == 3
    in_the_middle = job.segments.filter(chapter__index=1).exclude(text=BOTH[1][0])
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
    books = f"/api/v1/books/{BookSource.objects.get(job=job.pk).pk}"
    assert api.get(books).json()["status"] == "succeeded"
    assert api.get(f"{books}/proof").json()["is_complete"]
