"""Bold lines that begin a document are headings where its markup has none."""

from __future__ import annotations

import pytest

from synth.books.documents.parsing import parse_document
from synth.books.documents.structure import document_role
from synth.books.rules import Rules, SkipReason, block_reason
from tests.synth.books.documents import (
    LONG,
    PROSE,
    Epub,
    blocks_of,
    page,
    plan_of,
    said,
    spoken_by,
    titles,
)


def headings(inner: str) -> list[str]:
    return [text for kind, text in said(inner) if kind == "heading"]


@pytest.mark.parametrize(
    "line",
    [
        "<p><b>The Mill</b></p>",
        '<p class="calibre_1"><span class="bold calibre3">The Mill</span></p>',
        '<div><p style="font-weight: 700">The Mill</p></div>',
        '<p align="center"><span><strong>The</strong> <strong>Mill</strong></span></p>',
    ],
)
def test_a_bold_line_at_the_start_is_a_heading(line: str) -> None:
    assert headings(f"{line}{LONG}") == ["The Mill"]


def test_number_and_title_are_both_headings() -> None:
    inner = f'<p class="center">7</p><p class="center"><b>The Mill</b></p>{LONG}'

    assert headings(inner) == ["7", "The Mill"]


@pytest.mark.parametrize(
    "inner",
    [
        f"<p><b>He ran.</b></p>{LONG}",
        f"<p><b>He</b> ran</p>{LONG}",
        f'<p class="center">All rivers run into the sea</p>{LONG}',
        "<p><b>The Bell</b></p><p>Ann Author</p>",
        f"{LONG}<p><b>STOP</b></p>{LONG}",
        f"<p><b>The Mill</b></p>{LONG}<h2>Two</h2>{LONG}",
    ],
    ids=["sentence", "in_part", "only_centred", "title_page", "in_the_middle", "has_headings"],
)
def test_other_lines_are_none(inner: str) -> None:
    assert [text for text in headings(inner) if text != "Two"] == []


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
    start = (
        '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>Start'
        '</text></navLabel><content src="0.xhtml"/></navPoint></navMap></ncx>'
    )

    plan = plan_of(Epub(pages, ncx=start))

    assert titles(plan) == ["For my mother", "ONE", "TWO"]


def role_of(inner: str, *, kind: str = "") -> str:
    root = parse_document(page(inner, kind=kind).encode()).root
    return document_role(root, next(root.iter("{*}body")))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ('class="titlepage"', "titlepage"),
        ('id="title-page"', "titlepage"),
        ('class="element element-type-title-page"', "titlepage"),
        ('class="copyright"', "copyright-page"),
        ('id="copyright-page"', "copyright-page"),
        ('class="dedication"', "dedication"),
        ('class="chapter"', ""),
    ],
)
def test_a_name_says_what_a_page_is(name: str, role: str) -> None:
    assert role_of(f"<div {name}><p>A page.</p></div>") == role


def test_a_long_page_is_not_believed_to_be_what_its_class_says() -> None:
    assert role_of(f'<div class="titlepage"><p>{PROSE * 30}</p></div>') == ""


def test_a_role_wins_over_a_name() -> None:
    inner = '<section epub:type="preface" class="copyright"><p>A page.</p></section>'

    assert role_of(inner, kind="frontmatter") == "preface"


def test_two_line_breaks_in_a_row_begin_a_paragraph() -> None:
    assert said(
        "<p>First one.<br/>\n<br/>Second, <i>long</i><br/>one.<br/><br/><br/>Third.</p>"
    ) == [("paragraph", "First one."), ("paragraph", "Second, long one."), ("paragraph", "Third.")]


def test_paragraphs_that_only_line_breaks_part_are_found_in_a_bare_body() -> None:
    assert said("First one.<br/><br/>Second one.") == [
        ("paragraph", "First one."),
        ("paragraph", "Second one."),
    ]


@pytest.mark.parametrize("tag", ["p", "div", "blockquote"])
def test_short_lines_that_begin_with_capitals_are_lines_of_a_poem(tag: str) -> None:
    found = blocks_of(
        f"<{tag}>The rose is red,<br/>“The violet <i>blue</i>,<br/>The honey sweet,<br/><br/>"
        f"And so are you.</{tag}>"
    )

    assert [(str(b.kind), b.text, b.is_stanza_start) for b in found] == [
        ("verse", "The rose is red,", True),
        ("verse", "“The violet blue,", False),
        ("verse", "The honey sweet,", False),
        ("verse", "And so are you.", True),
    ]


