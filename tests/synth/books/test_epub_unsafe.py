"""Files behind DRM, damaged, hostile or too large are refused, and never half read unnoticed."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from functools import partial

import pytest

from synth.books.book import BookRejectedError
from synth.books.epub import package
from synth.books.epub.package import LIMITS
from synth.books.epub.reader import read_epub
from tests.synth.books.documents import Epub, page, tells, with_file
from tests.synth.books_text.blocks import refusal_of

ONE = {"a.xhtml": page("<p>Text.</p>")}
FONT = "http://www.idpf.org/2008/embedding"
LOCK = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"


def encryption(*algorithms: str) -> bytes:
    data = "".join(
        f'<enc:EncryptedData><enc:EncryptionMethod Algorithm="{one}"/></enc:EncryptedData>'
        for one in algorithms
    )
    return f'<encryption xmlns:enc="http://www.w3.org/2001/04/xmlenc#">{data}</encryption>'.encode()


def locked(uri: str, algorithm: str) -> bytes:
    reference = f'<CipherData><CipherReference URI="{uri}"/></CipherData>'
    return (
        f'<encryption><EncryptedData><EncryptionMethod Algorithm="{algorithm}"/>{reference}'
        "</EncryptedData></encryption>"
    ).encode()


@pytest.mark.parametrize(
    "files",
    [
        {"encryption.xml": encryption(LOCK)},
        {"encryption.xml": encryption(FONT, LOCK)},
        {"encryption.xml": b"<encryption><EncryptedData/></encryption>"},
        {"encryption.xml": locked("OPS/a.xhtml", "http://itunes.apple.com/dataenc")},
        {"encryption.xml": encryption(LOCK), "license.lcpl": b"{}"},
        {"rights.xml": b"<rights/>", "../OPS/b.xhtml": bytes(range(200, 256)) * 20},
        {"sinf.xml": b"<sinf/>", "../OPS/b.xhtml": bytes(range(256)) * 20},
    ],
    ids=["adobe", "fonts_too", "unnamed", "apple", "readium", "rights", "sinf"],
)
def test_a_book_with_drm_is_refused_with_that_word(files: dict[str, bytes]) -> None:
    error = refusal_of(read_epub, with_meta(files))
    assert (error.code, "DRM" in error.message) == ("book_drm", True)


def with_meta(files: dict[str, bytes]) -> bytes:
    """Return an EPUB with these files in META-INF, or beside it."""
    return Epub(
        ONE,
        files={f"META-INF/{name}".replace("META-INF/../", ""): raw for name, raw in files.items()},
    ).bytes()


@pytest.mark.parametrize(
    "files",
    [
        {"encryption.xml": encryption(FONT)},
        {"encryption.xml": encryption("http://ns.adobe.com/pdf/enc#RC")},
        {"encryption.xml": locked("OPS/fonts/A%20b.otf", "http://shop.org/own")},
        {"encryption.xml": b"<encryption/>", "rights.xml": b"<rights/>"},
        {"rights.xml": b"<rights/>"},
        {"../OPS/inner.epub": Epub(ONE).bytes()},
    ],
    ids=["idpf", "adobe", "own", "nothing", "rights", "archive_in_the_archive"],
)
def test_what_keeps_nobody_from_the_text_is_no_drm(files: dict[str, bytes]) -> None:
    assert read_epub(with_meta(files)).source_chars == 5


def packed(name: str, content: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr(name, content)
    return stream.getvalue()


def with_entry(change: dict[int, tuple[str, int]]) -> bytes:
    """Return an EPUB with fields of its document's directory entry changed: (format, value)."""
    content = bytearray(Epub(ONE).bytes())
    place = content.rindex(b"PK\1\2", 0, content.rindex(b"OPS/a.xhtml"))
    for offset, (kind, value) in change.items():
        struct.pack_into(kind, content, place + offset, value)
    return bytes(content)


def with_list_bytes(size: int) -> bytes:
    content = bytearray(Epub(ONE).bytes())
    struct.pack_into("<L", content, content.rindex(b"PK\5\6") + 12, size)
    return bytes(content)


def cut(share: float) -> bytes:
    content = Epub(ONE).bytes()
    return content[: int(len(content) * share)]


