"""Make the plan of a book: what was read of it, by its policies, with its edits applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.files.storage import default_storage

from synth.books.book import Book
from synth.books.stored import book_from_json
from synth.bookshelf.script import Script
from synth.models import BookSource


def load_book(book: BookSource) -> Book:
    """Return what was read of a planned book.

    Raises:
        FileNotFoundError: it is no longer stored.
        StoredBookError: it is damaged, or of another version of the program.
    """
    with default_storage.open(book.book_key) as file:
        return book_from_json(json.load(file))


def load_plan(book: BookSource) -> Any:
    """Return the plan of a planned book as it stands.

    Raises:
        FileNotFoundError, StoredBookError: as `load_book`.
    """
    return plan_of(load_book(book), book.policies, book.edits)


def plan_of(book: Book, policies: Mapping[str, str], edits: Sequence[Mapping[str, Any]]) -> Any:
    """Return the plan that policies and edits make of a book."""
    raise NotImplementedError


def figures_of(plan: Any) -> dict[str, Any]:
    """Return the counts of a plan that a list of books shows."""
    raise NotImplementedError


def script_of(plan: Any) -> Script:
    """Return what of a plan is spoken."""
    raise NotImplementedError
