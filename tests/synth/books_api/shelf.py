"""Make books for tests: small ones, stored as a worker would have stored them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.audiobooks.plans import figures_of, plan_of
from synth.audiobooks.start import start_book
from synth.books.book import (
    Block,
    BlockKind,
    Book,
    Document,
    Metadata,
    TocEntry,
    book_to_json,
    count_chars,
)
from synth.models import BookSource, Export, RenderJob, Segment
from tests.factories import finish_export, hold_row, make_book, make_take
from ttsweb.refusals import SubmitRejectedError

CHAPTERS = (
    ("The Garden", "The old gate was open again. Nobody had closed it for a long time."),
    ("The River", "Water ran under the bridge all night. In the morning it was gone."),
    ("The Return", "She came back with the first snow. Everybody knew her by her step."),
)


def book_of(chapters: Sequence[tuple[str, str]] = CHAPTERS, **metadata: Any) -> Book:
    """Return a book with a title page, these chapters (title and text), and a licence."""
    documents = [
        _document("title.xhtml", "titlepage", ("", "A Small Book by Nobody")),
        *(_document(f"c{n}.xhtml", "chapter", one) for n, one in enumerate(chapters, 1)),
        _document("rights.xhtml", "copyright-page", ("", "All rights are given away.")),
    ]
    toc = tuple(TocEntry(title, f"c{n}.xhtml") for n, (title, _) in enumerate(chapters, 1))
    answer = {"title": "A Small Book", "authors": ("Nobody",), "language": "en"} | metadata
    return Book(Metadata(**answer), tuple(documents), toc)


def store_book(
    owner: User | None = None,
    chapters: Sequence[tuple[str, str]] = CHAPTERS,
    *,
    voice: str = "Ada",
    **fields: Any,
) -> BookSource:
    """Return a planned book whose text is stored."""
    book = book_of(chapters)
    content = json.dumps(book_to_json(book)).encode()
    key = default_storage.save("books/test/book.json", ContentFile(content))
    upload = default_storage.save("books/test/book.upload", ContentFile(b"bytes"))
    options = {"voice": voice, "format": "wav", "priority": "bulk", "seed": 0}
    values: dict[str, Any] = {
        "book_key": key,
        "object_key": upload,
        "title": book.metadata.title,
        "authors": list(book.metadata.authors),
        "language": "en",
        "options": options,
        "figures": figures_of(plan_of(book, {}, [])),
    }
    return make_book(owner, **(values | fields))


def speak_all(job: RenderJob, *, seconds: float = 5.0) -> list[Segment]:
    """Give every segment of a job a take of its own, as if workers had rendered it."""
    segments = list(job.segments.order_by("chapter__index", "index"))
    for segment in segments:
        make_take([segment], audio_seconds=seconds)
        segment.status = Segment.Status.DONE
        segment.save(update_fields=["status"])
    job.refresh_from_db()
    return segments


def end(job: RenderJob) -> RenderJob:
    """Finish a job's file as a worker does, once all of its segments have ended."""
    counts = {
        f"segments_{status}": job.segments.filter(status=status).count()
        for status in ("done", "failed")
    }
    RenderJob.objects.filter(pk=job.pk).update(status="running", **counts)
    claim = hold_row(Export, Export.objects.create(job=job, format=job.format).pk)
    assert finish_export(claim, key="exports/x", size_bytes=1, sha256="0", duration_seconds=9.0)
    job.refresh_from_db()
    return job


def refusal_of(book: BookSource) -> SubmitRejectedError:
    """Return why a book is not started."""
    with pytest.raises(SubmitRejectedError) as refused:
        start_book(book)
    return refused.value


def path_of(book: BookSource, rest: str = "") -> str:
    return f"/api/v1/books/{book.pk}{rest}"


def _document(path: str, role: str, part: tuple[str, str]) -> Document:
    title, text = part
    blocks = [Block(BlockKind.HEADING, title, count_chars(title), level=1)] if title else []
    for paragraph in text.split("\n"):
        blocks.append(Block(BlockKind.PARAGRAPH, paragraph, count_chars(paragraph)))
    total = sum(block.source_chars for block in blocks)
    return Document(path, tuple(blocks), total, role=role, language="en")
