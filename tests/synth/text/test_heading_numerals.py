"""Headings that are Roman numerals are said as numbers, and words that look like one are words."""

from __future__ import annotations

import pytest

from synth.text.spelling.heading_numerals import say_numerals


@pytest.mark.parametrize(
    ("heading", "language", "said"),
    [
        ("X", "en-GB", "ten"),
        ("I", "en", "one"),
        ("XII.", "en", "twelve."),
        ("IV. The Return", "en", "four. The Return"),
        ("III: Paris", "fr", "trois: Paris"),
        ("IX — Der Weg", "de", "neun — Der Weg"),
        ("CXLIV", "en", "one hundred forty-four"),
        ("Chapter XIV", "en", "Chapter fourteen"),
        ("Chapitre XIV", "fr", "Chapitre quatorze"),
        ("I Remember Mama", "en", "I Remember Mama"),
        ("X marks the spot", "en", "X marks the spot"),
        ("MIX", "en", "MIX"),
        ("IIII", "en", "IIII"),
        ("Epilogue", "en", "Epilogue"),
        ("I. C. E.", "de", "eins. C. E."),
        ("X", "ja", "X"),
        ("", "en", ""),
    ],
)
def test_heading_is_said(heading: str, language: str, said: str) -> None:
    assert say_numerals(heading, language) == said
