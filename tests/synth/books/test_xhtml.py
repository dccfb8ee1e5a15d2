from __future__ import annotations

import random
import time

import pytest

from synth.books.book import BlockKind, Document, count_chars
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from tests.synth.books.documents import blocks_of, page, said


def read(inner: str, *, kind: str = "", path: str = "text/a.xhtml") -> Document:
    document = document_of(
        parse_document(page(inner, kind=kind).encode()).root, path, language="en"
    )
    assert sum(block.source_chars for block in document.blocks) == document.source_chars
    return document


def test_paragraph_of_a_list_item_is_read_once() -> None:
    assert said("<ul><li><p>One.</p></li><li>Two.</li></ul>") == [
        ("list_item", "One."),
        ("list_item", "Two."),
    ]


def test_text_that_stands_in_no_paragraph_is_read() -> None:
    found = said("Bare <div>In a div</div> after <p>In p</p> and the tail<section>last</section>")

    assert [text for _, text in found] == [
        "Bare",
        "In a div",
        "after",
        "In p",
        "and the tail",
        "last",
    ]


def test_words_on_both_sides_of_a_line_break_stay_two_words() -> None:
    assert said("<p>one<br/>two<br />three</p>") == [("paragraph", "one two three")]


def test_inline_elements_do_not_part_a_word() -> None:
    assert said('<p><span class="drop">T</span>he <i>re</i>turn, soft\u00adhyphen</p>') == [
        ("paragraph", "The return, softhyphen")
    ]


def test_an_initial_that_is_a_picture_begins_its_word() -> None:
    assert said('<p><img alt="O" src="o.png"/>nce upon</p>') == [("paragraph", "Once upon")]


def test_names_of_html_are_known_without_a_document_type() -> None:
    assert said("<p>caf&eacute;&nbsp;&mdash;&hellip; &amp; R&D</p>") == [
        ("paragraph", "café —… & R&D")
    ]


def test_numbers_of_an_ordered_list_are_spoken() -> None:
    found = said('<ol start="3"><li>c</li><li value="7">g</li><li><p>h</p><p>i</p></li></ol>')

    assert [text for _, text in found] == ["3. c", "7. g", "8. h", "i"]


def test_a_row_is_one_block_and_its_cells_are_parted() -> None:
    rows = "<tr><th>Name</th><th>Age</th></tr><tr><td><p>Ann</p></td><td>7</td></tr>"

    assert said(f"<table><caption>Who</caption>{rows}</table>") == [
        ("caption", "Who"),
        ("table_row", "Name, Age"),
        ("table_row", "Ann, 7"),
    ]


def test_a_table_that_only_places_text_is_read_as_text() -> None:
    assert said("<table><tr><td><h2>One</h2><p>a</p><p>b</p></td></tr></table>") == [
        ("heading", "One"),
        ("paragraph", "a"),
        ("paragraph", "b"),
    ]


def test_speeches_of_a_play_name_who_speaks_and_directions_name_nobody() -> None:
    table = (
        '<table><tr><td epub:type="z3998:persona">Lane</td><td><p>Yes, sir.</p><p>No.</p></td></tr>'
        "<tr><td/><td><i>Goes out.</i></td></tr>"
        '<tr><td epub:type="z3998:persona">Algernon.</td><td>Well!</td></tr></table>'
    )

    found = [(str(b.kind), b.speaker, b.text, b.source_chars) for b in blocks_of(table)]

    assert found == [
        ("speech", "Lane", "Yes, sir.", len("Lane") + len("Yes,sir.")),
        ("speech", "Lane", "No.", len("No.")),
        ("paragraph", "", "Goes out.", len("Goesout.")),
        ("speech", "Algernon", "Well!", len("Algernon.Well!")),
    ]


def test_a_person_in_a_stage_direction_does_not_speak_it() -> None:
    direction = '<span epub:type="z3998:stage-direction"><b epub:type="z3998:persona">Lane</b>'
    table = (
        f"<table><tr><td/><td>{direction} goes out.</span></td></tr>"
        '<tr><td epub:type="z3998:persona">Jack</td>'
        f"<td>{direction} listens.</span> Oh!</td></tr></table>"
    )

    found = [(str(b.kind), b.speaker, b.text) for b in blocks_of(table)]

    assert found == [("paragraph", "", "Lane goes out."), ("speech", "Jack", "[Lane listens.] Oh!")]


def test_a_name_at_the_start_of_a_paragraph_speaks_where_a_mark_follows() -> None:
    name = '<b epub:type="z3998:persona">Nora</b>'

    found = [(b.speaker, b.text) for b in blocks_of(f"<p>{name}: Yes.</p><p>{name} smiles.</p>")]

    assert found == [("Nora", "Yes."), ("", "Nora smiles.")]


