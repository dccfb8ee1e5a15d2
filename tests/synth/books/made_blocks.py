"""Read markup in tests: blocks, of which the characters must add up."""

from __future__ import annotations

from synth.books.book import Block, count_chars
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from tests.synth.books.made_epub import page


def blocks_of(inner: str, *, language: str = "en") -> tuple[Block, ...]:
    """Return the blocks of a page with this in its body."""
    root = parse_document(page(inner).encode()).root
    num_chars = count_chars("".join(next(root.iter("{*}body")).itertext()))
    document = document_of(root, "text/a.xhtml", language=language)
    assert document.source_chars == num_chars
    assert sum(block.source_chars for block in document.blocks) == num_chars
    return document.blocks


def said(inner: str) -> list[tuple[str, str]]:
    """Return kind and text of each block."""
    return [(str(block.kind), block.text) for block in blocks_of(inner)]


def spoken_by(inner: str) -> list[tuple[str, str]]:
    """Return who says what; nobody is empty."""
    return [(block.speaker, block.text) for block in blocks_of(inner)]
