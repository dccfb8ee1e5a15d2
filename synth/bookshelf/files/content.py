"""Tell what a book's files are made of at this moment, so that one of older takes is known."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from synth.models import BookSource, JobVoice, RenderJob, Segment

# A cancelled segment is one that a retry brings: its chapter is not complete.
_NOT_THERE = (Segment.Status.QUEUED, Segment.Status.CLAIMED, Segment.Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class ChapterContent:
    """Say of a chapter whether anything of it is still to come, and what it is made of so far.

    `digest` is that of its takes and pauses in their order; it is empty where it has none.
    `is_levelled` says that others than the narrator speak in it, whose gains files apply.
    """

    index: int
    title: str
    is_open: bool
    digest: str
    is_levelled: bool = False

    @property
    def is_there(self) -> bool:
        """Return whether the chapter can go into a file: what could be spoken of it is."""
        return bool(self.digest) and not self.is_open


@dataclass(frozen=True, slots=True)
class BookContent:
    """Hold what the files of a book are made of; `base` is a digest of all but its chapters."""

    base: str
    chapters: Sequence[ChapterContent]

    def of(self, chapter: int | None) -> list[ChapterContent]:
        """Return the chapters that a file of one chapter, or of all, is about."""
        return [one for one in self.chapters if chapter in (None, one.index)]

    def there(self, chapter: int | None = None) -> list[ChapterContent]:
        """Return those of them that can go into a file now."""
        return [one for one in self.of(chapter) if one.is_there]

    def is_whole(self, chapter: int | None = None) -> bool:
        """Return whether nothing of it is still to come."""
        return not any(one.is_open for one in self.of(chapter))

    def digest(self, chapter: int | None = None) -> str:
        """Return what a file that is made now is made of."""
        chapters = self.there(chapter)
        told: list[object] = [self.base, [(one.index, one.title, one.digest) for one in chapters]]
        if chapter is not None and any(one.is_levelled for one in chapters):
            # The gain of a voice is measured over all chapters that are there, so that a take of
            # another chapter may make this one's file sound otherwise.
            told.append([(one.index, one.digest) for one in self.there()])
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def content_of(book: BookSource, job: RenderJob) -> BookContent:
    """Return what the files of a started book would be made of now, by three queries."""
    voices = JobVoice.objects.filter(job=job.pk).order_by("speaker")
    spoken_by = list(voices.values_list("speaker", "version_id", "version__voice__name", "role"))
    told = [job.speed, book.book_key, book.cover_key, book.metadata, spoken_by]
    base = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
    versions = {speaker: version for speaker, version, *_ in spoken_by}
    narrating = {speaker for speaker, one in versions.items() if one == versions.get(0)}
    titles = dict(job.chapters.values_list("index", "title"))
    rows = Segment.objects.filter(job=job.pk).order_by("chapter__index", "index")
    names = ("chapter__index", "status", "take_id", "pause_after_ms", "speaker")
    values = rows.values_list(*names)
    chapters = []
    for index, some in itertools.groupby(values.iterator(chunk_size=2000), key=lambda row: row[0]):
        digest, speakers, is_open = hashlib.sha256(), set(), False
        for _, status, take, pause, speaker in some:
            is_open = is_open or status in _NOT_THERE
            if status == Segment.Status.DONE:
                digest.update(f"{take} {pause}\n".encode())
                speakers.add(speaker)
        chapters.append(
            ChapterContent(
                index,
                titles.get(index, ""),
                is_open,
                digest.hexdigest() if speakers else "",
                is_levelled=bool(speakers - narrating),
            )
        )
    return BookContent(base, chapters)
