"""Documents are read in the charset that they are in, whatever they say; names stay text."""

from __future__ import annotations

from typing import Any

import pytest

from synth.books.book import book_from_json, book_to_json
from synth.books.documents.html import read_html
from synth.books.documents.parsing import decode, parse_document
from synth.books.documents.xhtml import document_of
from synth.books.epub.reader import read_epub
from synth.books.plan import Plan, plan_book
from synth.books.plan_edits import include
from synth.books.rules import SkipReason
from tests.synth.books.documents import PROSE, Epub, page, plan_of, said, tells

BODY = "<html><body><p>Caf\u00e9 \u201cun\u201d</p></body></html>"
SAYS = "<?xml version='1.0' encoding='{}'?>"


def read(content: bytes) -> tuple[str, str]:
    parsed = parse_document(content)
    document = document_of(parsed.root, "a.xhtml")
    assert sum(block.source_chars for block in document.blocks) == document.source_chars
    return document.blocks[0].text, parsed.warning


CAFE = "Caf\u00e9 \u201cun\u201d"


@pytest.mark.parametrize(
    ("says", "written", "warns"),
    [
        ("utf-8", "utf-8", False),
        ("utf-8", "cp1252", True),
        ("iso-8859-1", "cp1252", False),  # quotes are not in it: Windows-1252 is meant
        ("iso-8859-1", "utf-8", True),
        ("windows-1252", "utf-8", True),
        ("us-ascii", "utf-8", True),
        ("utf-16", "utf-8", True),
        ("utf-16", "cp1252", True),
        ("no-such-charset", "utf-8", True),
        ("unicode-escape", "utf-8", True),
        ("utf-7", "cp1252", True),
        ("utf-8", "utf-16-le", False),
        ("iso-8859-1", "utf-16-be", False),
    ],
)
def test_accents_come_back_whatever_charset_a_document_names(
    says: str, written: str, warns: bool
) -> None:
    text, warning = read((SAYS.format(says) + BODY).encode(written))
    assert (text, bool(warning)) == (CAFE, warns)


@pytest.mark.parametrize(
    ("document", "charset", "text"),
    [
        *((f"\n{BODY}", one, CAFE) for one in ("utf-16-le", "utf-16-be", "utf-16")),  # no mark
        # Letters that are escaped are read as their charset says.
        (f"{SAYS.format('iso-2022-jp')}<html><body><p>漢字です</p></body></html>", "iso-2022-jp",
         "漢字です"),
        # Names of marks never become markup.
        *((f"<html><body><p>one &{name};b&gt; two</p><p>three</p></body></html>", "utf-8",
           f"one {sign}b> two") for name, sign in (("LT", "<"), ("AMP", "&"), ("GT", ">"),
                                                   ("lt", "<"), ("amp", "&"))),
    ],
)  # fmt: skip
def test_documents_say_what_is_written_in_them(document: str, charset: str, text: str) -> None:
    assert read(document.encode(charset)) == (text, "")


def test_a_few_strange_bytes_do_not_spoil_the_other_accents() -> None:
    body = f"<html><body><p>{'é' * 50}</p></body></html>".encode()
    text, warning = decode(body.replace(b"</p>", b"\x93end\x94</p>"))
    assert f"{'é' * 50}\u201cend\u201d" in text
    assert "2 bytes" in warning


TEXT = "<h1>Chapter Two</h1>" + "".join(f"<p>{PROSE}It is {n}.</p>" for n in range(6))
XHTML = '<html xmlns="http://www.w3.org/1999/xhtml">'
OTHERS = {name: page(f"<h1>{name}</h1><p>{PROSE * 3}</p>") for name in ("One", "Three")}


def page_of(head: str, body: str, *, end: str = "</body></html>") -> str:
    """Return a document that may be broken."""
    return f"{XHTML}<head>{head}</head><body>{body}{end}"