@pytest.mark.parametrize(
    "inner",
    [
        "It was a long<br/>and quiet afternoon<br/>and nobody spoke<br/>of it again.",
        "One<br/>Two",
        f"Ann{' and so on' * 12}<br/>Ben<br/>Carl",
        "<b>A</b><p>B<br/>C</p>",
    ],
    ids=["wrapped", "two", "long", "blocks"],
)
def test_other_line_breaks_are_blanks(inner: str) -> None:
    assert "verse" not in {kind for kind, _ in said(f"<div>{inner}</div>")}


def test_a_line_end_between_chinese_letters_is_no_blank() -> None:
    assert said("<p>我是一\n  只猫。\n好 吧\nok</p>") == [("paragraph", "我是一只猫。好 吧 ok")]


def test_a_line_end_between_korean_words_is_a_blank() -> None:
    assert said("<p>나는\n고양이다</p>") == [("paragraph", "나는 고양이다")]


def skipped(inner: str) -> list[str]:
    return [
        block.text
        for block in blocks_of(inner)
        if block_reason(block, Rules()) is SkipReason.CONTENTS
    ]


def links(count: int, name: str = "p") -> str:
    return "".join(f'<{name}><a href="#c{n}">Chapter {n}</a></{name}>' for n in range(1, count + 1))


def test_lines_of_links_that_stand_together_are_a_contents_list() -> None:
    found = skipped(f"<p>The Bell</p>{links(5)}{LONG}")

    assert found == [f"Chapter {n}" for n in range(1, 6)]


def test_fewer_links_are_one_below_a_title_with_what_stands_between() -> None:
    table = (
        "<p><b>Contents</b></p><table><tr><td>Chapter</td><td>Page</td></tr>"
        '<tr><td><a href="#a">I.</a> The Mill</td><td>3</td></tr>'
        '<tr><td><a href="#b">II.</a> The Sea</td><td>9</td></tr></table>'
    )

    found = skipped(f"{table}{LONG}")

    assert found == ["Contents", "Chapter, Page", "I. The Mill, 3", "II. The Sea, 9"]


def test_parts_of_a_list_within_a_list_are_skipped_with_it() -> None:
    inner = f'<ul><li><a href="#p">Part One</a><ul>{links(5, "li")}</ul></li></ul>{LONG}'

    assert skipped(inner)[0] == "Part One"


def test_choices_cross_references_and_headings_that_lead_back_are_spoken() -> None:
    headings = "".join(f'<h2><a href="toc.xhtml#c{n}">Chapter {n}</a></h2>' for n in range(8))
    outside = "".join(f'<p><a href="https://example.org/{n}">Site {n}</a></p>' for n in range(8))

    assert skipped(links(4) + LONG + headings + outside) == []


def test_a_list_of_chapters_makes_no_chapters() -> None:
    chapters = "".join(f'<p id="c{n}">Chapter {n}</p>{LONG}' for n in range(1, 6))
    epub = Epub({"a.xhtml": page(f"<p>A Book</p>{links(5)}{chapters}")})

    assert titles(plan_of(epub)) == [f"Chapter {n}" for n in range(1, 6)]


ACT = "<h2>ACT I</h2>"
SAYS = "Good morrow to you, my lord, and to all of your house."


@pytest.mark.parametrize(
    "name",
    [
        "<b>{}.</b> ",
        "<strong>{}</strong>. ",
        "<b>{}:</b> ",
        '<span class="smcap">{}.</span> ',
        "<i>{}.</i> ",
        "<b>{}</b> (<i>aside</i>). ",
        "{}. ",
        "{}: ",
        '<span class="speaker">{}</span> ',
    ],
)
def test_names_at_the_start_of_paragraphs_speak_in_a_play(name: str) -> None:
    plain = "span class=" not in name and "<i>{}" not in name
    names = ("ANNE", "BEN") if plain else ("Anne", "Ben")
    if "speaker" in name:
        names = ("ANNE", "BEN")

    found = spoken_by(ACT + "".join(f"<p>{name.format(one)}{SAYS}</p>" for one in names * 3))

    assert [speaker for speaker, _ in found] == ["", *names * 3]
    assert all(text.endswith(SAYS) and names[0] not in text for _, text in found[1:])


@pytest.mark.parametrize("tag", ["p", "div", "h4", "dt"])
def test_a_block_that_only_names_somebody_speaks_what_follows(tag: str) -> None:
    found = spoken_by(
        f'{ACT}<{tag} class="speaker">HAMLET.</{tag}><p>To be.</p><p>Or not.</p>'
        f'<{tag} class="speaker">OPHELIA</{tag}><p>My lord.</p><h2>ACT II</h2><p>A room.</p>'
    )

    assert found == [
        ("", "ACT I"),
        ("HAMLET", "To be."),
        ("HAMLET", "Or not."),
        ("OPHELIA", "My lord."),
        ("", "ACT II"),
        ("", "A room."),
    ]


