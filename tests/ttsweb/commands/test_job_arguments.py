"""Options of a job on a command line: what becomes of each, and what is a usage error."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from ttsweb.commands.job_arguments import (
    add_casting_arguments,
    add_job_arguments,
    casting_flags_of,
    casting_options_of,
    options_of,
    voices_of,
)
from ttsweb.management.commands.render import is_book


def read(*words: str) -> tuple[Any, dict[str, Any]]:
    parser = ArgumentParser()
    add_job_arguments(parser)
    chosen = parser.parse_args(words if "--voice" in words else [*words, "--voice", "Ada"])
    return voices_of(chosen), options_of(chosen)


def test_nothing_is_asked_for_that_was_not_given() -> None:
    assert read() == ("Ada", {"format": "wav", "seed": 0, "priority": "bulk"})


def test_every_option_is_asked_for_by_its_name() -> None:
    line = """
        --format opus --sample-rate 24000 --bit-rate 48k --loudness -16.5 --speed 1.25
        --language pt-BR --normalise --max-retakes 0 --seed 7 --priority interactive
        --pause sentence=0 --pause scene=2000 --lexicon Names --lexicon Places
        --deadline 1.5h --retention 30d --webhook https://example.org/hook
    """
    _, options = read(*shlex.split(line))
    assert options == {
        "format": "opus", "sample_rate": 24000, "bit_rate": 48_000, "loudness": -16.5,
        "speed": 1.25, "language": "pt-BR", "normalise": True, "max_retakes": 0, "seed": 7,
        "priority": "interactive", "pauses": {"sentence": 0, "scene": 2000},
        "lexicons": ["Names", "Places"], "deadline": 5400.0, "retention": 2_592_000,
        "webhook": "https://example.org/hook",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "voices"),
    [
        (["Ada"], "Ada"),
        (["0=Ada"], "Ada"),
        (["Ada", "1=Bob", "12=7b6b1de4-6f2c-4a3c-9e0a-111111111111"],
         {0: "Ada", 1: "Bob", 12: "7b6b1de4-6f2c-4a3c-9e0a-111111111111"}),
        (["3=Ada = Bob"], {3: "Ada = Bob"}),
        (["Ada=Bob"], "Ada=Bob"),
    ],
)  # fmt: skip
def test_voices_are_those_of_their_speakers(words: list[str], voices: object) -> None:
    assert read(*(part for word in words for part in ("--voice", word)))[0] == voices


@pytest.mark.parametrize(
    ("option", "word", "value"),
    [
        *(("deadline", *pair) for pair in (
            ("90", 90.0), ("90s", 90.0), ("30m", 1800.0), ("2d", 172_800.0),
            ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"), ("tomorrow", "tomorrow"),
        )),
        ("retention", "forever", "forever"),
    ],
)  # fmt: skip
def test_time_is_a_duration_or_what_the_server_reads(option: str, word: str, value: object) -> None:
    assert read(f"--{option}", word)[1][option] == value


@pytest.mark.parametrize(
    "words",
    [
        ["--bit-rate", "fast"], ["--bit-rate", "1.5k"], ["--pause", "sentence"],
        ["--pause", "breath=5"], ["--pause", "sentence=-1"], ["--retention", "long"],
        ["--format", "ogg"], ["--sample-rate", "24k"], ["--loudness", "loud"],
    ],
)  # fmt: skip
def test_unreadable_words_are_an_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


def casting_parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    add_casting_arguments(parser)
    parser.add_argument("--book", action="store_true")
    parser.add_argument("--out", type=Path, default=Path())
    return parser


def test_no_casting_is_asked_for_that_was_not_given() -> None:
    chosen = casting_parser().parse_args([])
    assert casting_options_of(chosen) == {}
    assert casting_flags_of(chosen) == []


def test_flags_become_the_fields_of_an_upload() -> None:
    words = ["--dialogue-voice", "Bob", "--character", "A=B=Cy", "--character", "ANN=Ada"]
    words += ["--language-voice", "fr=Colette", "--closing-credits", ""]
    chosen = casting_parser().parse_args(words)
    assert casting_options_of(chosen) == {
        "casting": {
            "dialogue": "detect", "dialogue_voice": "Bob",
            "characters": {"A=B": "Cy", "ANN": "Ada"}, "languages": {"fr": "Colette"},
        },
        "closing_credits": "",
    }  # fmt: skip
    assert "--dialogue-voice" in casting_flags_of(chosen)


@pytest.mark.parametrize("given", ["ANN", "=Ada", "ANN=", " = "])
def test_name_without_a_voice_is_a_usage_error(given: str) -> None:
    with pytest.raises(Exception, match="names no voice"):
        casting_parser().parse_args(["--character", given])


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("a.epub", [], True), ("a.PDF", [], True), ("a.txt", [], False), ("a.md", [], False),
        ("a.txt", ["--book"], True), ("a.md", ["--out", "x/book.M4B"], True),
        ("a.txt", ["--out", "x/book.mp3"], False), ("a.doc", ["--book"], False),
    ],
    ids=str,
)  # fmt: skip
def test_texts_are_books_where_one_says_so(name: str, words: list[str], expected: bool) -> None:
    assert is_book(Path(name), casting_parser().parse_args(words)) is expected
