"""Say what a file and what people say of a book: title, authors, series and more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.audiobooks.plans import load_book
from synth.models import BookSource

METADATA_LISTS = ("authors", "narrators", "genres")
METADATA_FIELDS = (
    "title",
    "subtitle",
    "authors",
    "narrators",
    "series",
    "series_index",
    "publisher",
    "date",
    "description",
    "genres",
    "language",
    "rights",
)


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
    found |= {
        "title": metadata.title or book.filename,
        "subtitle": metadata.subtitle,
        "authors": list(metadata.authors),
        "series": metadata.series,
        "series_index": metadata.series_index,
        "publisher": metadata.publisher,
        "date": metadata.date,
        "description": metadata.description,
        "genres": list(metadata.subjects),
        "language": metadata.language,
        "rights": metadata.rights,
    }
    return {name: value for name, value in found.items() if value}
