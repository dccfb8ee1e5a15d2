"""Read what is stored of a book: metadata, plan by policies and edits, what is spoken of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.files.storage import default_storage

from synth.books.book import Book, book_from_json
from synth.books.plan import Plan, plan_book
from synth.books.plan_edits import apply_edits
from synth.books.plan_text import Passage as Passage
from synth.books.plan_text import passages_of
from synth.books.rules import AltTexts, Casting, Notes, Rules, SpeakerNames, Tables
from synth.models import BookSource


@dataclass(frozen=True, slots=True)
class SpokenChapter:
    """Hold one chapter as it is to be spoken.

    `source_chars` are the non-blank characters of the book that it stands for; none are those of
    credits. `voice` is an id or a name, and empty for the book's.
    """

    id: str
    title: str
    passages: tuple[Passage, ...]
    source_chars: int
    voice: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """Hold what of a book is spoken, and how many of its characters are skipped, by reason.

    `spine_chars` are the non-blank characters of all that the book has in its order of reading.
    """

    chapters: tuple[SpokenChapter, ...]
    spine_chars: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    casting: Casting = field(default_factory=Casting)

    @property
    def is_complete(self) -> bool:
        """Return whether every character is in a chapter or skipped for a reason."""
        spoken = sum(chapter.source_chars for chapter in self.chapters)
        return spoken + sum(self.skipped.values()) == self.spine_chars


# The enum of each policy, by its name in requests and in `Rules`.
POLICIES = {"notes": Notes, "tables": Tables, "alt_texts": AltTexts, "speaker_names": SpeakerNames}


def load_book(book: BookSource) -> Book:
    """Return what was read of a planned book.

    Raises:
        FileNotFoundError: it is no longer stored.
        StoredBookError: it is damaged, or of another version of the program.
    """
    with default_storage.open(book.book_key) as file:
        return book_from_json(json.load(file))


def load_plan(book: BookSource) -> Plan:
    """Return the plan of a planned book as it stands.

    Raises:
        FileNotFoundError, StoredBookError: as `load_book`.
    """
    return plan_of(load_book(book), book.policies, book.edits)


def plan_of(book: Book, policies: Mapping[str, str], edits: Sequence[Mapping[str, Any]]) -> Plan:
    """Return the plan that policies and edits make of a book.

    Raises:
        PlanIncompleteError: the plan does not account for every character: a mistake of ours.
        PlanEditError: an edit does not fit the plan.
    """
    chosen: dict[str, Any] = {name: POLICIES[name](value) for name, value in policies.items()}
    return apply_edits(plan_book(book, Rules(**chosen)), edits)


def figures_of(plan: Plan) -> dict[str, Any]:
    """Return the counts of a plan that a list of books shows."""
    return {
        "chapters": len(plan.chapters),
        "included": len(plan.included),
        "spine_chars": plan.source_chars,
        "spoken_chars": plan.spoken_source_chars,
        "expected_seconds": round(plan.seconds, 1),
        "warnings": len(plan.warnings),
    }


def script_of(plan: Plan, casting: Casting | None = None) -> Script:
    """Return what of a plan is spoken, and by which roles."""
    chapters = tuple(
        SpokenChapter(
            id=chapter.id,
            title=writable(chapter.title),
            passages=tuple(passages),
            source_chars=chapter.spoken_source_chars,
            voice=chapter.voice,
        )
        for chapter in plan.included
        if (passages := passages_of(chapter, casting, speaker_names=plan.rules.speaker_names))
        or chapter.spoken_source_chars
    )
    skipped = {str(reason): count for reason, count in plan.skipped().items()}
    return Script(chapters, plan.source_chars, skipped, casting or Casting())


def writable(text: str) -> str:
    """Return a text as databases take it."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


METADATA_LISTS = ("authors", "narrators", "genres")
METADATA_FIELDS = (
    "title", "subtitle", "authors", "narrators", "series", "series_index", "publisher", "date",
    "description", "genres", "language", "rights",
)  # fmt: skip


def changed(metadata: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with changes; what is null there is said no more."""
    return {name: value for name, value in {**metadata, **changes}.items() if value is not None}


def title_of(book: BookSource) -> str:
    """Return what a book is called: by people, by its file, or as its file is called."""
    return str(book.metadata.get("title") or book.title or book.filename)


def authors_of(book: BookSource) -> list[str]:
    """Return who wrote a book; people may have said that nobody is known."""
    found = book.metadata.get("authors")
    return list(book.authors if found is None else found)


def metadata_of_file(book: BookSource) -> dict[str, Any]:
    """Return what a book's file says of it, by the names of METADATA_FIELDS.

    Of a book that was not read yet that is what its row has.

    Raises:
        FileNotFoundError, StoredBookError: as `load_book`.
    """
    found: dict[str, Any] = {"title": book.title or book.filename, "authors": list(book.authors)}
    if not book.book_key:
        return found
    metadata = load_book(book).metadata
    found = {
        name: getattr(metadata, "subjects" if name == "genres" else name)
        for name in METADATA_FIELDS
        if name != "narrators"
    }
    found["title"] = metadata.title or book.filename
    return {
        name: list(value) if name in METADATA_LISTS else value
        for name, value in found.items()
        if value
    }
