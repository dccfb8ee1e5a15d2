"""Contents lead to the chapters that they mean, in whatever way a maker wrote them."""

from __future__ import annotations

import io
import unicodedata
import zipfile
from typing import Any

import pytest

from synth.books.detect import read_book
from synth.books.epub.reader import read_epub
from synth.books.plan import plan_book
from synth.books.rules import SkipReason
from tests.synth.books.documents import (
    LONG,
    PROSE,
    Epub,
    ncx,
    page,
    plan_of,
    repacked,
    tells,
    titles,
)

TWO = {"a.xhtml": page(f"<p>{PROSE}</p>{LONG}"), "b.xhtml": page(LONG)}
ONE = {"a.xhtml": page("".join(f"<h2>Chapter {n}</h2>{LONG}" for n in (1, 2, 3, 4)))}
XHTML = "application/xhtml+xml"


def contents(*links: str) -> list[tuple[str, str]]:
    return list(zip(("One", "Two", "Three"), links, strict=False))


@pytest.mark.parametrize(
    "links",
    [
        ("a.xhtml", "b.xhtml"),
        ("A.XHTML", "B.xhtml"),
        ("/OPS/a.xhtml", "../OPS/./b.xhtml"),
        ("%61.xhtml", "b%2Exhtml#"),
        ("a.xhtml?x=1", " b.xhtml "),
        ("a.xhtml", "x.xhtml", "b.xhtml"),
    ],
    ids=["plain", "case", "absolute", "escaped", "query", "gone"],
)
def test_links_find_documents_however_they_are_written(links: tuple[str, ...]) -> None:
    plan = plan_of(Epub(TWO, nav=contents(*links)))
    assert titles(plan) == ["One", "Two" if "x.xhtml" not in links else "Three"]
    assert tells(plan, "x.xhtml") == ("x.xhtml" in links)


