"""Say what a book's files are made of: its chapters' audio, what is spoken when, and its facts."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from synth.books.book import CodedError, Metadata
from synth.contract import AudioArray


class BookFileError(CodedError):
    """A book that cannot become the file asked for; `code` is stable, the message says why."""


def tag_text(text: str) -> str:
    """Return a text as tags can hold it: without NUL, which ends it, and half characters."""
    return text.replace("\0", "").encode(errors="replace").decode()


def letters_of(text: str) -> str:
    """Return letters and digits without accents, in lower case, to compare texts by."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(one for one in folded if one.isalnum())


@dataclass(frozen=True, slots=True)
class BookFacts(Metadata):
    """Hold what a book's tags say; empty where nothing is known.

    `date` is a year or an ISO date; `series_index` a number as text, such as "2" or "2.5".
    """

    narrators: tuple[str, ...] = ()
    genres: tuple[str, ...] = ()


def book_tags(facts: BookFacts) -> dict[str, str]:
    """Return a book's tags by the names that FFmpeg gives them; empty ones are left out."""
    found = {
        "title": facts.title,
        "album": facts.title,
        "artist": ", ".join(facts.authors),
        "album_artist": ", ".join(facts.authors),
        "composer": ", ".join(facts.narrators),
        "genre": ", ".join(facts.genres) or "Audiobook",
        "date": facts.date,
        "publisher": facts.publisher,
        "language": facts.language,
        "copyright": facts.rights,
        "comment": facts.description,
        "subtitle": facts.subtitle,
        "series": facts.series,
        "series-part": facts.series_index if facts.series else "",
    }
    return {name: tag_text(text) for name, text in found.items() if text}


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """Say where a segment is heard: from sample `start` of its chapter's audio up to `end`.

    `anchor` is the place in the source book, as `path#id` or `path`, for the read-along EPUB.
    """

    text: str
    start: int
    end: int
    anchor: str = ""
    voice: str = ""
    speaker: int = 0
    starts_paragraph: bool = True
    segment_id: int = 0


@dataclass(frozen=True, slots=True)
class ChapterAudio:
    """Hold one chapter: credits are chapters like any other.

    Attributes:
        blocks: called for each reading; yields mono audio float32 [n] at the book's rate.
        content_key: names the audio (same key, same samples), so that nothing needs to be read to
            know that a finished encode still holds.
        index: of the chapter in the whole book.
    """

    title: str
    blocks: Callable[[], Iterator[AudioArray]]
    segments: tuple[SegmentSpan, ...]
    content_key: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class BookAudio:
    """Hold a book, or some chapters of it; `sample_rate` in Hz is that of all its chapters.

    `voice_gains_db` brings the voices of a cast to one level: dB by a span's `voice`. `voices` is
    what is reported of their levels, `cover_note` why the book's own cover is not in its files;
    `num_chapters` are those of the whole book.
    """

    facts: BookFacts
    chapters: tuple[ChapterAudio, ...]
    sample_rate: int
    cover: bytes | None = None
    voice_gains_db: Mapping[str, float] = field(default_factory=dict)
    voices: Sequence[dict[str, Any]] = ()
    cover_note: str = ""
    num_chapters: int = 0
