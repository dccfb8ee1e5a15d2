"""Bold lines that begin a document are headings where its markup has none."""

from __future__ import annotations

import pytest

from synth.books.epub import read_epub
from synth.books.plan import plan_book
from tests.synth.books.made_blocks import said
from tests.synth.books.made_epub import PROSE, Epub, page

LONG = f"<p>{PROSE * 40}</p>"


def headings(inner: str) -> list[str]:
    return [text for kind, text in said(inner) if kind == "heading"]


@pytest.mark.parametrize(
    "line",
    [
        "<p><b>The Mill</b></p>",
        '<p class="calibre_1"><span class="bold calibre3">The Mill</span></p>',
        '<div><p style="font-weight: 700">The Mill</p></div>',
        '<p align="center"><span><strong>The</strong> <strong>Mill</strong></span></p>',
    ],
)
def test_a_bold_line_at_the_start_is_a_heading(line: str) -> None:
    assert headings(f"{line}{LONG}") == ["The Mill"]


def test_number_and_title_are_both_headings() -> None:
    inner = f'<p class="center">7</p><p class="center"><b>The Mill</b></p>{LONG}'

    assert headings(inner) == ["7", "The Mill"]


@pytest.mark.parametrize(
    "inner",
    [
        f"<p><b>He ran.</b></p>{LONG}",
        f"<p><b>He</b> ran</p>{LONG}",
        f'<p class="center">All rivers run into the sea</p>{LONG}',
        "<p><b>The Bell</b></p><p>Ann Author</p>",
        f"{LONG}<p><b>STOP</b></p>{LONG}",
        f"<p><b>The Mill</b></p>{LONG}<h2>Two</h2>{LONG}",
    ],
    ids=["sentence", "in_part", "only_centred", "title_page", "in_the_middle", "has_headings"],
)
def test_other_lines_are_none(inner: str) -> None:
    assert [text for text in headings(inner) if text != "Two"] == []


def test_files_of_a_converted_book_become_chapters_with_titles() -> None:
    files = [
        "<p><b>A BOOK</b></p><p>Ann Author</p><p>Copyright © 1999</p><p>ISBN 0-00</p>",
        "<p>For my mother</p>",
        f"<p><b>ONE</b></p>{LONG}",
        LONG,
        f"<p><b>TWO</b></p>{LONG}",
        "<p><b>Also by Ann Author</b></p><p>The Sea</p>",
    ]
    pages = {f"{n}.xhtml": page(inner) for n, inner in enumerate(files)}
    start = (
        '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>Start'
        '</text></navLabel><content src="0.xhtml"/></navPoint></navMap></ncx>'
    )

    plan = plan_book(read_epub(Epub(pages, ncx=start).bytes()))

    assert [c.title for c in plan.included] == ["For my mother", "ONE", "TWO"]
