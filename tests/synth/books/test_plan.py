from __future__ import annotations

import json
import random
import time
from dataclasses import replace

import pytest

from synth.books.book import Book
from synth.books.cast import Casting
from synth.books.epub.reader import read_epub
from synth.books.plan import PlanIncompleteError, plan_book
from synth.books.plan_text import passages_of, text_of
from synth.books.rules import AltTexts, Notes, Rules, SkipReason, SpeakerNames, Tables
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
    titles,
)
from tests.synth.books.test_xhtml import random_markup

ROMANS = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]


@pytest.fixture(scope="module")
def time_machine() -> Book:
    return read_epub(TIME_MACHINE)


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


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_of_any_markup_loses_a_character(seed: int) -> None:
    source = random.Random(seed)
    pages = {f"{n}.xhtml": page(f"<p>x</p>{random_markup(source)}") for n in range(4)}
    nav = [(f"Entry {n}", f"{source.randrange(4)}.xhtml") for n in range(3)]
    notes = source.choice(list(Notes))

    plan = plan_of(Epub(pages, nav=source.choice([None, nav])), notes=notes)  # it checks itself

    assert plan.source_chars > 0


def test_prefaces_are_kept_and_title_pages_contents_and_indexes_are_not() -> None:
    kinds = ["titlepage", "copyright-page", "dedication", "epigraph", "toc", "preface"]
    kinds += ["introduction", "chapter", "appendix", "index"]
    pages = {f"{n}.xhtml": page(f'<section epub:type="{n}">{LONG}</section>') for n in kinds}

    plan = plan_of(Epub(pages, nav=[(n, f"{n}.xhtml") for n in kinds]))

    assert titles(plan) == [
        *("dedication", "epigraph", "preface", "introduction", "chapter", "appendix")
    ]
    assert set(left_out(plan).values()) == {"title_page", "licence", "contents", "index"}


def test_titles_tell_what_is_skipped_where_no_role_does() -> None:
    names = ["Contents", "Table des matières", "Impressum", "Index", "Preface", "Chapter 1"]
    pages = {f"p{n}.xhtml": page(f"<h1>{name}</h1>{LONG}") for n, name in enumerate(names)}

    plan = plan_of(Epub(pages))

    assert titles(plan) == ["Preface", "Chapter 1"]


def test_several_chapters_in_one_file_are_found_by_their_anchors() -> None:
    inner = "".join(f'<div id="c{n}"/>{LONG}' for n in (1, 2, 3))

    plan = plan_of(
        Epub(
            {"all.xhtml": page(inner)}, nav=[(f"Chapter {n}", f"all.xhtml#c{n}") for n in (1, 2, 3)]
        )
    )

    assert titles(plan) == ["Chapter 1", "Chapter 2", "Chapter 3"]
    assert len({chapter.source_chars for chapter in plan.chapters}) == 1


def test_one_entry_over_several_files_is_one_chapter() -> None:
    pages = {f"p{n}.xhtml": page(LONG) for n in range(5)}

    plan = plan_of(Epub(pages, nav=[("One", "p0.xhtml"), ("Two", "p3.xhtml")]))

    assert [(c.title, len(c.blocks)) for c in plan.chapters] == [("One", 3), ("Two", 2)]


def test_without_contents_headings_make_the_chapters() -> None:
    inner = f"<h1>A Book</h1><h2>CHAPTER I</h2><h3>The Bell</h3>{LONG}<h2>CHAPTER II</h2>{LONG}"

    plan = plan_of(Epub({"a.xhtml": page(inner)}))

    assert titles(plan) == ["CHAPTER I. The Bell", "CHAPTER II"]
    assert left_out(plan) == {"A Book": "title_page"}
    assert text_of(plan.included[0]).startswith("CHAPTER I. The Bell\n\n")


def test_without_contents_and_headings_files_are_the_chapters() -> None:
    pages = {f"p{n}.xhtml": page(LONG.replace("It was", f"{n} It was")) for n in range(3)}

    assert len(plan_of(Epub(pages)).included) == 3


def test_parts_go_before_their_first_chapters() -> None:
    pages = {
        "part.xhtml": page("<h1>Part One</h1>"),
        "c1.xhtml": page(f"<h2>I</h2>{LONG}"),
        "c2.xhtml": page(f"<h2>II</h2>{LONG}"),
    }
    nav = page(
        '<nav epub:type="toc"><ol><li><a href="part.xhtml">Part One</a><ol>'
        '<li><a href="c1.xhtml">I</a></li><li><a href="c2.xhtml">II</a></li></ol></li></ol></nav>'
    )

    plan = plan_of(Epub(pages, nav=nav))

    assert [(c.title, c.parents) for c in plan.included] == [
        ("I", ("Part One",)),
        ("II", ("Part One",)),
    ]


