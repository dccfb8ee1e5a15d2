"""What an EPUB says of itself: its documents and their order, contents, roles, metadata, cover."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from synth.books.book import Book, TocEntry
from synth.books.epub.reader import read_epub
from tests.synth.books.documents import METADATA, PROSE, TIME_MACHINE, Epub, page, tells
from tests.synth.books_text.blocks import assert_complete, refusal_of

TWO = {"a.xhtml": page("<p>First.</p>"), "b.xhtml": page("<p>Second.</p>")}
XHTML = "application/xhtml+xml"


def read(*pages: Any, **fields: Any) -> Book:
    """Return the book of an EPUB of two pages, or of these."""
    book = read_epub(Epub(*(pages or (TWO,)), **fields).bytes())
    assert_complete(book)
    return book


def names(book: Book) -> list[str]:
    return [document.path.removeprefix("OPS/") for document in book.documents]


def test_a_published_book_is_read_in_the_order_of_its_spine() -> None:
    book = read_epub(TIME_MACHINE.read_bytes())

    assert [Path(document.path).stem for document in book.documents] == [
        *("titlepage", "imprint"),
        *(f"chapter-{number}" for number in range(1, 13)),
        *("epilogue", "endnotes", "colophon", "uncopyright"),
    ]
    assert (book.metadata.title, book.metadata.authors) == ("The Time Machine", ("H. G. Wells",))
    assert book.metadata.language == "en-GB"
    assert (book.cover, book.warnings) == (None, ())  # it has a drawn one


@pytest.mark.parametrize(
    ("spine", "linear"),
    [("b.xhtml a.xhtml", [True, True]), ("a.xhtml b.xhtml!", [True, False])],
    ids=["reversed", "beside_the_order"],
)
def test_the_spine_decides_the_order_and_not_the_manifest(spine: str, linear: list[bool]) -> None:
    book = read(spine=spine.split())
    assert names(book) == spine.replace("!", "").split()
    assert [document.is_linear for document in book.documents] == linear


@pytest.mark.parametrize(
    ("pages", "fields", "read_pages", "warned_of"),
    [
        (TWO, {"spine": ["a.xhtml", "gone", "nowhere", "b.xhtml"], "manifest":
               f'<item id="gone" href="gone.xhtml" media-type="{XHTML}"/>'},
         "a.xhtml b.xhtml", ("gone.xhtml", "nowhere")),
        (TWO, {"spine": ["a.xhtml", "b.xhtml", "a.xhtml"]}, "a.xhtml b.xhtml", ("twice",)),
        (TWO, {"mimetype": b"application/zip"}, "a.xhtml b.xhtml", ("mimetype",)),
        ({**TWO, "c.xhtml": page('<img src="scan.png" alt=""/>')}, {}, "a.xhtml b.xhtml c.xhtml",
         ("c.xhtml",)),
    ],
    ids=["missing", "twice", "mimetype", "pictures"],
)  # fmt: skip
def test_what_is_odd_is_told_and_the_rest_is_read(
    pages: dict[str, str], fields: dict[str, Any], read_pages: str, warned_of: tuple[str, ...]
) -> None:
    book = read(pages, **fields)
    assert names(book) == read_pages.split()
    assert all(tells(book, word) for word in warned_of)


def test_broken_xhtml_is_read_as_html_and_told() -> None:
    book = read({"a.xhtml": "<html><body><p>One <b>two</p> three</body></html>"})
    assert " ".join(block.text for block in book.documents[0].blocks) == "One two three"
    assert tells(book, "a.xhtml")


def test_a_document_is_found_under_an_escaped_name() -> None:
    item = f'<item id="t" href="chap%20one.xhtml" media-type="{XHTML}"/>'
    files = {"OPS/chap one.xhtml": page("<p>Found.</p>").encode()}
    assert read({}, spine=["t"], manifest=item, files=files).documents[0].blocks[0].text == "Found."


NAV = page(
    '<nav epub:type="toc"><ol><li><span>Part One</span><ol>'
    '<li><a href="a.xhtml#one">One</a></li><li><a href="b.xhtml">Two</a></li>'
    "</ol></li></ol></nav>"
)
NCX = (
    '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>'
    "<navPoint><navLabel><text>One</text></navLabel><content src='a.xhtml'/>"
    "<navPoint><navLabel><text>In it</text></navLabel><content src='a.xhtml#x'/></navPoint>"
    "</navPoint></navMap></ncx>"
)


def test_contents_come_with_levels_and_anchors_from_navigation_or_ncx() -> None:
    assert read(nav=NAV).toc == (
        TocEntry("Part One", "OPS/a.xhtml", "one", 1),
        TocEntry("One", "OPS/a.xhtml", "one", 2),
        TocEntry("Two", "OPS/b.xhtml", "", 2),
    )
    assert read(ncx=NCX).toc == (
        TocEntry("One", "OPS/a.xhtml", "", 1),
        TocEntry("In it", "OPS/a.xhtml", "x", 2),
    )


def test_the_guide_and_landmarks_say_what_documents_are() -> None:
    guide = '<guide><reference type="copyright-page" href="a.xhtml"/></guide>'
    book = read(guide=guide, nav=[], landmarks=[("dedication", "b.xhtml")])
    assert [document.role for document in book.documents] == ["copyright-page", "dedication"]


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

    for metadata, subtitle in ((three, "Sub"), (two, "")):
        found = read(metadata=metadata).metadata
        assert (found.title, found.subtitle, found.language) == ("Main", subtitle, "en-US")
        assert (found.authors, found.series, found.series_index) == (("Ann",), "Saga", "2")


def test_the_target_of_a_mark_is_a_note_though_nothing_calls_it_so() -> None:
    pages = {
        "a.xhtml": page('<p id="r1">Word<sup><a href="b.xhtml#n1">1</a></sup></p>'),
        "b.xhtml": page('<h2>Notes</h2><p id="n1"><a href="a.xhtml#r1">[1]</a> It means.</p>'),
    }
    first, second = read(pages).documents
    assert first.blocks[0].note_marks == ("OPS/b.xhtml#n1",)
    assert [str(block.kind) for block in second.blocks] == ["heading", "note", "furniture"]
    assert str(first.blocks[0].kind) == "paragraph"  # the link back makes no note of it


def test_a_book_of_pictures_is_refused_with_a_reason() -> None:
    pages = {"a.xhtml": page('<img src="scan.png" alt=""/>')}
    assert refusal_of(read, pages).code == "book_without_text"


@pytest.mark.thorough
def test_two_thousand_documents_are_read() -> None:
    pages = {f"c{n}.xhtml": page(f"<h2>{n}</h2><p>{PROSE}</p>") for n in range(2000)}
    book = read(pages, nav=[(f"{n}", f"c{n}.xhtml") for n in range(2000)])
    assert len(book.documents) == len(book.toc) == 2000


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + bytes(9)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
JPEG = b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", 900, 600) + bytes(10)
COVER = ' properties="cover-image"'


def item(name: str, *, kind: str = "image/png", more: str = COVER) -> str:
    return f'<item id="{name}" href="{name}"{more} media-type="{kind}"/>'


@pytest.mark.parametrize(
    ("files", "fields", "cover"),
    [
        ({"c.png": PNG}, {"manifest": item("c.png")}, ("image/png", PNG)),
        ({"c.png": PNG}, {"manifest": item("c.png", more=""),
                          "metadata": f'{METADATA}<meta name="cover" content="c.png"/>'},
         ("image/png", PNG)),
        ({"i/c.png": PNG, "cover.xhtml": page('<svg><image xlink:href="i/c.png"/></svg>').encode()},
         {"guide": '<guide><reference type="cover" href="cover.xhtml"/></guide>'},
         ("image/png", PNG)),
        ({"c.svg": JPEG}, {"manifest": item("c.svg", kind="image/svg+xml")}, ("image/jpeg", JPEG)),
        ({"c.png": b"<svg/>"}, {"manifest": item("c.png")}, None),
        ({"c.svg": b"<svg/>"}, {"manifest": item("c.svg", kind="image/svg+xml")}, None),
        ({"c.svg": b"<?xml version='1.0'?>\n<svg/>"},
         {"manifest": item("c.svg", kind="image/svg+xml")}, None),
    ],
    ids=["property", "meta", "page_of_the_guide", "bytes_and_not_name", "drawing_as_png",
         "drawing", "drawing_as_xml"],
)  # fmt: skip
def test_a_cover_is_a_raster_image_whatever_it_is_called(
    files: dict[str, bytes], fields: dict[str, str], cover: tuple[str, bytes] | None
) -> None:
    book = read(files={f"OPS/{name}": raw for name, raw in files.items()}, **fields)
    found = book.cover and (book.cover.media_type, book.cover.content)
    assert (found, book.warnings) == (cover, ())


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
    book = read(manifest=item("c.png"), files={} if content is None else {"OPS/c.png": content})
    assert (book.cover, len(book.warnings)) == (None, 1)
    assert tells(book, sentence, "c.png")


def test_the_second_cover_is_used_where_the_first_cannot_be() -> None:
    files = {"OPS/a.png": png(30_000, 30_000), "OPS/b.png": png(600, 900)}
    book = read(manifest=item("a.png") + item("b.png"), files=files)
    assert book.cover is not None
    assert book.cover.content == png(600, 900)
