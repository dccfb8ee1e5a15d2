"""Plain texts as archives publish them: German and French habits, front matter, plays."""

from __future__ import annotations

import pytest

from synth.books.book import BlockKind, Book
from synth.books.plan import Plan, plan_book
from synth.books.txt.reader import read_txt
from tests.synth.books_text.blocks import assert_complete, texts

LINE = "It was late in the year when the old clock stopped, and nobody had\n"
PROSE = LINE * 12
HEAD = (
    "Title: {title}\n\nAuthor: Ann Author\n\nLanguage: {language}\n\n"
    "*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n\n\n"
)


def read(body: str, *, title: str = "The Clock", language: str = "English") -> Book:
    book = read_txt((HEAD.format(title=title, language=language) + body).encode(), "a.txt")
    assert_complete(book)
    return book


def plan(body: str, **header: str) -> Plan:
    return plan_book(read(body, **header))


def chapters(text: str) -> list[str]:
    return [chapter.title for chapter in plan(text).included]


def spoken(planned: Plan) -> str:
    return "\n".join(block.text for chapter in planned.included for block in chapter.spoken())


@pytest.mark.parametrize(
    "word", ["THE END", "FIN", "FINIS.", "ENDE", "_Fin de la première partie_"]
)
def test_what_ends_a_book_is_no_chapter(word: str) -> None:
    body = f"CHAPTER I\n\n\n{PROSE}\n\n\nCHAPTER II\n\n\n{PROSE}\n\n\n{word}\n\n\n"

    assert chapters(body) == ["CHAPTER I", "CHAPTER II"]


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("[Note 1: Voir M. Thiers.]", "Voir M. Thiers."),
        ("[Fußnote 1: Siehe Goethe.]", "Siehe Goethe."),
        ("[Anmerkung 1: Siehe Goethe.]", "Siehe Goethe."),
        ("[Nota 1: Véase.]", "Véase."),
    ],
)
def test_notes_are_known_by_the_words_of_their_languages(note: str, said: str) -> None:
    book = read(f"CHAPTER I\n\n\n{PROSE}He went.[1]\n\n{note}\n\n{PROSE}")

    assert texts(book, BlockKind.NOTE) == [said]
    assert "[1]" not in spoken(plan_book(book))


def test_an_aside_in_brackets_is_no_note() -> None:
    book = read(f"CHAPTER I\n\n\n{PROSE}\n\n[Note the date: it was a Sunday.]\n\n{PROSE}")

    assert texts(book, BlockKind.NOTE) == []


def test_a_german_transcribers_note_over_several_paragraphs_is_not_spoken() -> None:
    note = (
        "    [ Anmerkungen zur Transkription:\n\n    Druckfehler wurden korrigiert.\n\n"
        "    Gesperrter Text ist _so ausgezeichnet_.\n    ]\n\n\n"
    )

    said = spoken(plan(f"{note}Erstes Kapitel\n\n\n{PROSE}\n\n\nZweites Kapitel\n\n\n{PROSE}"))

    assert "Druckfehler" not in said
    assert "ausgezeichnet" not in said
    assert "Erstes Kapitel" in said


def test_headings_with_letters_set_apart_are_headings() -> None:
    body = (
        "                    I n h a l t\n\n  Erstes Kapitel    5\n  Zweites Kapitel   9\n\n\n\n\n"
        f"  E r s t e s  K a p i t e l\n\n\n{PROSE}\n\n\n"
        f"  Z w e i t e s  K a p i t e l\n\n\n{PROSE}"
    )

    planned = plan(body, language="German")

    assert [c.title for c in planned.included] == ["Erstes Kapitel", "Zweites Kapitel"]
    assert [str(c.reason) for c in planned.chapters if c.title == "Inhalt"] == ["contents"]


def test_an_address_within_the_title_page_is_not_spoken() -> None:
    front = (
        "LA CLOCHE\n\nPAR\n\nANN AUTHOR\n\nPARIS\n\nCALMANN LÉVY, ÉDITEUR\n\n"
        "RUE AUBER, 3\n\n1885\n\n"
        "Droits de reproduction et de traduction réservés.\n\n\n\n\n"
    )

    said = spoken(plan(f"{front}CHAPITRE PREMIER\n\n\n{PROSE}\n\n\nCHAPITRE II\n\n\n{PROSE}",
                       title="La Cloche", language="French"))  # fmt: skip

    assert "AUBER" not in said
    assert "réservés" not in said
    assert said.startswith("CHAPITRE PREMIER")


def test_the_persons_of_a_play_are_a_list_and_a_place_is_nobody() -> None:
    persons = "Dramatis Personæ\n\nTOM, a miller.\nJANE, his sister.\n\nSCENE: A town.\n\n\n"
    speeches = "".join(f"{n}.\nNay, answer me.\n\n" for n in ("TOM", "JANE") * 4)

    book = read(f"{persons}ACT I\n\n{speeches}")

    assert texts(book, BlockKind.LIST_ITEM) == [
        "TOM, a miller.",
        "JANE, his sister.",
        "SCENE: A town.",
    ]
    assert {b.speaker for _, b in book.blocks() if b.speaker} == {"TOM", "JANE"}


def test_a_dash_joins_a_label_and_its_title() -> None:
    body = f"CHAPTER I—THE RIVER\n\n\n{PROSE}\n\n\nCHAPTER II—THE SEA\n\n\n{PROSE}"

    assert chapters(body) == ["CHAPTER I—THE RIVER", "CHAPTER II—THE SEA"]


@pytest.mark.parametrize(
    ("header", "title", "subtitle"),
    [
        ("The Bell\n       A Story", "The Bell", "A Story"),
        ("The Bell and\n       other stories", "The Bell and other stories", ""),
        ("x" * 60 + "\n       And More", "x" * 60 + " And More", ""),
    ],
)
def test_a_title_of_two_lines_has_a_subtitle_where_the_first_is_whole(
    header: str, title: str, subtitle: str
) -> None:
    found = read(PROSE, title=header).metadata

    assert (found.title, found.subtitle) == (title, subtitle)


@pytest.mark.parametrize(
    "title", ["TRANSCRIBER\u2019S NOTE", "Transcriber's Notes:", "Anmerkungen zur Transkription"]
)
def test_notes_of_the_transcriber_are_not_spoken_wherever_they_stand(title: str) -> None:
    note = f"{title}\n\n\nWords in italics are marked _so_.\n\nErrors were mended.\n\n\n\n\n"
    front = "THE CLOCK\n\nBy Ann Author\n\n\nAll rights reserved.\n\n\n\n\nTo my mother.\n\n\n\n\n"
    text = f"CHAPTER I\n\n\n{PROSE}\n\n\n\n\nCHAPTER II\n\n\n{PROSE}\n\n\n\n\n"

    planned = plan(f"{note}{front}{text}{note}")

    assert [c.title for c in planned.included] == ["To my mother.", "CHAPTER I", "CHAPTER II"]
    assert "mended" not in spoken(planned)


def test_page_numbers_in_a_line_are_not_spoken() -> None:
    said = spoken(plan(f"CHAPTER I\n\n\nHe went [Pg 12] home {{13}} and slept.\n\n{PROSE}"))

    assert "He went home and slept." in said
