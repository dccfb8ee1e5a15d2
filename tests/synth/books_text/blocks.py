"""Look at what a reader made of a book, as tests ask for it."""

from __future__ import annotations

from synth.books.book import Block, BlockKind, Book


def texts(book: Book, kind: BlockKind, *, role: str | None = None) -> list[str]:
    """Return the texts of the blocks of a kind, and of a role if one is given."""
    return [
        block.text
        for _, block in book.blocks()
        if block.kind is kind and (role is None or block.role == role)
    ]


def with_role(book: Book, role: str) -> list[str]:
    """Return the texts of the blocks of a role."""
    return [block.text for _, block in book.blocks() if block.role == role]


def block_of(book: Book, start: str) -> Block:
    """Return the one block whose text begins so."""
    (found,) = [block for _, block in book.blocks() if block.text.startswith(start)]
    return found


def assert_complete(book: Book) -> None:
    """Assert that the blocks of each document hold all its characters."""
    for document in book.documents:
        assert sum(block.source_chars for block in document.blocks) == document.source_chars
