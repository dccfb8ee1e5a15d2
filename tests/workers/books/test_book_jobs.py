"""Books through real worker processes: read, planned, spoken, killed in the middle, and reused."""

from __future__ import annotations

import io
import time
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile

from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.audiobooks.uploads import delete_book, upload_book
from synth.models import BookSource, RenderJob, Segment, Take
from tests.factories import make_user
from tests.workers.pairs import Pair, new_voice, wait_encoded, wait_ended, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

OPTIONS: dict[str, Any] = {"format": "wav", "priority": "bulk", "voice": "Ada", "max_retakes": 0}
FIRST, SECOND = "Ox one. Ox two.", "Ox three. Ox four."


def epub(*chapters: tuple[str, str]) -> bytes:
    """Return an EPUB with these chapters; each paragraph of a text is a line of it."""
    names = [f"c{n}.xhtml" for n in range(len(chapters))]
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(names)
    )
    refs = "".join(f'<itemref idref="i{n}"/>' for n in range(len(names)))
    opf = f"""<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="u">
    <metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="u">x</dc:identifier>
    <dc:title>Cattle</dc:title><dc:creator>A. Drover</dc:creator><dc:language>en</dc:language>
    </metadata><manifest>{items}</manifest><spine>{refs}</spine></package>"""
    container = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">
    <rootfiles><rootfile full-path="b.opf" media-type="application/oebps-package+xml"/></rootfiles>
    </container>"""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        target.writestr("mimetype", "application/epub+zip")
        target.writestr("META-INF/container.xml", container)
        target.writestr("b.opf", opf)
        for name, (title, text) in zip(names, chapters, strict=True):
            paragraphs = "".join(f"<p>{line}</p>" for line in text.split("\n"))
            target.writestr(
                name,
                f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{title}</title></head>'
                f"<body><h1>{title}</h1>{paragraphs}</body></html>",
            )
    return packed.getvalue()


def upload(
    owner: User, content: bytes, *, start: bool = False, name: str = "b.epub", **options: Any
) -> BookSource:
    asked = {
        "file": SimpleUploadedFile(name, content),
        "start": start,
        "policies": {},
        "options": OPTIONS | options,
    }
    return upload_book(asked, owner=owner)[0]


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


@pytest.mark.thorough
def test_second_edition_with_a_new_sentence_renders_that_one_alone(
    shelf: tuple[Pair, User],
) -> None:
    _, owner = shelf
    book = upload(
        owner, epub(("Oxen of the Plain", FIRST), ("Oxen of the Hill", SECOND)), start=True
    )
    wait_read(book)
    wait_for(lambda: BookSource.objects.get(pk=book.pk).job_id, what="the book is started")
    book.refresh_from_db()
    assert book.job is not None
    wait_ended(book.job)
    first = book.job
    assert (book.title, book.authors) == ("Cattle", ["A. Drover"])
    assert first.takes_rendered == first.segments_total
    proof = proof_of(book)
    assert proof["is_balanced"]
    assert proof["spoken_chars"] + proof["skipped_chars"] == proof["spine_chars"]

    again = wait_read(
        upload(owner, epub(("Oxen of the Plain", FIRST), ("Oxen of the Hill", SECOND)))
    )
    same = start_book(again)
    wait_ended(same)
    edited = f"{SECOND}\nA new paragraph of many more oxen than before."
    newer = wait_read(
        upload(owner, epub(("Oxen of the Plain", FIRST), ("Oxen of the Hill", edited)))
    )
    second = start_book(newer)
    wait_ended(second)

    assert (same.takes_rendered, same.takes_reused) == (0, first.segments_total)
    assert (second.takes_rendered, second.takes_reused) == (1, first.segments_total)
    assert same.exports.get().sha256 == first.exports.get().sha256


def test_m4b_has_the_chapters_of_the_book_and_encodes_only_those_that_change(
    shelf: tuple[Pair, User],
) -> None:
    pair, owner = shelf
    chapters = (("Oxen of the Plain", FIRST), ("Oxen of the Hill", SECOND))
    first = start_book(wait_read(upload(owner, epub(*chapters), format="m4b")))
    wait_ended(first)
    edited = (chapters[0], (chapters[1][0], f"{SECOND}\nA new paragraph of many more oxen."))
    second = start_book(wait_read(upload(owner, epub(*edited), format="m4b")))
    wait_ended(second)

    made, again = first.exports.get(), second.exports.get()
    assert (made.report["chapters_encoded"], made.report["chapters_reused"]) == (2, 0)
    assert (again.report["chapters_encoded"], again.report["chapters_reused"]) == (1, 1)
    with av.open(str(pair.data_dir / "storage" / again.key)) as book:
        found = book.chapters()
        assert [one["metadata"]["title"] for one in found] == [title for title, _ in chapters]
        assert book.metadata["title"] == "Cattle"
        assert book.metadata["artist"] == "A. Drover"
        starts = [float(one["start"] * (one["time_base"] or 0)) for one in found]
    answer = [row["start_seconds"] for row in again.report["chapters"]]
    assert starts == pytest.approx(answer, abs=0.01)
    cues = again.cues.cues
    assert len(cues) == second.segments_done
    assert all(one[2] <= two[1] for one, two in pairwise(cues))
    assert again.cues.sample_rate == again.report["sample_rate"]


@pytest.mark.thorough
def test_workers_killed_while_reading_and_while_rendering_lose_nothing(
    shelf: tuple[Pair, User],
) -> None:
    pair, owner = shelf
    text = "\n".join(f"Ox number {n} is walking over the plain." for n in range(12))
    book = upload(owner, epub(("Oxen", text)), start=True)
    pair.workers[-1].kill()
    pair.start_worker(name="second").wait_ready()
    wait_for(lambda: BookSource.objects.get(pk=book.pk).job_id, what="the book is started")
    job = RenderJob.objects.get(book=book.pk)
    done = Segment.objects.filter(job=job, status=Segment.Status.DONE)
    wait_for(lambda: done.count() >= 2, what="some of it is rendered")
    kept = set(done.values_list("take_id", flat=True))
    pair.workers[-1].kill()
    pair.start_worker(name="third").wait_ready()
    wait_ended(job)

    assert job.segments_done == job.segments_total
    assert kept <= set(job.segments.values_list("take_id", flat=True))
    assert Take.objects.count() == job.segments_total  # nothing was kept twice
    assert proof_of(BookSource.objects.get(pk=book.pk))["failed_chars"] == 0


@pytest.mark.thorough
def test_file_that_is_no_book_fails_with_its_reason(shelf: tuple[Pair, User]) -> None:
    _, owner = shelf
    cut = wait_read(upload(owner, epub(("Oxen", FIRST))[:300]))
    picture = wait_read(upload(owner, b"\x89PNG\r\n\x1a\n" + bytes(500), name="b.png"))

    assert (cut.state, picture.state) == ("failed", "failed")
    assert cut.error_code.startswith("book_")
    assert cut.error_message
    assert picture.error_code == "book_format_unknown"


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_deleted_book_leaves_no_files(shelf: tuple[Pair, User]) -> None:
    pair, owner = shelf
    book = wait_read(upload(owner, epub(("Oxen", FIRST))))
    job = start_book(book)
    wait_ended(job)
    folders = [pair.data_dir / "storage" / name for name in ("books", "exports", "takes")]
    assert all(_files(folder) for folder in folders)
    delete_book(book)
    deadline = time.monotonic() + 20
    while any(_files(folder) for folder in folders) and time.monotonic() < deadline:
        pass
    assert [_files(folder) for folder in folders] == [[], [], []]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
