"""What no markup names is found: headings, roles, contents lists, who speaks, notes."""

from __future__ import annotations

import pytest

from synth.books.book import Block, BlockKind
from synth.books.documents.parsing import parse_document
from synth.books.documents.structure import document_role
from synth.books.epub.reader import read_epub
from synth.books.plan_text import text_of
from synth.books.rules import Notes, Rules, SkipReason, block_reason
from tests.synth.books.documents import (
    LONG,
    PROSE,
    Epub,
    blocks_of,
    ncx,
    page,
    plan_of,
    said,
    titles,
)

MILL = "<p><b>The Mill</b></p>"


@pytest.mark.parametrize(
    ("inner", "found"),
    [
        (f"{MILL}{LONG}", "The Mill"),
        (f'<p class="calibre_1"><span class="bold calibre3">The Mill</span></p>{LONG}', "The Mill"),
        (f'<div><p style="font-weight: 700">The Mill</p></div>{LONG}', "The Mill"),
        (f'<p align="center"><span><strong>The</strong> <strong>Mill</strong></span></p>{LONG}',
         "The Mill"),
        (f'<p class="center">7</p><p class="center"><b>The Mill</b></p>{LONG}', "7 The Mill"),
        (f"<p><b>He ran.</b></p>{LONG}", ""),
        (f"<p><b>He</b> ran</p>{LONG}", ""),
        (f'<p class="center">All rivers run into the sea</p>{LONG}', ""),
        ("<p><b>The Bell</b></p><p>Ann Author</p>", ""),  # a title page
        (f"{LONG}<p><b>STOP</b></p>{LONG}", ""),
        (f"{MILL}{LONG}<h2>Two</h2>{LONG}", "Two"),
    ],
)  # fmt: skip
def test_bold_lines_that_begin_a_document_are_headings(inner: str, found: str) -> None:
    headings = [one.removeprefix("heading|") for one in said(inner) if one.startswith("heading")]
    assert " ".join(headings) == found


def test_files_of_a_converted_book_become_chapters_with_titles() -> None:
    files = [
        "<p><b>A BOOK</b></p><p>Ann Author</p><p>Copyright © 1999</p><p>ISBN 0-00</p>",
        "<p>For my mother</p>",
        f"<p><b>ONE</b></p>{LONG}",
        LONG,
        f"<p><b>TWO</b></p>{LONG}",
        "<p><b>Also by Ann Author</b></p><p>The Sea</p>",
    ]
    pages = {f"{n}.xhtml": page(inner) for n, inner in enumerate(files)}
    assert titles(plan_of(Epub(pages, ncx=ncx(("Start", "0.xhtml"))))) == [
        "For my mother", "ONE", "TWO",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "kind", "role"),
    [
        ('<div class="titlepage"><p>A page.</p></div>', "", "titlepage"),
        ('<div id="title-page"><p>A page.</p></div>', "", "titlepage"),
        ('<div class="element element-type-title-page"><p>A page.</p></div>', "", "titlepage"),
        ('<div class="copyright"><p>A page.</p></div>', "", "copyright-page"),
        ('<div id="copyright-page"><p>A page.</p></div>', "", "copyright-page"),
        ('<div class="dedication"><p>A page.</p></div>', "", "dedication"),
        ('<div class="chapter"><p>A page.</p></div>', "", ""),
        (f'<div class="titlepage"><p>{PROSE * 30}</p></div>', "", ""),  # too long for one
        ('<section epub:type="preface" class="copyright"><p>A page.</p></section>', "frontmatter",
         "preface"),  # a role wins over a name
    ],
)  # fmt: skip
def test_a_name_says_what_a_page_is(inner: str, kind: str, role: str) -> None:
    root = parse_document(page(inner, kind=kind).encode()).root
    assert document_role(root, next(root.iter("{*}body"))) == role


def links(count: int, name: str = "p") -> str:
    return "".join(f'<{name}><a href="#c{n}">Chapter {n}</a></{name}>' for n in range(1, count + 1))


