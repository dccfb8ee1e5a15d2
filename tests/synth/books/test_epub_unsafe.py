from __future__ import annotations

import io
import random
import struct
import zipfile

import pytest

from synth.books.book import BookRejectedError
from synth.books.epub import archive
from synth.books.epub.archive import LIMITS
from synth.books.epub.reader import read_epub
from synth.books.plan import plan_book
from tests.synth.books.documents import Epub, page

ONE = {"a.xhtml": page("<p>Text.</p>")}
FONT = "http://www.idpf.org/2008/embedding"
LOCK = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"


def refused(content: bytes) -> BookRejectedError:
    with pytest.raises(BookRejectedError) as caught:
        read_epub(content)
    return caught.value


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
        {"META-INF/encryption.xml": encryption(LOCK)},
        {"META-INF/encryption.xml": encryption(FONT, LOCK)},
        {"META-INF/encryption.xml": b"<encryption><EncryptedData/></encryption>"},
        {"META-INF/encryption.xml": locked("OPS/a.xhtml", "http://itunes.apple.com/dataenc")},
        {"META-INF/encryption.xml": encryption(LOCK), "META-INF/license.lcpl": b"{}"},
        {"META-INF/rights.xml": b"<rights/>", "OPS/b.xhtml": bytes(range(200, 256)) * 20},
        {"META-INF/sinf.xml": b"<sinf/>", "OPS/b.xhtml": bytes(range(256)) * 20},
    ],
    ids=["adobe", "fonts_too", "unnamed", "apple", "readium", "rights", "sinf"],
)
def test_a_book_with_drm_is_refused_with_that_word(files: dict[str, bytes]) -> None:
    error = refused(Epub(ONE, files=files).bytes())

    assert error.code == "book_drm"
    assert "DRM" in error.message


@pytest.mark.parametrize(
    "files",
    [
        {"META-INF/encryption.xml": encryption(FONT)},
        {"META-INF/encryption.xml": encryption("http://ns.adobe.com/pdf/enc#RC")},
        {"META-INF/encryption.xml": locked("OPS/fonts/A%20b.otf", "http://shop.org/own")},
        {"META-INF/encryption.xml": b"<encryption/>", "META-INF/rights.xml": b"<rights/>"},
        {"META-INF/rights.xml": b"<rights/>"},
    ],
    ids=["idpf", "adobe", "own", "nothing", "rights"],
)
def test_what_keeps_nobody_from_the_text_is_no_drm(files: dict[str, bytes]) -> None:
    assert read_epub(Epub(ONE, files=files).bytes()).source_chars == 5


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive" * 100, b"PK\3\4" + bytes(100)])
def test_what_is_no_archive_is_no_epub(content: bytes) -> None:
    assert refused(content).code == "book_not_epub"


def test_an_archive_of_something_else_is_no_epub() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("a.txt", "hello")

    assert refused(stream.getvalue()).code == "book_not_epub"


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_a_file_that_is_cut_short_is_no_epub(cut: float) -> None:
    content = Epub(ONE).bytes()

    assert refused(content[: int(len(content) * cut)]).code == "book_not_epub"


def test_a_package_that_is_no_xml_is_refused() -> None:
    content = Epub(ONE, metadata="<dc:title>").bytes()

    assert refused(content).code == "book_package_broken"


def test_a_bomb_is_refused() -> None:
    bomb = page("<p>" + "a" * (LIMITS.ratio_from_bytes + 2_000_000) + "</p>")

    assert refused(Epub({"a.xhtml": bomb}).bytes()).code == "book_archive_too_large"


def test_a_text_that_repeats_itself_is_no_bomb() -> None:
    assert read_epub(Epub({"a.xhtml": page("word " * 300_000)}).bytes()).source_chars == 1_200_000


def test_a_document_that_is_too_large_is_left_out_and_told() -> None:
    pages = {**ONE, "b.xhtml": page("".join(f"{n} " for n in range(2_500_000)))}

    book = read_epub(Epub(pages).bytes())

    assert [document.path for document in book.documents] == ["OPS/a.xhtml"]
    assert any("16 MiB" in warning for warning in book.warnings)


def test_all_documents_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 100_000)
    pages = {f"{n}.xhtml": page(f"<p>{'word ' * 2000}</p>") for n in range(20)}

    assert refused(Epub(pages).bytes()).code == "book_archive_too_large"


def test_too_many_files_are_refused() -> None:
    files = {f"f{number}": b"" for number in range(archive.MAX_ENTRIES + 1)}

    assert refused(Epub(ONE, files=files).bytes()).code == "book_archive_too_large"


