"""Plain texts become books: parts, contents, headings of many languages, notes, pictures."""

from __future__ import annotations

import pytest

from synth.books.detect import read_book
from synth.books.documents.labels import eastern_number, find_foreign, is_label, join_titles
from synth.books.plan import plan_book
from synth.books.txt.reader import read_txt
from tests.synth.books.documents import LONG, Epub, page, plan_of, said, titles
from tests.synth.books_text.blocks import assert_complete, block_of, outline

# ruff: noqa: RUF001  # letters of many scripts

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


HEADER = "The Project Gutenberg EBook of Alice, by Lewis Carroll"
CHAPTERS = (
    *("PREFACE", "CHAPTER I. Down the Rabbit-Hole", "CHAPTER II. The Pool of Tears"),
    "CHAPTER III. A Caucus-Race and a Long Tale",
)


def test_each_part_of_a_gutenberg_text_is_what_it_is() -> None:
    assert_complete(BOOK)
    assert BOOK.source_chars == sum(not c.isspace() for c in ALICE.removeprefix("\ufeff"))
    lines = outline(BOOK)
    assert lines[0] == f"pg-header: furniture|{HEADER}"
    assert lines[7:] == [
        "pg-header: furniture|Produced by Arthur DiBianca and David Widger",
        "picture: furniture|[Illustration]",
        "titlepage: ALICE'S ADVENTURES IN WONDERLAND",
        "titlepage: by Lewis Carroll",
        "toc: heading|CONTENTS",
        *(f"toc: list_item|{title}" for title in CHAPTERS),
        "preface: heading|PREFACE",
        "preface: I wrote this to be read by those who like to have a preface in front of them "
        "when they begin.",
        f"heading|{CHAPTERS[1]}",
        "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
        "nothing to do: once or twice she had peeped into the book her sister was reading, but it "
        'had no pictures—or conversations in it, "and what is the use of a book," thought Alice '
        '"without pictures or conversations?" She was well-known for it.',
        "caption|The White Rabbit runs with his watch",
        "So she was considering in her own mind:",
        'verse|"How doth the little crocodile',
        "verse|Improve his shining tail,",
        "verse|And pour the waters of the Nile",
        "verse|On every golden scale!",
        "break|* * * * *",
        "It was late, and there was nothing to be done about it that she knew of.",
        "footnote: note|A note that says what a book is for.",
        f"heading|{CHAPTERS[2]}",
        '"Curiouser and curiouser!" cried Alice (she was so much surprised, that for the moment '
        "she quite forgot how to speak good English). And [sic].",
        "footnote: note|Another note.",
        f"heading|{CHAPTERS[3]}",
        "They were indeed a queer-looking party that assembled on the bank—the birds with "
        "draggled feathers.",
        "pg-footer: furniture|End of Project Gutenberg's Alice, by Lewis Carroll",
        "pg-footer: furniture|*** END OF THIS PROJECT GUTENBERG EBOOK ALICE ***",
        "pg-footer: furniture|Section 1. General Terms of Use",
    ]


def test_header_and_headings_say_what_the_book_is() -> None:
    found = BOOK.metadata
    assert (found.title, found.authors) == ("Alice's Adventures in Wonderland", ("Lewis Carroll",))
    assert found.language == "en"
    assert found.identifier == "https://www.gutenberg.org/ebooks/11"
    assert [(entry.title, entry.level) for entry in BOOK.toc] == [(one, 1) for one in CHAPTERS]
    headings = {b.anchors[0]: b.text for *_, b in BOOK.blocks() if b.level and b.anchors}
    assert {entry.fragment: entry.title for entry in BOOK.toc} == headings
    assert {entry.path for entry in BOOK.toc} == {"alice.txt"}


