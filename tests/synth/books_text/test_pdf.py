"""A PDF becomes a book: paragraphs joined, running heads apart; scans and locks are refused."""

from __future__ import annotations

import pytest

from synth.books.book import BlockKind, Book
from synth.books.documents import pdf
from synth.books.documents.pdf import read_pdf
from synth.books.plan import Plan, plan_book
from tests.synth.books_text.blocks import (
    Text,
    assert_complete,
    make_pdf,
    page_of_lines,
    refusal_of,
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


@pytest.mark.parametrize("outline", [True, False])
def test_a_novel_has_paragraphs_over_pages_contents_and_furniture(outline: bool) -> None:
    book = novel(outline=outline)

    paragraphs = texts(book, BlockKind.PARAGRAPH)
    assert len(paragraphs) == 6
    assert paragraphs[0].endswith(
        "father's clock, a wonderful piece of work, said the neighbours, "
        "who knew nothing of clocks at all."
    )
    assert paragraphs[1].startswith("On the second day a stranger came, who asked for the well")
    assert paragraphs[1].endswith("known maker of clocks, and was sent away again.")
    furniture = [word for n in range(5, 9) for word in ("THE OLD CLOCK", str(n))]
    assert with_role(book, "pagebreak") == furniture
    assert set(furniture) <= set(texts(book, BlockKind.FURNITURE))
    chapters = ["Chapter 1", "Chapter 2"]
    leads_to = {anchor: block.text for *_, block in book.blocks() for anchor in block.anchors}
    assert [entry.title for entry in book.toc] == chapters == texts(book, BlockKind.HEADING)
    assert [leads_to[entry.fragment] for entry in book.toc] == chapters
    assert_complete(book)
    assert book.metadata.title == "The Old Clock"


def test_what_a_browser_prints_around_two_pages_is_set_apart() -> None:
    around = [Text("11/28/26, 5:50 PM", 40, 820, 8), Text("http://a.example/", 40, 15, 8)]
    pages = [
        [*around, Text(f"{number}/2", 540, 15, 8), *page_of_lines([*FIRST, FIRST[0]])]
        for number in (1, 2)
    ]

    book = read_pdf(make_pdf(pages), "clock.pdf")

    assert with_role(book, "pagebreak").count("11/28/26, 5:50 PM") == 2
    assert not any("example" in text for text in texts(book, BlockKind.PARAGRAPH))
    assert_complete(book)


def test_numbered_headings_at_the_top_of_their_pages_are_no_running_heads() -> None:
    pages = [
        [
            Text(f"Chapter {number}", 250, 790),
            Text(str(number + 6), 290, 40),
            *page_of_lines([f"{name} {line.strip()}" for line in FIRST]),
        ]
        for number, name in enumerate(("Anna", "Bert", "Cora", "Dirk"), start=1)
    ]
    book = read_pdf(make_pdf(pages), "a.pdf")

    assert with_role(book, "pagebreak") == ["7", "8", "9", "10"]
    assert [entry.title for entry in book.toc] == [f"Chapter {n}" for n in (1, 2, 3, 4)]


def test_numbers_are_headings_where_they_are_large_and_text_in_it() -> None:
    large = [[Text("II", 290, 790, 18), *page_of_lines(FIRST)]]
    question = "There was but one answer to the question that he had asked of them:"
    within = [page_of_lines([question, "42", "he said."])]
    assert [entry.title for entry in read_pdf(make_pdf(large), "a.pdf").toc] == ["II"]
    assert with_role(read_pdf(make_pdf(within), "a.pdf"), "pagebreak") == []


PAGE = page_of_lines(FIRST)
ID = "/ID [<41><41>] /Encrypt"
PASSWORD = f"{ID} << /Filter /Standard /V 1 /R 2 /P -4 /O <{'41' * 32}> /U <{'41' * 32}> >>"


@pytest.mark.parametrize(
    ("raw", "code", "word"),
    [
        (make_pdf([[], [], []]), "pdf_without_text", "OCR"),
        (make_pdf([[Text(f"p{n}", 10, 10)] for n in range(4)]), "pdf_without_text", "OCR"),
        (make_pdf([PAGE], trailer=PASSWORD), "book_encrypted", "password"),
        (make_pdf([PAGE], trailer=f"{ID} << /Filter /Adobe.APS /V 1 >>"), "book_drm", "DRM"),
        (b"%PDF-1.7\n", "book_broken", ""),
        (b"%PDF-1.7\n" + b"\0" * 1000, "book_broken", ""),
    ],
    ids=["scan", "scan_with_a_stamp", "password", "other_lock", "cut", "zeros"],
)
def test_what_cannot_be_read_is_refused(raw: bytes, code: str, word: str) -> None:
    refused = refusal_of(read_pdf, raw, "a.pdf")
    assert refused.code == code
    assert word in refused.message


def test_page_without_text_is_told() -> None:
    assert "1 page without text: 2" in read_pdf(make_pdf([PAGE, [], PAGE]), "a.pdf").warnings


@pytest.mark.parametrize(("name", "most"), [("MAX_PAGES", 2), ("_MAX_SECONDS", -1.0)])
def test_pages_and_time_are_bounded(
    name: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, name, most)
    assert refusal_of(read_pdf, make_pdf([PAGE] * 3), "a.pdf").code == "book_too_large"


WORDS = [
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
BELL = "the bell rang over the quiet town"


def spoken(plan: Plan) -> str:
    return " ".join(block.text for chapter in plan.included for block in chapter.spoken())


def assert_in_order(text: str, marks: list[str]) -> None:
    """Assert that a text holds these in their order."""
    places = [text.find(mark) for mark in marks]
    assert -1 not in places and places == sorted(places)


def column(name: str, left: float, *, count: int = 12, top: float = 700.0) -> list[Text]:
    """Return the lines of a column, each with its name and number."""

    def words(n: int) -> str:
        return " ".join((WORDS * 2)[(n + len(name) + int(left)) % 13 :][:6])

    return [Text(f"{name}{n} {words(n)}", left, top - 14 * n) for n in range(count)]


@pytest.mark.parametrize("is_by_rows", [True, False], ids=["rows", "columns"])
def test_columns_are_read_one_after_the_other(is_by_rows: bool) -> None:
    pages = []
    for number in range(3):
        left, right = column("lmn"[number] + "x", 60), column("rst"[number] + "x", 320)
        rows = [line for row in zip(left, right, strict=True) for line in row]
        lines = rows if is_by_rows else [*left, *right]  # as some programs write them
        head = Text("The Bell Review of the Whole Year", 180, 790, 10)
        title = [Text("Chapter One", 200, 750, 20)] if number == 0 else []
        pages.append([head, *title, *lines, Text(str(number + 7), 290, 40, 10)])
    plan = plan_book(read_pdf(make_pdf(pages), "a.pdf"))

    assert [chapter.title for chapter in plan.included] == ["Chapter One"]
    assert_in_order(spoken(plan), [f"{side}x{n} " for side in "lrmsnt" for n in range(12)])
    assert "Review" not in spoken(plan)
    assert not any("agebreak" in chapter.title for chapter in plan.chapters)


def test_three_columns_and_a_title_between_them_are_read_in_order() -> None:
    def rows(name: str, top: float) -> list[Text]:
        return [
            Text(f"{name}{side}x{n} bell rang over town", left, top - 14 * n)
            for n in range(8)
            for side, left in enumerate((50, 225, 400))
        ]

    title = Text("A title which stands over all three columns of it", 120, 600, 16)
    raw = make_pdf([[*rows("a", 760), title, *rows("b", 560)]])
    answer = spoken(plan_book(read_pdf(raw, "a.pdf")))

    order = [f"{name}{side}x{n} " for name in "ab" for side in range(3) for n in range(8)]
    assert_in_order(answer, order)
    assert_in_order(answer, ["a2x7", "A title", "b0x0"])


def test_contents_with_page_numbers_are_no_columns() -> None:
    lines = [
        Text(text, left, 700 - 14 * n)
        for n in range(10)
        for text, left in ((f"Chapter {n} of the book", 72), (str(n * 9), 500))
    ]
    plan = plan_book(read_pdf(make_pdf([lines, page_of_lines(["A word."] * 5)]), "a.pdf"))
    answer = " ".join(planned.block.text for one in plan.chapters for planned in one.blocks)
    assert_in_order(answer, ["Chapter 3 of the book 27", "Chapter 4 of the book 36"])


def test_footnotes_of_a_page_are_apart_from_its_text() -> None:
    pages = [
        [
            *page_of_lines([f"p{number}l{n} {BELL}" for n in range(12)]),
            Text(f"1 See the note of page {number}, which is", 72, 500, 8),
            Text(f"of {number} two lines and small", 72, 490, 8),
        ]
        for number in range(2)
    ]
    plan = plan_book(read_pdf(make_pdf(pages), "a.pdf"))

    assert "See the note" not in spoken(plan)
    assert f"p0l11 {BELL} p1l0" in spoken(plan)
    notes = [row["text"] for row in plan.to_json()["skipped"] if row["reason"] == "note"]
    assert notes == [
        f"1 See the note of page {n}, which is of {n} two lines and small" for n in range(2)
    ]
