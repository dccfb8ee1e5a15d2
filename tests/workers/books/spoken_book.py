"""Start books whose segments are spoken by tones, so that their files can be made without a model.

Everything else is as in production: rows, transitions, stored takes, claims and encoders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import F
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.audiobooks.plans import figures_of, plan_of
from synth.audiobooks.start import start_book
from synth.books.book import book_to_json
from synth.books.epub.reader import read_epub
from synth.contract import FinishReason, SegmentAudio, Timings
from synth.models import BookFile, BookSource, RenderJob, Segment
from synth.transitions.claims import claim_segments
from tests.factories import CODEC_FINGERPRINT, finish_segment, make_book
from tests.workers.book_files.made_books import RATE, pulses
from tests.workers.books.test_book_jobs import epub
from tests.workers.conftest import MiniatureProcess
from tests.workers.rendering.takes_support import save_take
from ttsweb.work import Kind
from workers.process.claiming import take, take_exports

CHAPTERS = (
    ("Oxen of the Plain", "The first ox is red.\nThe second ox is white."),
    ("Oxen of the Hill", "The third ox is black."),
    ("Oxen of the Sea", "The last ox has gone away."),
)
SECONDS = 1.2
LOUD, QUIET = 0.2, 0.1


def store_epub(
    owner: User,
    folder: Path,
    chapters: Sequence[tuple[str, str]] = CHAPTERS,
    *,
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> BookSource:
    """Return a planned book of an EPUB, as an upload and its import would have left it."""
    content = epub(*chapters)
    path = folder / "book.epub"
    path.write_bytes(content)
    book = read_epub(path.read_bytes())
    stored = json.dumps(book_to_json(book)).encode()
    usual: dict[str, Any] = {"voice": "Ada", "format": "m4b", "priority": "bulk", "seed": 0}
    values: dict[str, Any] = {
        "filename": "cattle.epub",
        "object_key": default_storage.save("books/t/b.upload", ContentFile(content)),
        "book_key": default_storage.save("books/t/b.json", ContentFile(stored)),
        "title": book.metadata.title,
        "authors": list(book.metadata.authors),
        "language": "en",
        "options": usual | (options or {}),
        "figures": figures_of(plan_of(book, {}, [])),
    }
    return make_book(owner, **(values | fields))


def speak(count: int = 1000, *, quiet_speakers: Sequence[int] = ()) -> int:
    """Give the next queued segments takes of their own; return how many."""
    claims = claim_segments(worker="gpu", limit=count, codec_fingerprint=CODEC_FINGERPRINT)
    for claim in claims:
        segment = Segment.objects.get(pk=claim.pk)
        level = QUIET if segment.speaker in quiet_speakers else LOUD
        name = f"{segment.spoken_text} {segment.seed} {level}"
        content_key = hashlib.sha256(name.encode()).hexdigest()
        pitch = 150.0 + int(content_key[:2], 16) / 2
        finish_segment(claim, save_take(content_key, _tone(pitch, level)))
    return len(claims)


def _tone(pitch: float, level: float) -> SegmentAudio:
    return SegmentAudio(
        codes=np.zeros((10, 26), dtype=np.int16),
        audio=pulses(SECONDS, pitch=pitch, level=level),
        sample_rate=RATE,
        finish_reason=FinishReason.END,
        timings=Timings(0, 0, 0, 0),
    )


@dataclass
class SpokenBook:
    """A started book, its user's API, and a worker in miniature."""

    book: BookSource
    api: APIClient
    process: MiniatureProcess

    @property
    def job(self) -> RenderJob:
        return RenderJob.objects.get(book=self.book.pk)

    @property
    def path(self) -> str:
        return f"/api/v1/books/{self.book.pk}"

    def ask(self, kind: str, **options: Any) -> Any:
        """Ask for a file; return the answer."""
        return self.api.post(f"{self.path}/files", {"kind": kind, **options}, format="json")

    def work(self) -> None:
        """Make all files that wait."""
        take_exports(self.process)
        take(self.process, Kind.BOOK_FILE)
        self.process.run_all()

    def made(self, kind: str, **options: Any) -> dict[str, Any]:
        """Ask for a file, have it made, and return it as it is then."""
        answer = self.ask(kind, **options)
        assert answer.status_code in (200, 202), answer.json()
        self.work()
        body: dict[str, Any] = self.api.get(answer["Location"]).json()
        assert body["status"] == "done", body
        return body

    def work_again(self) -> None:
        """Make what a lack of room, or of a chapter, has put off."""
        BookFile.objects.filter(status="queued").update(not_before=F("created_at"))
        self.process._paused_until = 0.0
        self.work()

    def shown(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a file as the API answers it now."""
        answer: dict[str, Any] = self.api.get(f"{self.path}/files/{body['id']}").json()
        return answer

    @staticmethod
    def encoded(body: dict[str, Any]) -> tuple[int, int]:
        """Return how many chapters of a file were encoded, and how many reused."""
        return body["report"]["chapters_encoded"], body["report"]["chapters_reused"]

    def content(self, body: dict[str, Any]) -> bytes:
        answer: Any = self.api.get(body["content_url"])
        assert answer.status_code == 200
        return b"".join(answer.streaming_content)

    def row(self, body: dict[str, Any]) -> BookFile:
        return BookFile.objects.get(pk=body["id"])


def start(book: BookSource, owner: User, process: MiniatureProcess) -> SpokenBook:
    """Start a book of which nothing is spoken yet."""
    start_book(book)
    _, key = create_key(owner, "test")
    return SpokenBook(book, APIClient(HTTP_AUTHORIZATION=f"Bearer {key}"), process)