def test_contents_in_another_order_than_the_book_do_not_reorder_it() -> None:
    nav = [("Two", "b.xhtml"), ("One", "a.xhtml")]
    assert titles(plan_of(Epub(TWO, nav=nav))) == ["One", "Two"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("in_manifest", ["NFC", "NFD"])
@pytest.mark.parametrize("in_contents", ["NFC", "NFD"])
def test_accents_of_names_may_be_composed_or_not(
    form: Any, in_manifest: Any, in_contents: Any
) -> None:
    name, listed, linked = (
        unicodedata.normalize(one, "étude.xhtml") for one in (form, in_manifest, in_contents)
    )
    epub = Epub(
        {"b.xhtml": TWO["b.xhtml"]},
        spine=["t", "b.xhtml"],
        manifest=f'<item id="t" href="{listed}" media-type="{XHTML}"/>',
        files={f"OPS/{name}": TWO["a.xhtml"].encode()},
        nav=contents(linked, "b.xhtml"),
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


def test_entries_whose_anchors_are_gone_are_found_by_their_titles() -> None:
    gone = [(f"chapter {n}.", f"a.xhtml#gone{n}") for n in (1, 2, 3, 4)]
    plan = plan_of(Epub({**ONE, "b.xhtml": TWO["b.xhtml"]}, nav=[*gone, ("End", "b.xhtml")]))
    assert len({chapter.source_chars for chapter in plan.included[:4]}) == 1
    assert [title.lower().rstrip(".") for title in titles(plan)] == [
        *("chapter 1", "chapter 2", "chapter 3", "chapter 4", "end")
    ]
    assert tells(plan, "4 entries")


def test_a_title_that_stands_twice_is_found_behind_the_entry_before_it() -> None:
    again = f"<h3>Notes on it</h3>{LONG}"
    inner = f'<h2 id="a">First</h2>{again}<h2 id="b">Last</h2>{again}'
    nav = [("First", "a.xhtml#a"), ("Last", "a.xhtml#b"), ("Notes on it", "a.xhtml#gone")]
    book = read_epub(Epub({"a.xhtml": page(inner)}, nav=nav).bytes())
    anchors = [block.anchors for block in book.documents[0].blocks if block.text == "Notes on it"]
    assert [bool(found) for found in anchors] == [False, True]


OLDER = (("N a", "a.xhtml"), ("N b", "b.xhtml"))


@pytest.mark.parametrize(
    ("nav", "expected"),
    [
        (contents("a.xhtml", "b.xhtml"), ["One", "Two"]),
        ([("Start", "a.xhtml")], ["N a", "N b"]),
        (contents("x.xhtml", "y.xhtml"), ["N a", "N b"]),
        ([], ["N a", "N b"]),
        (None, ["N a", "N b"]),
    ],
    ids=["both", "one_entry", "leads_nowhere", "empty", "none"],
)
def test_of_two_contents_lists_the_newer_is_used_if_it_is_one(
    nav: list[tuple[str, str]] | None, expected: list[str]
) -> None:
    assert titles(plan_of(Epub(TWO, nav=nav, ncx=ncx(*OLDER)))) == expected


def test_a_book_whose_pages_are_all_out_of_order_is_read_in_its_order() -> None:
    plan = plan_of(Epub(TWO, spine=["a.xhtml!", "b.xhtml!"]))
    assert len(plan.included) == 2
    assert tells(plan, "outside the reading order")


@pytest.mark.parametrize("kind", ["toc", "cover", "title-page", "copyright-page", "index"])
def test_a_whole_book_is_not_left_out_because_its_guide_gives_it_a_role(kind: str) -> None:
    plan = plan_of(Epub(ONE, guide=f'<guide><reference type="{kind}" href="a.xhtml"/></guide>'))
    assert len(plan.included) == 4
    assert tells(plan, "treated as text")


LINKS = "".join(f'<p><a href="a.xhtml#x{n}">The {n}. story</a></p>' for n in range(9))


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (LINKS, SkipReason.CONTENTS),
        (f'<p>{PROSE}<a href="b.xhtml">See there</a></p>' * 9, None),
        ("<p>© 2012 by Ann Author</p>", SkipReason.LICENCE),
        (f"<p>Copyright © 2012</p><p>All rights reserved.</p><p>{PROSE * 9}</p><p>ISBN 12345</p>",
         SkipReason.LICENCE),
        (f"<h1>The Firm</h1><p>The sign said © 1920.</p><p>{PROSE * 9}</p>", None),
    ],
    ids=["links", "some_links", "short_rights", "long_rights", "sign_in_a_story"],
)  # fmt: skip
def test_a_page_of_links_or_rights_is_known_by_its_signs(
    inner: str, reason: SkipReason | None
) -> None:
    plan = plan_of(Epub({"l.xhtml": page(inner), **TWO}))
    assert [chapter.reason for chapter in plan.chapters] == [reason, None, None]


def test_folders_that_backslashes_part_are_folders() -> None:
    content = repacked(Epub(TWO).bytes(), lambda name, raw: (name.replace("/", "\\"), raw))
    assert len(read_book(content, "x.epub").documents) == 2


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_a_package_in_another_charset_is_read(charset: str) -> None:
    def change(name: str, raw: bytes) -> tuple[str, bytes]:
        is_package = name.endswith((".opf", ".xml", "nav.xhtml"))
        return name, raw.decode().encode(charset) if is_package else raw

    book = read_epub(repacked(Epub(TWO, nav=[("Ün", "a.xhtml")]).bytes(), change))

    assert (book.metadata.title, book.toc[0].title, len(book.documents)) == ("A Book", "Ün", 2)


def test_a_chapter_that_is_damaged_is_told_and_the_others_are_read() -> None:
    content = bytearray(Epub({**TWO, "c.xhtml": page("<p>Last.</p>")}).bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        place = archive.getinfo("OPS/b.xhtml").header_offset + 45
    content[place : place + 20] = bytes(20)
    plan = plan_book(read_epub(bytes(content)))
    paths = {block.path for chapter in plan.chapters for block in chapter.blocks}
    assert paths == {"OPS/a.xhtml", "OPS/c.xhtml"}
    assert tells(plan, "'OPS/b.xhtml'", "damaged")