def test_a_play_is_known_by_its_look_too() -> None:
    speech = "I have told you so many a time, and I say it once more."
    rows = "".join(
        f"<tr><td>{name}</td><td>{speech}</td></tr>" for name in ("ANN", "BEN", "ANN", "BEN", "ANN")
    )

    assert {b.speaker for b in blocks_of(f"<table>{rows}</table>")} == {"ANN", "BEN"}


def test_lines_of_a_poem_are_blocks_and_stanzas_are_known() -> None:
    poem = (
        '<blockquote epub:type="z3998:verse"><p><span>One</span><br/><span>two</span></p>'
        "<p><span>three</span><br/><span>four</span></p></blockquote>"
    )

    found = [(str(b.kind), b.text, b.is_stanza_start) for b in blocks_of(poem)]

    assert found == [
        ("verse", "One", True),
        ("verse", "two", False),
        ("verse", "three", True),
        ("verse", "four", False),
    ]


def test_a_line_break_after_a_chapters_number_makes_two_headings() -> None:
    assert said("<h2>CHAPTER I.<br/>The Bell</h2><h2>The long<br/>way</h2>") == [
        ("heading", "CHAPTER I."),
        ("heading", "The Bell"),
        ("heading", "The long way"),
    ]


def test_a_heading_that_is_a_picture_says_what_the_picture_says() -> None:
    assert said('<h2><img alt="Chapter One" src="x.png"/></h2><p>Text.</p>') == [
        ("heading", "Chapter One"),
        ("paragraph", "Text."),
    ]


def test_the_mark_of_a_note_is_no_text_and_leads_to_the_note() -> None:
    paragraph, mark = blocks_of('<p>B12 is here.<a epub:type="noteref" href="n.xhtml#n1">1</a></p>')

    assert paragraph.text == "B12 is here."
    assert paragraph.note_marks == ("text/n.xhtml#n1",)
    assert (mark.kind, mark.role, mark.text) == (BlockKind.FURNITURE, "noteref", "1")


@pytest.mark.parametrize("link", ['<sup><a href="#f1">1</a></sup>', '<a href="#f1">[1]</a>'])
def test_the_mark_of_a_note_is_known_without_a_role(link: str) -> None:
    assert blocks_of(f"<p>Word{link}</p>")[0].note_marks == ("text/a.xhtml#f1",)


def test_a_link_of_words_is_text() -> None:
    assert said('<p>See <a href="#two">chapter two</a> and 1 <a href="#x">more</a>.</p>') == [
        ("paragraph", "See chapter two and 1 more.")
    ]


def test_a_note_has_all_its_paragraphs_under_its_anchor() -> None:
    found = blocks_of('<aside epub:type="footnote" id="n1"><p>First.</p><p>Second.</p></aside>')

    assert [(b.kind, b.text, b.anchors) for b in found] == [
        (BlockKind.NOTE, "First.", ("n1",)),
        (BlockKind.NOTE, "Second.", ("n1",)),
    ]


def test_of_ruby_the_base_is_spoken_and_the_reading_is_counted() -> None:
    (block,) = blocks_of("<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby></p>")

    assert (block.text, block.source_chars) == ("漢字", 7)


def test_a_formula_is_what_its_author_says_it_is() -> None:
    math = '<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="x squared"><msup/></math>'

    assert said(f"<p>Take {math}, then.</p>") == [("paragraph", "Take x squared, then.")]


def test_page_numbers_and_hidden_text_are_kept_apart() -> None:
    found = blocks_of(
        '<p>A <span epub:type="pagebreak" id="p1">12</span>b<span hidden="">secret</span> '
        '<span style="display: none">gone</span>c</p><script>var x;</script>'
    )

    assert [(b.role, b.text) for b in found] == [
        ("", "A b c"),
        ("pagebreak", "12"),
        ("hidden", "secret"),
        ("hidden", "gone"),
        ("hidden", "var x;"),
    ]


@pytest.mark.parametrize("ornament", ["<hr/>", "<p>* * *</p>", "<p>⁂</p>", "<div>•</div>"])
def test_ornaments_end_a_scene(ornament: str) -> None:
    kinds = [block.kind for block in blocks_of(f"<p>One.</p>{ornament}<p>Two.</p>")]

    assert kinds == [BlockKind.PARAGRAPH, BlockKind.BREAK, BlockKind.PARAGRAPH]


def test_a_language_of_an_element_is_that_of_its_block() -> None:
    found = blocks_of('<p>One</p><p xml:lang="fr">Deux</p><p><i lang="de">Drei</i></p>')

    assert [block.language for block in found] == ["", "fr", "de"]


def test_the_role_of_a_section_reaches_its_blocks_and_the_document() -> None:
    document = read('<section epub:type="dedication"><p>To her</p></section>', kind="frontmatter")

    assert (document.role, document.blocks[0].role) == ("dedication", "dedication")


