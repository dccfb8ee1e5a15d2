"""Contents lists inside a document are not spoken; other links are."""

from __future__ import annotations

from synth.books.epub import read_epub
from synth.books.plan import plan_book
from synth.books.rules import Rules, SkipReason, block_reason
from tests.synth.books.made_blocks import blocks_of
from tests.synth.books.made_epub import PROSE, Epub, page

LONG = f"<p>{PROSE * 40}</p>"


def skipped(inner: str) -> list[str]:
    return [
        block.text
        for block in blocks_of(inner)
        if block_reason(block, Rules()) is SkipReason.CONTENTS
    ]


def links(count: int, name: str = "p") -> str:
    return "".join(f'<{name}><a href="#c{n}">Chapter {n}</a></{name}>' for n in range(1, count + 1))


def test_lines_of_links_that_stand_together_are_a_contents_list() -> None:
    found = skipped(f"<p>The Bell</p>{links(5)}{LONG}")

    assert found == [f"Chapter {n}" for n in range(1, 6)]


def test_fewer_links_are_one_below_a_title_with_what_stands_between() -> None:
    table = (
        "<p><b>Contents</b></p><table><tr><td>Chapter</td><td>Page</td></tr>"
        '<tr><td><a href="#a">I.</a> The Mill</td><td>3</td></tr>'
        '<tr><td><a href="#b">II.</a> The Sea</td><td>9</td></tr></table>'
    )

    found = skipped(f"{table}{LONG}")

    assert found == ["Contents", "Chapter, Page", "I. The Mill, 3", "II. The Sea, 9"]


def test_parts_of_a_list_within_a_list_are_skipped_with_it() -> None:
    inner = f'<ul><li><a href="#p">Part One</a><ul>{links(5, "li")}</ul></li></ul>{LONG}'

    assert skipped(inner)[0] == "Part One"


def test_choices_cross_references_and_headings_that_lead_back_are_spoken() -> None:
    headings = "".join(f'<h2><a href="toc.xhtml#c{n}">Chapter {n}</a></h2>' for n in range(8))
    outside = "".join(f'<p><a href="https://example.org/{n}">Site {n}</a></p>' for n in range(8))

    assert skipped(links(4) + LONG + headings + outside) == []


def test_a_list_of_chapters_makes_no_chapters() -> None:
    chapters = "".join(f'<p id="c{n}">Chapter {n}</p>{LONG}' for n in range(1, 6))
    epub = Epub({"a.xhtml": page(f"<p>A Book</p>{links(5)}{chapters}")})

    titles = [chapter.title for chapter in plan_book(read_epub(epub.bytes())).included]

    assert titles == [f"Chapter {n}" for n in range(1, 6)]