def test_a_direction_is_nobodys_and_the_speech_goes_on_behind_it() -> None:
    found = spoken_by(
        '<p class="speaker">HAMLET</p><p>To be.</p><p class="stage-direction">He sits.</p>'
        "<p>Or not.</p><hr/><p>The curtain falls.</p>"
    )

    assert found == [
        ("HAMLET", "To be."),
        ("", "He sits."),
        ("HAMLET", "Or not."),
        ("", ""),
        ("", "The curtain falls."),
    ]


def test_a_name_that_nobody_speaks_under_is_not_lost() -> None:
    found = spoken_by('<p class="speaker">ANNE</p><p class="speaker">BEN</p><p>Yes!</p>')

    assert [text for _, text in found] == ["ANNE", "Yes!"]


def test_speeches_end_with_the_element_that_holds_them() -> None:
    found = spoken_by(
        '<div class="sp"><p class="speaker">ANNE</p><p>Yes!</p></div><p>It grew dark.</p>'
    )

    assert found == [("ANNE", "Yes!"), ("", "It grew dark.")]


def test_lines_of_verse_that_are_spoken_keep_who_speaks() -> None:
    found = spoken_by(
        f'{ACT}<p class="speaker">ANNE</p><div class="poem"><p>One line<br/>and one</p></div>'
    )

    assert found == [("", "ACT I"), ("ANNE", "One line"), ("ANNE", "and one")]


def test_an_interview_is_known_by_its_letters() -> None:
    found = spoken_by("".join(f"<p><b>{one}:</b> {SAYS}</p>" for one in "QAQAQA"))

    assert [speaker for speaker, _ in found] == list("QAQAQA")


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


def test_a_large_initial_stays_in_its_word_though_a_blank_follows_it() -> None:
    assert said('<p><span class="dropcap">T</span> <small>HE</small> house</p>') == [
        ("paragraph", "THE house")
    ]
    assert said('<p><span class="dropcap">I</span> was</p>') == [("paragraph", "I was")]


def test_a_play_as_transcribers_set_it_is_heard_with_its_persons() -> None:
    found = spoken_by(
        '<h3>THE FIRST ACT</h3><p class="scenedesc">A room.</p><p class="stagedir">'
        '<span class="smallcaps">Ann</span> is seated.</p><p class="speaker">Ben.</p>\n'
        '<p><span class="stagedir">To <span class="smallcaps">Ann</span>.</span> Hullo!</p>\n'
        '<span class="pagenum">4</span>\n<p class="speaker">Ann.</p>\n<p>Yes?</p>'
    )

    assert [pair for pair in found if pair != ("", "4")] == [
        ("", "THE FIRST ACT"),
        ("", "A room."),
        ("", "Ann is seated."),
        ("Ben", "[To Ann.] Hullo!"),
        ("Ann", "Yes?"),
    ]


def test_persons_that_a_list_tells_of_do_not_speak() -> None:
    persons = "".join(
        f'<p><b epub:type="z3998:persona">{name}</b>.\u2014{SAYS}</p>'
        for name in ("Ann", "Ben") * 3
    )

    found = blocks_of(f'<section epub:type="z3998:dramatis-personae">{persons}</section>')

    assert {block.speaker for block in found} == {""}
    assert found[0].text == f"Ann.\u2014{SAYS}"


def test_a_name_that_spans_rows_speaks_in_all_of_them() -> None:
    inner = (
        '<table><tr><td epub:type="z3998:persona" rowspan="2">Ann</td><td>One.</td></tr>'
        "<tr><td>Two.</td></tr><tr><td/><td>They go.</td></tr>"
        '<tr><td epub:type="z3998:persona">Bob</td><td>Three.</td></tr></table>'
    )

    assert spoken_by(inner) == [
        ("Ann", "One."),
        ("Ann", "Two."),
        ("", "They go."),
        ("Bob", "Three."),
    ]


def test_directions_in_a_speech_are_set_apart_in_its_text() -> None:
    direction = '<i epub:type="z3998:stage-direction">To <b epub:type="z3998:persona">Bob</b>.</i>'
    row = f'<td epub:type="z3998:persona">Ann</td><td>{direction} Go! <i>Now.</i></td>'

    assert spoken_by(f"<table><tr>{row}</tr></table>") == [("Ann", "[To Bob.] Go! Now.")]
