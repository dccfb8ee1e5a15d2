"""Plain texts in other shapes: not wrapped, indented, plays, odd sizes, anything at all."""

from __future__ import annotations

import random
import time

import pytest

from synth.books.book import BlockKind, Book, count_chars
from synth.books.plan import Plan, plan_book
from synth.books.txt.reader import read_txt
from tests.synth.books_text.blocks import assert_complete, outline, texts

PROSE = "It was late in the year when the old clock stopped, and nobody had the heart to wind it. "


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        (f"{PROSE * 3}\n“Who is there?”\n{PROSE * 2}\nHe went.", "It “Who It He"),  # not wrapped
        # Indented first lines begin paragraphs where no line is blank.
        ("   It was late in the year when the old clock stopped, and nobody had\n"
         "the heart to wind it up.\n"
         "   On the next day a stranger came to the house, who asked for work of\n"
         "any kind, and was sent away.\n", "It On"),
    ],
    ids=["each_line", "indented"],
)  # fmt: skip
def test_paragraphs_are_found_without_blank_lines(text: str, paragraphs: str) -> None:
    book = read_txt(text.encode(), "a.txt")
    assert [t.split()[0] for t in texts(book, BlockKind.PARAGRAPH)] == paragraphs.split()
    assert_complete(book)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        # The word stands whole elsewhere: the hyphen was the typesetter's.
        ("wonderful things, and they said that it was the most won-\nderful of all",
         "wonderful of"),
        # It stands with a hyphen elsewhere.
        ("a well-known man of the town was here, and he was a well-\nknown thief",
         "well-known thief"),
        # Nothing proves it: kept.
        ("there was nothing to be seen but the long and weary half-\nlight of day",
         "half-light of"),
        ("und es war so, daß er sich an nichts erinnern konnte: ein-\nund zwanzig",
         "ein- und zwanzig"),
        ("he looked at her for a long time without any word at all--\nand went", "at all—and went"),
    ],
)  # fmt: skip
def test_hyphen_at_a_line_end_is_undone_only_when_that_is_safe(text: str, joined: str) -> None:
    book = read_txt(text.encode(), "a.txt")
    assert joined in " ".join(texts(book, BlockKind.PARAGRAPH))


PLAY = """\
FIRST ACT

Morning-room in Half-Moon Street. The room is luxuriously and artistically
furnished. The sound of a piano is heard.

ALGERNON.
Did you hear what I was playing, Lane?

LANE.
I didn't think it polite to listen, sir.

ALGERNON. [Languidly.] I'm sorry for that, for your sake. I don't play
accurately--but I play with wonderful expression.
LANE. Yes, sir.
ALGERNON, rising. And, speaking of the science of Life, have you got the
sandwiches cut?

[LANE goes out.]

SECOND ACT

LANE.
Mr. Worthing.
"""


FRENCH = (
    "ACTE PREMIER\n\nSCÈNE PREMIÈRE\n\nLE COMTE, riant.--Eh bien, que fais-tu là?\n\n"
    "SUZANNE.--Rien, monsieur.\n\nLE COMTE.--Vraiment?\n\nSUZANNE, à part.--Il sait tout.\n\n"
    "LE COMTE.--Parle!\n\nSUZANNE.--Jamais.\n"
)


def test_speeches_of_a_play_say_who_speaks() -> None:
    book, french = read_txt(PLAY.encode(), "play.txt"), read_txt(FRENCH.encode("latin-1"), "m.txt")

    assert [line for line in outline(book) if line.startswith("speech")] == [
        "speech ALGERNON|Did you hear what I was playing, Lane?",
        "speech LANE|I didn't think it polite to listen, sir.",
        "speech ALGERNON|[Languidly.] I'm sorry for that, for your sake. I don't play "
        "accurately—but I play with wonderful expression.",
        "speech LANE|Yes, sir.",
        "speech ALGERNON|(rising) And, speaking of the science of Life, have you got the "
        "sandwiches cut?",
        "speech LANE|Mr. Worthing.",
    ]
    assert [entry.title for entry in book.toc] == ["FIRST ACT", "SECOND ACT"]
    assert_complete(book)
    speeches = outline(french)[2:]
    assert speeches[0] == "speech LE COMTE|(riant) Eh bien, que fais-tu là?"
    assert speeches[1] == "speech SUZANNE|Rien, monsieur."
    assert [one.split("|")[0] for one in speeches] == ["speech LE COMTE", "speech SUZANNE"] * 3
    assert [entry.level for entry in french.toc] == [1, 2]


