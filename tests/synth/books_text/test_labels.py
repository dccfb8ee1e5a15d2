"""Chapters are found in plain texts of many languages, and prose is never taken for a heading."""

from __future__ import annotations

import pytest

from synth.books.detect import read_book
from synth.books.documents.labels import eastern_number, find_foreign, is_label, join_titles
from synth.books.plan import plan_book
from tests.synth.books.documents import LONG, Epub, page, plan_of, said, titles

# ruff: noqa: RUF001  # letters of many scripts


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


def kinds(inner: str) -> list[str]:
    return [kind for kind, _ in said(inner)]


@pytest.mark.parametrize(
    "label", ["CHAPTER II", "Kapitel 3.", "II", "4.", "ONE", "Zwölf", "Глава 2", "第三章"]
)
def test_a_label_at_the_start_is_a_heading(label: str) -> None:
    assert kinds(f"<p><b>{label}</b></p><p>It began.</p>") == ["heading", "paragraph"]


def test_chapters_of_a_file_without_headings_are_found() -> None:
    inner = "".join(f"<p class='x'>CHAPTER {n}</p>{LONG}" for n in ("I", "II", "III"))

    plan = plan_of(Epub({"a.xhtml": page(inner)}))

    assert titles(plan) == ["CHAPTER I", "CHAPTER II", "CHAPTER III"]


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

    plan = plan_of(Epub(pages))

    assert titles(plan) == ["1. Rain", "2. Wind"]


@pytest.mark.parametrize("has_contents", [True, False])
def test_a_page_of_nothing_but_a_number_begins_the_chapter_behind_it(has_contents: bool) -> None:
    pages: dict[str, str] = {}
    for number in ("I", "II", "III"):
        pages[f"{number}.xhtml"] = page(f"<p>{number}</p>")
        pages[f"{number}-text.xhtml"] = page(LONG)
    nav = [(number, f"{number}.xhtml") for number in ("I", "II", "III")] if has_contents else None

    plan = plan_of(Epub(pages, nav=nav))

    assert titles(plan) == ["I", "II", "III"]
    assert all(c.source_chars > 1000 for c in plan.included)
