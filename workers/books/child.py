"""Read one book in a process of its own: `python -m workers.books.child`, a JSON request on stdin.

What is read comes from strangers, so this process has limits, no environment and no database. It
writes the book as JSON and its cover to the files that it was told, and one JSON object to stdout:
what the book says of itself, or `error` (a code) and `message`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from synth.books.book import Book, BookRejectedError, book_to_json
from synth.books.detect import read_book
from workers.bounded_child import answer_request


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return what the book says of itself, or why it cannot be read, for foreseen outcomes."""
    try:
        return write(read_book(Path(request["input"]), request["filename"]), request)
    except BookRejectedError as error:
        return {"error": error.code, "message": error.message}
    except MemoryError:
        return {"error": "book_import_memory", "message": ""}
    except RecursionError:
        return {"error": "book_too_deep", "message": "The book's elements are nested too deeply."}


def write(book: Book, request: dict[str, Any]) -> dict[str, Any]:
    """Write a book's parts to their files; return what it says of itself.

    Raises:
        BookRejectedError: book_empty, book_too_large.
    """
    num_chars = book.source_chars
    if not any(placed.block.text.strip() for placed in book.blocks()):
        raise BookRejectedError("book_empty", "This book has no text that can be spoken.")
    if num_chars > request["max_chars"]:
        raise BookRejectedError(
            "book_too_large",
            f"The book has {num_chars} characters; at most {request['max_chars']} are allowed.",
        )
    text = json.dumps(book_to_json(book), ensure_ascii=True, separators=(",", ":"))
    Path(request["output"]).write_text(text, encoding="ascii")
    if book.cover is not None:
        Path(request["cover"]).write_bytes(book.cover.content)
    return {
        "title": book.metadata.title,
        "authors": list(book.metadata.authors),
        "language": book.metadata.language,
        "cover_type": book.cover.media_type if book.cover is not None else "",
        "source_chars": num_chars,
    }


if __name__ == "__main__":
    sys.exit(answer_request(answer, open_files=64))
