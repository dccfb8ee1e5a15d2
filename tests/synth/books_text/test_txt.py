"""A plain text of Project Gutenberg becomes a book: parts, contents, headings, notes, pictures."""

from __future__ import annotations

import pytest

from synth.books.book import BlockKind
from synth.books.txt.reader import read_txt
from tests.synth.books_text.blocks import assert_complete, block_of, texts, with_role

ALICE = """\
\ufeffThe Project Gutenberg EBook of Alice, by Lewis Carroll

This eBook is for the use of anyone anywhere at no cost.

Title: Alice's Adventures
       in Wonderland

Author: Lewis Carroll

Release Date: June 25, 2008 [EBook #11]

Language: English

*** START OF THIS PROJECT GUTENBERG EBOOK ALICE'S ADVENTURES IN WONDERLAND ***




Produced by Arthur DiBianca and David Widger



[Illustration]

ALICE'S ADVENTURES IN WONDERLAND

by Lewis Carroll


CONTENTS

 PREFACE
 CHAPTER I.     Down the Rabbit-Hole
 CHAPTER II.    The Pool of Tears
 CHAPTER III.   A Caucus-Race and a Long Tale




PREFACE

I wrote this to be read by those who like to have a preface in front of
them when they begin.


CHAPTER I.

Down the Rabbit-Hole


Alice was beginning to get very tired of sitting by her sister on the
bank, and of having nothing to do: once or twice she had peeped into the
book her sister was reading, but it had no pictures--or conversations in
it, "and what is the use of a book," thought Alice "without pictures or
_conversations_?"[1] She was well-
known for it.

[Illustration: The White Rabbit runs
with his watch]

So she was considering in her own mind:

    "How doth the little crocodile
      Improve his shining tail,
    And pour the waters of the Nile
      On every golden scale!

       *       *       *       *       *

It was late, and there was nothing to be done about it that she knew of.

[1] A note that says what a book is for.


CHAPTER II.
The Pool of Tears

"Curiouser and curiouser!" cried Alice (she was so much surprised, that
for the moment she quite forgot how to speak good English).[1] And [sic].

[1] Another note.


CHAPTER III.

A Caucus-Race and a Long Tale

They were indeed a queer-looking party that assembled on the bank--the
birds with draggled feathers.

End of Project Gutenberg's Alice, by Lewis Carroll

*** END OF THIS PROJECT GUTENBERG EBOOK ALICE ***

Section 1.  General Terms of Use
"""
BOOK = read_txt(ALICE.replace("\n", "\r\n").encode(), "alice.txt")


def test_header_says_what_the_book_is() -> None:
    assert BOOK.metadata.title == "Alice's Adventures in Wonderland"
    assert BOOK.metadata.authors == ("Lewis Carroll",)
    assert BOOK.metadata.language == "en"
    assert BOOK.metadata.identifier == "https://www.gutenberg.org/ebooks/11"


def test_every_character_is_in_one_block() -> None:
    assert_complete(BOOK)
    assert BOOK.source_chars == sum(not c.isspace() for c in ALICE.removeprefix("\ufeff"))


def test_header_credits_and_licence_are_furniture() -> None:
    assert with_role(BOOK, "pg-header")[-1] == "Produced by Arthur DiBianca and David Widger"
    assert with_role(BOOK, "pg-footer")[0].startswith("End of Project Gutenberg's Alice")
    assert with_role(BOOK, "pg-footer")[-1] == "Section 1. General Terms of Use"
    furniture = texts(BOOK, BlockKind.FURNITURE)
    assert set(with_role(BOOK, "pg-header") + with_role(BOOK, "pg-footer")) <= set(furniture)


def test_title_page_is_known_by_the_header() -> None:
    assert with_role(BOOK, "titlepage") == ["ALICE'S ADVENTURES IN WONDERLAND", "by Lewis Carroll"]


def test_contents_list_is_no_chapter() -> None:
    assert with_role(BOOK, "toc") == [
        "CONTENTS",
        "PREFACE",
        "CHAPTER I. Down the Rabbit-Hole",
        "CHAPTER II. The Pool of Tears",
        "CHAPTER III. A Caucus-Race and a Long Tale",
    ]


def test_number_and_title_make_one_heading() -> None:
    assert [(entry.title, entry.level) for entry in BOOK.toc] == [
        ("PREFACE", 1),
        ("CHAPTER I. Down the Rabbit-Hole", 1),
        ("CHAPTER II. The Pool of Tears", 1),
        ("CHAPTER III. A Caucus-Race and a Long Tale", 1),
    ]


def test_contents_lead_to_the_headings() -> None:
    headings = {
        b.anchors[0]: b.text for *_, b in BOOK.blocks() if b.kind is BlockKind.HEADING and b.anchors
    }

    assert {entry.fragment: entry.title for entry in BOOK.toc} == headings
    assert {entry.path for entry in BOOK.toc} == {"alice.txt"}