HEADINGS = "".join(f'<h2><a href="toc.xhtml#c{n}">Chapter {n}</a></h2>' for n in range(8))
OUTSIDE = "".join(f'<p><a href="https://example.org/{n}">Site {n}</a></p>' for n in range(8))
TABLE = (
    "<p><b>Contents</b></p><table><tr><td>Chapter</td><td>Page</td></tr>"
    '<tr><td><a href="#a">I.</a> The Mill</td><td>3</td></tr>'
    '<tr><td><a href="#b">II.</a> The Sea</td><td>9</td></tr></table>'
)
CHAPTERS = [f"Chapter {n}" for n in range(1, 6)]


@pytest.mark.parametrize(
    ("inner", "skipped"),
    [
        (f"<p>The Bell</p>{links(5)}", CHAPTERS),
        (TABLE, ["Contents", "Chapter, Page", "I. The Mill, 3", "II. The Sea, 9"]),
        (f'<ul><li><a href="#p">Part One</a><ul>{links(5, "li")}</ul></li></ul>',
         ["Part One", *CHAPTERS]),
        (links(4), []),
        (HEADINGS + OUTSIDE, []),
    ],
    ids=["links", "below_a_title", "list_in_a_list", "choices", "back_and_out"],
)  # fmt: skip
def test_lines_of_links_that_stand_together_are_a_contents_list(
    inner: str, skipped: list[str]
) -> None:
    found = [
        block.text
        for block in blocks_of(inner + LONG)
        if block_reason(block, Rules()) is SkipReason.CONTENTS
    ]
    assert found == skipped


def test_a_list_of_chapters_makes_no_chapters() -> None:
    chapters = "".join(f'<p id="c{n}">Chapter {n}</p>{LONG}' for n in range(1, 6))
    epub = Epub({"a.xhtml": page(f"<p>A Book</p>{links(5)}{chapters}")})
    assert titles(plan_of(epub)) == CHAPTERS


ACT = "<h2>ACT I</h2>"
SAYS = "Good morrow to you, my lord, and to all of your house."


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("<b>{}.</b> ", ("ANNE", "BEN")),
        ("<strong>{}</strong>. ", ("ANNE", "BEN")),
        ("<b>{}:</b> ", ("ANNE", "BEN")),
        ("<b>{}</b> (<i>aside</i>). ", ("ANNE", "BEN")),
        ("{}. ", ("ANNE", "BEN")),
        ("{}: ", ("ANNE", "BEN")),
        ('<span class="speaker">{}</span> ', ("ANNE", "BEN")),
        ('<span class="smcap">{}.</span> ', ("Anne", "Ben")),
        ("<i>{}.</i> ", ("Anne", "Ben")),
    ],
)
def test_names_at_the_start_of_paragraphs_speak_in_a_play(
    name: str, names: tuple[str, str]
) -> None:
    found = blocks_of(ACT + "".join(f"<p>{name.format(one)}{SAYS}</p>" for one in names * 3))
    assert [block.speaker for block in found] == ["", *names * 3]
    assert all(b.text.endswith(SAYS) and names[0] not in b.text for b in found[1:])


def speaker(name: str, tag: str = "p") -> str:
    return f'<{tag} class="speaker">{name}</{tag}>'


