"""What each element of a document becomes, and that no character of any markup is lost."""

from __future__ import annotations

import random
import time

import pytest

from synth.books.book import BlockKind, count_chars
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from tests.synth.books.documents import blocks_of, page, said

PERSONA = '<td epub:type="z3998:persona"'
NORA = '<b epub:type="z3998:persona">Nora</b>'
TOLD = "I have told you so many a time, and I say it once more."
LANE = '<span epub:type="z3998:stage-direction"><b epub:type="z3998:persona">Lane</b>'
# Markup, and what is read: kind, who speaks, text.
READ = {
    "item": ("<ul><li><p>One.</p></li><li>Two.</li></ul>", "list_item|One. / list_item|Two."),
    "no_paragraph": ("Bare <div>In a div</div> after <p>In p</p> and the tail<section>last"
        "</section>", "Bare / In a div / after / In p / and the tail / last"),
    "line_break": ("<p>one<br/>two<br />three</p>", "one two three"),
    "inline": ('<p><span class="drop">T</span>he <i>re</i>turn, soft\u00adhyphen</p>',
        "The return, softhyphen"),
    "initial_picture": ('<p><img alt="O" src="o.png"/>nce upon</p>', "Once upon"),
    "initial_and_blank": ('<p><span class="dropcap">T</span> <small>HE</small> house</p>',
        "THE house"),
    "initial_word": ('<p><span class="dropcap">I</span> was</p>', "I was"),
    "entities": ("<p>caf&eacute;&nbsp;&mdash;&hellip; &amp; R&D</p>", "café —… & R&D"),
    "numbers": ('<ol start="3"><li>c</li><li value="7">g</li><li><p>h</p><p>i</p></li></ol>',
        "list_item|3. c / list_item|7. g / list_item|8. h / list_item|i"),
    "rows": ("<table><caption>Who</caption><tr><th>Name</th><th>Age</th></tr><tr><td><p>Ann</p>"
        "</td><td>7</td></tr></table>", "caption|Who / table_row|Name, Age / table_row|Ann, 7"),
    "layout": ("<table><tr><td><h2>One</h2><p>a</p><p>b</p></td></tr></table>",
        "heading|One / a / b"),
    "play": (f"<table><tr>{PERSONA}>Lane</td><td><p>Yes, sir.</p><p>No.</p></td></tr><tr><td/><td>"
        f"<i>Goes out.</i></td></tr><tr>{PERSONA}>Algernon.</td><td>Well!</td></tr></table>",
        "speech Lane|Yes, sir. / speech Lane|No. / Goes out. / speech Algernon|Well!"),
    "direction": (f"<table><tr><td/><td>{LANE} goes out.</span></td></tr><tr>{PERSONA}>Jack</td>"
        f"<td>{LANE} listens.</span> Oh!</td></tr></table>",
        "Lane goes out. / speech Jack|[Lane listens.] Oh!"),
    "name_before": (f"<p>{NORA}: Yes.</p><p>{NORA} smiles.</p>",
        "speech Nora|Yes. / Nora smiles."),
    "look_of_a_play": (
        "".join(f"<tr><td>{one}</td><td>{TOLD}</td></tr>" for one in ("ANN", "BEN", "ANN", "BEN",
        "ANN")).join(("<table>", "</table>")), f"speech ANN|{TOLD} / speech BEN|{TOLD} / "
        f"speech ANN|{TOLD} / speech BEN|{TOLD} / speech ANN|{TOLD}"),
    "number_and_title": ("<h2>CHAPTER I.<br/>The Bell</h2><h2>The long<br/>way</h2>",
        "heading|CHAPTER I. / heading|The Bell / heading|The long way"),
    "heading_picture": ('<h2><img alt="Chapter One" src="x.png"/></h2><p>Text.</p>',
        "heading|Chapter One / Text."),
    "link_of_words": ('<p>See <a href="#two">chapter two</a> and 1 <a href="#x">more</a>.</p>',
        "See chapter two and 1 more."),
    "formula": ('<p>Take <math xmlns="http://www.w3.org/1998/Math/MathML" alttext="x squared">'
        "<msup/></math>, then.</p>", "Take x squared, then."),
    "two_breaks": ("<p>First one.<br/>\n<br/>Second, <i>long</i><br/>one.<br/><br/><br/>Third.</p>",
        "First one. / Second, long one. / Third."),
    "two_breaks_in_the_body": ("First one.<br/><br/>Second one.", "First one. / Second one."),
    "chinese": ("<p>我是一\n  只猫。\n好 吧\nok</p>", "我是一只猫。好 吧 ok"),
    "korean": ("<p>나는\n고양이다</p>", "나는 고양이다"),
    "wrapped": ("<div>It was a long<br/>and quiet afternoon<br/>and nobody spoke<br/>of it again."
        "</div>", "It was a long and quiet afternoon and nobody spoke of it again."),
    "two_lines": ("<div>One<br/>Two</div>", "One Two"),
    "blocks": ("<div><b>A</b><p>B<br/>C</p></div>", "A / B C"),
    **{f"ornament_{at}": (f"<p>One.</p>{mark}<p>Two.</p>", f"One. / break|{text} / Two.")
       for at, (mark, text) in enumerate((("<hr/>", ""), ("<p>* * *</p>", "* * *"),
                                          ("<p>⁂</p>", "⁂"), ("<div>•</div>", "•")))},
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_markup_is_read_as_it_is_meant(name: str) -> None:
    inner, blocks = READ[name]
    assert said(inner) == blocks.split(" / ")


def test_names_of_speakers_count_with_the_first_of_what_they_say() -> None:
    inner = READ["play"][0]
    assert [block.source_chars for block in blocks_of(inner)] == [
        len(text) for text in ("LaneYes,sir.", "No.", "Goesout.", "Algernon.Well!")
    ]


@pytest.mark.parametrize(
    ("inner", "starts"),
    [
        ('<blockquote epub:type="z3998:verse"><p><span>One</span><br/><span>two</span></p>'
         "<p><span>three</span><br/><span>four</span></p></blockquote>", "One three"),
        *((f"<{tag}>Rose is red,<br/>“Violet <i>blue</i>,<br/>Honey sweet,<br/><br/>And so are you."
           f"</{tag}>", "Rose And") for tag in ("p", "div", "blockquote")),
    ],
)  # fmt: skip
def test_lines_of_a_poem_are_blocks_and_stanzas_are_known(inner: str, starts: str) -> None:
    found = blocks_of(inner)
    assert [block.kind for block in found] == [BlockKind.VERSE] * 4
    assert [b.text.split()[0] for b in found if b.is_stanza_start] == starts.split()
    assert "blue" not in inner or found[1].text == "“Violet blue,"


def test_long_lines_are_no_poem() -> None:
    found = said(f"<div>Ann{' and so on' * 12}<br/>Ben<br/>Carl</div>")
    assert [text.startswith("Ann") for text in found] == [True]


def test_the_mark_of_a_note_is_no_text_and_leads_to_the_note() -> None:
    paragraph, mark = blocks_of('<p>B12 is here.<a epub:type="noteref" href="n.xhtml#n1">1</a></p>')
    assert (paragraph.text, paragraph.note_marks) == ("B12 is here.", ("text/n.xhtml#n1",))
    assert (mark.kind, mark.role, mark.text) == (BlockKind.FURNITURE, "noteref", "1")


@pytest.mark.parametrize("link", ['<sup><a href="#f1">1</a></sup>', '<a href="#f1">[1]</a>'])
def test_the_mark_of_a_note_is_known_without_a_role(link: str) -> None:
    assert blocks_of(f"<p>Word{link}</p>")[0].note_marks == ("text/a.xhtml#f1",)


def test_of_ruby_the_base_is_spoken_and_the_reading_is_counted() -> None:
    (block,) = blocks_of("<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby></p>")
    assert (block.text, block.source_chars) == ("漢字", 7)


def test_page_numbers_and_hidden_text_are_kept_apart() -> None:
    found = blocks_of(
        '<p>A <span epub:type="pagebreak" id="p1">12</span>b<span hidden="">secret</span> '
        '<span style="display: none">gone</span>c</p><script>var x;</script>'
    )
    assert [(b.role, b.text) for b in found] == [
        ("", "A b c"), ("pagebreak", "12"), ("hidden", "secret"), ("hidden", "gone"),
        ("hidden", "var x;"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "anchors"),
    [
        ('<p>One</p><a id="two"></a><div id="three"><p>Two</p></div>', [(), ("two", "three")]),
        ('<aside epub:type="footnote" id="n1"><p>First.</p><p>Second.</p></aside>', [("n1",)] * 2),
    ],
    ids=["before_a_block", "note"],
)
def test_anchors_lead_to_blocks(inner: str, anchors: list[tuple[str, ...]]) -> None:
    found = blocks_of(inner)
    assert [block.anchors for block in found] == anchors
    assert "note" not in inner or {block.kind for block in found} == {BlockKind.NOTE}


def test_languages_and_roles_of_elements_are_those_of_their_blocks() -> None:
    found = blocks_of('<p>One</p><p xml:lang="fr">Deux</p><p><i lang="de">Drei</i></p>')
    inner = page('<section epub:type="dedication"><p>To her</p></section>', kind="frontmatter")
    document = document_of(parse_document(inner.encode()).root, "a.xhtml")
    assert [block.language for block in found] == ["", "fr", "de"]
    assert (document.role, document.blocks[0].role) == ("dedication", "dedication")


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
    said = [word for block in document.blocks for word in block.text.split()]
    assert [word for word in said if word in {"one", "two", "three"}] == ["one", "two", "three"]
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
    "start",
    [
        "<!DOCTYPE html [" + "<!-- " * 300_000,
        "<!-- " * 300_000,
        pytest.param("<?x?>" * 200_000, marks=pytest.mark.thorough),
    ],
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
    assert document_of(parse_document(text.encode(encoding)).root, "a").blocks[0].text == "Été"


def test_a_document_of_many_levels_is_read() -> None:
    deep = f"{'<div>' * 2000}deepest{'</div>' * 2000}"
    assert "deepest" in " ".join(said(f"<p>one</p>{deep}"))


INLINE = ["i", "b", "span", "em", "ruby", "rt", "a", "sup", "math", "q", "small", "code"]
BLOCK = "p div section li ul ol table tr td th h2 blockquote aside pre figure figcaption dl dt dd"
BLOCKS = [*BLOCK.split(), "hgroup", "nav", "tbody", "x-y"]
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
            name = source.choice(INLINE + BLOCKS)
            inner = random_markup(source, depth + 1)
            parts.append(f"<{name}{source.choice(ATTRIBUTES)}>{inner}</{name}>")
            parts.append(source.choice(WORDS))
    return "".join(parts)


@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(100, 300), marks=pytest.mark.thorough)]
)
def test_every_character_of_any_markup_is_in_exactly_one_block(seeds: range) -> None:
    for seed in seeds:
        root = parse_document(page(random_markup(random.Random(seed))).encode()).root
        document = document_of(root, "a.xhtml")
        body = next(root.iter("{*}body"))
        held = [block.source_chars for block in document.blocks]
        assert document.source_chars == count_chars("".join(body.itertext())) == sum(held), seed
        assert all(chars >= 0 for chars in held), seed
