"""What makers of files put into a text is left out, told with its words, and can be included."""

from __future__ import annotations

import pytest

from synth.books.documents.html import read_html
from synth.books.documents.pdf import read_pdf
from synth.books.plan import Plan, plan_book
from synth.books.plan_edits import exclude, include
from synth.books.rules import SkipReason
from synth.books.txt.reader import read_txt
from tests.synth.books.documents import PROSE, Epub, page, plan_of
from tests.synth.books_text.blocks import make_pdf, page_of_lines

STORY = PROSE * 3


def site_plan(html: str) -> Plan:
    return plan_book(read_html(html.encode(), "a.html"))


def spoken(plan: Plan) -> list[str]:
    return [block.text for chapter in plan.included for block in chapter.spoken()]


def text_plan(*groups: str) -> Plan:
    """Return the plan of a plain text of these groups of lines."""
    return plan_book(read_txt("\n\n".join(groups).encode(), "bell.txt"))


SCANNED = (
    "THE BELL", "A NOVEL", "BY", "ANN AUTHOR", "LONDON", "WILLIAM HEINEMANN", "1895",
    "All rights reserved",
    "Digitized by the Internet Archive\nin 2010 with funding from\nA Library",
    "http://www.archive.org/details/bell00auth", "Printed in Great Britain by Hazell & Viney, Ld.",
)  # fmt: skip
MODERN = (
    "The Bell", "Ann Author", "Bell Books Ltd", "www.bellbooks.example.org",
    "First published in 2009 by Bell Books Ltd.\n12 High Street, London",
    "Copyright © Ann Author 2009", "ISBN 978-3-16-148410-0",
    "A CIP catalogue record for this book is available from the British Library.",
    "Typeset in Garamond by Letters & Co.", "Printed and bound in England by Some Press",
)  # fmt: skip
SELF_PUBLISHED = (
    "The Bell", "Ann Author", "Bell Books", "Roman",
    "This ebook is licensed for your personal use.",
    "Cover design: Lena Holt", "Newsletter: bellbooks.example/news", "Twitter: @bellbooks",
    "This is a work of fiction. Names and places are the author's invention.",
)  # fmt: skip
GERMAN = ("DIE GLOCKE", "Roman", "LEIPZIG", "Verlag von S. Hirzel", "1902",
          "Alle Rechte vorbehalten", "Gedruckt bei Breitkopf & Härtel in Leipzig")  # fmt: skip


@pytest.mark.parametrize(
    "front", [SCANNED, MODERN, GERMAN, SELF_PUBLISHED], ids=["scanned", "modern", "german", "own"]
)
@pytest.mark.parametrize("heading", ["CHAPTER I", ""], ids=["headings", "none"])
def test_front_matter_of_a_text_is_not_spoken(front: tuple[str, ...], heading: str) -> None:
    plan = text_plan(
        *front, *filter(None, (heading, STORY, "CHAPTER II" if heading else "", STORY))
    )
    answer = " ".join(spoken(plan))
    for line in front[4:]:
        assert line.split("\n")[0] not in answer
    assert answer.count("It was a long and quiet afternoon") == 6


def test_same_lines_of_a_scanned_pdf_are_not_spoken() -> None:
    lines = [line.split("\n")[0] for line in SCANNED]
    story = ["CHAPTER ONE", "", *[PROSE.strip()[:80]] * 20]
    front = page_of_lines([part for line in lines for part in (line, "", "")], gap=18)
    plan = plan_book(read_pdf(make_pdf([front, page_of_lines(story)]), "bell.pdf"))
    answer = " ".join(spoken(plan))
    assert not any(line in answer for line in lines[4:])
    assert "It was a long and quiet afternoon" in answer


def test_what_a_story_says_of_books_and_cities_is_spoken() -> None:
    lines = (
        "The printing press stood in the yard, and nobody had moved it for a year or more.",
        "London was grey. He went to the publishers, who had printed nothing of his since spring.",
        "She wrote it down: in 1895 the company had been limited to nine men and a boy.",
    )
    answer = spoken(text_plan("CHAPTER I", *lines, STORY, "1895", STORY))
    assert answer[1:4] == list(lines)
    assert "1895" in answer


def test_place_and_date_above_a_letter_and_a_dedication_are_spoken() -> None:
    letter = text_plan("The Letter", "London, 1895", "My dear friend,", STORY)
    assert "London, 1895" in spoken(letter)
    for front in (SCANNED, MODERN, SELF_PUBLISHED):
        assert "To my mother" in spoken(text_plan(*front, "To my mother", "CHAPTER I", STORY))
        short = text_plan(*front[-3:], "For Anna", "CHAPTER I", STORY, "CHAPTER II", STORY)
        assert "For Anna" in spoken(short)
        assert front[-2] not in spoken(short)


def test_what_an_archive_says_of_its_own_reading_is_not_spoken() -> None:
    pages = {
        "a": page("<p>The text on this page is estimated to be only 12.30% accurate</p>"),
        "b": page(f"<h1>One</h1><p>{STORY}</p>"),
    }
    plan = plan_of(Epub(pages))

    assert [chapter.title for chapter in plan.included] == ["One"]
    assert SkipReason.BOILERPLATE in plan.skipped()


def test_note_of_a_search_engine_is_left_out_to_its_end() -> None:
    plan = text_plan(
        "Google",
        "This is a digital copy of a book that was preserved for generations on library shelves.",
        "Usage guidelines",
        "We ask that you make non-commercial use of the files, and refrain from querying.",
        "You can search through the full text on the web at http://books.google.com/",
        "CHAPTER I", STORY, "Digitized by Google", STORY,
    )  # fmt: skip

    assert spoken(plan) == ["CHAPTER I", STORY.strip(), STORY.strip()]


