"""A hostile file fetches nothing, reads no other file and names none: every event is watched."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from synth.books.book import Book, BookRejectedError, book_from_json, book_to_json
from synth.books.detect import read_book
from synth.books.plan import plan_book
from synth.books.plan_text import text_of
from tests.synth.books.documents import PROSE, Epub, page, with_file
from tests.synth.books_text.blocks import (
    assert_complete,
    make_docx,
    make_pdf,
    page_of_lines,
    paragraph,
)

PROJECT = Path(__file__).resolve().parents[3]
WATCH = """
import json, sys
from pathlib import Path
files = [(name, Path(path).read_bytes()) for name, path in json.loads(sys.argv[1]).items()]
from synth.books.book import BookRejectedError
from synth.books.detect import read_book
from synth.books.plan import plan_book
read_book(b"CHAPTER I.\\n\\nText.\\n", "warm.txt")
seen = []
def watch(event, args):
    if event.startswith(("socket.", "urllib", "subprocess", "os.system", "os.exec", "ftplib")):
        seen.append([event, repr(args)])
    elif event == "open" and isinstance(args[0], (str, bytes)):
        name = args[0] if isinstance(args[0], str) else args[0].decode()
        is_code = name.endswith((".py", ".pyc", ".so", ".zip")) or "site-packages" in name
        mode = args[1] or "r"
        if not is_code or any(letter in mode for letter in "wax+"):
            seen.append([event, name])
    elif event in {"os.mkdir", "os.remove", "os.rename", "os.symlink", "os.link"}:
        seen.append([event, repr(args)])
sys.addaudithook(watch)
answers = {}
for name, raw in files:
    try:
        plan_book(read_book(raw, name))
        answers[name] = "read"
    except BookRejectedError as error:
        answers[name] = error.code
print(json.dumps([answers, seen]))
"""
LINKS = (
    '<link rel="stylesheet" href="http://192.0.2.1/x.css"/><script src="http://192.0.2.1/x.js"/>'
    '<base href="http://192.0.2.1/"/><p>Text <img src="http://192.0.2.1/x.png" alt="x"/>'
    '<img src="file:///etc/passwd" alt=""/><object data="/etc/passwd">o</object>'
    '<iframe src="http://192.0.2.1/"/><x:include xmlns:x="http://www.w3.org/2001/XInclude" '
    'href="/etc/passwd" parse="text"/></p>'
)
ENTITIES = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://192.0.2.1/xhtml11.dtd" ['
    '<!ENTITY x SYSTEM "file:///etc/passwd"><!ENTITY % y SYSTEM "http://192.0.2.1/y"> %y;]>'
)
STYLE = '<?xml-stylesheet href="http://192.0.2.1/x.xsl" type="text/xsl"?>'


def epub() -> bytes:
    document = page(LINKS).replace("<!DOCTYPE html>", STYLE + ENTITIES).replace("Text", "&x; Text")
    manifest = (
        '<item id="r" href="http://192.0.2.1/r.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="f" href="file:///etc/passwd" media-type="application/xhtml+xml"/>'
        '<item id="u" href="../../../../etc/passwd" media-type="application/xhtml+xml"/>'
        '<item id="c" href="/etc/passwd" properties="cover-image" media-type="image/png"/>'
    )
    files = {"../../../tmp/closed-in": b"x", "/tmp/closed-in": b"x", "OPS/nul\0l": b"x"}
    spine = ["a.xhtml", "r", "f", "u"]
    return Epub({"a.xhtml": document}, manifest=manifest, spine=spine, files=files).bytes()


FILES = {
    "x.epub": epub(),
    "x.html": f"{ENTITIES}<html><body>{LINKS}&x;</body></html>".encode(),
    "x.md": f"# A\n\n![x](http://192.0.2.1/x.png) [a](file:///etc/passwd)\n\n{LINKS}".encode(),
    "x.docx": make_docx(paragraph("Text") + '<w:altChunk r:id="r9"/>'),
    "../../../../tmp/closed-in.txt": b"CHAPTER I.\n\nText.\n",
}


def test_nothing_is_fetched_opened_or_written(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / f"source-{at}") for at, name in enumerate(FILES)}
    for name, path in paths.items():
        Path(path).write_bytes(FILES[name])

    ended = subprocess.run(
        [sys.executable, "-c", WATCH, json.dumps(paths)],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=True,
    )
    answers, seen = json.loads(ended.stdout)

    assert {name: answers[name] for name in FILES if name != "x.docx"} == dict.fromkeys(
        FILES.keys() - {"x.docx"}, "read"
    )
    assert seen == []
    assert not Path("/tmp/closed-in").exists()


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
PIECES += [b"<![CDATA[", b"<!DOCTYPE [", b"<ht:>", b"</body>", b"<title>", b"<script>", b"</p>"]
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
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        chosen = source.choice(old.namelist())
        return with_file(content, chosen, spoilt(old.read(chosen), source))


def check(book: Book) -> None:
    """Pass a book that adds up, is planned, is written as text and comes back as it was stored."""
    assert_complete(book)
    assert all(block.source_chars >= 0 for *_, block in book.blocks())
    plan = plan_book(book)  # it raises where a character is neither spoken nor skipped
    for chapter in plan.chapters:
        text_of(chapter).encode()  # no half of a surrogate pair
    assert book_from_json(book_to_json(book)).documents == book.documents


KINDS = ["epub", "docx", "pdf", "txt", "md", "html"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_file_is_a_book(kind: str) -> None:
    book = read_book(made(kind), f"x.{kind}")
    assert book.source_chars
    check(book)


QUICK, SEEDS = 4, 12


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=[pytest.mark.thorough] * (n >= QUICK)) for n in range(SEEDS)],
)
@pytest.mark.parametrize("kind", KINDS)
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
