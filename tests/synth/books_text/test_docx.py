"""A Word document becomes a book; one that is locked, damaged or a bomb is refused."""

from __future__ import annotations

import io
import zipfile

import pytest

from synth.books.book import BlockKind
from synth.books.documents import docx
from synth.books.documents.docx import read_docx
from synth.books.plan import plan_book
from tests.synth.books.documents import repacked
from tests.synth.books_text.blocks import (
    assert_complete,
    block_of,
    make_docx,
    outline,
    paragraph,
    refusal_of,
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
    (*lines, note) = [line for line in outline(book) if "furniture|" not in line]
    assert lines == [
        "titlepage: Die Uhr",
        "toc: Eins 3",
        "heading|Eins",
        "Es war spät.",
        "table_row|Jana, Mittag",
        "heading|Zwei",
        "Ende <b>.",
    ]
    assert "note|" in note and "Die Anmerkung." in note
    anchors = next(b.anchors for *_, b in book.blocks() if b.kind is BlockKind.NOTE)
    assert block_of(book, "Es war").note_marks == (f"uhr.docx#{anchors[0]}",)
    assert_complete(book)
    found = book.metadata
    assert (found.title, found.authors) == ("Die Uhr", ("Jana Doe", "Hans Roe"))
    assert found.language == "de-DE"


ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
NOTED = make_docx(BODY, notes={2: "Die Anmerkung."})


@pytest.mark.parametrize(
    ("raw", "codes"),
    [
        (make_docx(paragraph("")), "book_empty"),
        (make_docx(paragraph("&b;"), start=ENTITIES), "book_broken"),
        (make_docx(paragraph("Ein Wort.", note=7)), "book_broken"),  # the note is not there
        *((NOTED[: int(cut * len(NOTED))], "book_broken") for cut in (0.3, 0.6, 0.9, 0.99)),
        *((make_docx(body), "book_broken book_empty")
          for body in ("<w:p>", "<w:tbl/><w:p/><x/>", "", "\0")),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)  # fmt: skip
def test_what_is_no_whole_document_is_refused(raw: bytes, codes: str) -> None:
    assert refusal_of(read_docx, raw, "a.docx").code in codes.split()


def test_part_that_is_larger_than_is_allowed_or_stated_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = make_docx(paragraph("a" * 10_000))
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        size = archive.getinfo("word/document.xml").file_size
    lying = raw.replace(size.to_bytes(4, "little"), (200).to_bytes(4, "little"))
    monkeypatch.setattr(docx, "MAX_PART_BYTES", 5_000)
    assert lying != raw
    assert refusal_of(read_docx, lying, "a.docx").code == "book_broken"
    assert refusal_of(read_docx, raw, "a.docx").code == "book_too_large"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def with_styles(body: str) -> bytes:
    """Return a document of one paragraph that knows these styles."""

    def change(name: str, raw: bytes) -> tuple[str, bytes]:
        return name, raw.replace(b"</w:styles>", STYLES.encode() + b"</w:styles>")

    return repacked(make_docx(f"<w:p>{run('He ')}{body}</w:p>"), change)


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
    plan = plan_book(read_docx(with_styles(f"{hidden}{run('went.')}"), "a.docx"))
    answer = plan.to_json()
    spoken = " ".join(block.text for chapter in plan.included for block in chapter.spoken())
    assert spoken == "He went."
    assert [(row["text"], row["reason"]) for row in answer["skipped"]] == [("Secret", "hidden")]
    assert answer["completeness"]["is_complete"]


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_what_is_no_longer_in_the_document_is_not_read(gone: str) -> None:
    book = read_docx(with_styles(f"{gone}{run('went.')}"), "a.docx")
    assert (outline(book), book.losses) == (["He went."], ())


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
    assert outline(read_docx(with_styles(shown), "a.docx")) == ["He went."]
