"""Chapters are found in plain texts of many languages, and prose is never taken for a heading."""

# ruff: noqa: RUF001  # letters of many scripts

from __future__ import annotations

import pytest

from synth.books.detect import read_book
from synth.books.documents.labels import is_label, join_titles
from synth.books.plan import plan_book
from synth.books.txt.heading_words import eastern_number, find_foreign

PROSE = (
    "It was a long and quiet afternoon, and nobody in the house had anything\n"
    "to say about it, so that the clock alone was heard in all the rooms.\n\n"
)


@pytest.mark.parametrize(
    "headings",
    [
        ("Глава 1", "Глава 2"),
        ("ГЛАВА ПЕРВАЯ", "ГЛАВА ВТОРАЯ"),
        ("Розділ 1", "Розділ 2"),
        ("Rozdział I", "Rozdział II"),
        ("ROZDZIAŁ PIERWSZY", "ROZDZIAŁ DRUGI"),
        ("Kapitola 1", "Kapitola 2"),
        ("Hoofdstuk 1", "Hoofdstuk 2"),
        ("Första kapitlet", "Andra kapitlet"),
        ("Første Kapitel", "Andet Kapitel"),
        ("1. luku", "2. luku"),
        ("I. FEJEZET", "II. FEJEZET"),
        ("Bölüm 1", "Bölüm 2"),
        ("BİRİNCİ BÖLÜM", "İKİNCİ BÖLÜM"),
        ("Κεφάλαιο 1", "Κεφάλαιο 2"),
        ("ΚΕΦΑΛΑΙΟ Α", "ΚΕΦΑΛΑΙΟ Β"),
        ("Capítulo Um", "Capítulo Dois"),
        ("الفصل الأول", "الفصل الثاني"),
        ("פרק א", "פרק ב"),
        ("第一章 開始", "第二章 結束"),
        ("第1回", "第2回"),
        ("一", "二"),
        ("제1장", "제2장"),
    ],
    ids=lambda headings: headings[0],
)
def test_chapters_are_found_by_the_words_of_their_language(headings: tuple[str, str]) -> None:
    text = "".join(f"\n\n{heading}\n\n{PROSE * 8}" for heading in headings)

    plan = plan_book(read_book(text.encode(), "x.txt"))

    assert [chapter.title for chapter in plan.included] == list(headings)


def test_chapters_are_found_where_no_line_is_blank() -> None:
    body = "　　我是一只貓，還沒有名字。不知道生在哪裡，只記得在一個昏暗潮濕的地方。\n" * 9
    text = f"第一章 開始\n{body}第二章\n{body}"

    plan = plan_book(read_book(text.encode(), "x.txt"))

    assert [chapter.title for chapter in plan.included] == ["第一章 開始", "第二章"]
    assert len(plan.included[0].blocks) == 10


def test_wrapped_lines_of_chinese_are_joined_without_a_blank() -> None:
    body = "我是一只貓，還沒有名字，也不知道生在哪裡。只記得在一個昏暗潮濕的地方\n喵喵地哭著。\n\n"

    book = read_book((body * 6).encode(), "x.txt")

    assert book.documents[0].blocks[0].text == body.replace("\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "Книга джунглей",
        "глава семьи",
        "Часть речи",
        "En del",
        "Tom Sawyer",
        "Глава 1 была самой длинной из всех",
        "第一章很好看，但是第二章更好看。",
        "Parte de mí",
    ],
)
def test_lines_that_only_hold_such_a_word_are_no_headings(text: str) -> None:
    assert find_foreign(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("一", 1), ("十", 10), ("十二、", 12), ("二十三", 23), ("百", 100), ("三人", 0)],
)
def test_chinese_numbers_have_values(text: str, number: int) -> None:
    assert eastern_number(text) == number


def test_a_label_of_any_language_is_joined_with_its_title() -> None:
    assert is_label("Глава 3") and is_label("第三章")
    assert join_titles(["Глава 3", "Дом"]) == "Глава 3. Дом"
    assert join_titles(["第三章", "歸來"]) == "第三章 歸來"
