from __future__ import annotations

import struct
from pathlib import Path

import pytest

from synth.books.book import Book, TocEntry
from synth.books.epub.reader import read_epub
from tests.synth.books.documents import METADATA, PROSE, TIME_MACHINE, Epub, page
from tests.synth.books_text.blocks import refusal_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
TWO = {"a.xhtml": page("<p>First.</p>"), "b.xhtml": page("<p>Second.</p>")}


def read(epub: Epub) -> Book:
    book = read_epub(epub.bytes())
    for document in book.documents:
        assert sum(block.source_chars for block in document.blocks) == document.source_chars
    return book


def names(book: Book) -> list[str]:
    return [document.path.removeprefix("OPS/") for document in book.documents]


def test_a_published_book_is_read_in_the_order_of_its_spine() -> None:
    book = read_epub(TIME_MACHINE)

    stems = [Path(document.path).stem for document in book.documents]
    chapters = [f"chapter-{number}" for number in range(1, 13)]
    assert stems == [
        *("titlepage", "imprint"),
        *chapters,
        *("epilogue", "endnotes", "colophon", "uncopyright"),
    ]
    assert (book.metadata.title, book.metadata.authors) == ("The Time Machine", ("H. G. Wells",))
    assert book.metadata.language == "en-GB"
    assert book.cover is None  # it has a drawn one
    assert book.warnings == ()


def test_the_spine_decides_the_order_and_not_the_manifest() -> None:
    assert names(read(Epub(TWO, spine=["b.xhtml", "a.xhtml"]))) == ["b.xhtml", "a.xhtml"]


def test_a_missing_document_is_told_and_the_others_are_read() -> None:
    missing = '<item id="gone" href="gone.xhtml" media-type="application/xhtml+xml"/>'

    book = read(Epub(TWO, spine=["a.xhtml", "gone", "nowhere", "b.xhtml"], manifest=missing))

    assert names(book) == ["a.xhtml", "b.xhtml"]
    assert any("gone.xhtml" in warning for warning in book.warnings)
    assert any("nowhere" in warning for warning in book.warnings)


def test_a_document_that_is_in_the_spine_twice_is_read_once() -> None:
    book = read(Epub(TWO, spine=["a.xhtml", "b.xhtml", "a.xhtml"]))

    assert names(book) == ["a.xhtml", "b.xhtml"]
    assert any("twice" in warning for warning in book.warnings)


def test_documents_beside_the_order_of_reading_are_known_as_such() -> None:
    book = read(Epub(TWO, spine=["a.xhtml", "b.xhtml!"]))

    assert [document.is_linear for document in book.documents] == [True, False]


def test_a_document_is_found_under_an_escaped_name() -> None:
    item = '<item id="t" href="chap%20one.xhtml" media-type="application/xhtml+xml"/>'
    files = {"OPS/chap one.xhtml": page("<p>Found.</p>").encode()}

    book = read(Epub({}, spine=["t"], manifest=item, files=files))

    assert book.documents[0].blocks[0].text == "Found."


def test_contents_come_from_the_navigation_document_with_levels_and_anchors() -> None:
    nav = page(
        '<nav epub:type="toc"><ol><li><span>Part One</span><ol>'
        '<li><a href="a.xhtml#one">One</a></li><li><a href="b.xhtml">Two</a></li>'
        "</ol></li></ol></nav>"
    )

    book = read(Epub(TWO, nav=nav))

    assert book.toc == (
        TocEntry("Part One", "OPS/a.xhtml", "one", 1),
        TocEntry("One", "OPS/a.xhtml", "one", 2),
        TocEntry("Two", "OPS/b.xhtml", "", 2),
    )


def test_contents_of_epub_2_come_from_the_ncx() -> None:
    ncx = (
        '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>'
        "<navPoint><navLabel><text>One</text></navLabel><content src='a.xhtml'/>"
        "<navPoint><navLabel><text>In it</text></navLabel><content src='a.xhtml#x'/></navPoint>"
        "</navPoint></navMap></ncx>"
    )

    assert read(Epub(TWO, ncx=ncx)).toc == (
        TocEntry("One", "OPS/a.xhtml", "", 1),
        TocEntry("In it", "OPS/a.xhtml", "x", 2),
    )


def test_the_guide_and_landmarks_say_what_documents_are() -> None:
    guide = '<guide><reference type="copyright-page" href="a.xhtml"/></guide>'

    book = read(Epub(TWO, guide=guide, nav=[], landmarks=[("dedication", "b.xhtml")]))

    assert [document.role for document in book.documents] == ["copyright-page", "dedication"]


@pytest.mark.parametrize(
    ("manifest", "metadata"),
    [
        ('<item id="c" href="c.png" properties="cover-image" media-type="image/png"/>', ""),
        ('<item id="c" href="c.png" media-type="image/png"/>', '<meta name="cover" content="c"/>'),
    ],
)
def test_a_raster_cover_is_found(manifest: str, metadata: str) -> None:
    files = {"OPS/c.png": PNG}

    book = read(Epub(TWO, manifest=manifest, metadata=METADATA + metadata, files=files))

    assert book.cover is not None
    assert (book.cover.media_type, book.cover.content) == ("image/png", PNG)


def test_a_cover_on_the_cover_page_of_the_guide_is_found() -> None:
    pages = {**TWO, "cover.xhtml": page('<svg><image xlink:href="i/c.png"/></svg>')}
    guide = '<guide><reference type="cover" href="cover.xhtml"/></guide>'

    book = read(Epub(pages, guide=guide, files={"OPS/i/c.png": PNG}))

    assert book.cover is not None


def test_a_drawing_is_no_cover() -> None:
    manifest = '<item id="c" href="c.png" properties="cover-image" media-type="image/png"/>'

    assert read(Epub(TWO, manifest=manifest, files={"OPS/c.png": b"<svg/>"})).cover is None


