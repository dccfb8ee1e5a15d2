"""What somebody should look at is told, with the place where it is."""

from __future__ import annotations

import pytest

from synth.books.epub.reader import read_epub
from synth.books.plan import Plan, plan_book
from synth.books.plan_text import text_of
from synth.books.rules import AltTexts, Notes, Rules, SkipReason
from tests.synth.books.documents import LONG, METADATA, PROSE, Epub, page


def warnings_of(inner: str, *, metadata: str = METADATA) -> list[str]:
    pages = {
        "a.xhtml": page(f"<h1>First</h1><p>{PROSE}</p>"),
        "b.xhtml": page(f"<h1>The Second</h1>{inner}"),
    }
    return list(plan_book(read_epub(Epub(pages, metadata=metadata).bytes())).warnings)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (f"<p>{PROSE}\ufffd and \ue000 \ufffd</p>", ["U+FFFD (2", "U+E000 (1"]),
        (
            f"<p>{PROSE}caf\u00c3\u00a8, d\u00c3\u00a8j\u00c3\u00a8</p>",
            ["3 letters", "wrong encoding"],
        ),
        (f"<p>{PROSE * 80}</p>", ["paragraph of", "(It was a long and"]),
        (f'<p xml:lang="klingon">{PROSE}</p>', ["'klingon'"]),
        ("<p>Short.</p>", ["very short"]),
    ],
    ids=["odd", "garbled", "long", "language", "short"],
)
def test_a_warning_says_what_is_odd_and_where(inner: str, words: list[str]) -> None:
    (warning,) = warnings_of(inner)

    assert "'The Second'" in warning
    assert all(one in warning for one in words)


@pytest.mark.parametrize("tag", ["", "und"])
def test_a_language_that_is_not_known_is_told(tag: str) -> None:
    metadata = METADATA.replace("<dc:language>en", f"<dc:language>{tag}")

    assert any(
        "language" in w and "set the language" in w
        for w in warnings_of(f"<p>{PROSE}</p>", metadata=metadata)
    )


def test_letters_of_any_script_are_not_odd() -> None:
    text = "Ünïcödé “quotes” — Ã la Âge, 漢字, العربية, עברית, ไทย, हिन्दी, 한국어, 👍🏽, ½ ﬁ"

    assert warnings_of(f"<p>{PROSE}{text}</p>") == []


# ruff: noqa: RUF001  # letters of many scripts


def plan_of(pages: dict[str, str], rules: Rules | None = None, *, metadata: str = METADATA) -> Plan:
    return plan_book(read_epub(Epub(pages, metadata=metadata).bytes()), rules)


def heard(inner: str, rules: Rules | None = None) -> str:
    (chapter,) = plan_of({"a.xhtml": page(inner)}, rules).included
    return text_of(chapter)


def test_empty_chapters_and_pages_of_pictures_take_no_place_between_chapters() -> None:
    pages = {
        "a.xhtml": page(f"<h1>One</h1>{LONG}"),
        "b.xhtml": page(""),
        "c.xhtml": page('<p> &nbsp; </p><img src="x.png" alt=""/>'),
        "d.xhtml": page(f"<h1>Two</h1>{LONG}"),
    }

    plan = plan_of(pages)

    assert [chapter.title for chapter in plan.included] == ["One", "Two"]
    assert any("c.xhtml" in warning for warning in plan.warnings)


def test_a_chapters_number_on_a_page_of_its_own_is_heard_once() -> None:
    pages = {
        "a.xhtml": page(f"<h1>I</h1>{LONG}"),
        "b.xhtml": page("<h1>II</h1>"),
        "c.xhtml": page(LONG),
    }

    plan = plan_of(pages)

    said = " ".join(text_of(chapter) for chapter in plan.included)
    assert said.split().count("II") == 1
    assert said.count(PROSE.split(",")[0]) == 80