def test_page_of_a_number_is_no_chapter() -> None:
    pages = {
        "a": page(f"<h1>One</h1><p>{STORY}</p>"),
        "b": page("<p>1</p>"),
        "c": page(f"<h1>Two</h1><p>{STORY}</p>"),
        "d": page("<p>- 2 -</p>"),
        "e": page("<p>Page 3</p>"),
    }
    plan = plan_of(Epub(pages))

    assert [chapter.title for chapter in plan.included] == ["One", "Two"]
    assert spoken(plan) == ["One", STORY.strip(), "Two", STORY.strip()]
    assert plan.skipped()[SkipReason.PAGE_NUMBER] == len("1-2-Page3")


def test_page_of_a_number_before_the_first_chapter_is_left_out_with_its_words() -> None:
    plan = plan_of(Epub({"a": page("<p>1</p>"), "b": page(f"<h1>A</h1>{STORY}")}))
    number = plan.to_json()["chapters"][0]
    assert [number[name] for name in ("included", "reason", "beginning")] == [
        False, "page_number", "1",
    ]  # fmt: skip


def test_numbers_that_count_long_chapters_are_kept() -> None:
    pages = {}
    for number in (1, 2, 3):
        pages[f"n{number}"] = page(f"<p>{number}</p>")
        pages[f"t{number}"] = page(f"<p>{PROSE * 30}</p>")
    answer = spoken(plan_of(Epub(pages)))
    assert [text for text in answer if text.isdigit()] == ["1", "2", "3"]


def test_numbers_of_pages_in_a_text_are_left_out_and_years_are_not() -> None:
    groups = [part for number in range(12, 18) for part in (PROSE.strip(), str(number))]
    answer = spoken(text_plan("CHAPTER I", *groups, "1914", PROSE))
    assert [text for text in answer if text.isdigit()] == ["1914"]


SITE = """<!DOCTYPE html><html lang="en"><head><title>The Bell</title></head><body>
<div id="cookie-banner" class="x">We use cookies. <button>Accept</button></div>
<a class="skip-link" href="#t">Skip to content</a>
<header><a href="/">My Site</a> Best stories <nav><a href="a">Home</a> <a href="b">About</a></nav>
</header>{before}<h1>The Bell</h1><p>{story}</p><aside>Read also: Ten more tales</aside>
<div class="share-buttons">Share this</div><p>{story}</p><h2>Two</h2><p>{story}</p>{after}
<div class="sidebar">Archive of 2024</div><form>Your address <input></form>
<footer><p>Copyright 2024 My Site</p><p>Contact us</p></footer></body></html>"""


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("<main>", "</main>"), ("<div class='page'>", "</div>")]
)
def test_what_frames_a_page_of_the_web_is_not_spoken(before: str, after: str) -> None:
    html = SITE.format(before=before, after=after, story=STORY)
    plan = site_plan(html)

    answer = spoken(plan)
    assert answer[:2] == ["The Bell", STORY.strip()]
    frame = ("cookies", "My Site", "About", "Share", "Archive", "address", "Copyright", "Contact")
    assert not any(word in text for text in answer for word in frame)
    assert "".join(answer).count("It was a long") == 9
    assert [chapter.title for chapter in plan.included] == ["The Bell", "Two"]
    rows = plan.to_json()["skipped"]
    assert any(row["text"] == "Contact us" and row["reason"] == "site" for row in rows)


BLOG = "<header><h2>My blog</h2></header><h1>The Bell</h1>"
PARTS = "".join(
    f"<div><header><h2>Part {n}</h2></header><p>{STORY}</p></div>" for n in ("One", "Two")
)


@pytest.mark.parametrize(
    ("body", "short", "chapters"),
    [
        (f"<header><h1>The Bell</h1><p>A tale</p></header><p>{STORY}</p>", ["The Bell", "A tale"],
         ["The Bell"]),
        (f"{BLOG}<p>{STORY}</p>", ["The Bell"], ["The Bell"]),
        (f"{BLOG}{PARTS}", ["Part One", "Part Two"], ["Part One", "Part Two"]),
    ],
    ids=["title", "site", "parts"],
)  # fmt: skip
def test_header_is_spoken_if_it_holds_a_title_and_not_the_sites_name(
    body: str, short: list[str], chapters: list[str]
) -> None:
    plan = site_plan(f"<body>{body}</body>")
    assert [text for text in spoken(plan) if len(text) < 20] == short
    assert [chapter.title for chapter in plan.included] == chapters


def test_each_left_out_part_can_be_switched_on_and_off_again() -> None:
    html = SITE.format(before="", after="", story=STORY)
    plan = site_plan(html)
    row = next(row for row in plan.to_json()["skipped"] if row["text"] == "Contact us")

    switched = include(plan, row["chapter"], block=row["block"])
    assert "Contact us" in spoken(switched)
    assert next(r for r in switched.to_json()["skipped"] if r["text"] == "Contact us")["included"]
    assert spoken(exclude(switched, row["chapter"], block=row["block"])) == spoken(plan)
    all_of_it = include(plan, reason="site")
    assert {"Contact us", "Archive of 2024"} < set(spoken(all_of_it))
    assert spoken(exclude(all_of_it, reason="site")) == spoken(plan)


def test_each_spoken_text_can_be_left_out() -> None:
    plan = text_plan("CHAPTER I", "It was late.", "Nobody came.", "CHAPTER II", STORY)
    left = exclude(plan, plan.chapters[0].id, block=2)
    assert spoken(left)[:3] == ["CHAPTER I", "It was late.", "CHAPTER II"]
    assert [row["reason"] for row in left.to_json()["skipped"]] == ["excluded"]
    assert spoken(include(left, plan.chapters[0].id, block=2)) == spoken(plan)
