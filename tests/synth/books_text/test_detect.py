"""A file is known by its content, its characters are found, and what is no book is refused."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest

from synth.books import detect
from synth.books.detect import detect_format, read_book
from synth.books.txt.decoding import decode_text
from tests.synth.books.documents import TIME_MACHINE
from tests.synth.books_text.blocks import Text, make_docx, make_pdf, paragraph, refusal_of

HTML = b"\xef\xbb\xbf<?xml version='1.0'?><!-- x --><!DOCTYPE html><html><p>A word.</p></html>"


def archive_of(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return made.getvalue()


WORD_97 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ODT = archive_of(mimetype="application/vnd.oasis.opendocument.text")


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
        (WORD_97, "a.doc", "book_format_unknown", "DOCX"),
        (WORD_97 + "EncryptedPackage".encode("utf-16-le"), "a.docx", "book_encrypted", "password"),
        (archive_of(book="x"), "a.zip", "book_format_unknown", "unpack"),
        (ODT, "a.odt", "book_format_unknown", "OpenDocument"),
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


def test_file_that_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"A word. " * 10)
    monkeypatch.setattr(detect, "MAX_BOOK_BYTES", 79)
    assert refusal_of(read_book, path).code == "book_too_large"
    monkeypatch.setattr(detect, "MAX_BOOK_BYTES", 80)
    assert read_book(path).metadata.title == "a"


def test_name_of_a_file_is_but_a_label() -> None:
    book = read_book(b"A word.", "../../etc/\0pass\ud800wd.txt")
    assert book.documents[0].path == "passwd.txt"


def test_book_of_each_format_is_read() -> None:
    docx, pdf = make_docx(paragraph("A word.")), make_pdf([[Text("A word.", 72, 700)]])
    files = {
        "a.txt": b"A word.",
        "a.md": b"# A word.",
        "a.html": HTML,
        "a.docx": docx,
        "a.pdf": pdf,
    }

    for filename, raw in files.items():
        assert "A word." in [block.text for *_, block in read_book(raw, filename).blocks()]
    assert read_book(TIME_MACHINE).metadata.title == "The Time Machine"


WESTERN = "Élise vit l\u2019été à Noël. Die Straße war früh leer. „Nun?“ — sagte er.\n" * 3
RUSSIAN = "Привет, мир. Это книга о лете и зиме. Она говорила тихо, но все слышали.\n" * 5  # noqa: RUF001
POLISH = "Zażółć gęślą jaźń, łódź i ćma. Był piękny dzień, gdy wyszła z domu.\n" * 5
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。\n" * 5


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        *((WESTERN, f"utf-{size}{order}") for size in (16, 32) for order in ("", "-le", "-be")),
        (WESTERN, "utf-8"),
        (WESTERN, "utf-8-sig"),
        (WESTERN, "cp1252"),
        (RUSSIAN, "utf-16-le"),
        (RUSSIAN, "utf-16-be"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (POLISH, "cp1250"),
        (JAPANESE, "utf-16-be"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (WESTERN, "mac_roman"),
    ],
)
def test_text_comes_back_from_each_charset(text: str, charset: str) -> None:
    assert decode_text(text.encode(charset))[0] == text


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        ("Hélas! Où est-il?", "latin-1"),  # which is short
        (f"Character set encoding: ISO-8859-5\n\n{RUSSIAN}", "iso8859-5"),
        (f"Character set encoding: ASCII\n\n{WESTERN}", "cp1252"),  # it declares what is not so
        *((f"charset={name}\n\\x41 +AGE- {WESTERN}", "cp1252") for name in (
            "unicode-escape", "utf-7", "utf-16", "idna", "hex", "../x", "x")),
    ],
)  # fmt: skip
def test_charset_that_the_text_declares_is_used_if_it_is_in_it(text: str, charset: str) -> None:
    assert decode_text(text.encode(charset))[0] == text


def test_decomposed_letters_are_composed() -> None:
    assert decode_text("e\u0301te\u0301".encode())[0] == "été"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        *((raw, "book_empty") for raw in (
            b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xff\xfe", b"\0\0\0\0", b"\x1a")),
        (b"A text with a \0 in it, which is none.\n" * 3, "book_not_text"),
        (random.Random(1).randbytes(5000), "book_not_text"),
        (bytes(range(1, 32)) * 20, "book_not_text"),
        (b"\xff\xfeabc\x00\xd8", "book_not_text"),  # half of a surrogate pair in UTF-16
        (b"\xef\xbb\xbfcaf\xe9", "book_not_text"),
    ],
    ids=lambda value: repr(value[:10]),
)  # fmt: skip
def test_what_is_no_text_is_refused(raw: bytes, code: str) -> None:
    assert refusal_of(decode_text, raw).code == code


def test_stray_control_character_is_told_and_read_as_a_blank() -> None:
    warning = "1 control characters were read as blanks."
    assert decode_text(b"one\x01two") == ("one two", (warning,))


def test_a_few_strange_bytes_do_not_spoil_a_text_in_utf_8() -> None:
    raw = WESTERN.encode() + "Hélas!\n".encode("cp1252") + WESTERN.encode()
    for start in (b"", b"\xef\xbb\xbf"):
        text, warnings = decode_text(start + raw)
        assert text == f"{WESTERN}Hélas!\n{WESTERN}", start
        assert any("1 byte " in warning for warning in warnings), start


def test_a_charset_that_is_guessed_is_told() -> None:
    assert any("Windows-1252" in w for w in decode_text(WESTERN.encode("cp1252"))[1])
    assert decode_text(WESTERN.encode())[1] == ()
