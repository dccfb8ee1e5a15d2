"""A Word document becomes a book; one that is locked, damaged or a bomb is refused."""

from __future__ import annotations

import io
import zipfile

import pytest

from synth.books.book import BlockKind, BookRejectedError
from synth.books.documents import docx
from synth.books.documents.docx import read_docx
from synth.books.plan import plan_book
from tests.synth.books_text.blocks import (
    assert_complete,
    block_of,
    make_docx,
    paragraph,
    texts,
    with_role,
)

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
    (note,) = [block for *_, block in book.blocks() if block.kind is BlockKind.NOTE]
    assert "Die Anmerkung." in note.text
    assert block_of(book, "Es war").note_marks == (f"uhr.docx#{note.anchors[0]}",)
    assert_complete(book)


def test_properties_say_what_the_book_is() -> None:
    metadata = read_docx(make_docx(paragraph("Ein Wort.")), "uhr.docx").metadata

    assert metadata.title == "Die Uhr"
    assert metadata.authors == ("Jana Doe", "Hans Roe")
    assert metadata.language == "de-DE"


def refusal_of(raw: bytes) -> BookRejectedError:
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


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def with_styles(raw: bytes, styles: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content.replace(b"</w:styles>", styles.encode() + b"</w:styles>"))
    return made.getvalue()


def style(name: str, kind: str, more: str) -> str:
    start = f'<w:style w:type="{kind}" w:styleId="{name}"><w:name w:val="{name}"/>'
    return f"{start}{more}</w:style>"


HIDES = "<w:rPr><w:vanish/></w:rPr>"
STYLES = (
    style("Secret", "character", HIDES)
    + style("Deeper", "character", '<w:basedOn w:val="Secret"/>')
    + style("Notes", "paragraph", HIDES)
    + style("Open", "character", '<w:basedOn w:val="Secret"/><w:rPr><w:vanish w:val="0"/></w:rPr>')
)
FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
UNSAID = {
    "run": run("Secret", "<w:vanish/>"),
    "on": run("Secret", '<w:vanish w:val="on"/>'),
    "style": run("Secret", '<w:rStyle w:val="Secret"/>'),
    "style_of_style": run("Secret", '<w:rStyle w:val="Deeper"/>'),
    "paragraph": f'</w:p><w:p><w:pPr><w:pStyle w:val="Notes"/></w:pPr>{run("Secret")}</w:p><w:p>',
    "code": FIELD.format("begin") + run("Secret") + FIELD.format("separate") + FIELD.format("end"),
    "row": "</w:p><w:tbl><w:tr><w:trPr><w:hidden/></w:trPr><w:tc><w:p>"
    + run("Secret") + "</w:p></w:tc></w:tr></w:tbl><w:p>",
}  # fmt: skip
GONE = {
    "deleted": '<w:del w:id="1"><w:r><w:delText>Secret</w:delText></w:r></w:del>',
    "moved": f'<w:moveFrom w:id="1">{run("Secret")}</w:moveFrom>',
    "instruction": FIELD.format("begin") + "<w:r><w:instrText>Secret</w:instrText></w:r>"
    + FIELD.format("end"),
    "comment": '<w:commentRangeStart w:id="0"/><w:r><w:commentReference w:id="0"/></w:r>',
}  # fmt: skip


@pytest.mark.parametrize("hidden", UNSAID.values(), ids=UNSAID)
def test_hidden_text_is_told_and_not_spoken(hidden: str) -> None:
    body = f"<w:p>{run('He ')}{hidden}{run('went.')}</w:p>"
    plan = plan_book(read_docx(with_styles(make_docx(body), STYLES), "a.docx"))

    answer = " ".join(block.text for chapter in plan.included for block in chapter.spoken())
    assert answer == "He went."
    assert [(row["text"], row["reason"]) for row in plan.to_json()["skipped"]] == [
        ("Secret", "hidden")
    ]
    assert plan.to_json()["completeness"]["is_complete"]


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_what_is_no_longer_in_the_document_is_not_read(gone: str) -> None:
    body = f"<w:p>{run('He ')}{gone}{run('went.')}</w:p>"
    book = read_docx(make_docx(body), "a.docx")

    assert [block.text for *_, block in book.blocks()] == ["He went."]
    assert not book.losses


@pytest.mark.parametrize(
    "shown",
    [
        run("went.", '<w:vanish w:val="0"/>'),
        run("went.", '<w:rStyle w:val="Open"/>'),
        run("went.", '<w:rStyle w:val="Secret"/><w:vanish w:val="false"/>'),
        f'<w:fldSimple w:instr="AUTHOR">{run("went.")}</w:fldSimple>',
        FIELD.format("begin") + FIELD.format("separate") + run("went.") + FIELD.format("end"),
        f'<w:ins w:id="1">{run("went.")}</w:ins>',
    ],
)
def test_text_that_a_reader_sees_is_spoken(shown: str) -> None:
    book = read_docx(with_styles(make_docx(f"<w:p>{run('He ')}{shown}</w:p>"), STYLES), "a.docx")

    assert [block.text for *_, block in book.blocks()] == ["He went."]
