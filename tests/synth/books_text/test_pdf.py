"""A PDF becomes a book: paragraphs joined, running heads apart; scans and locks are refused."""

from __future__ import annotations

import pytest

from synth.books.book import BlockKind, Book, BookRejectedError
from synth.books.documents import pdf
from synth.books.documents.pdf import read_pdf
from synth.books.plan import plan_book
from tests.synth.books_text.blocks import (
    Text,
    assert_complete,
    make_pdf,
    page_of_lines,
    texts,
    with_role,
)

FIRST = [
    "\tIt was late in the year when the old clock stopped, and nobody in the whole wide",
    "house had the heart to wind it up again, for it had been the father's clock, a won-",
    "derful piece of work, said the neighbours, who knew nothing of clocks at all.",
    "\tOn the second day a stranger came, who asked for the well",
]
HEAD = Text("THE OLD CLOCK", 250, 800)


def novel(*, outline: bool = True) -> Book:
    """Return a book of four pages in two chapters, whose paragraphs go over the pages."""
    pages = []
    for number in range(4):
        page = [HEAD, Text(str(number + 5), 290, 40)]
        if number % 2 == 0:
            page.append(Text(f"Chapter {number // 2 + 1}", 230, 740, 18))
            page += page_of_lines([*FIRST[:3], FIRST[3] + "-"])
        else:
            page += page_of_lines(["known maker of clocks, and was sent away again.", *FIRST[:3]])
        pages.append(page)
    marks = [("Chapter 1", 0), ("Chapter 2", 2)] if outline else []
    raw = make_pdf(pages, outline=marks, title="The Old Clock")
    return read_pdf(raw, "clock.pdf")


def test_paragraph_is_joined_over_lines_and_pages() -> None:
    paragraphs = texts(novel(), BlockKind.PARAGRAPH)

    assert len(paragraphs) == 6
    assert paragraphs[0].endswith(
        "father's clock, a wonderful piece of work, said the neighbours, "
        "who knew nothing of clocks at all."
    )
    assert paragraphs[1].startswith("On the second day a stranger came, who asked for the well")
    assert paragraphs[1].endswith("known maker of clocks, and was sent away again.")


def test_running_heads_and_page_numbers_are_furniture() -> None:
    book = novel()

    assert with_role(book, "pagebreak") == [
        word for number in range(5, 9) for word in ("THE OLD CLOCK", str(number))
    ]
    assert set(with_role(book, "pagebreak")) <= set(texts(book, BlockKind.FURNITURE))


@pytest.mark.parametrize("outline", [True, False])
def test_contents_come_from_the_outline_or_the_headings(outline: bool) -> None:
    book = novel(outline=outline)

    assert [entry.title for entry in book.toc] == ["Chapter 1", "Chapter 2"]
    leads_to = {anchor: block.text for *_, block in book.blocks() for anchor in block.anchors}
    assert [leads_to[entry.fragment] for entry in book.toc] == ["Chapter 1", "Chapter 2"]
    assert texts(book, BlockKind.HEADING) == ["Chapter 1", "Chapter 2"]


def test_every_character_is_in_one_block() -> None:
    book = novel()

    assert_complete(book)
    assert book.metadata.title == "The Old Clock"


def test_numbered_headings_at_the_top_of_their_pages_are_no_running_heads() -> None:
    names = ("Anna", "Bert", "Cora", "Dirk")
    pages = [
        [
            Text(f"Chapter {number}", 250, 790),
            Text(str(number + 6), 290, 40),
            *page_of_lines([f"{name} {line.strip()}" for line in FIRST]),
        ]
        for number, name in enumerate(names, start=1)
    ]

    book = read_pdf(make_pdf(pages), "a.pdf")

    assert with_role(book, "pagebreak") == ["7", "8", "9", "10"]
    assert [entry.title for entry in book.toc] == [f"Chapter {n}" for n in (1, 2, 3, 4)]


def test_roman_number_in_large_letters_is_a_heading() -> None:
    pages = [[Text("II", 290, 790, 18), *page_of_lines(FIRST)]]

    assert [entry.title for entry in read_pdf(make_pdf(pages), "a.pdf").toc] == ["II"]


def test_number_in_the_text_is_no_page_number() -> None:
    lines = [
        "There was but one answer to the question that he had asked of them:",
        "42",
        "he said.",
    ]

    book = read_pdf(make_pdf([page_of_lines(lines)]), "a.pdf")

    assert with_role(book, "pagebreak") == []


def refusal_of(raw: bytes) -> BookRejectedError:
    with pytest.raises(BookRejectedError) as refused:
        read_pdf(raw, "a.pdf")
    return refused.value


def test_scanned_book_is_refused() -> None:
    refused = refusal_of(make_pdf([[], [], []]))

    assert refused.code == "pdf_without_text"
    assert "OCR" in refused.message


def test_scanned_book_with_a_stamp_on_each_page_is_refused() -> None:
    assert refusal_of(make_pdf([[Text(f"p{n}", 10, 10)] for n in range(4)])).code == (
        "pdf_without_text"
    )


def test_page_without_text_is_told() -> None:
    book = read_pdf(make_pdf([page_of_lines(FIRST), [], page_of_lines(FIRST)]), "a.pdf")

    assert "1 page without text: 2" in book.warnings


