"""Marks of notes are not spoken, exponents and cross-references are; notes are whole."""

from __future__ import annotations

import pytest

from synth.books.book import BlockKind
from synth.books.epub.reader import read_epub
from synth.books.plan_text import text_of
from synth.books.rules import Notes
from tests.synth.books.documents import PROSE, Epub, blocks_of, page, plan_of


@pytest.mark.parametrize(
    "mark",
    [
        '<a href="#c1fn2"><span>2</span></a>',
        '<a class="calibre5" href="#x9"><span class="superscript">2</span></a>',
        '<span style="vertical-align: super"><a href="#x9">2</a></span>',
        '<a href="#x9">2</a>',
        '<i><a href="#x9">2</a></i>',
        '<a href="#ch01-en2">2</a>',
        "<sup>2</sup>",
        '<span class="sup">2</span>',
        "<sup>2, 3</sup>",
        "<sup>*</sup>",
        "<sup>[b]</sup>",
    ],
)
@pytest.mark.parametrize("before", ["the word", "the end.", "“the end.”", "Étés,"])
def test_a_number_at_a_words_end_is_a_mark(mark: str, before: str) -> None:
    paragraph, furniture = blocks_of(f"<p>Here is {before}{mark} So it goes.</p>")

    assert paragraph.text == f"Here is {before} So it goes."
    assert (furniture.kind, furniture.role) == (BlockKind.FURNITURE, "noteref")


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("10<sup>3</sup> and 5 m<sup>2</sup>", "10³ and 5 m²"),
        ("metres per sec<sup>2</sup>", "metres per sec²"),
        ("the 1<sup>st</sup> of XIX<sup>e</sup>", "the 1st of XIXe"),
        ("H<sub>2</sub>O", "H2O"),
        ('chapter <a href="#c12">12</a>', "chapter 12"),
        ('pages 3\u2013<a href="#p5">5</a>, (<a href="#p6">6</a>)', "pages 3\u20135, (6)"),
        ('see 1,<a href="#p2">2</a>', "see 1,2"),
        ('<a href="#v1">1</a> In the beginning', "1 In the beginning"),
        ("<sup>1</sup>In the <sup>2</sup>And", "1 In the 2 And"),
        ('<span class="verse-num">3</span>And', "3 And"),
        ("<b>3</b>D, M<sup>r</sup> X, 1<sup>a</sup>", "3D, Mr X, 1a"),
        ('<sup><a href="http://x.org/y">2</a></sup> out', "2 out"),
    ],
)
def test_other_numbers_are_spoken(inner: str, text: str) -> None:
    assert [block.text for block in blocks_of(f"<p>{inner}</p>")] == [text]


NOTES = "".join(
    f'<div id="n{n}"><p>{n}. It means one.</p><p>It goes on.</p></div>' for n in (1, 2, 3)
)
MARKS = "".join(f'Word<a href="n.xhtml#n{n}"><sup>{n}</sup></a> ' for n in (1, 2, 3))


def test_all_paragraphs_of_notes_that_stand_together_are_notes() -> None:
    pages = {"a.xhtml": page(f"<h1>One</h1><p>{MARKS}</p>"), "n.xhtml": page(NOTES)}

    notes = read_epub(Epub(pages).bytes()).documents[1].blocks

    assert [str(block.kind) for block in notes[:5]] == ["note"] * 5


def test_a_note_of_two_paragraphs_is_spoken_whole_where_it_is_marked() -> None:
    pages = {
        "a.xhtml": page(f"<h1>One</h1><p>{MARKS}</p><p>{PROSE * 40}</p>"),
        "n.xhtml": page(f"<h1>Notes</h1>{NOTES}"),
    }

    plan = plan_of(Epub(pages), notes=Notes.INLINE)
    said = " ".join(" ".join(text_of(chapter).split()) for chapter in plan.included)

    assert said.startswith("One Word Word Word 1. It means one. It goes on. 2. It means one. It")


def test_a_note_below_each_paragraph_takes_nothing_of_the_text() -> None:
    inner = "".join(
        f'<p>Text {n} here<a href="#n{n}"><sup>{n}</sup></a>.</p><p id="n{n}">{n} A note.</p>'
        "<p>More of the text.</p>"
        for n in (1, 2, 3)
    )

    kinds = [
        str(block.kind)
        for block in read_epub(Epub({"a.xhtml": page(inner)}).bytes()).documents[0].blocks
    ]

    assert kinds == ["paragraph", "furniture", "note", "paragraph"] * 3


def test_notes_as_layout_programs_export_them_are_notes() -> None:
    inner = (
        '<p>Word<span class="Up"><a id="footnote-001-backlink" class="_idFootnoteLink" '
        'href="a.xhtml#footnote-001">1</a></span> more</p><div class="_idFootnotes">'
        '<div id="footnote-001" class="_idFootnote"><p><a class="_idFootnoteAnchor" '
        'href="a.xhtml#footnote-001-backlink">1</a> First.</p><p>Second.</p></div></div>'
    )

    found = [(str(b.kind), b.text) for b in blocks_of(inner)]

    assert found == [
        ("paragraph", "Word more"),
        ("furniture", "1"),
        ("note", "First."),
        ("furniture", "1"),
        ("note", "Second."),
    ]


def test_what_transcribers_tell_is_no_part_of_the_book() -> None:
    inner = f'<div class="transnote"><p>Errors were mended.</p></div><h1>One</h1><p>{PROSE}</p>'

    plan = plan_of(Epub({"a.xhtml": page(inner)}))

    assert [str(chapter.reason) for chapter in plan.chapters] == ["boilerplate", "None"]


@pytest.mark.parametrize("mark", ["[A]", "[AB]", "(A)", "[12]"])
def test_marks_in_brackets_are_no_text(mark: str) -> None:
    inner = f'<p>It rang.<a href="#n1">{mark}</a> He went.</p><p id="n1">Loud.</p>'

    assert blocks_of(inner)[0].text == "It rang. He went."


def test_brackets_around_a_mark_go_with_it() -> None:
    inner = '<p>It rang.<sup>[<a href="#n1" class="footnote">1</a>]</sup></p><p id="n1">Loud.</p>'

    assert blocks_of(inner)[0].text == "It rang."


def test_exponents_keep_their_minus() -> None:
    assert blocks_of("<p>It was 10<sup>-3</sup> wide.</p>")[0].text == "It was 10⁻³ wide."


def test_a_note_is_spoken_without_its_mark() -> None:
    body = (
        '<p>It rang.<a href="#n1">[A]</a></p>'
        '<p id="n1"><a href="#r1">back</a></p><div class="footnote" id="n2"><p>[A] Loud.</p></div>'
    )
    book = read_epub(Epub({"a.xhtml": page(body)}).bytes())

    assert [b.text for *_, b in book.blocks() if b.kind is BlockKind.NOTE] == ["back", "Loud."]
