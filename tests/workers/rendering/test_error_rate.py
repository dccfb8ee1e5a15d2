"""Errors between what should be said and what was heard, in words or in letters."""

from __future__ import annotations

import pytest

from workers.rendering.transcriber import error_rate


@pytest.mark.parametrize(
    ("expected", "heard", "language", "rate"),
    [
        ("The ox, said he: go!", "the ox said he go", "en", 0.0),
        ("Don\u2019t stop.", "dont stop", "en", 0.0),
        ("In 1999 he had 3 dogs.", "in nineteen ninety nine he had three dogs", "en", 0.0),
        ("He had three dogs.", "He had 3 dogs.", "en-GB", 0.0),
        ("Er hat 21 Hunde.", "er hat einundzwanzig Hunde", "de", 0.0),
        ("STRASSE", "Stra\u00dfe", "de", 0.0),
        ("caf\u00e9", "cafe\u0301", "fr", 0.0),
        ("one two three four", "one two four", "en", 0.25),
        ("one two three four", "one two too three four", "en", 0.25),
        ("one two three four", "one two tree four", "en", 0.25),
        ("one two three four", "", "en", 1.0),
        ("one two", "one two one two one two", "en", 2.0),
        (
            "\u5929\u6c17\u304c\u3044\u3044\u3067\u3059\u3002",
            "\u5929\u6c17\u304c\u3044\u3044\u3067\u3059",
            "ja",
            0.0,
        ),
        ("\u4f60\u597d\u4e16\u754c", "\u4f60\u597d \u4e16\u754c", "zh", 0.0),
        ("\u4f60\u597d\u4e16\u754c", "\u4f60\u597d\u4e16", "", 0.25),
        ("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "th", 0.0),
        ("\uc548\ub155 \uc138\uacc4", "\uc548\ub155 \uc138\uc0c1", "ko", 0.5),
        ("<|speaker:1|>Hello [laugh] there", "hello there", "en", 0.0),
        ("Ox 5.", "ox five", "", 0.5),
        ("Ox 5.", "ox five", "xx", 0.5),
    ],
    ids=range(20),
)
def test_rate(expected: str, heard: str, language: str, rate: float) -> None:
    assert error_rate(expected, heard, language=language) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "[laugh]", "\u2026!", "<|speaker:0|> [sigh]"])
def test_where_nothing_is_to_be_said_there_is_no_rate(text: str) -> None:
    assert error_rate(text, "anything") is None


def test_endless_transcript_is_cut_and_not_compared_for_ever() -> None:
    rate = error_rate("one two three", "no " * 1_000_000)

    assert rate is not None
    assert 1 <= rate < 10
