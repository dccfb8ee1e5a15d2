"""Twice as long a book takes twice the work: counted in calls, so that no clock decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from synth.books.detect import read_book
from synth.books.plan import plan_book
from tests.synth.books.made_epub import PROSE, Epub, page

SIZE = 40
MOST = 2.5  # times the calls for twice the size: what grows with its square takes four times


def many(part: Callable[[int], str], size: int) -> str:
    return "".join(part(number) for number in range(1, size + 1))


def one_page(part: Callable[[int], str]) -> Callable[[int], bytes]:
    return lambda size: Epub({"a.xhtml": page(many(part, size))}).bytes()


def repeated(start: str, end: str = "") -> Callable[[int], bytes]:
    return lambda size: Epub({"a.xhtml": page(start * size + end * size)}).bytes()


def noted_chapter(number: int) -> str:
    return f"# C {number}\n\n{PROSE}[^{number}]\n\n[^{number}]: A\n\n"


def many_pages(size: int) -> bytes:
    pages = {f"c{n}.xhtml": page(f"<h2 id='h'>{n}</h2><p>{PROSE}</p>") for n in range(size)}
    return Epub(pages, nav=[(f"{n}", f"c{n}.xhtml#h") for n in range(size)]).bytes()


def lost_anchors(size: int) -> bytes:
    inner = many(lambda n: f"<h2>Part {n}</h2><p>x</p>", size)
    nav = [(f"Part {n}", f"a.xhtml#gone{n}") for n in range(1, size + 1)]
    return Epub({"a.xhtml": page(inner)}, nav=nav).bytes()


def notes(size: int) -> bytes:
    marks = many(lambda n: f"<p>Word<a href='n.xhtml#n{n}'><sup>{n}</sup></a></p>", size)
    bodies = many(lambda n: f"<div id='n{n}'><p>{n} A note</p><p>More.</p></div>", size)
    return Epub({"a.xhtml": page(marks), "n.xhtml": page(bodies)}).bytes()


BOOKS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "pages": ("x.epub", many_pages),
    "lost_anchors": ("x.epub", lost_anchors),
    "notes": ("x.epub", notes),
    "headings": ("x.epub", one_page(lambda n: f"<h2>Chapter {n}</h2><p>{PROSE}</p>")),
    "lines": ("x.epub", repeated("A line<br/>")),
    "inlines": ("x.epub", repeated("<i>a</i> b<sup>2</sup>")),
    "nested": ("x.epub", repeated("<div>Ann x", "</div>")),
    "play": ("x.epub", one_page(lambda n: f"<p><b>{'AB'[n % 2]}NN.</b> {PROSE}</p>")),
    "links": ("x.epub", one_page(lambda n: f"<p><a href='#x{n}'>Story {n}</a></p>")),
    "rows": ("x.html", lambda s: f"<html><table>{'<tr><td>a</td><td>b</td></tr>' * s}".encode()),
    "txt": ("x.txt", lambda s: many(lambda n: f"CHAPTER {n}\n\n{PROSE}\n{PROSE}\n\n", s).encode()),
    "chinese": ("x.txt", lambda s: many(lambda n: f"第{n}章 題\n　　我是一只貓。\n", s).encode()),
    "markdown": ("x.md", lambda s: many(noted_chapter, s).encode()),
}


def count_calls(raw: bytes, filename: str) -> int:
    """Return how many functions are called while a book is read and planned."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        plan_book(read_book(raw, filename))
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("name", BOOKS)
def test_work_grows_with_a_books_length_alone(name: str) -> None:
    filename, make = BOOKS[name]
    count_calls(make(4), filename)  # what is made once is made before it counts

    once, twice = (count_calls(make(size), filename) for size in (SIZE, 2 * SIZE))

    assert once > 5 * SIZE
    assert twice < MOST * once