PERSONA = '<td epub:type="z3998:persona"'
TO_BOB = '<i epub:type="z3998:stage-direction">To <b epub:type="z3998:persona">Bob</b>.</i>'
PLAYS = {
    **{f"blocks_{tag}": (
        f"{ACT}{speaker('HAMLET.', tag)}<p>To be.</p><p>Or not.</p>{speaker('OPHELIA', tag)}"
        "<p>My lord.</p><h2>ACT II</h2><p>A room.</p>",
        "heading|ACT I / speech HAMLET|To be. / speech HAMLET|Or not. / speech OPHELIA|My lord. / "
        "heading|ACT II / A room.") for tag in ("p", "div", "h4", "dt")},
    "direction": (f"{speaker('HAMLET')}<p>To be.</p><p class='stage-direction'>He sits.</p>"
        "<p>Or not.</p><hr/><p>The curtain falls.</p>", "speech HAMLET|To be. / He sits. / "
        "speech HAMLET|Or not. / break| / The curtain falls."),
    "unspoken_name": (f"{speaker('ANNE')}{speaker('BEN')}<p>Yes!</p>", "speech ANNE|ANNE / "
        "speech BEN|Yes!"),
    "end_of_element": (f'<div class="sp">{speaker("ANNE")}<p>Yes!</p></div><p>It grew dark.</p>',
        "speech ANNE|Yes! / It grew dark."),
    "verse": (f'{ACT}{speaker("ANNE")}<div class="poem"><p>One line<br/>and one</p></div>',
        "heading|ACT I / speech ANNE|One line / speech ANNE|and one"),
    "transcribed": ('<h3>THE FIRST ACT</h3><p class="scenedesc">A room.</p><p class="stagedir">'
        f'<span class="smallcaps">Ann</span> is seated.</p>{speaker("Ben.")}\n<p><span '
        'class="stagedir">To <span class="smallcaps">Ann</span>.</span> Hullo!</p>\n<span '
        f'class="pagenum">4</span>\n{speaker("Ann.")}\n<p>Yes?</p>', "heading|THE FIRST ACT / "
        "A room. / Ann is seated. / speech Ben|[To Ann.] Hullo! / furniture|4 / speech Ann|Yes?"),
    "rows": (f'<table><tr>{PERSONA} rowspan="2">Ann</td><td>One.</td></tr><tr><td>Two.</td></tr>'
        f"<tr><td/><td>They go.</td></tr><tr>{PERSONA}>Bob</td><td>Three.</td></tr></table>",
        "speech Ann|One. / speech Ann|Two. / They go. / speech Bob|Three."),
    "direction_within": (f"<table><tr>{PERSONA}>Ann</td><td>{TO_BOB} Go! <i>Now.</i></td></tr>"
        "</table>", "speech Ann|[To Bob.] Go! Now."),
    "interview": ("".join(f"<p><b>{one}:</b> {SAYS}</p>" for one in "QAQAQA"),
        " / ".join(f"speech {one}|{SAYS}" for one in "QAQAQA")),
    "persons": ('<section epub:type="z3998:dramatis-personae">' + "".join(
        f'<p><b epub:type="z3998:persona">{one}</b>.\u2014{SAYS}</p>' for one in ("Ann", "Ben") * 3)
        + "</section>", " / ".join(f"{one}.\u2014{SAYS}" for one in ("Ann", "Ben") * 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
def test_a_play_is_heard_with_its_persons(name: str) -> None:
    inner, blocks = PLAYS[name]
    assert said(inner) == blocks.split(" / ")


@pytest.mark.parametrize(
    "inner",
    [
        "".join(f"<p><b>{one}.</b> {SAYS}</p>" for one in ("Theorem", "Proof") * 4),
        "".join(f"<p><b>NOTE:</b> {SAYS}</p>" + f"<p>{SAYS}</p>" * 3 for _ in range(5)),
        f"<p>HE WENT OUT. {SAYS}</p><p>I. {SAYS}</p>" + f"<p>{SAYS}</p>" * 9,
        f"<h2>ACT I</h2><p>A ROOM. {SAYS}</p><p>{SAYS}</p>",
    ],
    ids=["textbook", "manual", "prose", "scene"],
)
def test_what_is_no_play_names_nobody(inner: str) -> None:
    assert {block.speaker for block in blocks_of(inner)} == {""}


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
def test_a_number_at_a_words_end_is_a_mark(mark: str) -> None:
    for before in ("the word", "the end.", "“the end.”", "Étés,"):
        paragraph, furniture = blocks_of(f"<p>Here is {before}{mark} So it goes.</p>")
        assert paragraph.text == f"Here is {before} So it goes."
        assert (furniture.kind, furniture.role) == (BlockKind.FURNITURE, "noteref"), before


LOUD = '<p id="n1">Loud.</p>'


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("10<sup>3</sup> and 5 m<sup>2</sup>", "10³ and 5 m²"),
        ("It was 10<sup>-3</sup> wide.", "It was 10⁻³ wide."),
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


@pytest.mark.parametrize(
    ("mark", "rest"),
    [
        *((f'<a href="#n1">{mark}</a>', " He went.") for mark in ("[A]", "[AB]", "(A)", "[12]")),
        ('<sup>[<a href="#n1" class="footnote">1</a>]</sup>', ""),
    ],
)
def test_marks_and_the_brackets_around_them_are_no_text(mark: str, rest: str) -> None:
    assert said(f"<p>It rang.{mark}{rest}</p>{LOUD}")[0] == f"It rang.{rest}"


NOTES = "".join(
    f'<div id="n{n}"><p>{n}. It means one.</p><p>It goes on.</p></div>' for n in (1, 2, 3)
)
MARKS = "".join(f'Word<a href="n.xhtml#n{n}"><sup>{n}</sup></a> ' for n in (1, 2, 3))


def last_blocks(**pages: str) -> tuple[Block, ...]:
    """Return the blocks of a book's last document; the names of the others are in its links."""
    named = {f"{name}.xhtml": page(inner) for name, inner in pages.items()}
    return read_epub(Epub(named).bytes()).documents[-1].blocks


def test_notes_that_stand_together_have_all_their_paragraphs() -> None:
    found = last_blocks(a=f"<h1>One</h1><p>{MARKS}</p>", n=NOTES)
    assert [str(block.kind) for block in found[:5]] == ["note"] * 5


def test_a_note_of_two_paragraphs_is_spoken_whole_where_it_is_marked() -> None:
    pages = {
        "a.xhtml": page(f"<h1>One</h1><p>{MARKS}</p><p>{PROSE * 40}</p>"),
        "n.xhtml": page(f"<h1>Notes</h1>{NOTES}"),
    }
    plan = plan_of(Epub(pages), notes=Notes.INLINE)
    spoken = " ".join(" ".join(text_of(chapter).split()) for chapter in plan.included)
    assert spoken.startswith("One Word Word Word 1. It means one. It goes on. 2. It means one. It")


def test_a_note_below_each_paragraph_takes_nothing_of_the_text() -> None:
    inner = "".join(
        f'<p>Text {n} here<a href="#n{n}"><sup>{n}</sup></a>.</p><p id="n{n}">{n} A note.</p>'
        "<p>More of the text.</p>"
        for n in (1, 2, 3)
    )
    kinds = [str(block.kind) for block in last_blocks(a=inner)]
    assert kinds == ["paragraph", "furniture", "note", "paragraph"] * 3


def test_notes_as_layout_programs_export_them_are_notes() -> None:
    inner = (
        '<p>Word<span class="Up"><a id="footnote-001-backlink" class="_idFootnoteLink" '
        'href="a.xhtml#footnote-001">1</a></span> more</p><div class="_idFootnotes">'
        '<div id="footnote-001" class="_idFootnote"><p><a class="_idFootnoteAnchor" '
        'href="a.xhtml#footnote-001-backlink">1</a> First.</p><p>Second.</p></div></div>'
    )
    assert said(inner) == ["Word more", "furniture|1", "note|First.", "furniture|1", "note|Second."]


def test_what_transcribers_tell_is_no_part_of_the_book() -> None:
    inner = f'<div class="transnote"><p>Errors were mended.</p></div><h1>One</h1><p>{PROSE}</p>'
    plan = plan_of(Epub({"a.xhtml": page(inner)}))
    assert [str(chapter.reason) for chapter in plan.chapters] == ["boilerplate", "None"]


def test_a_note_is_spoken_without_its_mark() -> None:
    found = last_blocks(
        a='<p>It rang.<a href="#n1">[A]</a></p><p id="n1"><a href="#r1">back</a></p>'
        '<div class="footnote" id="n2"><p>[A] Loud.</p></div>'
    )
    assert [block.text for block in found if block.kind is BlockKind.NOTE] == ["back", "Loud."]
