"""Say where in a book's own EPUB each of its segments stands: the document that it was read of."""

from __future__ import annotations

import bisect
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

from synth.books.plan import PlannedChapter
from synth.bookshelf.plans import load_plan
from synth.models import BookSource
from synth.text.segments import SPEAKER_TAG
from workers.book_files.book_audio import BookAudio, ChapterAudio, SegmentSpan
from workers.books.job import JobBook


def with_anchors(book: JobBook, source: BookSource) -> BookAudio:
    """Return a book whose segments name their documents; those of credits name none.

    Raises:
        FileNotFoundError, StoredBookError, PlanEditError: as reading the plan raises them.
    """
    planned = {chapter.id: chapter for chapter in load_plan(source).chapters}
    told = source.started.get("chapters", [])
    chapters = []
    for index, chapter in zip(book.indexes, book.audio.chapters, strict=True):
        found = planned.get(told[index]["id"]) if index < len(told) else None
        chapters.append(chapter if found is None else _anchored(chapter, found))
    return replace(book.audio, chapters=tuple(chapters))


def _anchored(chapter: ChapterAudio, planned: PlannedChapter) -> ChapterAudio:
    places = _Places(planned)
    spans = tuple(replace(span, anchor=places.of(span)) for span in chapter.segments)
    return replace(chapter, segments=spans)


class _Places:
    """Follow the segments of a chapter through its blocks, by their letters."""

    def __init__(self, chapter: PlannedChapter) -> None:
        self._starts, self._paths, parts = [], [], []
        position = 0
        for block, path in _spoken(chapter):
            letters = _letters(block)
            self._starts.append(position)
            self._paths.append(path)
            parts.append(letters)
            position += len(letters)
        self._letters = "".join(parts)
        self._cursor = 0

    def of(self, span: SegmentSpan) -> str:
        """Return the document of the next segment; of one that has other words, where it is due."""
        if not self._paths:
            return ""
        wanted = _letters(SPEAKER_TAG.sub("", span.text))
        at = self._letters.find(wanted, self._cursor) if wanted else -1
        place = self._cursor if at < 0 else at
        if at >= 0:
            self._cursor = at + len(wanted)
        return self._paths[max(0, bisect.bisect_right(self._starts, place) - 1)]


def _spoken(chapter: PlannedChapter) -> Iterator[tuple[str, str]]:
    for planned in chapter.blocks:
        if planned.reason is None:
            yield planned.block.text, planned.path


def _letters(text: str) -> str:
    """Return what texts are compared by: letters and digits without accents, in lower case."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(one for one in folded if one.isalnum())


def anchors_of(chapters: Sequence[ChapterAudio]) -> int:
    """Return how many segments name a document."""
    return sum(bool(span.anchor) for chapter in chapters for span in chapter.segments)