def test_note_marks_lead_to_the_next_note_of_their_number() -> None:
    for start, note in (("Alice was", "A note that"), ('"Curiouser', "Another note.")):
        assert block_of(BOOK, start).note_marks == block_of(BOOK, note).anchors != (), start


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("I\n\nIt was a dark night, and the wind went round the house.\n\n"
         "II\n\nThe morning came.\n", "I|II"),
        ("CHAPITRE PREMIER\n\nIl était une fois un roi.\n\nCHAPITRE II\nLe départ\n\n"
         "Il partit à l'aube.\n", "CHAPITRE PREMIER|CHAPITRE II. Le départ"),
        ("Erstes Kapitel.\n\nDer Anfang\n\nEs war einmal ein König.\n\n"
         "Zweites Kapitel.\n\nEr ging fort.\n", "Erstes Kapitel. Der Anfang|Zweites Kapitel."),
        ("PART ONE\n\nCHAPTER 1\n\nIt began here.\n\nCHAPTER 2: The End\n\nIt ended here.\n",
         "PART ONE|CHAPTER 1|CHAPTER 2: The End"),
        ("STAVE ONE.\n\nMARLEY'S GHOST.\n\nMarley was dead.\n\n"
         "STAVE TWO.\n\nTHE FIRST OF THE THREE SPIRITS.\n\nIt was dark.\n",
         "STAVE ONE. MARLEY'S GHOST.|STAVE TWO. THE FIRST OF THE THREE SPIRITS."),
        ("TABLE DES MATIÈRES\n\nI.--Le départ ..... 1\nII.--Le retour .... 25\n\n\n\n"
         "I\n\nLE DÉPART\n\nIl partit à l'aube.\n\nII\n\nLE RETOUR\n\nIl revint.\n",
         "I. LE DÉPART|II. LE RETOUR"),
        ("Kapitel I.\n==========\n\nEs war einmal ein König.\n", "Kapitel I."),
        ("I saw it.\n\nI\n\nand you saw it, too.\n", ""),
        ("Part of it was lost.\n\nChapter two was the longest of all.\n", ""),
        ("Act one was over.\n\nBook me a room, he said.\n", ""),
    ],
)  # fmt: skip
def test_headings_are_found_and_words_are_none(text: str, headings: str) -> None:
    book = read_txt(text.encode(), "a.txt")
    assert "|".join(entry.title for entry in book.toc) == headings
    assert_complete(book)


def test_chapters_lie_within_parts() -> None:
    book = read_txt(b"PART ONE\n\nCHAPTER 1\n\nIt began.\n\nI.\n\nHe.\n\nII.\n\nShe.\n", "a.txt")
    assert [entry.level for entry in book.toc] == [1, 2, 3, 3]


def test_letters_set_apart_are_words() -> None:
    text = "K U R T   W O L F F   V E R L A G\n\nEs war einmal.\n"
    block = next(read_txt(text.encode("latin-1"), "a.txt").blocks()).block
    assert (block.text, block.source_chars) == ("KURT WOLFF VERLAG", 15)


def test_text_of_no_gutenberg_is_named_after_its_file() -> None:
    book = read_txt(b"Only one line.", "my_first_book.txt")
    assert (book.metadata.title, outline(book)) == ("my first book", ["Only one line."])


PROSE = (
    "It was a long and quiet afternoon, and nobody in the house had anything\n"
    "to say about it, so that the clock alone was heard in all the rooms.\n\n"
)


@pytest.mark.parametrize(
    "headings",
    [
        "Глава 1|Глава 2", "ГЛАВА ПЕРВАЯ|ГЛАВА ВТОРАЯ", "Розділ 1|Розділ 2",
        "Rozdział I|Rozdział II", "ROZDZIAŁ PIERWSZY|ROZDZIAŁ DRUGI", "Kapitola 1|Kapitola 2",
        "Hoofdstuk 1|Hoofdstuk 2", "Första kapitlet|Andra kapitlet",
        "Første Kapitel|Andet Kapitel", "1. luku|2. luku", "I. FEJEZET|II. FEJEZET",
        "Bölüm 1|Bölüm 2", "BİRİNCİ BÖLÜM|İKİNCİ BÖLÜM", "Κεφάλαιο 1|Κεφάλαιο 2",
        "ΚΕΦΑΛΑΙΟ Α|ΚΕΦΑΛΑΙΟ Β", "Capítulo Um|Capítulo Dois", "الفصل الأول|الفصل الثاني",
        "פרק א|פרק ב", "第一章 開始|第二章 結束", "第1回|第2回", "一|二", "제1장|제2장",
    ],
)  # fmt: skip
def test_chapters_are_found_by_the_words_of_their_language(headings: str) -> None:
    text = "".join(f"\n\n{heading}\n\n{PROSE * 8}" for heading in headings.split("|"))
    plan = plan_book(read_book(text.encode(), "x.txt"))
    assert [chapter.title for chapter in plan.included] == headings.split("|")


