"""Whatever happened to a file: nothing of the book is lost, or it is refused with a word."""

from __future__ import annotations

import io
import random
import re
import warnings
import zipfile

import pytest

from synth.books.book import Book, BookRejectedError
from synth.books.detect import read_book
from synth.books.plan import plan_book
from synth.books.plan_text import text_of
from synth.books.stored import book_from_json, book_to_json
from tests.synth.books.made_epub import PROSE, Epub, page
from tests.synth.books_text.made_docx import make_docx, paragraph
from tests.synth.books_text.made_pdf import make_pdf, page_of_lines

ROUNDS = 12  # of each seed and format
CODE = re.compile(r"(?:book|pdf)_[a-z_]+\Z")
TEXT = (
    "A BOOK\n\nby Ann Author\n\n\nCHAPTER I.\n\n" + PROSE * 3 + "\n\n_So_ it was[1]--\n\n"
    "[1] A note.\n\n* * *\n\nANNE. Yes!\n\nBEN. No!\n\nCHAPTER II.\n\n" + PROSE
)
MARKDOWN = (
    "---\ntitle: A Book\nauthor: [Ann]\n---\n\n# One\n\nText[^1] *so* it `was`.\n\n"
    "[^1]: A note.\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n## Two\n\n> Quoted &amp; <b>bold</b>.\n\n1. x\n2. y\n"
)
HTML = (
    "<html lang='en'><head><title>A Book</title></head><body><h1 id='a'>One</h1><p>Word<sup>"
    "<a href='#n'>1</a></sup>, <b>ANNE.</b> yes.<br/><br/>So &eacute;.</p><table><tr><td>1</td>"
    "<td>2</td></tr></table><h2>Two</h2><p class='speaker'>BEN</p><p>No.</p><p id='n'>1 A note</p>"
)


def made(kind: str) -> bytes:
    """Return a small whole file of a format."""
    if kind == "epub":
        pages = {"a.xhtml": HTML, "b.xhtml": page(f"<h2>Three</h2><p>{PROSE}</p>")}
        return Epub(pages, nav=[("One", "a.xhtml#a"), ("Three", "b.xhtml")]).bytes()
    if kind == "docx":
        return make_docx(paragraph("One", style="Heading1") + paragraph(PROSE))
    if kind == "pdf":
        return make_pdf(
            [page_of_lines(["One", "", PROSE[:60], PROSE[60:]])] * 2, outline=[("One", 0)]
        )
    return {"txt": TEXT, "md": MARKDOWN, "html": HTML}[kind].encode()


PIECES = [b"<", b">", b"&", b"\0", b"\xff", b"\xff\xfe", b"PK\3\4", b"]]>", b"<!--", b"&#xd800;"]
PIECES += [b"\r\n\r\n", b"<table>", b"[", b"| ", b"%PDF-", b"/Kids", b"999999999", b"-1", b"\x1a"]
PIECES += [b"\xe2\x80", b"\xef\xbb\xbf", b"CHAPTER IV", b"<p class='speaker'>", b"<br/><br/>"]


def spoilt(content: bytes, source: random.Random) -> bytes:
    """Return a file with bytes changed, cut out, put in, doubled or moved."""
    raw = bytearray(content)
    for _ in range(source.choice([1, 1, 2, 5, 20])):
        at = source.randrange(len(raw) + 1)
        size = source.choice([1, 2, 8, 64, 512])
        match source.randrange(6):
            case 0:
                raw[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                del raw[at : at + size]
            case 2:
                raw[at:at] = source.choice(PIECES)
            case 3:
                raw[at:at] = raw[at : at + size]
            case 4:
                raw[at : at + size] = source.randbytes(min(size, 8))
            case _:
                del raw[at if source.random() < 0.1 else len(raw) :]
    return bytes(raw)


def spoilt_inside(content: bytes, source: random.Random) -> bytes:
    """Return an archive that is whole, with one of its files spoilt."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        chosen = source.choice(old.namelist())
        for name in old.namelist():
            raw = old.read(name)
            new.writestr(name, spoilt(raw, source) if name == chosen else raw)
    return stream.getvalue()


def check(book: Book) -> None:
    """Pass a book that adds up, is planned, is written as text and comes back as it was stored."""
    for document in book.documents:
        assert sum(block.source_chars for block in document.blocks) == document.source_chars
        assert all(block.source_chars >= 0 for block in document.blocks)
    plan = plan_book(book)  # it raises where a character is neither spoken nor skipped
    for chapter in plan.chapters:
        text_of(chapter).encode()  # no half of a surrogate pair
    assert book_from_json(book_to_json(book)).documents == book.documents


@pytest.mark.parametrize("kind", ["epub", "docx", "pdf", "txt", "md", "html"])
def test_the_whole_file_is_a_book(kind: str) -> None:
    book = read_book(made(kind), f"x.{kind}")

    assert book.source_chars
    check(book)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["epub", "docx", "pdf", "txt", "md", "html"])
def test_a_spoilt_file_is_a_whole_book_or_is_refused(kind: str, seed: int) -> None:
    source = random.Random(f"{kind}-{seed}")
    content = made(kind)
    for _ in range(ROUNDS):
        is_inside = kind in {"epub", "docx"} and source.random() < 0.7
        raw = spoilt_inside(content, source) if is_inside else spoilt(content, source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile's, of names that are there twice
            try:
                book = read_book(raw, f"x.{kind}")
            except BookRejectedError as error:
                assert CODE.match(error.code)
                assert len(error.message) > 20
                continue
        check(book)