def test_sections_of_a_chapter_are_no_chapters() -> None:
    sections = "".join(f'<h2 id="s{n}">Section {n}</h2><p>{PROSE}</p>' for n in range(9))
    links = "".join(f'<li><a href="a.xhtml#s{n}">Section {n}</a></li>' for n in range(9))
    nav = page(
        '<nav epub:type="toc"><ol><li><a href="a.xhtml">Of bees</a>'
        f'<ol>{links}</ol></li><li><a href="b.xhtml">Of ants</a></li></ol></nav>'
    )
    pages = {"a.xhtml": page(f"<h1>Of bees</h1>{LONG}{sections}"), "b.xhtml": page(LONG)}

    assert titles(plan_of(Epub(pages, nav=nav))) == ["Of bees", "Of ants"]


def test_a_chapter_that_is_only_a_number_stays_a_chapter_and_is_told() -> None:
    pages = {"a.xhtml": page(f"<h2>I</h2>{LONG}"), "b.xhtml": page("<h2>II</h2>")}

    plan = plan_of(Epub(pages, nav=[("I", "a.xhtml"), ("II", "b.xhtml")]))

    assert titles(plan) == ["I", "II"]
    assert text_of(plan.chapters[1]) == "II"
    assert any("'II' is very short" in warning for warning in plan.warnings)


def test_an_empty_chapter_is_no_trap() -> None:
    pages = {"a.xhtml": page(LONG), "b.xhtml": page(""), "c.xhtml": page("<p>…</p>")}

    plan = plan_of(Epub(pages, nav=[("A", "a.xhtml"), ("B", "b.xhtml"), ("C", "c.xhtml")]))

    assert titles(plan) == ["A"]
    assert left_out(plan) == {"C": "empty"}


def test_documents_beside_the_order_of_reading_are_skipped_with_that_reason() -> None:
    pages = {"a.xhtml": page(LONG), "b.xhtml": page("<p>An advertisement.</p>")}

    plan = plan_of(Epub(pages, spine=["a.xhtml", "b.xhtml!"], nav=[("A", "a.xhtml")]))

    assert plan.skipped()[SkipReason.NOT_LINEAR] == len("Anadvertisement.")


def test_what_project_gutenberg_puts_around_a_book_is_skipped() -> None:
    inner = (
        "<p>The Project Gutenberg EBook of A Book</p><p>*** START OF THIS PROJECT GUTENBERG EBOOK "
        f"A BOOK ***</p><p>Produced by Somebody</p><h2>CHAPTER I</h2>{LONG}<h2>CHAPTER II</h2>"
        f"{LONG}<p>*** END OF THIS PROJECT GUTENBERG EBOOK A BOOK ***</p><p>Licence.</p>"
    )

    plan = plan_of(Epub({"a.xhtml": page(inner)}))

    assert titles(plan) == ["CHAPTER I", "CHAPTER II"]
    spoken = " ".join(text_of(chapter) for chapter in plan.included)
    assert "GUTENBERG" not in spoken
    assert "Produced" not in spoken
    assert "Licence" not in spoken


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
        ("en", "heading"),
        ("en", "paragraph"),
        ("fr", "paragraph"),
    ]
    assert text_of(chapter) == "I. Title\n\nOne.\n\n* * *\n\na\nb\n\nc\nd\n\nBonjour."


def test_pieces_of_a_text_hold_all_its_words(time_machine: Book) -> None:
    chapter = plan_book(time_machine).included[4]
    text = text_of(chapter)

    pieces = cut_text(text, max_chars=300, language="en")

    assert "".join("".join(piece.text.split()) for piece in pieces) == "".join(text.split())


def test_a_million_characters_without_a_stop_are_planned_and_cut_in_linear_time() -> None:
    words = " ".join(f"w{n}" for n in range(150_000))
    epub = Epub({"a.xhtml": page(f"<p>{words}</p>")})

    before = time.process_time()
    plan = plan_of(epub)
    pieces = cut_text(text_of(plan.chapters[0]), max_chars=300, language="en")

    assert time.process_time() - before < 20
    assert sum(len(piece.text.split()) for piece in pieces) == 150_000
    assert any("paragraph of" in warning for warning in plan.warnings)


def test_odd_characters_and_unknown_languages_are_told() -> None:
    metadata = METADATA.replace(">en<", ">und<")

    plan = plan_of(Epub({"a.xhtml": page(f"{LONG}<p>caf\ufffd \ue000</p>")}, metadata=metadata))

    assert any("U+FFFD" in warning and "U+E000" in warning for warning in plan.warnings)
    assert any("'und'" in warning for warning in plan.warnings)


def test_every_reason_has_a_sentence_and_a_plan_is_json(time_machine: Book) -> None:
    shown = json.loads(json.dumps(plan_book(time_machine).to_json()))

    assert all(reason.sentence for reason in SkipReason)
    assert [row["index"] for row in shown["chapters"]] == list(range(18))
    assert shown["totals"]["chapters"] == 13


def test_ids_of_chapters_stay_when_rules_change(time_machine: Book) -> None:
    one, two = plan_book(time_machine), plan_book(time_machine, Rules(notes=Notes.END))

    assert [chapter.id for chapter in one.chapters] == [chapter.id for chapter in two.chapters]
    assert len({chapter.id for chapter in one.chapters}) == len(one.chapters)
