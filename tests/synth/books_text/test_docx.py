"""A Word document becomes a book; one that is locked, damaged or a bomb is refused."""

from __future__ import annotations

import io
import zipfile

import pytest

from synth.books import docx
from synth.books.book import BlockKind, BookRejectedError
from synth.books.docx import read_docx
from tests.synth.books_text.blocks import assert_complete, block_of, texts, with_role
from tests.synth.books_text.made_docx import make_docx, paragraph

CELLS = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("Jana", "Mittag"))
TABLE = f"<w:tbl><w:tr>{CELLS}</w:tr></w:tbl>"
BODY = (
    paragraph("Die Uhr", "Titel")
    + paragraph("Eins 3", "Verzeichnis1")
    + paragraph("Eins", "berschrift1")
    + paragraph("Es war spät.", note=2)
    + TABLE
    + paragraph("Zwei", "berschrift1")
    + paragraph("Ende &lt;b&gt;.")
)


def test_document_is_read_with_headings_notes_and_tables() -> None:
    book = read_docx(make_docx(BODY, notes={2: "Die Anmerkung."}), "uhr.docx")

    assert [(entry.title, entry.level) for entry in book.toc] == [("Eins", 1), ("Zwei", 1)]
    assert with_role(book, "titlepage") == ["Die Uhr"]
    assert with_role(book, "toc") == ["Eins 3"]
    assert texts(book, BlockKind.PARAGRAPH, role="") == ["Es war spät.", "Ende <b>."]
    assert texts(book, BlockKind.TABLE_ROW) == ["Jana, Mittag"]
    (note,) = [block for _, block in book.blocks() if block.kind is BlockKind.NOTE]
    assert "Die Anmerkung." in note.text
    assert block_of(book, "Es war").note_marks == (f"uhr.docx#{note.anchors[0]}",)
    assert_complete(book)


def test_properties_say_what_the_book_is() -> None:
    metadata = read_docx(make_docx(paragraph("Ein Wort.")), "uhr.docx").metadata

    assert metadata.title == "Die Uhr"
    assert metadata.authors == ("Jana Doe", "Hans Roe")
    assert metadata.language == "de-DE"


def refusal_of(raw: bytes) -> BookRejectedError:
    """Return how a document is refused."""
    with pytest.raises(BookRejectedError) as refused:
        read_docx(raw, "a.docx")
    return refused.value


def test_document_without_words_is_refused_as_empty() -> None:
    assert refusal_of(make_docx(paragraph(""))).code == "book_empty"


def test_entities_are_refused() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'

    assert refusal_of(make_docx(paragraph("&b;"), start=bomb)).code == "book_broken"


def test_part_that_unpacks_to_more_than_is_allowed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(docx, "MAX_PART_BYTES", 5_000)

    assert refusal_of(make_docx(paragraph("a" * 10_000))).code == "book_too_large"


def test_part_that_states_a_smaller_size_than_it_has_is_refused() -> None:
    raw = make_docx(paragraph("a" * 10_000))
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        size = archive.getinfo("word/document.xml").file_size

    lying = raw.replace(size.to_bytes(4, "little"), (200).to_bytes(4, "little"))

    assert lying != raw
    assert refusal_of(lying).code == "book_broken"


def test_mark_of_a_note_that_is_not_there_is_refused() -> None:
    assert refusal_of(make_docx(paragraph("Ein Wort.", note=7))).code == "book_broken"


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9, 0.99])
def test_damaged_document_is_refused(cut: float) -> None:
    raw = make_docx(BODY, notes={2: "Die Anmerkung."})

    assert refusal_of(raw[: int(cut * len(raw))]).code == "book_broken"


@pytest.mark.parametrize("body", ["<w:p>", "<w:tbl/><w:p/><x/>", "", "\0"])
def test_document_with_odd_markup_is_refused(body: str) -> None:
    assert refusal_of(make_docx(body)).code in {"book_broken", "book_empty"}