def test_metadata_of_both_editions_of_the_format_are_read() -> None:
    three = (
        '<dc:title id="t">Main</dc:title><meta refines="#t" property="title-type">main</meta>'
        '<dc:title id="s">Sub</dc:title><meta refines="#s" property="title-type">subtitle</meta>'
        '<dc:creator id="a">Ann</dc:creator><meta refines="#a" property="role">aut</meta>'
        '<dc:creator id="i">Ian</dc:creator><meta refines="#i" property="role">ill</meta>'
        '<meta id="c" property="belongs-to-collection">Saga</meta>'
        '<meta refines="#c" property="collection-type">series</meta>'
        '<meta refines="#c" property="group-position">2</meta><dc:language>en_US</dc:language>'
    )
    two = (
        '<dc:title>Main</dc:title><dc:creator opf:role="aut">Ann</dc:creator>'
        '<dc:creator opf:role="trl">Tom</dc:creator><dc:language>en-US</dc:language>'
        '<meta name="calibre:series" content="Saga"/>'
        '<meta name="calibre:series_index" content="2"/>'
    )

    newer, older = read(Epub(TWO, metadata=three)).metadata, read(Epub(TWO, metadata=two)).metadata

    assert (newer.title, newer.subtitle) == ("Main", "Sub")
    for found in (newer, older):
        assert (found.authors, found.series, found.series_index) == (("Ann",), "Saga", "2")
        assert found.language == "en-US"


def test_the_target_of_a_mark_is_a_note_though_nothing_calls_it_so() -> None:
    pages = {
        "a.xhtml": page('<p id="r1">Word<sup><a href="b.xhtml#n1">1</a></sup></p>'),
        "b.xhtml": page('<h2>Notes</h2><p id="n1"><a href="a.xhtml#r1">[1]</a> It means.</p>'),
    }

    first, second = read(Epub(pages)).documents

    assert first.blocks[0].note_marks == ("OPS/b.xhtml#n1",)
    assert [str(block.kind) for block in second.blocks] == ["heading", "note", "furniture"]
    assert str(first.blocks[0].kind) == "paragraph"  # the link back makes no note of it


def test_a_page_that_has_only_pictures_is_told() -> None:
    pages = {**TWO, "c.xhtml": page('<img src="scan.png" alt=""/>')}

    assert any("c.xhtml" in warning for warning in read(Epub(pages)).warnings)


def test_a_wrong_mimetype_is_told_and_the_book_is_read() -> None:
    book = read(Epub(TWO, mimetype=b"application/zip"))

    assert any("mimetype" in warning for warning in book.warnings)


def test_broken_xhtml_is_read_as_html_and_told() -> None:
    book = read(Epub({"a.xhtml": "<html><body><p>One <b>two</p> three</body></html>"}))

    assert " ".join(block.text for block in book.documents[0].blocks) == "One two three"
    assert any("a.xhtml" in warning for warning in book.warnings)


def test_a_book_of_pictures_is_refused_with_a_reason() -> None:
    epub = Epub({"a.xhtml": page('<img src="scan.png" alt=""/>')})

    assert refusal_of(read, epub).code == "book_without_text"


def test_two_thousand_documents_are_read() -> None:
    pages = {f"c{n}.xhtml": page(f"<h2>{n}</h2><p>{PROSE}</p>") for n in range(2000)}

    book = read(Epub(pages, nav=[(f"{n}", f"c{n}.xhtml") for n in range(2000)]))

    assert len(book.documents) == len(book.toc) == 2000


PAGES = {"a.xhtml": page("<p>Text.</p>")}
JPEG = b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", 900, 600) + bytes(10)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + bytes(9)


def with_cover(content: bytes | None, *, name: str = "c.png", kind: str = "image/png") -> Book:
    manifest = f'<item id="c" href="{name}" properties="cover-image" media-type="{kind}"/>'
    files = {} if content is None else {f"OPS/{name}": content}
    return read_epub(Epub(PAGES, manifest=manifest, files=files).bytes())


def test_a_cover_is_what_its_bytes_are_whatever_it_is_called() -> None:
    book = with_cover(JPEG, name="c.svg", kind="image/svg+xml")

    assert book.cover is not None
    assert book.cover.media_type == "image/jpeg"
    assert book.warnings == ()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (png(30_000, 30_000), "30000 x 30000"),
        (b"BM" + bytes(60), "known picture format"),
        (None, "not in the book"),
    ],
    ids=["huge", "unknown", "missing"],
)
def test_a_cover_that_cannot_be_shown_is_told(content: bytes | None, sentence: str) -> None:
    book = with_cover(content)

    assert book.cover is None
    assert len(book.warnings) == 1
    assert sentence in book.warnings[0]
    assert "c.png" in book.warnings[0]


@pytest.mark.parametrize("drawing", [b"<svg/>", b"<?xml version='1.0'?>\n<svg/>"])
def test_a_drawn_cover_is_none_and_nothing_is_wrong(drawing: bytes) -> None:
    book = with_cover(drawing, name="c.svg", kind="image/svg+xml")

    assert (book.cover, book.warnings) == (None, ())


def test_the_second_cover_is_used_where_the_first_cannot_be() -> None:
    manifest = (
        '<item id="a" href="a.png" properties="cover-image" media-type="image/png"/>'
        '<item id="b" href="b.png" properties="cover-image" media-type="image/png"/>'
    )
    files = {"OPS/a.png": png(30_000, 30_000), "OPS/b.png": png(600, 900)}

    book = read_epub(Epub(PAGES, manifest=manifest, files=files).bytes())

    assert book.cover is not None
    assert book.cover.content == png(600, 900)