def test_wrapped_lines_are_one_paragraph_without_marks() -> None:
    assert block_of(BOOK, "Alice was").text == (
        "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
        "nothing to do: once or twice she had peeped into the book her sister was reading, but it "
        'had no pictures—or conversations in it, "and what is the use of a book," thought Alice '
        '"without pictures or conversations?" She was well-known for it.'
    )


def test_note_marks_lead_to_the_next_note_of_their_number() -> None:
    notes = [b for *_, b in BOOK.blocks() if b.kind is BlockKind.NOTE]

    assert [note.text for note in notes] == [
        "A note that says what a book is for.",
        "Another note.",
    ]
    assert block_of(BOOK, "Alice was").note_marks == notes[0].anchors
    assert block_of(BOOK, '"Curiouser').note_marks == notes[1].anchors
    assert block_of(BOOK, '"Curiouser').text.endswith("English). And [sic].")


def test_picture_keeps_its_caption() -> None:
    assert texts(BOOK, BlockKind.CAPTION) == ["The White Rabbit runs with his watch"]


def test_poem_keeps_its_lines_and_ornaments_end_a_scene() -> None:
    assert texts(BOOK, BlockKind.VERSE) == [
        '"How doth the little crocodile',
        "Improve his shining tail,",
        "And pour the waters of the Nile",
        "On every golden scale!",
    ]
    assert "* * * * *" in texts(BOOK, BlockKind.BREAK)


def test_preface_is_named_and_kept() -> None:
    assert block_of(BOOK, "I wrote this").role == "preface"
    assert block_of(BOOK, "I wrote this").kind is BlockKind.PARAGRAPH


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        (
            "I\n\nIt was a dark night, and the wind went round the house.\n\n"
            "II\n\nThe morning came.\n",
            ["I", "II"],
        ),
        (
            "CHAPITRE PREMIER\n\nIl était une fois un roi.\n\nCHAPITRE II\nLe départ\n\n"
            "Il partit à l'aube.\n",
            ["CHAPITRE PREMIER", "CHAPITRE II. Le départ"],
        ),
        (
            "Erstes Kapitel.\n\nDer Anfang\n\nEs war einmal ein König.\n\n"
            "Zweites Kapitel.\n\nEr ging fort.\n",
            ["Erstes Kapitel. Der Anfang", "Zweites Kapitel."],
        ),
        (
            "PART ONE\n\nCHAPTER 1\n\nIt began here.\n\nCHAPTER 2: The End\n\nIt ended here.\n",
            ["PART ONE", "CHAPTER 1", "CHAPTER 2: The End"],
        ),
        (
            "STAVE ONE.\n\nMARLEY'S GHOST.\n\nMarley was dead.\n\n"
            "STAVE TWO.\n\nTHE FIRST OF THE THREE SPIRITS.\n\nIt was dark.\n",
            ["STAVE ONE. MARLEY'S GHOST.", "STAVE TWO. THE FIRST OF THE THREE SPIRITS."],
        ),
        (
            "TABLE DES MATIÈRES\n\nI.--Le départ ..... 1\nII.--Le retour .... 25\n\n\n\n"
            "I\n\nLE DÉPART\n\nIl partit à l'aube.\n\nII\n\nLE RETOUR\n\nIl revint.\n",
            ["I. LE DÉPART", "II. LE RETOUR"],
        ),
        ("Kapitel I.\n==========\n\nEs war einmal ein König.\n", ["Kapitel I."]),
        ("I saw it.\n\nI\n\nand you saw it, too.\n", []),
        ("Part of it was lost.\n\nChapter two was the longest of all.\n", []),
        ("Act one was over.\n\nBook me a room, he said.\n", []),
    ],
)
def test_headings_are_found_and_words_are_none(text: str, headings: list[str]) -> None:
    book = read_txt(text.encode(), "a.txt")

    assert [entry.title for entry in book.toc] == headings
    assert_complete(book)


def test_chapters_lie_within_parts() -> None:
    book = read_txt(b"PART ONE\n\nCHAPTER 1\n\nIt began.\n\nI.\n\nHe.\n\nII.\n\nShe.\n", "a.txt")

    assert [entry.level for entry in book.toc] == [1, 2, 3, 3]


def test_letters_set_apart_are_words() -> None:
    book = read_txt(
        "K U R T   W O L F F   V E R L A G\n\nEs war einmal.\n".encode("latin-1"), "a.txt"
    )

    assert next(book.blocks()).block.text == "KURT WOLFF VERLAG"
    assert next(book.blocks()).block.source_chars == 15


def test_text_of_no_gutenberg_is_named_after_its_file() -> None:
    book = read_txt(b"Only one line.", "my_first_book.txt")

    assert book.metadata.title == "my first book"
    assert with_role(book, "pg-header") == []
