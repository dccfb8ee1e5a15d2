"""A file is known by its content, then by its name; what is no book is refused with a way out."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from synth.books.book import BookRejectedError
from synth.books.detect import detect_format, read_book
from tests.synth.books_text.blocks import Text, make_docx, make_pdf, paragraph, refusal_of

MACHINE = Path(__file__).parents[2] / "data" / "books" / "the-time-machine_standardebooks.epub"
HTML = b"\xef\xbb\xbf<?xml version='1.0'?><!-- x --><!DOCTYPE html><html><p>A word.</p></html>"


def archive_of(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return made.getvalue()


@pytest.mark.parametrize(
    ("raw", "filename", "found"),
    [
        (b"A word.", "a.txt", "txt"),
        (b"A word.", "", "txt"),
        (b"A word.", "a.bin", "txt"),
        (b"# A word.", "a.MD", "markdown"),
        (HTML, "a.txt", "html"),
        (b"<p>A word.", "a.html", "html"),
        (b"<p>A word.", "a.txt", "txt"),
        ("<html><p>A word.".encode("utf-16"), "a", "html"),
        (make_docx(paragraph("A word.")), "a.epub", "docx"),
        (make_pdf([[Text("A word.", 72, 700)]]), "a.txt", "pdf"),
        (b"\n\n%PDF-1.4", "a", "pdf"),
        (archive_of(mimetype="application/epub+zip"), "a", "epub"),
        (archive_of(**{"META-INF__container.xml": "<x/>"}), "a.docx", "epub"),
    ],
)
def test_format_is_found(raw: bytes, filename: str, found: str) -> None:
    assert detect_format(raw, filename) == found


@pytest.mark.parametrize(
    ("raw", "filename", "code", "words"),
    [
        (b"<html>Not found</html>", "a.epub", "book_format_unknown", "download was complete"),
        (b"A word.", "a.pdf", "book_format_unknown", "not PDF"),
        (b"{\\rtf1 A word.}", "a.rtf", "book_format_unknown", "DOCX"),
        (b"\x89PNG\r\n", "a.png", "book_format_unknown", "picture"),
        (b"\x1f\x8b\x08", "a.gz", "book_format_unknown", "unpack"),
        (b"a" * 60 + b"BOOKMOBI", "a.mobi", "book_format_unknown", "EPUB"),
        (b"\xeaDRMION\xee", "a.kfx", "book_drm", "DRM"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a.doc", "book_format_unknown", "DOCX"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"),
            "a.docx",
            "book_encrypted",
            "password",
        ),
        (archive_of(book="x"), "a.zip", "book_format_unknown", "unpack"),
        (
            archive_of(mimetype="application/vnd.oasis.opendocument.text"),
            "a.odt",
            "book_format_unknown",
            "OpenDocument",
        ),
        (archive_of(**{"xl__workbook.xml": "x"}), "a.xlsx", "book_format_unknown", "table"),
        (b"", "a.txt", "book_empty", "empty"),
        (b"A \0word.", "a.txt", "book_not_text", "NUL"),
    ],
)
def test_what_is_no_book_is_refused_with_a_way_out(
    raw: bytes, filename: str, code: str, words: str
) -> None:
    refused = refusal_of(read_book, raw, filename)

    assert refused.code == code
    assert words in refused.message


def test_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"A word. " * 10)

    with pytest.raises(BookRejectedError) as refused:
        read_book(path, max_bytes=79)

    assert refused.value.code == "book_too_large"
    assert read_book(path, max_bytes=80).metadata.title == "a"


def test_name_of_a_file_is_but_a_label() -> None:
    book = read_book(b"A word.", "../../etc/\0pass\ud800wd.txt")

    assert book.documents[0].path == "passwd.txt"


def test_book_of_each_format_is_read() -> None:
    for raw, filename in (
        (b"A word.", "a.txt"),
        (b"# A word.", "a.md"),
        (HTML, "a.html"),
        (make_docx(paragraph("A word.")), "a.docx"),
        (make_pdf([[Text("A word.", 72, 700)]]), "a.pdf"),
    ):
        assert "A word." in [block.text for *_, block in read_book(raw, filename).blocks()]


def test_epub_goes_to_its_reader() -> None:
    assert read_book(MACHINE).metadata.title == "The Time Machine"
