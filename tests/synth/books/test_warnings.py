"""What somebody should look at is told, with the place; what is heard of odd pages."""

from __future__ import annotations

import pytest

from synth.books.plan import Plan
from synth.books.plan_text import text_of
from synth.books.rules import AltTexts, Notes, SkipReason
from tests.synth.books.documents import LONG, METADATA, PROSE, Epub, page, plan_of, titles

# ruff: noqa: RUF001  # letters of many scripts


def warnings_of(inner: str, *, metadata: str = METADATA) -> tuple[str, ...]:
    pages = {
        "a.xhtml": page(f"<h1>First</h1><p>{PROSE}</p>"),
        "b.xhtml": page(f"<h1>The Second</h1>{inner}"),
    }
    return plan_of(Epub(pages, metadata=metadata)).warnings


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (f"<p>{PROSE}\ufffd and \ue000 \ufffd</p>", ["U+FFFD (2", "U+E000 (1"]),
        (f"<p>{PROSE}caf\u00c3\u00a8, d\u00c3\u00a8j\u00c3\u00a8</p>",
         ["3 letters", "wrong encoding"]),
        (f"<p>{PROSE * 80}</p>", ["paragraph of", "(It was a long and"]),
        (f'<p xml:lang="klingon">{PROSE}</p>', ["'klingon'"]),
        ("<p>Short.</p>", ["very short"]),
    ],
    ids=["odd", "garbled", "long", "language", "short"],
)  # fmt: skip
def test_a_warning_says_what_is_odd_and_where(inner: str, words: list[str]) -> None:
    (warning,) = warnings_of(inner)
    assert all(one in warning for one in ["'The Second'", *words])


@pytest.mark.parametrize("tag", ["", "und"])
def test_a_language_that_is_not_known_is_told(tag: str) -> None:
    metadata = METADATA.replace("<dc:language>en", f"<dc:language>{tag}")
    found = warnings_of(f"<p>{PROSE}</p>", metadata=metadata)
    assert any("language" in one and "set the language" in one for one in found)


def test_letters_of_any_script_are_not_odd() -> None:
    text = "Ünïcödé “quotes” — Ã la Âge, 漢字, العربية, עברית, ไทย, हिन्दी, 한국어, 👍🏽, ½ ﬁ"
    assert warnings_of(f"<p>{PROSE}{text}</p>") == ()


def one_page(inner: str, **rules: object) -> Plan:
    return plan_of(Epub({"a.xhtml": page(inner)}), **rules)


def heard(inner: str, **rules: object) -> str:
    (chapter,) = one_page(inner, **rules).included
    return text_of(chapter)


def test_empty_chapters_and_pages_of_pictures_take_no_place_between_chapters() -> None:
    pages = {
        "a.xhtml": page(f"<h1>One</h1>{LONG}"),
        "b.xhtml": page(""),
        "c.xhtml": page('<p> &nbsp; </p><img src="x.png" alt=""/>'),
        "d.xhtml": page(f"<h1>Two</h1>{LONG}"),
    }
    plan = plan_of(Epub(pages))

    assert titles(plan) == ["One", "Two"]
    assert any("c.xhtml" in warning for warning in plan.warnings)


def test_a_chapters_number_on_a_page_of_its_own_is_heard_once() -> None:
    inner = (f"<h1>I</h1>{LONG}", "<h1>II</h1>", LONG)
    plan = plan_of(Epub({f"{n}.xhtml": page(one) for n, one in enumerate(inner)}))
    said = " ".join(text_of(chapter) for chapter in plan.included)
    assert said.split().count("II") == 1
    assert said.count(PROSE.split(",")[0]) == 80


@pytest.mark.parametrize(
    "word",
    ["word", *(pytest.param(word, marks=pytest.mark.thorough) for word in ("word ", "漢字"))],
)
def test_a_million_characters_without_a_full_stop_are_read_and_told(word: str) -> None:
    count = 1_000_000 // len(word)
    plan = one_page(f"<h1>One</h1><p>{word * count}</p>")
    assert plan.included[0].source_chars == len("One") + len(word.strip()) * count
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
    inner = page(f"<p>\u202b{text}\u202c\u200f</p>")  # marks of direction are no text
    (chapter,) = plan_of(Epub({"a.xhtml": inner}, metadata=metadata)).included
    assert (text_of(chapter), chapter.language) == (text, language)


def test_words_are_neither_glued_nor_doubled() -> None:
    inner = (
        '<div>One<div>two</div>three</div><p><span class="drop">F</span>our <b>fi</b>ve<br/>six</p>'
        "<ul><li><p>seven</p></li><li>eight<ul><li>nine</li></ul></li></ul><dl><dt>ten</dt><dd>"
        "eleven</dd></dl><blockquote>twelve<p>thirteen</p></blockquote>soft\u00adhyphen"
    )
    assert " ".join(heard(inner).split()) == (
        "One two three Four five six seven eight nine ten eleven twelve thirteen softhyphen"
    )


FIGURE = '<p>Look.</p><figure><img src="x.png" alt="A cat"/><figcaption>Tom.</figcaption></figure>'
POPUP = (
    '<p>Here.<a epub:type="noteref" href="#n">1</a></p><aside epub:type="footnote" id="n">'
    '<p>A note.<a epub:type="backlink" href="#r">\u21a9</a></p></aside><p>There.</p>'
)


@pytest.mark.parametrize(
    ("inner", "rules", "paragraphs"),
    [
        (FIGURE, {}, "Look. Tom."),
        (FIGURE, {"alt_texts": AltTexts.SPEAK}, "Look. A cat Tom."),
        (POPUP, {"notes": Notes.SKIP}, "Here. There."),
        (POPUP, {"notes": Notes.INLINE}, "Here. A note. There."),
        (POPUP, {"notes": Notes.END}, "Here. There. A note."),
    ],
)
def test_pictures_and_notes_are_heard_as_the_rules_say(
    inner: str, rules: dict[str, object], paragraphs: str
) -> None:
    assert heard(inner, **rules).replace("\n\n", " ") == paragraphs


def test_what_is_hidden_is_not_heard_and_is_accounted_for() -> None:
    plan = one_page(
        '<p>Seen.</p><p hidden="">One</p><p style="display:none">Two</p><p aria-hidden="true">Six'
        '</p><p>Page<span epub:type="pagebreak" title="12">12</span>s</p>'
    )
    assert text_of(plan.included[0]).split() == ["Seen.", "Pages"]
    assert plan.skipped() == {SkipReason.HIDDEN: 9, SkipReason.PAGE_NUMBER: 2}
