"""Write a book that was read as JSON, and read it back; its cover is kept apart."""

from __future__ import annotations

import dataclasses
from typing import Any

from synth.books.book import Block, BlockKind, Book, Document, Loss, Metadata, TocEntry

VERSION = 1


class StoredBookError(Exception):
    """What is stored is no book of this version of the program."""


def book_to_json(book: Book) -> dict[str, Any]:
    """Return a book without its cover as what `json.dumps` takes."""
    return {
        "version": VERSION,
        "metadata": dataclasses.asdict(book.metadata),
        "documents": [_document_to_json(document) for document in book.documents],
        "toc": [dataclasses.asdict(entry) for entry in book.toc],
        "landmarks": dict(book.landmarks),
        "warnings": list(book.warnings),
        "losses": [dataclasses.asdict(loss) for loss in book.losses],
    }


def book_from_json(data: dict[str, Any]) -> Book:
    """Return the book that `book_to_json` made this of.

    Raises:
        StoredBookError: another version has written it, or it is damaged.
    """
    try:
        if data["version"] != VERSION:
            raise StoredBookError(f"the stored version is {data['version']!r}, not {VERSION}")
        metadata = data["metadata"]
        lists = {name: tuple(metadata[name]) for name in ("authors", "subjects")}
        return Book(
            metadata=Metadata(**{**metadata, **lists}),
            documents=tuple(_document(one) for one in data["documents"]),
            toc=tuple(TocEntry(**one) for one in data["toc"]),
            landmarks=dict(data["landmarks"]),
            warnings=tuple(data["warnings"]),
            losses=tuple(Loss(**one) for one in data.get("losses", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoredBookError(f"the stored book is damaged: {error}") from error


def _document_to_json(document: Document) -> dict[str, Any]:
    return {
        "path": document.path,
        "source_chars": document.source_chars,
        "is_linear": document.is_linear,
        "role": document.role,
        "language": document.language,
        "blocks": [_block_to_json(block) for block in document.blocks],
    }


def _block_to_json(block: Block) -> dict[str, Any]:
    """Return a block; a book has many, so what is as it mostly is stays out."""
    found: dict[str, Any] = {
        "kind": str(block.kind),
        "text": block.text,
        "source_chars": block.source_chars,
    }
    for field in dataclasses.fields(Block)[3:]:
        value = getattr(block, field.name)
        if value != field.default:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _document(data: dict[str, Any]) -> Document:
    return Document(**{**data, "blocks": tuple(_block(one) for one in data["blocks"])})


def _block(data: dict[str, Any]) -> Block:
    lists: dict[str, Any] = {
        name: tuple(data[name]) for name in ("anchors", "note_marks") if name in data
    }
    return Block(**{**data, **lists, "kind": BlockKind(data["kind"])})
