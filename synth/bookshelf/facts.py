"""Say what is known of a book: by its file, and by people in place of that."""

from __future__ import annotations

from typing import Any

from synth.bookshelf.plans import load_book
from synth.models import BookSource


def told_of(book: BookSource) -> dict[str, Any]:
    """Return what a book's file says of it, by the names of METADATA_FIELDS.

    Of a book that was not read yet that is what its row has.

    Raises:
        FileNotFoundError, StoredBookError: as `load_book`.
    """
    found: dict[str, Any] = {"title": book.title or book.filename, "authors": list(book.authors)}
    if not book.book_key:
        return found
    told = load_book(book).metadata
    found |= {
        "title": told.title or book.filename,
        "subtitle": told.subtitle,
        "authors": list(told.authors),
        "series": told.series,
        "series_index": told.series_index,
        "publisher": told.publisher,
        "date": told.date,
        "description": told.description,
        "genres": list(told.subjects),
        "language": told.language,
        "rights": told.rights,
    }
    return {name: value for name, value in found.items() if value}
