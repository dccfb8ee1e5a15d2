"""Casting and credits on a command line: what becomes of each, and what is a usage error."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from ttsweb.commands.casting_arguments import (
    add_casting_arguments,
    casting_flags_of,
    casting_options_of,
)
from ttsweb.commands.render_book import is_book


def read() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    add_casting_arguments(parser)
    parser.add_argument("--book", action="store_true")
    parser.add_argument("--out", type=Path, default=Path())
    return parser


def test_nothing_is_asked_for_that_was_not_given() -> None:
    chosen = read().parse_args([])

    assert casting_options_of(chosen) == {}
    assert casting_flags_of(chosen) == []


def test_flags_become_the_fields_of_an_upload() -> None:
    words = ["--dialogue-voice", "Bob", "--character", "A=B=Cy", "--character", "ANN=Ada"]
    words += ["--language-voice", "fr=Colette", "--closing-credits", ""]

    chosen = read().parse_args(words)

    assert casting_options_of(chosen) == {
        "casting": {
            "dialogue": "detect",
            "dialogue_voice": "Bob",
            "characters": {"A=B": "Cy", "ANN": "Ada"},
            "languages": {"fr": "Colette"},
        },
        "closing_credits": "",
    }
    assert "--dialogue-voice" in casting_flags_of(chosen)


@pytest.mark.parametrize("given", ["ANN", "=Ada", "ANN=", " = "])
def test_name_without_a_voice_is_a_usage_error(given: str) -> None:
    with pytest.raises(Exception, match="names no voice"):
        read().parse_args(["--character", given])


def test_two_voices_for_one_character_are_a_usage_error() -> None:
    chosen = read().parse_args(["--character", "ANN=Ada", "--character", "ANN=Bob"])

    with pytest.raises(ValueError, match="ANN has two voices"):
        casting_options_of(chosen)


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("a.epub", [], True),
        ("a.PDF", [], True),
        ("a.txt", [], False),
        ("a.md", [], False),
        ("a.txt", ["--book"], True),
        ("a.md", ["--out", "x/book.M4B"], True),
        ("a.txt", ["--out", "x/book.mp3"], False),
        ("a.doc", ["--book"], False),
    ],
    ids=str,
)
def test_texts_are_books_where_somebody_says_so(
    name: str, words: list[str], expected: bool
) -> None:
    assert is_book(Path(name), read().parse_args(words)) is expected