BROKEN = {
    "title_typo": page_of("<title>Two</titel>", TEXT),
    "title_opened_twice": page_of("<title>Two<title>", TEXT),
    "title_with_slash_behind": page_of("<title>Two<title/>", TEXT),
    "title_open": page_of("<title>Two", TEXT),
    "title_blank": page_of("<title>Two< /title>", TEXT),
    "title_closed_by_another": page_of("<title>Two<title>", f"{TEXT}<svg><title>Map</title></svg>"),
    "title_around_all": f"{XHTML}<title>Two<body>{TEXT}</body></title></html>",
    "title_closed_at_once": page_of("<title/>", f"<br>{TEXT}"),
    "title_in_the_body": page_of("", f"<title/>{TEXT}"),
    "script_open": page_of("<script>var a = 1;", TEXT),
    "script_open_in_the_body": page_of("", f"<script>var a = 1;{TEXT}"),
    "script_closed_by_another": page_of("", f"<script>a{TEXT}<script>b</script>"),
    "style_open": page_of("<style>p { margin: 0 }", TEXT),
    "head_open": f"{XHTML}<head><title>Two</title><body>{TEXT}</body></html>",
    "head_holds_it": f"{XHTML}<head><title>Two</title>{TEXT}</head></html>",
    "head_around_it": f"{XHTML}<head><body>{TEXT}</body></head></html>",
    "comment_open": page_of("", f"<!-- page 1{TEXT}"),
    "comment_ends_badly": page_of("", f"<!-- page 1 ->{TEXT}"),
    "comment_closed_by_another": page_of("", f"<!-- page 1 >{TEXT}<!-- page 2 -->"),
    "in_cdata": page_of("", f"<br><h1>Chapter Two</h1><p><![CDATA[{PROSE}It is 5.]]></p>"),
    "odd_section": page_of("", f"<![CDl[x]]><![if IE]><br>{TEXT}"),
    "open_cdata": page_of("", f"<br><![CDATA[{TEXT}"),
    "noscript": page_of("", f"<noscript>{TEXT}</noscript>"),
    "audio_open": page_of("", f"<p>{PROSE * 9}</p><audio src='a.mp3'>{TEXT}"),
    "iframe_open": page_of("", f"<iframe src='a.html'>{TEXT}"),
    "textarea_open": page_of("", f"<textarea>{TEXT}"),
    "template_open": page_of("", f"<template>{TEXT}"),
    "svg_open": page_of("", f"<svg>{TEXT}"),
    "note_mark_open": page_of("", f'<a epub:type="noteref" href="#x">{TEXT}'),
    "page_mark_open": page_of("", f'<span class="pagenum">12{TEXT}'),
    "quote_open": page_of("", f"<p class='x>{TEXT}"),
    "quote_closed_by_another": page_of("", f'<p class="x>Here.</p>{TEXT}<p>"</p>'),
    "two_bodies": page_of("", f"<p>Here.</p></body><body>{TEXT}"),
    "behind_the_body": page_of("", f"<p>Here.</p></body><div>{TEXT}</div>", end="</html>"),
    "before_the_body": f"{XHTML}<div>{TEXT}</div><body><p>Here.</p></body></html>",
    "wrong_namespace": f'<html xmlns="http://wrong"><head/><body>{TEXT}</body></html>',
    "unknown_entities": page_of("", f"<p>&foo; &hellip; &nbsp</p>{TEXT}"),
    "never_ending_doctype": f"<!DOCTYPE html [ {page_of('', TEXT)}",
    "control_characters": page_of("<title>a\0b</title>", f"&#0;\x01{TEXT}"),
}
ENCODED = {
    "utf-16": page_of("", TEXT).encode("utf-16"),
    "utf-16-be": page_of("", TEXT).encode("utf-16-be"),
    "utf-32": page_of("", TEXT).encode("utf-32"),
    "utf-8 that says utf-16": b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-16'?>"
    + page_of("", TEXT).encode(),
}


def plan_with(content: Any, **fields: Any) -> Plan:
    """Return the plan of a book with this, text or bytes, between two whole chapters."""
    return plan_of(Epub({"One": OTHERS["One"], "Two": content, "Three": OTHERS["Three"]}, **fields))


def spoken_of(plan: Plan) -> str:
    return " ".join(block.text for chapter in plan.included for block in chapter.spoken())


