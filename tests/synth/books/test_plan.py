"""A plan accounts for every character; its chapters are found and named whatever the file is."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from synth.books.book import Book
from synth.books.epub.reader import read_epub
from synth.books.plan import PlanIncompleteError, plan_book
from synth.books.plan_text import passages_of, text_of
from synth.books.rules import AltTexts, Casting, Notes, Rules, SkipReason, SpeakerNames, Tables
from synth.books.txt.reader import read_txt
from synth.text.segments import cut_text
from tests.synth.books.documents import (
    LONG,
    METADATA,
    PROSE,
    TIME_MACHINE,
    Epub,
    left_out,
    page,
    plan_of,
    tells,
    titles,
)
from tests.synth.books.test_xhtml import random_markup

THOROUGH = pytest.mark.thorough
ROMANS = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]


@pytest.fixture(scope="module")
def time_machine() -> Book:
    return read_epub(TIME_MACHINE.read_bytes())


def test_the_time_machine_has_twelve_chapters_and_the_epilogue(time_machine: Book) -> None:
    plan = plan_book(time_machine)

    assert titles(plan) == [*ROMANS, "Epilogue"]
    assert left_out(plan) == {
        "Titlepage": "title_page",
        "Imprint": "licence",
        "Endnotes": "note",
        "Colophon": "licence",
        "Uncopyright": "licence",
    }
    assert 3.0 < plan.seconds / 3600 < 3.6
    assert plan.warnings == ()


@pytest.mark.parametrize(("notes", "count"), [("skip", 0), ("inline", 1), ("end", 1)])
def test_its_endnote_is_spoken_as_the_rule_says(time_machine: Book, notes: str, count: int) -> None:
    plan = plan_book(time_machine, Rules(notes=Notes(notes)))

    texts = [text_of(chapter) for chapter in plan.included]
    note = "the museum was built into the side of a hill"
    assert sum(note in text for text in texts) == count
    if count:
        paragraphs = texts[ROMANS.index("VIII")].split("\n\n")
        (place,) = [n for n, paragraph in enumerate(paragraphs) if note in paragraph]
        assert ("a peculiar pattering" in paragraphs[place - 1]) == (notes == "inline")
        assert (place == len(paragraphs) - 1) == (notes == "end")


def test_the_sum_of_what_is_spoken_and_skipped_is_the_book(time_machine: Book) -> None:
    plan = plan_book(time_machine)
    assert plan.spoken_source_chars + sum(plan.skipped().values()) == time_machine.source_chars
    shown = plan.to_json()["completeness"]
    assert shown["is_complete"] is True
    assert shown["source_chars"] == shown["spoken"] + sum(shown["skipped"].values())


def test_a_character_that_got_lost_is_a_loud_mistake(time_machine: Book) -> None:
    document = time_machine.documents[3]
    torn = replace(document, source_chars=document.source_chars + 1)
    with pytest.raises(PlanIncompleteError):
        plan_book(replace(time_machine, documents=(torn,)))


@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 60), marks=THOROUGH)])
def test_no_plan_of_any_markup_loses_a_character(seeds: range) -> None:
    for seed in seeds:
        source = random.Random(seed)
        pages = {f"{n}.xhtml": page(f"<p>x</p>{random_markup(source)}") for n in range(4)}
        nav = [(f"Entry {n}", f"{source.randrange(4)}.xhtml") for n in range(3)]
        notes = source.choice(list(Notes))
        plan = plan_of(Epub(pages, nav=source.choice([None, nav])), notes=notes)  # checks itself
        assert plan.source_chars > 0, seed


def entries(names: Iterable[str], link: str = "{}.xhtml") -> list[tuple[str, str]]:
    return [(name, link.format(number)) for number, name in enumerate(names)]


def nested(outer: str, inner: Iterable[tuple[str, str]], *after: tuple[str, str]) -> str:
    """Return contents of which the first entry leads to file 0 and holds others."""
    within, behind = (
        "".join(f'<li><a href="{link}">{name}</a></li>' for name, link in some)
        for some in (inner, after)
    )
    start = '<nav epub:type="toc"><ol><li><a href="0.xhtml">'
    return page(f"{start}{outer}</a><ol>{within}</ol></li>{behind}</ol></nav>")


KINDS = (
    "titlepage copyright-page dedication epigraph toc preface introduction chapter appendix index"
)
NAMED = ["Contents", "Table des matières", "Impressum", "Index", "Preface", "Chapter 1"]
SECTIONS = "".join(f'<h2 id="s{n}">Section {n}</h2><p>{PROSE}</p>' for n in range(9))
# Bodies of files, what else the book has, the chapters that are spoken and why others are not.
CHAPTERS: dict[str, tuple[list[str], dict[str, Any], list[str], list[str]]] = {
    "roles": (
        [f'<section epub:type="{kind}">{LONG}</section>' for kind in KINDS.split()],
        {"nav": entries(KINDS.split())},
        ["dedication", "epigraph", "preface", "introduction", "chapter", "appendix"],
        ["title_page", "licence", "contents", "index"],
    ),
    "titles": (
        [f"<h1>{name}</h1>{LONG}" for name in NAMED], {}, ["Preface", "Chapter 1"],
        ["contents", "contents", "licence", "index"],
    ),
    "anchors": (
        ["".join(f'<div id="c{n}"/>{LONG}' for n in range(3))],
        {"nav": entries(("One", "Two", "Three"), "0.xhtml#c{}")}, ["One", "Two", "Three"], [],
    ),
    "several_files": (
        [LONG] * 5, {"nav": [("One", "0.xhtml"), ("Two", "3.xhtml")]}, ["One", "Two"], [],
    ),
    "headings": (
        [f"<h1>A Book</h1><h2>CHAPTER I</h2><h3>The Bell</h3>{LONG}<h2>CHAPTER II</h2>{LONG}"], {},
        ["CHAPTER I. The Bell", "CHAPTER II"], ["title_page"],
    ),
    "sections": (
        [f"<h1>Of bees</h1>{LONG}{SECTIONS}", LONG],
        {"nav": nested("Of bees", entries((f"Section {n}" for n in range(9)), "0.xhtml#s{}"),
                       ("Of ants", "1.xhtml"))},
        ["Of bees", "Of ants"], [],
    ),
    "empty": ([LONG, "", "<p>…</p>"], {"nav": entries("ABC")}, ["A"], ["empty"]),
    "not_linear": (
        [LONG, "<p>An advertisement.</p>"],
        {"spine": ["0.xhtml", "1.xhtml!"], "nav": entries("A")}, ["A"], ["not_linear"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapters_are_found_and_what_is_none_is_left_out(name: str) -> None:
    inner, fields, spoken, reasons = CHAPTERS[name]

    plan = plan_of(Epub({f"{n}.xhtml": page(one) for n, one in enumerate(inner)}, **fields))

    assert titles(plan) == spoken
    assert [str(c.reason) for c in plan.chapters if not c.included] == reasons
    if name == "anchors":
        assert len({chapter.source_chars for chapter in plan.chapters}) == 1
    if name == "several_files":
        assert [len(chapter.blocks) for chapter in plan.chapters] == [3, 2]
    if name == "headings":
        assert text_of(plan.included[0]).startswith("CHAPTER I. The Bell\n\n")
    if name == "not_linear":
        assert plan.skipped()[SkipReason.NOT_LINEAR] == len("Anadvertisement.")


def test_without_contents_and_headings_files_are_the_chapters() -> None:
    pages = {f"p{n}.xhtml": page(LONG.replace("It was", f"{n} It was")) for n in range(3)}
    assert len(plan_of(Epub(pages)).included) == 3


def test_parts_go_before_their_first_chapters() -> None:
    inner = ("<h1>Part One</h1>", f"<h2>I</h2>{LONG}", f"<h2>II</h2>{LONG}")
    pages = {f"{n}.xhtml": page(one) for n, one in enumerate(inner)}
    nav = nested("Part One", [("I", "1.xhtml"), ("II", "2.xhtml")])
    plan = plan_of(Epub(pages, nav=nav))
    part = ("Part One",)
    assert [(c.title, c.parents) for c in plan.included] == [("I", part), ("II", part)]


def test_a_chapter_that_is_only_a_number_stays_a_chapter_and_is_told() -> None:
    pages = {"0.xhtml": page(f"<h2>I</h2>{LONG}"), "1.xhtml": page("<h2>II</h2>")}
    plan = plan_of(Epub(pages, nav=entries(("I", "II"))))
    assert (titles(plan), text_of(plan.chapters[1])) == (["I", "II"], "II")
    assert tells(plan, "'II' is very short")


def test_what_project_gutenberg_puts_around_a_book_is_skipped() -> None:
    inner = (
        "<p>The Project Gutenberg EBook of A Book</p><p>*** START OF THIS PROJECT GUTENBERG EBOOK "
        f"A BOOK ***</p><p>Produced by Somebody</p><h2>CHAPTER I</h2>{LONG}<h2>CHAPTER II</h2>"
        f"{LONG}<p>*** END OF THIS PROJECT GUTENBERG EBOOK A BOOK ***</p><p>Licence.</p>"
    )

    plan = plan_of(Epub({"a.xhtml": page(inner)}))

    assert titles(plan) == ["CHAPTER I", "CHAPTER II"]
    spoken = " ".join(text_of(chapter) for chapter in plan.included)
    assert not [word for word in ("GUTENBERG", "Produced", "Licence") if word in spoken]


def test_tables_and_descriptions_follow_their_rules() -> None:
    table = "<table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>7</td></tr></table>"
    epub = Epub({"a.xhtml": page(f'{LONG}{table}<p>x<img alt="A cat" src="c.png"/></p>')})
    spoken = [
        text_of(plan_of(epub, tables=tables, alt_texts=alt_texts).chapters[0])
        for tables, alt_texts in [(Tables.ROWS, AltTexts.SKIP), (Tables.SKIP, AltTexts.SPEAK)]
    ]
    assert ["Ann, 7" in text for text in spoken] == [True, False]
    assert ["A cat" in text for text in spoken] == [False, True]


def test_speeches_are_spoken_with_names_or_by_voices() -> None:
    rows = "".join(
        f'<tr><td epub:type="z3998:persona">{who}</td><td>{said}</td></tr>'
        for who, said in [("Ann", "Good morning."), ("Ann", "Well?"), ("Ben", "Good night.")]
    )
    plan = plan_of(Epub({"a.xhtml": page(f"<p>A room.</p><table>{rows}</table><p>End.</p>")}))
    (chapter,) = plan.chapters

    named = text_of(chapter)
    cast = passages_of(chapter, Casting(characters={"ANN": "Ada"}), speaker_names=SpeakerNames.SKIP)

    assert named.split("\n\n")[1:4] == ["Ann. Good morning.", "Well?", "Ben. Good night."]
    assert [(passage.role.label, passage.text) for passage in cast] == [
        ("narrator", "A room."),
        ("ANN", "Good morning.\n\nWell?"),
        ("narrator", "Good night.\n\nEnd."),
    ]


def test_a_text_shows_scenes_verse_and_languages() -> None:
    inner = (
        '<h2>I</h2><h3>Title</h3><p>One.</p><hr/><p>* * *</p><div class="poem"><p>a<br/>b</p>'
        '<p>c<br/>d</p></div><p xml:lang="fr">Bonjour.</p><hr/>'
    )
    (chapter,) = plan_of(Epub({"a.xhtml": page(inner)})).chapters

    passages = passages_of(chapter)

    assert [(one.language, one.gap) for one in passages] == [
        ("en", "heading"), ("en", "paragraph"), ("fr", "paragraph"),
    ]  # fmt: skip
    assert text_of(chapter) == "I. Title\n\nOne.\n\n* * *\n\na\nb\n\nc\nd\n\nBonjour."


def test_pieces_of_a_text_hold_all_its_words(time_machine: Book) -> None:
    chapter = plan_book(time_machine).included[4]
    text = text_of(chapter)
    pieces = cut_text(text, max_chars=300, language="en")
    assert "".join("".join(piece.text.split()) for piece in pieces) == "".join(text.split())


@pytest.mark.thorough
def test_a_million_characters_without_a_stop_are_planned_and_cut_in_linear_time() -> None:
    words = " ".join(f"w{n}" for n in range(150_000))
    epub = Epub({"a.xhtml": page(f"<p>{words}</p>")})
    before = time.process_time()
    plan = plan_of(epub)
    pieces = cut_text(text_of(plan.chapters[0]), max_chars=300, language="en")
    assert time.process_time() - before < 20
    assert sum(len(piece.text.split()) for piece in pieces) == 150_000
    assert tells(plan, "paragraph of")


def test_odd_characters_and_unknown_languages_are_told() -> None:
    metadata = METADATA.replace(">en<", ">und<")
    plan = plan_of(Epub({"a.xhtml": page(f"{LONG}<p>caf\ufffd \ue000</p>")}, metadata=metadata))
    assert tells(plan, "U+FFFD", "U+E000")
    assert tells(plan, "'und'")


def test_every_reason_has_a_sentence_and_a_plan_is_json(time_machine: Book) -> None:
    shown = json.loads(json.dumps(plan_book(time_machine).to_json()))
    assert all(reason.sentence for reason in SkipReason)
    assert [row["index"] for row in shown["chapters"]] == list(range(18))
    assert shown["totals"]["chapters"] == 13


def test_ids_of_chapters_stay_when_rules_change(time_machine: Book) -> None:
    one, two = plan_book(time_machine), plan_book(time_machine, Rules(notes=Notes.END))
    assert [chapter.id for chapter in one.chapters] == [chapter.id for chapter in two.chapters]
    assert len({chapter.id for chapter in one.chapters}) == len(one.chapters)


FOX = METADATA.replace("A Book", "The Fox")
IT = METADATA.replace("A Book", "It")
SECOND = page(f"<h1>Two</h1>{LONG}")


@pytest.mark.parametrize(
    ("first", "metadata", "reason"),
    [
        ("<p>The fox came at night.</p><p>It was not seen.</p>", FOX, None),
        ("<h1>The Fox</h1><p>“It came at night, they say.”</p>", FOX, None),
        ("<p>Where did the fox sleep by day?</p>", FOX, None),
        ("<p>To Edith</p>", IT, None),  # a short title within a word
        ("<h1>The Fox</h1>", FOX, "title_page"),
        ("<h1>The Fox</h1><p>by Ann Author</p><p>London, 1895.</p>", FOX, "title_page"),
        ("<h1>The Fox</h1><p>Translated from the French by X. Y.</p>", FOX, "title_page"),
        ("<p>The Fox: a tale</p><p>By the author of The Wolf.</p>", FOX, "title_page"),
    ],
)
def test_a_short_first_page_is_spoken_unless_it_is_a_title_page(
    first: str, metadata: str, reason: str | None
) -> None:
    plan = plan_of(Epub({"a.xhtml": page(first), "b.xhtml": SECOND}, metadata=metadata))
    assert list(left_out(plan).values()) == ([reason] if reason else [])
    assert [chapter.included for chapter in plan.chapters] == [reason is None, True]


@pytest.mark.parametrize("has_contents", [False, True])
def test_number_alone_belongs_to_the_chapter_that_follows(has_contents: bool) -> None:
    names = {"1.xhtml": "I", "2.xhtml": "The Bell", "3.xhtml": "II", "4.xhtml": "The Ox"}
    pages = {
        path: page(f"<h1>{name}</h1>{LONG if 'The' in name else ''}")
        for path, name in names.items()
    }
    nav = [(name, path) for path, name in names.items()] if has_contents else None

    plan = plan_of(Epub(pages, nav=nav))

    assert titles(plan) == ["I. The Bell", "II. The Ox"]
    assert text_of(plan.included[0]).startswith("I. The Bell\n\n")


def test_what_an_archive_puts_around_a_book_is_named_in_words() -> None:
    text = (
        "The Project Gutenberg eBook of The Fox\n\nTitle: The Fox\n\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK THE FOX ***\n\n"
        "CHAPTER I\n\nIt came at night.\n\nCHAPTER II\n\nIt went away.\n\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK THE FOX ***\n\nThe licence, and much of it.\n"
    )
    plan = plan_book(read_txt(text.encode(), "fox.txt"))
    assert list(left_out(plan)) == ["About this e-book"]


@pytest.mark.parametrize(
    ("inner", "spoken"),
    [
        (["<h1>I</h1>", f"<h1>II</h1>{LONG}"], "I|II"),
        ([f"<h1>The Fox</h1><h2>By Ann Author</h2><h2>One</h2>{LONG}<h2>Two</h2>{LONG}"],
         "One|Two"),
        *(([f"<h1>One</h1>{LONG}", f"<h1>{title}</h1>{LONG}"], "One") for title in (
            "Title", "Du même auteur", "Vom gleichen Verfasser sind erschienen", "TABLE",
            "Anmerkungen zur Transkription", "À propos de cette édition électronique",
            "About this digital edition", "Transcriber's Notes")),
    ],
)  # fmt: skip
def test_titles_say_what_is_a_chapter(inner: list[str], spoken: str) -> None:
    pages = {f"{n}.xhtml": page(one) for n, one in enumerate(inner)}
    assert titles(plan_of(Epub(pages, metadata=FOX))) == spoken.split("|")


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


def test_all_chapters_of_a_part_that_is_only_a_heading_are_in_it() -> None:
    parts = ("The Mill", "The Sea")
    stories = "".join(f"<h2>{one}</h2><h3>I</h3>{LONG}<h3>II</h3>{LONG}" for one in parts)
    plan = plan_of(Epub({"a.xhtml": page(f"<h1>The Fox</h1>{stories}")}, metadata=FOX))
    assert [(chapter.parents, chapter.title) for chapter in plan.included] == [
        ((part,), number) for part in parts for number in ("I", "II")
    ]
