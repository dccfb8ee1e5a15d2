"""Contents lead to the chapters that they mean, in whatever way a maker wrote them."""

from __future__ import annotations

import io
import unicodedata
import zipfile
from collections.abc import Callable

import pytest

from synth.books.detect import read_book
from synth.books.epub.reader import read_epub
from synth.books.plan import plan_book
from synth.books.rules import SkipReason
from tests.synth.books.documents import LONG, PROSE, Epub, page, plan_of, titles

TWO = {"a.xhtml": page(f"<p>{PROSE}</p>{LONG}"), "b.xhtml": page(LONG)}
ONE = {"a.xhtml": page("".join(f"<h2>Chapter {n}</h2>{LONG}" for n in (1, 2, 3, 4)))}
XHTML = "application/xhtml+xml"


def ncx(*links: str) -> str:
    points = "".join(
        f"<navPoint><navLabel><text>N {link}</text></navLabel><content src='{link}'/></navPoint>"
        for link in links
    )
    return f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.xhtml", "b.xhtml"),
        ("A.XHTML", "B.xhtml"),
        ("/OPS/a.xhtml", "../OPS/./b.xhtml"),
        ("%61.xhtml", "b%2Exhtml#"),
        ("a.xhtml?x=1", " b.xhtml "),
    ],
    ids=["plain", "case", "absolute", "escaped", "query"],
)
def test_links_find_documents_however_they_are_written(first: str, second: str) -> None:
    assert titles(plan_of(Epub(TWO, nav=[("One", first), ("Two", second)]))) == ["One", "Two"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("in_manifest", ["NFC", "NFD"])
@pytest.mark.parametrize("in_contents", ["NFC", "NFD"])
def test_accents_of_names_may_be_composed_or_not(
    form: str, in_manifest: str, in_contents: str
) -> None:
    def name(written: str) -> str:
        return unicodedata.normalize("NFC" if written == "NFC" else "NFD", "étude.xhtml")

    item = f'<item id="t" href="{name(in_manifest)}" media-type="{XHTML}"/>'
    files = {f"OPS/{name(form)}": TWO["a.xhtml"].encode()}
    epub = Epub(
        {"b.xhtml": TWO["b.xhtml"]},
        spine=["t", "b.xhtml"],
        manifest=item,
        files=files,
        nav=[("One", name(in_contents)), ("Two", "b.xhtml")],
    )

    assert titles(plan_of(epub)) == ["One", "Two"]


def test_notes_are_found_under_another_writing_of_their_file() -> None:
    pages = {
        "a.xhtml": page(f'<p>Word<a href="Notes.xhtml#n1"><sup>1</sup></a></p>{LONG}'),
        "notes.xhtml": page('<p id="n1">1 It means.</p>'),
    }

    book = read_epub(Epub(pages).bytes())

    assert str(book.documents[1].blocks[0].kind) == "note"
    assert book.warnings == ()


def test_contents_in_another_order_than_the_book_do_not_reorder_it() -> None:
    assert titles(plan_of(Epub(TWO, nav=[("Two", "b.xhtml"), ("One", "a.xhtml")]))) == [
        "One",
        "Two",
    ]


def test_entries_whose_anchors_are_gone_are_found_by_their_titles() -> None:
    gone = [(f"chapter {n}.", f"a.xhtml#gone{n}") for n in (1, 2, 3, 4)]

    plan = plan_of(Epub({**ONE, "b.xhtml": TWO["b.xhtml"]}, nav=[*gone, ("End", "b.xhtml")]))

    assert [c.source_chars for c in plan.included[:4]] == [plan.included[0].source_chars] * 4
    assert [c.title.lower().rstrip(".") for c in plan.included] == [
        *("chapter 1", "chapter 2", "chapter 3", "chapter 4"),
        "end",
    ]
    assert any("4 entries" in warning for warning in plan.warnings)


def test_a_title_that_stands_twice_is_found_behind_the_entry_before_it() -> None:
    again = f"<h3>Notes on it</h3>{LONG}"
    inner = f'<h2 id="a">First</h2>{again}<h2 id="b">Last</h2>{again}'
    nav = [("First", "a.xhtml#a"), ("Last", "a.xhtml#b"), ("Notes on it", "a.xhtml#gone")]

    book = read_epub(Epub({"a.xhtml": page(inner)}, nav=nav).bytes())

    anchors = [block.anchors for block in book.documents[0].blocks if block.text == "Notes on it"]
    assert [bool(found) for found in anchors] == [False, True]


def test_entries_that_lead_to_files_that_are_not_there_are_told() -> None:
    plan = plan_of(Epub(TWO, nav=[("One", "a.xhtml"), ("Gone", "x.xhtml"), ("Two", "b.xhtml")]))

    assert titles(plan) == ["One", "Two"]
    assert any("x.xhtml" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("nav", "expected"),
    [
        ([("One", "a.xhtml"), ("Two", "b.xhtml")], ["One", "Two"]),
        ([("Start", "a.xhtml")], ["N a.xhtml", "N b.xhtml"]),
        ([("One", "x.xhtml"), ("Two", "y.xhtml")], ["N a.xhtml", "N b.xhtml"]),
        ([], ["N a.xhtml", "N b.xhtml"]),
        (None, ["N a.xhtml", "N b.xhtml"]),
    ],
    ids=["both", "one_entry", "leads_nowhere", "empty", "none"],
)
def test_of_two_contents_lists_the_newer_is_used_if_it_is_one(
    nav: list[tuple[str, str]] | None, expected: list[str]
) -> None:
    assert titles(plan_of(Epub(TWO, nav=nav, ncx=ncx("a.xhtml", "b.xhtml")))) == expected


def test_a_book_whose_pages_are_all_out_of_order_is_read_in_its_order() -> None:
    plan = plan_of(Epub(TWO, spine=["a.xhtml!", "b.xhtml!"]))

    assert len(plan.included) == 2
    assert any("outside the reading order" in warning for warning in plan.warnings)


@pytest.mark.parametrize("kind", ["toc", "cover", "title-page", "copyright-page", "index"])
def test_a_whole_book_is_not_left_out_because_its_guide_gives_it_a_role(kind: str) -> None:
    guide = f'<guide><reference type="{kind}" href="a.xhtml"/></guide>'

    plan = plan_of(Epub(ONE, guide=guide))

    assert len(plan.included) == 4
    assert any("treated as text" in warning for warning in plan.warnings)


def test_a_page_of_nothing_but_links_is_a_contents_list() -> None:
    links = "".join(f'<p><a href="a.xhtml#x{n}">The {n}. story</a></p>' for n in range(9))

    plan = plan_of(Epub({"l.xhtml": page(links), **TWO}))

    assert [chapter.reason for chapter in plan.chapters] == [SkipReason.CONTENTS, None, None]


def test_a_page_with_some_links_is_text() -> None:
    text = f'<p>{PROSE}<a href="b.xhtml">See there</a></p>' * 9

    assert len(plan_of(Epub({"l.xhtml": page(text), **TWO})).included) == 3


def repacked(content: bytes, change: Callable[[str, bytes], tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as made:
        for name in old.namelist():
            other, raw = change(name, old.read(name))
            entry = zipfile.ZipInfo(other)
            entry.filename = other  # as it is: the constructor cuts names at NULs
            made.writestr(entry, raw)
    return stream.getvalue()


def test_folders_that_backslashes_part_are_folders() -> None:
    content = repacked(Epub(TWO).bytes(), lambda name, raw: (name.replace("/", "\\"), raw))

    assert len(read_book(content, "x.epub").documents) == 2


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_a_package_in_another_charset_is_read(charset: str) -> None:
    def change(name: str, raw: bytes) -> tuple[str, bytes]:
        is_package = name.endswith((".opf", ".xml", "nav.xhtml"))
        return name, raw.decode().encode(charset) if is_package else raw

    book = read_epub(repacked(Epub(TWO, nav=[("Ün", "a.xhtml")]).bytes(), change))

    assert (book.metadata.title, book.toc[0].title) == ("A Book", "Ün")
    assert len(book.documents) == 2


def test_a_chapter_that_is_damaged_is_told_and_the_others_are_read() -> None:
    content = bytearray(Epub({**TWO, "c.xhtml": page("<p>Last.</p>")}).bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        place = archive.getinfo("OPS/b.xhtml").header_offset + 45
    content[place : place + 20] = bytes(20)

    plan = plan_book(read_epub(bytes(content)))

    assert {block.path for c in plan.chapters for block in c.blocks} == {
        "OPS/a.xhtml",
        "OPS/c.xhtml",
    }
    assert any("'OPS/b.xhtml'" in warning and "damaged" in warning for warning in plan.warnings)


def test_a_sign_of_rights_in_a_story_does_not_leave_it_out() -> None:
    pages = {"a.xhtml": page(f"<h1>The Firm</h1><p>The sign said © 1920.</p><p>{PROSE * 9}</p>")}

    assert titles(plan_of(Epub(pages))) == ["The Firm"]


@pytest.mark.parametrize(
    "rights",
    [
        "<p>© 2012 by Ann Author</p>",
        f"<p>Copyright © 2012</p><p>All rights reserved.</p><p>{PROSE * 9}</p><p>ISBN 12345</p>",
    ],
    ids=["short", "long"],
)
def test_a_page_of_rights_is_known_by_its_signs(rights: str) -> None:
    plan = plan_of(Epub({"r.xhtml": page(rights), **TWO}))

    assert plan.chapters[0].reason is SkipReason.LICENCE