def test_an_anchor_before_a_block_leads_to_it() -> None:
    found = blocks_of('<p>One</p><a id="two"></a><div id="three"><p>Two</p></div>')

    assert [block.anchors for block in found] == [(), ("two", "three")]


@pytest.mark.parametrize(
    "broken",
    [
        "<p>one <b>two</p> three",
        "<p>one & two < three</p>",
        "<p>one</p><title/><p>two</b> three</p>",
        "<p>one\x0b two &#0; three",
        "<p>one &custom; two</p><div/>three</div></p>",
    ],
)
def test_broken_markup_keeps_its_words_and_is_told(broken: str) -> None:
    parsed = parse_document(page(broken).encode())

    document = document_of(parsed.root, "a.xhtml")

    assert [w for b in document.blocks for w in b.text.split() if w in {"one", "two", "three"}] == [
        word for word in ("one", "two", "three") if word in broken
    ]
    assert parsed.warning


def test_entities_are_neither_expanded_nor_fetched() -> None:
    bomb = (
        '<!DOCTYPE html [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">'
        '<!ENTITY x SYSTEM "file:///etc/passwd">]><html xmlns="http://www.w3.org/1999/xhtml">'
        "<body><p>&b; &x; end</p></body></html>"
    )

    document = document_of(parse_document(bomb.encode()).root, "a.xhtml")

    assert [block.text for block in document.blocks] == ["&b; &x; end"]


@pytest.mark.parametrize(
    "start", ["<!DOCTYPE html [" + "<!-- " * 300_000, "<?x?>" * 200_000, "<!-- " * 300_000]
)
def test_what_stands_before_a_document_is_read_in_linear_time(start: str) -> None:
    before = time.process_time()

    document = document_of(parse_document(f"{start}<p>one</p>".encode()).root, "a.xhtml")

    assert time.process_time() - before < 10
    assert "one" in " ".join(block.text for block in document.blocks)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "iso-8859-1", "windows-1252"])
def test_documents_are_read_in_the_encoding_that_they_name(encoding: str) -> None:
    name = {"utf-16": "UTF-16", "utf-8-sig": "UTF-8"}.get(encoding, encoding)
    text = f"<?xml version='1.0' encoding='{name}'?><html><body><p>Été</p></body></html>"

    document = document_of(parse_document(text.encode(encoding)).root, "a.xhtml")

    assert document.blocks[0].text == "Été"


def test_a_document_of_many_levels_is_read() -> None:
    deep = "<div>" * 2000 + "deepest" + "</div>" * 2000

    assert "deepest" in " ".join(block.text for block in blocks_of(f"<p>one</p>{deep}"))


INLINE = ["i", "b", "span", "em", "ruby", "rt", "a", "sup", "math", "q", "small", "code"]
BLOCK = ["p", "div", "section", "li", "ul", "ol", "table", "tr", "td", "th", "h2", "blockquote"]
BLOCK += ["aside", "pre", "figure", "figcaption", "dl", "dt", "dd", "hgroup", "nav", "tbody", "x-y"]
ATTRIBUTES = ["", "", "", ' hidden=""', ' epub:type="footnote"', ' epub:type="z3998:persona"']
ATTRIBUTES += [' epub:type="noteref" href="#a"', ' class="poem"', ' lang="fr"', ' class="pagenum"']
WORDS = ["one", "two", " ", "\n", "\u00ad", "é", "* * *", "&amp;", "<br/>", "<hr/>", "1", "\u2060"]
WORDS += ['<img alt="T" src="x"/>', "<!-- c -->", "<svg><title>s</title></svg>", "漢", "\u200b"]


def random_markup(source: random.Random, depth: int = 0) -> str:
    """Return elements in any order, sensible or not, with text before, in and after them."""
    parts = []
    for _ in range(source.randint(1, 5)):
        parts.append(source.choice(WORDS))
        if depth < 6 and source.random() < 0.7:
            name = source.choice(INLINE + BLOCK)
            inner = random_markup(source, depth + 1)
            parts.append(f"<{name}{source.choice(ATTRIBUTES)}>{inner}</{name}>")
            parts.append(source.choice(WORDS))
    return "".join(parts)


@pytest.mark.parametrize("seed", range(300))
def test_every_character_of_any_markup_is_in_exactly_one_block(seed: int) -> None:
    markup = random_markup(random.Random(seed))
    root = parse_document(page(markup).encode()).root
    body = next(root.iter("{*}body"))

    document = document_of(root, "a.xhtml")

    assert document.source_chars == count_chars("".join(body.itertext()))
    assert sum(block.source_chars for block in document.blocks) == document.source_chars
    assert all(block.source_chars >= 0 for block in document.blocks)