BOMB = LIMITS.ratio_from_bytes + 2_000_000
MANY = LIMITS.entries + 1
BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    **{f"cut_{share}": (partial(cut, share), "book_not_epub") for share in (0.3, 0.9, 0.999)},
    "empty": (lambda: b"", "book_not_epub"),
    "start": (lambda: b"PK", "book_not_epub"),
    "text": (lambda: b"no archive" * 100, "book_not_epub"),
    "zeros": (lambda: b"PK\3\4" + bytes(100), "book_not_epub"),
    "other": (lambda: packed("a.txt", "hello"), "book_not_epub"),
    "package": (lambda: Epub(ONE, metadata="<dc:title>").bytes(), "book_package_broken"),
    "bomb": (lambda: Epub({"a.xhtml": page("a" * BOMB)}).bytes(), "book_archive_too_large"),
    "files": (
        lambda: Epub(ONE, files={f"f{n}": b"" for n in range(MANY)}).bytes(),
        "book_archive_too_large",
    ),
    "list": (lambda: with_list_bytes(LIMITS.directory_bytes + 1), "book_archive_too_large"),
    "overlap": (lambda: with_entry({42: ("<L", 0)}), "book_archive_unsafe"),
    "password": (lambda: with_entry({8: ("<H", 1)}), "book_encrypted"),
    "size": (lambda: with_entry({24: ("<L", 4_000_000_000)}), "book_archive_too_large"),
    "small_size": (lambda: with_entry({24: ("<L", 3)}), "book_without_text"),
    "packing": (lambda: with_entry({10: ("<H", 77)}), "book_without_text"),  # nobody knows it
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_whole_epub_is_refused(name: str) -> None:
    make, code = BROKEN[name]
    error = refusal_of(read_epub, make())
    assert error.code == code
    assert name != "small_size" or "a.xhtml" in error.message


def test_what_only_looks_dangerous_is_read() -> None:
    repeated = Epub({"a.xhtml": page("word " * 300_000)}).bytes()  # no bomb
    assert read_epub(repeated).source_chars == 1_200_000
    assert read_epub(with_entry({24: ("<L", 2_000_000)})).source_chars == 5  # a size too large


def test_a_document_that_is_too_large_is_left_out_and_told() -> None:
    pages = {**ONE, "b.xhtml": page(random.Random(1).randbytes(8_500_000).hex())}
    book = read_epub(Epub(pages).bytes())
    assert [document.path for document in book.documents] == ["OPS/a.xhtml"]
    assert tells(book, "16 MiB")


def test_all_documents_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_TOTAL_BYTES", 100_000)
    pages = {f"{n}.xhtml": page(f"<p>{'word ' * 2000}</p>") for n in range(20)}
    assert refusal_of(read_epub, Epub(pages).bytes()).code == "book_archive_too_large"


def test_names_that_lead_out_of_the_book_are_told_and_not_read() -> None:
    manifest = '<item id="x" href="../../etc/passwd" media-type="application/xhtml+xml"/>'
    files = {"../../etc/passwd": b"<html><body>root</body></html>", "/abs": b"", "c:\\x": b""}
    book = read_epub(Epub(ONE, spine=["a.xhtml", "x"], manifest=manifest, files=files).bytes())
    assert [document.path for document in book.documents] == ["OPS/a.xhtml"]
    assert sum("points outside" in warning for warning in book.warnings) >= 2


def test_a_name_that_is_there_twice_is_told() -> None:
    stream = io.BytesIO(Epub(ONE).bytes())
    with zipfile.ZipFile(stream, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("OPS/a.xhtml", page("<p>Another text.</p>"))
    book = read_epub(stream.getvalue())
    assert book.documents[0].blocks[0].text == "Text."
    assert tells(book, "twice")


@pytest.mark.parametrize("name", ["OPS/book.opf", "META-INF/container.xml"])
def test_entities_in_the_package_are_not_expanded(name: str) -> None:
    declared = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "boom"}">' for n in range(12))
    content = f"<?xml version='1.0'?><!DOCTYPE x [{declared}]><x>&e11;</x>".encode()
    try:
        book = read_epub(with_file(Epub(ONE).bytes(), name, content))
    except BookRejectedError as error:
        assert error.code == "book_without_text"
    else:
        assert book.source_chars == 5
