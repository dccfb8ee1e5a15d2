"""Line ends are heard where the author set them, and are blanks where a page's edge did."""

from __future__ import annotations

import pytest

from tests.synth.books.made_blocks import blocks_of, said


def test_two_line_breaks_in_a_row_begin_a_paragraph() -> None:
    assert said(
        "<p>First one.<br/>\n<br/>Second, <i>long</i><br/>one.<br/><br/><br/>Third.</p>"
    ) == [
        ("paragraph", "First one."),
        ("paragraph", "Second, long one."),
        ("paragraph", "Third."),
    ]


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