def test_stars_end_a_scene_without_blank_lines_too() -> None:
    book = read_txt(b"The house stood on the hill.\n***\nHe went in.\n", "a.txt")
    assert outline(book) == ["The house stood on the hill.", "break|***", "He went in."]


@pytest.mark.parametrize(
    "text",
    [
        "w" * 1_000_000,
        *(pytest.param(text, marks=pytest.mark.thorough) for text in (
            "word " * 200_000, "_a -- [1] " * 100_000, "a.\n" * 300_000,
            "CONTENTS\n\n" + "One\n\n" * 50_000)),
    ],
)  # fmt: skip
def test_text_of_a_million_characters_takes_time_that_grows_with_it_alone(text: str) -> None:
    started = time.process_time()
    book = read_txt(text.encode(), "long.txt")
    assert time.process_time() - started < 20
    assert book.source_chars == count_chars(text)
    assert_complete(book)


PIECES = (
    *("CHAPTER I.", "CHAPTER II. The Bell", "Chapter 3", "I.", "II", "7", "CONTENTS", "PREFACE"),
    *("[Illustration]", "[Illustration: A dog", "with a hat]", "[1] A note.", "said so.[1]", "[2]"),
    *("[Footnote 1: x]", "* * *", "-----", "ACT I", "HAMLET.", "HAMLET. To be.", "OPHELIA: No."),
    *("A B C D", "K U R T   W O L F F", "_all of_ it", "_half", "well-", "known--", "THE END"),
    *("Produced by X", "*** START OF THE PROJECT GUTENBERG EBOOK X ***", "INDEX", "]", "["),
    *("*** END OF THE PROJECT GUTENBERG EBOOK X ***", "End of Project Gutenberg's X", "\x0c"),
    *("\u2028", "\u00a0", "e\u0301\u0301", PROSE, PROSE[:70], "    indented", "\ttabbed"),
    *("= bold =", "1801—I have", "“Oh!”", "漢字。", "{12}", "[Pg 3]", "#", "&", "<p>", "1. one"),
)


ENDS = ("\n", "\n", "\r\n", "\n\n", "\n\n\n\n", " ")
SILENT = {BlockKind.BREAK, BlockKind.SPEECH, BlockKind.NOTE}


def test_every_character_of_any_text_is_in_one_block() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        text = "".join(
            chance.choice(PIECES) + chance.choice(ENDS) for _ in range(chance.randrange(1, 120))
        )
        book = read_txt((text if text.strip() else "x").encode(), f"{seed}.txt")
        assert_complete(book)
        assert all(block.text or block.kind in SILENT for *_, block in book.blocks()), seed


LINE = "It was late in the year when the old clock stopped, and nobody had\n"
WRAPPED = LINE * 12
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


def spoken(planned: Plan) -> str:
    return "\n".join(block.text for chapter in planned.included for block in chapter.spoken())


ONE, TWO = f"CHAPTER I\n\n\n{WRAPPED}\n\n\n", f"CHAPTER II\n\n\n{WRAPPED}\n\n\n"


@pytest.mark.parametrize(
    ("body", "titles"),
    [
        *((f"{ONE}{TWO}{word}\n\n\n", "CHAPTER I|CHAPTER II") for word in (
            "THE END", "FIN", "FINIS.", "ENDE", "_Fin de la première partie_")),
        (f"CHAPTER I—THE RIVER\n\n\n{WRAPPED}\n\n\nCHAPTER II—THE SEA\n\n\n{WRAPPED}",
         "CHAPTER I—THE RIVER|CHAPTER II—THE SEA"),
    ],
)  # fmt: skip
def test_what_ends_a_book_is_no_chapter_and_a_dash_joins_titles(body: str, titles: str) -> None:
    assert [chapter.title for chapter in plan(body).included] == titles.split("|")


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("[Note 1: Voir M. Thiers.]", ["Voir M. Thiers."]),
        ("[Fußnote 1: Siehe Goethe.]", ["Siehe Goethe."]),
        ("[Anmerkung 1: Siehe Goethe.]", ["Siehe Goethe."]),
        ("[Nota 1: Véase.]", ["Véase."]),
        ("[Note the date: it was a Sunday.]", []),  # an aside
    ],
)
def test_notes_are_known_by_the_words_of_their_languages(note: str, said: list[str]) -> None:
    book = read(f"CHAPTER I\n\n\n{WRAPPED}He went.[1]\n\n{note}\n\n{WRAPPED}")
    assert texts(book, BlockKind.NOTE) == said
    assert ("[1]" in spoken(plan_book(book))) == (not said)