@pytest.mark.parametrize("content", [*BROKEN.values(), *ENCODED.values()], ids=[*BROKEN, *ENCODED])
def test_broken_chapter_is_spoken_with_its_heading(content: str | bytes) -> None:
    plan = plan_with(content)
    assert [chapter.title for chapter in plan.included] == ["One", "Chapter Two", "Three"]
    assert "It is 5." in spoken_of(plan)
    assert "var a" not in spoken_of(plan)
    assert plan.to_json()["completeness"]["is_complete"]


def test_broken_markup_that_would_lose_text_is_told() -> None:
    assert tells(plan_with(BROKEN["title_typo"]), "markup is broken", "Chapter Two")


def test_broken_title_of_a_single_file_loses_nothing_and_scripts_write_no_text() -> None:
    script = "<script>document.write('<p>Buy our newspaper now, today and tomorrow.</p>');</script>"
    broken, plan = (
        plan_book(read_html(one.encode(), "a.html"))
        for one in (BROKEN["title_typo"], page_of(script, f"<br>{TEXT}"))
    )
    assert "It is 5." in spoken_of(broken)
    assert "newspaper" not in spoken_of(plan)
    assert not tells(plan, "broken")


@pytest.mark.parametrize(
    "body",
    [
        f"<body hidden=''>{TEXT}</body>",
        f"<body><div style='display: none'>{TEXT}</div></body>",
        f"<body><section aria-hidden='true'>{TEXT}</section><section hidden=''>x</section></body>",
    ],
    ids=["hidden", "display", "aria"],
)
def test_hidden_file_is_a_chapter_of_its_own_that_can_be_included(body: str) -> None:
    plan = plan_with(f"{XHTML}<head/>{body}</html>")
    found = plan.chapters[1]
    assert (found.title, found.included, found.reason) == ("Chapter Two", False, SkipReason.HIDDEN)
    assert found.beginning.startswith("Chapter Two It was a long")
    assert plan.to_json()["chapters"][1]["beginning"] == found.beginning
    assert tells(plan, "hides", "Chapter Two")
    assert "It is 5." in spoken_of(include(plan, found.id))
    assert "It is 5." in spoken_of(include(plan, reason="hidden"))


def test_hidden_part_of_a_chapter_is_told_block_by_block_and_can_be_included() -> None:
    plan = plan_with(page_of("", f"<h1>Chapter Two</h1><p>Seen.</p><div hidden=''>{TEXT}</div>"))
    rows = plan.to_json()["skipped"]
    assert [row["text"][:11] for row in rows[:2]] == ["Chapter Two", "It was a lo"]
    assert {(row["reason"], row["included"]) for row in rows} == {("hidden", False)}
    whole = include(plan, rows[1]["chapter"], block=rows[1]["block"])
    assert [row["included"] for row in whole.to_json()["skipped"]][:3] == [False, True, False]
    assert ["It is 0." in spoken_of(whole), "It is 1." in spoken_of(whole)] == [True, False]


def test_file_that_is_not_there_makes_a_plan_incomplete() -> None:
    book = read_epub(Epub(OTHERS, spine=["One", "lost", "Three"]).bytes())
    answer = plan_book(book_from_json(book_to_json(book))).to_json()["completeness"]
    assert not answer["is_complete"]
    assert [one["path"] for one in answer["missing"]] == ["lost"]


def test_page_that_the_order_of_reading_leaves_out_can_be_included() -> None:
    plan = plan_with(page(TEXT), spine=["One", "Three"])
    left_out = plan.chapters[-1]
    assert (left_out.title, left_out.reason) == ("Chapter Two", SkipReason.NOT_LINEAR)
    assert tells(plan, "'OPS/Two' is not in the reading order")
    assert "It is 5." in spoken_of(include(plan, left_out.id))


def test_structure_is_kept_where_the_markup_is_whole() -> None:
    assert said("<h2>A</h2><p>B <i>c</i>.</p><ul><li>d</li></ul>") == [
        "heading|A", "B c.", "list_item|d",
    ]  # fmt: skip