def test_chinese_needs_no_blank_lines_and_no_blanks_between_lines() -> None:
    body = "　　我是一只貓，還沒有名字。不知道生在哪裡，只記得在一個昏暗潮濕的地方。\n" * 9
    plan = plan_book(read_book(f"第一章 開始\n{body}第二章\n{body}".encode(), "x.txt"))
    assert [chapter.title for chapter in plan.included] == ["第一章 開始", "第二章"]
    assert len(plan.included[0].blocks) == 10
    body = "我是一只貓，還沒有名字，也不知道生在哪裡。只記得在一個昏暗潮濕的地方\n喵喵地哭著。\n\n"
    book = read_book((body * 6).encode(), "x.txt")
    assert book.documents[0].blocks[0].text == body.replace("\n", "")


def test_lines_that_only_hold_such_a_word_are_no_headings() -> None:
    lines = (
        "Книга джунглей", "глава семьи", "Часть речи", "En del", "Tom Sawyer", "Parte de mí",
        "Глава 1 была самой длинной из всех", "第一章很好看，但是第二章更好看。",
    )  # fmt: skip
    assert {line: find_foreign(line) for line in lines} == dict.fromkeys(lines)


def test_chinese_numbers_have_values() -> None:
    values = {"一": 1, "十": 10, "十二、": 12, "二十三": 23, "百": 100, "三人": 0}
    assert {text: eastern_number(text) for text in values} == values


def test_a_label_of_any_language_is_joined_with_its_title() -> None:
    assert is_label("Глава 3") and is_label("第三章")
    assert join_titles(["Глава 3", "Дом"]) == "Глава 3. Дом"
    assert join_titles(["第三章", "歸來"]) == "第三章 歸來"


SO = "<p>So it was.</p>"


@pytest.mark.parametrize(
    ("inner", "headings"),
    [
        *((f"<p><b>{label}</b></p><p>It began.</p>", label) for label in (
            "CHAPTER II", "Kapitel 3.", "II", "4.", "ONE", "Zwölf", "Глава 2", "第三章")),
        (f"{SO}<p>1</p>{SO}<p>2</p>{SO}<p>3</p>{SO}", "1 2 3"),  # which count
        (f"{SO}<p>1984</p>{SO}<p>12</p>{SO}", ""),
        ("<h2>One</h2><p>CHAPTER II</p><p>It began.</p>", "One"),
        ("<p>It began.</p><p>I</p><p>We went.</p>", ""),
        ("<p>12</p>", ""),
        ("<p>One.</p><p>Two.</p>", ""),
    ],
)  # fmt: skip
def test_labels_of_a_file_without_headings_are_headings(inner: str, headings: str) -> None:
    blocks = said(inner)
    found = [one.removeprefix("heading|") for one in blocks if one.startswith("heading|")]
    assert " ".join(found) == headings
    assert ("It began." in inner) == ("It began." in blocks)


def test_chapters_of_files_are_found_by_labels_and_numbers() -> None:
    inner = "".join(f"<p class='x'>CHAPTER {n}</p>{LONG}" for n in ("I", "II", "III"))
    assert titles(plan_of(Epub({"a.xhtml": page(inner)}))) == ["CHAPTER I", "CHAPTER II",
                                                              "CHAPTER III"]  # fmt: skip
    pages = {
        f"{n}.xhtml": page(f"<p>{n}</p><h1>{name}</h1>{LONG}")
        for n, name in enumerate(("Rain", "Wind"), 1)
    }
    assert titles(plan_of(Epub(pages))) == ["1. Rain", "2. Wind"]  # one with the heading behind


@pytest.mark.parametrize("has_contents", [True, False])
def test_a_page_of_nothing_but_a_number_begins_the_chapter_behind_it(has_contents: bool) -> None:
    numbers = ["I", "II", "III"]
    pages: dict[str, str] = {}
    for number in numbers:
        pages |= {f"{number}.xhtml": page(f"<p>{number}</p>"), f"{number}-text.xhtml": page(LONG)}
    nav = [(number, f"{number}.xhtml") for number in numbers] if has_contents else None
    plan = plan_of(Epub(pages, nav=nav))
    assert titles(plan) == numbers
    assert all(chapter.source_chars > 1000 for chapter in plan.included)
