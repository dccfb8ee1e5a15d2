"""Hold the cleaning of texts to what it promises."""

# ruff: noqa: RUF001  # look-alikes of ASCII are part of the data

from __future__ import annotations

import pytest

from synth.text.normalise import TextRejectedError, clean_text, is_speakable


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("one\r\ntwo\rthree\u2028four\x85five", "one\ntwo\nthree\nfour\nfive"),
        ("page\fpage\u2029page", "page\n\npage\n\npage"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),
        ("\ufeffzero\u200bwidth\u2060 soft\u00adhyphen\u202e", "zerowidth softhyphen"),
        ("bell\x07 escape\x1b[0m", "bell escape[0m"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🚀 flies", "👩\u200d🚀 flies"),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_text_is_cleaned_of_what_cannot_be_seen(given: str, cleaned: str) -> None:
    assert clean_text(given, max_chars=100) == cleaned


@pytest.mark.parametrize("text", ["", " ", "\n\t\r\n", "\u200b\ufeff", "\x01\x02", "\u3000\u00a0"])
def test_text_of_blanks_and_controls_is_empty(text: str) -> None:
    with pytest.raises(TextRejectedError) as caught:
        clean_text(text, max_chars=100)

    assert caught.value.code == "text_empty"


@pytest.mark.parametrize(
    "text",
    [
        "Hello\0 world",
        "half a pair \ud83d here",
        bytes(range(256)).decode("latin-1"),
        bytes(range(128, 256)).decode("utf-8", "replace"),
        "RIFF" + "\x01\x02\x03\x04" * 20,
        "\ue000" * 50,
    ],
)
def test_bytes_that_are_no_text_are_refused(text: str) -> None:
    with pytest.raises(TextRejectedError) as caught:
        clean_text(text, max_chars=10_000)

    assert caught.value.code == "text_not_text"


def test_a_stray_unreadable_character_does_not_refuse_a_text() -> None:
    assert clean_text("Caf\ufffd au lait", max_chars=100) == "Caf\ufffd au lait"


def test_text_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    assert clean_text("x" * 10, max_chars=10) == "x" * 10
    with pytest.raises(TextRejectedError) as caught:
        clean_text("x" * 11, max_chars=10)

    assert caught.value.code == "text_too_long"
    assert "11" in caught.value.message


@pytest.mark.parametrize("text", ["a", "7", "é", "か", "٣", "½", "...x"])
def test_letters_and_digits_of_any_script_are_speakable(text: str) -> None:
    assert is_speakable(text)


@pytest.mark.parametrize("text", ["", "...", "* * *", "—", "😀", "?!"])
def test_marks_alone_are_not_speakable(text: str) -> None:
    assert not is_speakable(text)