@pytest.mark.parametrize("word", ["word ", "word", "漢字"], ids=["blanks", "none", "chinese"])
def test_a_million_characters_without_a_full_stop_are_read_and_told(word: str) -> None:
    plan = plan_of({"a.xhtml": page(f"<h1>One</h1><p>{word * (1_000_000 // len(word))}</p>")})

    assert plan.included[0].source_chars == len("One") + len(word.strip()) * (
        1_000_000 // len(word)
    )
    assert any("a paragraph of" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ar", "كان الصباح جميلاً، ولم يتكلم أحد."),
        ("he", "היה בוקר יפה, ואיש לא דיבר."),
        ("zh", "我是一只貓，還沒有名字。"),
        ("ja", "吾輩は猫である。名前はまだ無い。"),
        ("th", "เช้าวันนั้นอากาศดี ไม่มีใครพูดอะไร"),
        ("fa", "می\u200cخواهم بروم"),
    ],
)
def test_text_of_any_script_is_heard_as_it_is_written(language: str, text: str) -> None:
    metadata = METADATA.replace(">en<", f">{language}<")
    marks = "\u202b{}\u202c\u200f"  # of direction: they are no text

    (chapter,) = plan_of(
        {"a.xhtml": page(f"<p>{marks.format(text)}</p>")}, metadata=metadata
    ).included

    assert text_of(chapter) == text
    assert chapter.language == language


def test_words_are_neither_glued_nor_doubled() -> None:
    inner = (
        '<div>One<div>two</div>three</div><p><span class="drop">F</span>our <b>fi</b>ve<br/>six</p>'
        "<ul><li><p>seven</p></li><li>eight<ul><li>nine</li></ul></li></ul><dl><dt>ten</dt><dd>"
        "eleven</dd></dl><blockquote>twelve<p>thirteen</p></blockquote>soft\u00adhyphen"
    )

    assert " ".join(heard(inner).split()) == (
        "One two three Four five six seven eight nine ten eleven twelve thirteen softhyphen"
    )


def test_a_captions_words_are_heard_and_a_pictures_only_if_it_is_asked_for() -> None:
    figure = (
        '<p>Look.</p><figure><img src="x.png" alt="A cat"/><figcaption>Tom.</figcaption></figure>'
    )

    assert heard(figure).split() == ["Look.", "Tom."]
    assert heard(figure, Rules(alt_texts=AltTexts.SPEAK)).split() == ["Look.", "A", "cat", "Tom."]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        (Notes.SKIP, ["Here.", "There."]),
        (Notes.INLINE, ["Here.", "A note.", "There."]),
        (Notes.END, ["Here.", "There.", "A note."]),
    ],
)
def test_a_note_that_pops_up_is_heard_where_it_is_wanted(notes: Notes, expected: list[str]) -> None:
    inner = (
        '<p>Here.<a epub:type="noteref" href="#n">1</a></p><aside epub:type="footnote" id="n">'
        '<p>A note.<a epub:type="backlink" href="#r">\u21a9</a></p></aside><p>There.</p>'
    )

    assert heard(inner, Rules(notes=notes)).split("\n\n") == expected


def test_what_is_hidden_is_not_heard_and_is_accounted_for() -> None:
    inner = (
        '<p>Seen.</p><p hidden="">One</p><p style="display:none">Two</p><p aria-hidden="true">Six'
        '</p><p>Page<span epub:type="pagebreak" title="12">12</span>s</p>'
    )

    plan = plan_of({"a.xhtml": page(inner)})

    assert text_of(plan.included[0]).split() == ["Seen.", "Pages"]
    assert plan.skipped() == {SkipReason.HIDDEN: 9, SkipReason.PAGE_NUMBER: 2}


def test_words_of_another_language_have_it() -> None:
    inner = '<p>He said:</p><p lang="fr">Bonjour à tous.</p><p>And <i lang="la">et cetera</i>.</p>'

    (chapter,) = plan_of({"a.xhtml": page(inner)}).included

    assert [block.language for block in chapter.spoken()] == ["", "fr", ""]
