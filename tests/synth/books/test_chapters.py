"""Short first chapters are no title pages, numbers alone are no chapters, all have titles."""

from __future__ import annotations

import pytest

from synth.books.plan import plan_book
from synth.books.plan_text import text_of
from synth.books.txt.reader import read_txt
from tests.synth.books.documents import LONG, METADATA, Epub, left_out, page, plan_of, titles

FOX = METADATA.replace("A Book", "The Fox")
SECOND = page(f"<h1>Two</h1>{LONG}")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("<p>The fox came at night.</p><p>It was not seen.</p>", id="prose"),
        pytest.param("<h1>The Fox</h1><p>“It came at night, they say.”</p>", id="same-heading"),
        pytest.param("<p>Where did the fox sleep by day?</p>", id="question"),
    ],
)
def test_short_first_chapter_that_names_the_title_is_spoken(first: str) -> None:
    plan = plan_of(Epub({"a.xhtml": page(first), "b.xhtml": SECOND}, metadata=FOX))

    assert [chapter.included for chapter in plan.chapters] == [True, True]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("<h1>The Fox</h1>", id="title"),
        pytest.param("<h1>The Fox</h1><p>by Ann Author</p><p>London, 1895.</p>", id="author"),
        pytest.param("<h1>The Fox</h1><p>Translated from the French by X. Y.</p>", id="translator"),
        pytest.param("<p>The Fox: a tale</p><p>By the author of The Wolf.</p>", id="paragraphs"),
    ],
)
def test_title_page_that_nothing_names_is_left_out(first: str) -> None:
    plan = plan_of(Epub({"a.xhtml": page(first), "b.xhtml": SECOND}, metadata=FOX))

    assert list(left_out(plan).values()) == ["title_page"]


@pytest.mark.parametrize("has_contents", [False, True])
def test_number_alone_belongs_to_the_chapter_that_follows(has_contents: bool) -> None:
    pages = {
        "1.xhtml": page("<h1>I</h1>"),
        "2.xhtml": page(f"<h1>The Bell</h1>{LONG}"),
        "3.xhtml": page("<h1>II</h1>"),
        "4.xhtml": page(f"<h1>The Ox</h1>{LONG}"),
    }
    names = ("I", "The Bell", "II", "The Ox")
    nav = list(zip(names, pages, strict=True)) if has_contents else None

    plan = plan_of(Epub(pages, nav=nav))

    assert titles(plan) == ["I. The Bell", "II. The Ox"]
    assert text_of(plan.included[0]).startswith("I. The Bell\n\n")


def test_number_before_a_number_stays_a_chapter() -> None:
    pages = {"1.xhtml": page("<h1>I</h1>"), "2.xhtml": page(f"<h1>II</h1>{LONG}")}

    assert titles(plan_of(Epub(pages))) == ["I", "II"]


def test_what_an_archive_puts_around_a_book_is_named_in_words() -> None:
    text = (
        "The Project Gutenberg eBook of The Fox\n\nTitle: The Fox\n\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK THE FOX ***\n\n"
        "CHAPTER I\n\nIt came at night.\n\nCHAPTER II\n\nIt went away.\n\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK THE FOX ***\n\nThe licence, and much of it.\n"
    )

    plan = plan_book(read_txt(text.encode(), "fox.txt"))

    outside = [chapter.title for chapter in plan.chapters if not chapter.included]
    assert outside == ["Project Gutenberg: about this e-book"]


def test_a_byline_of_its_own_is_left_out_with_the_title() -> None:
    first = f"<h1>The Fox</h1><h2>By Ann Author</h2><h2>One</h2>{LONG}<h2>Two</h2>{LONG}"

    assert titles(plan_of(Epub({"a.xhtml": page(first)}, metadata=FOX))) == ["One", "Two"]


def test_a_page_that_no_list_names_behind_the_title_page_stays_a_dedication() -> None:
    pages = {
        "title.xhtml": page("<h1>The Fox</h1><p>by Ann Author</p>"),
        "to.xhtml": page("<p>To my mother</p>"),
        "1.xhtml": page(f"<h1>One</h1>{LONG}"),
        "2.xhtml": page(f"<h1>Two</h1>{LONG}"),
    }
    nav = [("The Fox", "title.xhtml"), ("One", "1.xhtml"), ("Two", "2.xhtml")]

    plan = plan_of(Epub(pages, nav=nav, metadata=FOX))

    assert titles(plan) == ["To my mother", "One", "Two"]


def test_what_the_book_calls_a_part_holds_chapters_however_short() -> None:
    ncx = '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{}{}</navMap></ncx>'
    point = "<navPoint><navLabel><text>{}</text></navLabel><content src='{}'/>{}</navPoint>"
    inner = point.format("Rain", "1.xhtml", "") + point.format("Wind", "2.xhtml", "")
    pages = {
        "p.xhtml": page("<h1>Weather</h1>", kind="part"),
        "1.xhtml": page("<h1>Rain</h1><p>It rained.</p>"),
        "2.xhtml": page("<h1>Wind</h1><p>It blew.</p>"),
        "3.xhtml": page(f"<h1>Glossary</h1>{LONG}"),
    }
    toc = ncx.format(
        point.format("Weather", "p.xhtml", inner), point.format("Glossary", "3.xhtml", "")
    )

    assert titles(plan_of(Epub(pages, ncx=toc))) == ["Rain", "Wind", "Glossary"]


@pytest.mark.parametrize(
    "title",
    [
        "Title",
        "Du même auteur",
        "Vom gleichen Verfasser sind erschienen",
        "Anmerkungen zur Transkription",
        "À propos de cette édition électronique",
        "About this digital edition",
        "Transcriber's Notes",
        "TABLE",
    ],
)
def test_pages_about_the_edition_are_left_out_in_other_languages(title: str) -> None:
    pages = {"1.xhtml": page(f"<h1>One</h1>{LONG}"), "2.xhtml": page(f"<h1>{title}</h1>{LONG}")}

    assert titles(plan_of(Epub(pages))) == ["One"]


def test_a_short_title_within_a_word_makes_no_title_page() -> None:
    pages = {"a.xhtml": page("<p>To Edith</p>"), "b.xhtml": SECOND}

    plan = plan_of(Epub(pages, metadata=METADATA.replace("A Book", "It")))

    assert titles(plan) == ["To Edith", "Two"]


def test_all_chapters_of_a_part_that_is_only_a_heading_are_in_it() -> None:
    stories = "".join(
        f"<h2>{name}</h2><h3>I</h3>{LONG}<h3>II</h3>{LONG}" for name in ("The Mill", "The Sea")
    )
    plan = plan_of(Epub({"a.xhtml": page(f"<h1>The Fox</h1>{stories}")}, metadata=FOX))

    assert [(chapter.parents, chapter.title) for chapter in plan.included] == [
        (("The Mill",), "I"),
        (("The Mill",), "II"),
        (("The Sea",), "I"),
        (("The Sea",), "II"),
    ]