def test_pdf_with_a_password_is_refused() -> None:
    key = "<" + "41" * 32 + ">"
    lock = f"/ID [<41><41>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O {key} /U {key} >>"

    assert refusal_of(make_pdf([page_of_lines(FIRST)], trailer=lock)).code == "book_encrypted"


def test_pdf_with_another_lock_is_refused_as_drm() -> None:
    lock = "/ID [<41><41>] /Encrypt << /Filter /Adobe.APS /V 1 >>"

    refused = refusal_of(make_pdf([page_of_lines(FIRST)], trailer=lock))

    assert refused.code == "book_drm"
    assert "DRM" in refused.message


@pytest.mark.parametrize("raw", [b"%PDF-1.7\n", b"%PDF-1.7\n" + b"\0" * 1000])
def test_damaged_pdf_is_refused(raw: bytes) -> None:
    assert refusal_of(raw).code == "book_broken"


def test_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_PAGES", 2)

    assert refusal_of(make_pdf([page_of_lines(FIRST)] * 3)).code == "book_too_large"


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "_MAX_SECONDS", -1.0)

    assert refusal_of(make_pdf([page_of_lines(FIRST)])).code == "book_too_large"


def column(name: str, left: float, *, count: int = 12, top: float = 700.0) -> list[Text]:
    """Return the lines of a column, each with its name and number."""
    words = [
        "the",
        "bell",
        "rang",
        "over",
        "our",
        "quiet",
        "town",
        "and",
        "then",
        "fell",
        "still",
        "again",
        "for",
        "years",
    ]
    return [
        Text(f"{name}{n} {' '.join((words + words)[(n + len(name) + int(left)) % 13 :][:6])}",
             left, top - 14 * n)
        for n in range(count)
    ]  # fmt: skip


def across(*columns: list[Text]) -> list[Text]:
    """Return the lines of columns row by row, as some programs write them."""
    return [line for row in zip(*columns, strict=True) for line in row]


@pytest.mark.parametrize("is_by_rows", [True, False], ids=["rows", "columns"])
def test_columns_are_read_one_after_the_other(is_by_rows: bool) -> None:
    pages = []
    for number in range(3):
        left, right = column("lmn"[number] + "x", 60), column("rst"[number] + "x", 320)
        lines = across(left, right) if is_by_rows else [*left, *right]
        head = Text("The Bell Review of the Whole Year", 180, 790, 10)
        title = [Text("Chapter One", 200, 750, 20)] if number == 0 else []
        pages.append([head, *title, *lines, Text(str(number + 7), 290, 40, 10)])

    plan = plan_book(read_pdf(make_pdf(pages), "a.pdf"))

    assert [chapter.title for chapter in plan.included] == ["Chapter One"]
    answer = " ".join(block.text for block in plan.included[0].spoken())
    order = [f"{side}x{n} " for side in "lrmsnt" for n in range(12)]
    assert [answer.find(mark) for mark in order] == sorted(answer.find(mark) for mark in order)
    assert all(mark in answer for mark in order)
    assert "Review" not in answer
    assert not any("agebreak" in chapter.title for chapter in plan.chapters)


def test_three_columns_and_a_title_between_them_are_read_in_order() -> None:
    def rows(name: str, top: float) -> list[Text]:
        words = "bell rang over town"
        lefts = (50, 225, 400)
        return [
            Text(f"{name}{side}x{n} {words}", left, top - 14 * n)
            for n in range(8)
            for side, left in enumerate(lefts)
        ]

    lines = [
        *rows("a", 760),
        Text("A title which stands over all three columns of it", 120, 600, 16),
    ]
    plan = plan_book(read_pdf(make_pdf([[*lines, *rows("b", 560)]]), "a.pdf"))

    answer = " ".join(block.text for chapter in plan.included for block in chapter.spoken())
    order = [f"{name}{side}x{n} " for name in "ab" for side in range(3) for n in range(8)]
    assert [answer.find(mark) for mark in order] == sorted(answer.find(mark) for mark in order)
    assert answer.find("a2x7") < answer.find("A title") < answer.find("b0x0")


def test_contents_with_page_numbers_are_no_columns() -> None:
    lines = [
        text
        for n in range(10)
        for text in (
            Text(f"Chapter {n} of the book", 72, 700 - 14 * n),
            Text(str(n * 9), 500, 700 - 14 * n),
        )
    ]
    plan = plan_book(read_pdf(make_pdf([lines, page_of_lines(["A word."] * 5)]), "a.pdf"))

    answer = " ".join(planned.block.text for one in plan.chapters for planned in one.blocks)
    assert answer.index("Chapter 3 of the book 27") < answer.index("Chapter 4 of the book 36")


def test_footnotes_of_a_page_are_apart_from_its_text() -> None:
    pages = []
    for number in range(2):
        text = page_of_lines(
            [f"p{number}l{n} the bell rang over the quiet town" for n in range(12)]
        )
        note = Text(f"1 See the note of page {number}, which is", 72, 500, 8)
        pages.append([*text, note, Text(f"of {number} two lines and small", 72, 490, 8)])

    plan = plan_book(read_pdf(make_pdf(pages), "a.pdf"))

    answer = " ".join(block.text for chapter in plan.included for block in chapter.spoken())
    assert "See the note" not in answer
    assert "p0l11 the bell rang over the quiet town p1l0" in answer
    notes = [row for row in plan.to_json()["skipped"] if row["reason"] == "note"]
    assert [row["text"] for row in notes] == [
        f"1 See the note of page {n}, which is of {n} two lines and small" for n in range(2)
    ]
