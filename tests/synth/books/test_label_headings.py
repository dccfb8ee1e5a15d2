"""Chapters without a heading in their markup are found by their labels."""

from __future__ import annotations

import pytest

from synth.books.epub import read_epub
from synth.books.plan import plan_book
from tests.synth.books.made_blocks import said
from tests.synth.books.made_epub import PROSE, Epub, page

LONG = f"<p>{PROSE * 40}</p>"


def kinds(inner: str) -> list[str]:
    return [kind for kind, _ in said(inner)]


@pytest.mark.parametrize(
    "label", ["CHAPTER II", "Kapitel 3.", "II", "4.", "ONE", "Zwölf", "Глава 2", "第三章"]
)
def test_a_label_at_the_start_is_a_heading(label: str) -> None:
    assert kinds(f"<p><b>{label}</b></p><p>It began.</p>") == ["heading", "paragraph"]


def test_chapters_of_a_file_without_headings_are_found() -> None:
    inner = "".join(f"<p class='x'>CHAPTER {n}</p>{LONG}" for n in ("I", "II", "III"))

    plan = plan_book(read_epub(Epub({"a.xhtml": page(inner)}).bytes()))

    assert [c.title for c in plan.included] == ["CHAPTER I", "CHAPTER II", "CHAPTER III"]


def test_numbers_that_count_are_headings_and_others_are_not() -> None:
    text = "<p>So it was.</p>"

    assert kinds("".join(f"{text}<p>{n}</p>" for n in (1, 2, 3)) + text).count("heading") == 3
    assert "heading" not in kinds("".join(f"{text}<p>{n}</p>" for n in (1984, 12)) + text)


@pytest.mark.parametrize(
    "inner",
    [
        "<h2>One</h2><p>CHAPTER II</p><p>It began.</p>",
        "<p>It began.</p><p>I</p><p>We went.</p>",
        "<p>12</p>",
        "<p>One.</p><p>Two.</p>",
    ],
    ids=["has_headings", "word", "alone", "sentences"],
)
def test_other_short_paragraphs_stay_paragraphs(inner: str) -> None:
    assert [kind for kind, text in said(inner) if text != "One"].count("heading") == 0


def test_a_number_before_a_heading_is_one_with_it() -> None:
    names = ("Rain", "Wind")
    pages = {
        f"{n}.xhtml": page(f"<p>{n}</p><h1>{name}</h1>{LONG}") for n, name in enumerate(names, 1)
    }

    plan = plan_book(read_epub(Epub(pages).bytes()))

    assert [c.title for c in plan.included] == ["1. Rain", "2. Wind"]


@pytest.mark.parametrize("has_contents", [True, False])
def test_a_page_of_nothing_but_a_number_begins_the_chapter_behind_it(has_contents: bool) -> None:
    pages: dict[str, str] = {}
    for number in ("I", "II", "III"):
        pages[f"{number}.xhtml"] = page(f"<p>{number}</p>")
        pages[f"{number}-text.xhtml"] = page(LONG)
    nav = [(number, f"{number}.xhtml") for number in ("I", "II", "III")] if has_contents else None

    plan = plan_book(read_epub(Epub(pages, nav=nav).bytes()))

    assert [c.title for c in plan.included] == ["I", "II", "III"]
    assert all(c.source_chars > 1000 for c in plan.included)