def test_a_list_of_files_that_claims_to_be_long_is_refused_unread() -> None:
    content = bytearray(Epub(ONE).bytes())
    end = content.rindex(b"PK\5\6")
    struct.pack_into("<L", content, end + 12, archive.MAX_DIRECTORY_BYTES + 1)

    assert refused(bytes(content)).code == "book_archive_too_large"


def with_entry(name: str, change: dict[int, tuple[str, int]]) -> bytes:
    """Return an EPUB with fields of an entry of its directory changed: (format, value) by place."""
    content = bytearray(Epub(ONE).bytes())
    place = content.rindex(b"PK\1\2", 0, content.rindex(name.encode()))
    for offset, (kind, value) in change.items():
        struct.pack_into(kind, content, place + offset, value)
    return bytes(content)


def test_files_that_overlap_are_refused() -> None:
    assert refused(with_entry("OPS/a.xhtml", {42: ("<L", 0)})).code == "book_archive_unsafe"


def test_a_size_that_is_too_small_loses_the_file_and_no_part_of_it() -> None:
    error = refused(with_entry("OPS/a.xhtml", {24: ("<L", 3)}))

    assert error.code == "book_without_text"
    assert "a.xhtml" in error.message


def test_a_size_that_no_text_has_is_refused_unread() -> None:
    error = refused(with_entry("OPS/a.xhtml", {24: ("<L", 4_000_000_000)}))

    assert error.code == "book_archive_too_large"


def test_a_size_that_is_a_little_too_large_loses_nothing() -> None:
    assert read_epub(with_entry("OPS/a.xhtml", {24: ("<L", 2_000_000)})).source_chars == 5


def test_files_behind_a_password_are_refused() -> None:
    assert refused(with_entry("OPS/a.xhtml", {8: ("<H", 1)})).code == "book_encrypted"


def test_a_way_of_packing_that_nobody_knows_loses_one_file() -> None:
    assert refused(with_entry("OPS/a.xhtml", {10: ("<H", 77)})).code == "book_without_text"


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
    assert any("twice" in warning for warning in book.warnings)


def test_an_archive_in_the_archive_is_not_opened() -> None:
    inner = Epub(ONE).bytes()

    assert read_epub(Epub(ONE, files={"OPS/inner.epub": inner}).bytes()).source_chars == 5


@pytest.mark.parametrize("name", ["OPS/book.opf", "META-INF/container.xml"])
def test_entities_in_the_package_are_not_expanded(name: str) -> None:
    declared = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "boom"}">' for n in range(12))
    content = f"<?xml version='1.0'?><!DOCTYPE x [{declared}]><x>&e11;</x>".encode()
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(stream, "w") as made,
        zipfile.ZipFile(io.BytesIO(Epub(ONE).bytes())) as old,
    ):
        for entry in old.namelist():
            made.writestr(entry, content if entry == name else old.read(entry))

    try:
        book = read_epub(stream.getvalue())
    except BookRejectedError as error:
        assert error.code == "book_without_text"
    else:
        assert book.source_chars == 5


SPOILERS = [b"<", b">", b"&", b'"', b"\0", b"<p>", b"</p>", b"<![CDATA[", b"<!--", b"&#xd800;"]
SPOILERS += [b"\xff", b"<!DOCTYPE [", b":", b"<ht:>", b"</body>", b"<title>", b"<script>", b"]]>"]


def spoilt(content: bytes, source: random.Random) -> bytes:
    """Return bytes with some changed, taken out or put in."""
    spoilt = bytearray(content)
    for _ in range(source.choice([1, 3, 10, 40])):
        place = source.randrange(len(spoilt)) if spoilt else 0
        match source.randrange(3):
            case 0:
                spoilt[place : place + 1] = bytes([source.randrange(256)])
            case 1:
                del spoilt[place : place + source.randrange(1, 30)]
            case _:
                spoilt[place:place] = source.choice(SPOILERS)
    return bytes(spoilt)


@pytest.mark.parametrize("seed", range(40))
def test_spoilt_files_are_planned_whole_or_refused_with_a_code(seed: int) -> None:
    source = random.Random(seed)
    pages = {
        f"{n}.xhtml": page(f'<h2 id="h">{n}</h2><p>One<a epub:type="noteref" href="#h">1</a></p>')
        for n in range(3)
    }
    epub = Epub(pages, nav=[("One", "0.xhtml"), ("Two", "1.xhtml#h")])
    with zipfile.ZipFile(io.BytesIO(epub.bytes())) as good:
        files = {name: good.read(name) for name in good.namelist()}
    for name in [name for name in files if name != "mimetype"]:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as made:
            for other, content in files.items():
                made.writestr(other, spoilt(content, source) if other == name else content)
        for content in (stream.getvalue(), spoilt(stream.getvalue(), source)):
            try:
                plan_book(read_epub(content))  # it checks that no character is lost
            except BookRejectedError as error:
                assert error.code.startswith("book_")