def test_headings_with_letters_set_apart_are_headings() -> None:
    body = (
        "                    I n h a l t\n\n  Erstes Kapitel    5\n  Zweites Kapitel   9\n\n\n\n\n"
        f"  E r s t e s  K a p i t e l\n\n\n{WRAPPED}\n\n\n"
        f"  Z w e i t e s  K a p i t e l\n\n\n{WRAPPED}"
    )
    planned = plan(body, language="German")
    assert [c.title for c in planned.included] == ["Erstes Kapitel", "Zweites Kapitel"]
    assert [str(c.reason) for c in planned.chapters if c.title == "Inhalt"] == ["contents"]


TRANSCRIBED = (
    "    [ Anmerkungen zur Transkription:\n\n    Druckfehler wurden korrigiert.\n\n"
    "    Gesperrter Text ist _so ausgezeichnet_.\n    ]\n\n\n"
    f"Erstes Kapitel\n\n\n{WRAPPED}\n\n\nZweites Kapitel\n\n\n{WRAPPED}"
)
ADDRESS = (
    "LA CLOCHE\n\nPAR\n\nANN AUTHOR\n\nPARIS\n\nCALMANN LÉVY, ÉDITEUR\n\nRUE AUBER, 3\n\n1885\n\n"
    "Droits de reproduction et de traduction réservés.\n\n\n\n\n"
    f"CHAPITRE PREMIER\n\n\n{WRAPPED}\n\n\nCHAPITRE II\n\n\n{WRAPPED}"
)
NUMBERS = f"CHAPTER I\n\n\nHe went [Pg 12] home {{13}} and slept.\n\n{WRAPPED}"


@pytest.mark.parametrize(
    ("body", "header", "has", "lacks"),
    [
        (TRANSCRIBED, {}, "Erstes Kapitel", ["Druckfehler", "ausgezeichnet"]),
        (ADDRESS, {"title": "La Cloche", "language": "French"}, "CHAPITRE PREMIER",
         ["AUBER", "réservés", "LA CLOCHE"]),
        (NUMBERS, {}, "He went home and slept.", []),
    ],
    ids=["transcriber", "address", "page_numbers"],
)  # fmt: skip
def test_what_is_no_text_of_the_book_is_not_spoken(
    body: str, header: dict[str, str], has: str, lacks: list[str]
) -> None:
    said = spoken(plan(body, **header))
    assert has in said
    assert not [word for word in lacks if word in said]


def test_the_persons_of_a_play_are_a_list_and_a_place_is_nobody() -> None:
    persons = ["TOM, a miller.", "JANE, his sister.", "SCENE: A town."]
    lines = f"Dramatis Personæ\n\n{persons[0]}\n{persons[1]}\n\n{persons[2]}\n\n\n"
    speeches = "".join(f"{n}.\nNay, answer me.\n\n" for n in ("TOM", "JANE") * 4)
    book = read(f"{lines}ACT I\n\n{speeches}")
    assert texts(book, BlockKind.LIST_ITEM) == persons
    assert {b.speaker for *_, b in book.blocks() if b.speaker} == {"TOM", "JANE"}


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
    found = read(WRAPPED, title=header).metadata
    assert (found.title, found.subtitle) == (title, subtitle)


@pytest.mark.parametrize(
    "title", ["TRANSCRIBER\u2019S NOTE", "Transcriber's Notes:", "Anmerkungen zur Transkription"]
)
def test_notes_of_the_transcriber_are_not_spoken_wherever_they_stand(title: str) -> None:
    note = f"{title}\n\n\nWords in italics are marked _so_.\n\nErrors were mended.\n\n\n\n\n"
    front = "THE CLOCK\n\nBy Ann Author\n\n\nAll rights reserved.\n\n\n\n\nTo my mother.\n\n\n\n\n"
    planned = plan(f"{note}{front}{ONE}\n\n{TWO}\n\n{note}")
    assert [c.title for c in planned.included] == ["To my mother.", "CHAPTER I", "CHAPTER II"]
    assert "mended" not in spoken(planned)
