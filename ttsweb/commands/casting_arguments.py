"""Read who speaks what of a book, and its credits, from a command line."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

_FLAGS = {
    "dialogue_voice": "--dialogue-voice",
    "character": "--character",
    "language_voice": "--language-voice",
    "opening_credits": "--opening-credits",
    "closing_credits": "--closing-credits",
}


def add_casting_arguments(parser: ArgumentParser) -> None:
    """Take who speaks beside the narrator, and the credits."""
    group = parser.add_argument_group("voices of a book, and its credits")
    group.add_argument(
        "--dialogue-voice",
        metavar="NAME",
        help="voice of dialogue in prose; dialogue is found by quotation marks and dashes",
    )
    group.add_argument(
        "--character",
        action="append",
        default=[],
        type=named_voice,
        metavar="NAME=VOICE",
        help="voice of a character in a play, or of the text's <|speaker:NAME|>; once for each",
    )
    group.add_argument(
        "--language-voice",
        action="append",
        default=[],
        type=named_voice,
        metavar="TAG=VOICE",
        help="voice of the paragraphs in a language, such as fr=Colette; once for each language",
    )
    for place in ("opening", "closing"):
        group.add_argument(
            f"--{place}-credits",
            metavar="TEXT",
            help=(
                "spoken as a chapter; {title}, {subtitle}, {authors}, {narrators}, {publisher} "
                "and {year} are replaced by the book's metadata"
            ),
        )


def casting_options_of(chosen: Namespace) -> dict[str, Any]:
    """Return `casting` and the credits as an upload has them, as far as they were given.

    Raises:
        ValueError: two voices for one character or language.
    """
    casting: dict[str, Any] = {}
    if chosen.dialogue_voice is not None:
        casting |= {"dialogue": "detect", "dialogue_voice": chosen.dialogue_voice}
    if chosen.character:
        casting["characters"] = _by_name(chosen.character)
    if chosen.language_voice:
        casting["languages"] = _by_name(chosen.language_voice)
    found: dict[str, Any] = {"casting": casting} if casting else {}
    for field in ("opening_credits", "closing_credits"):
        if getattr(chosen, field) is not None:
            found[field] = getattr(chosen, field)
    return found


def casting_flags_of(chosen: Namespace) -> list[str]:
    """Return those of these arguments that were given."""
    return [flag for name, flag in _FLAGS.items() if getattr(chosen, name) not in (None, [])]


def named_voice(text: str) -> tuple[str, str]:
    """Return a name and its voice; the last `=` parts them, for names may hold one."""
    name, mark, voice = text.rpartition("=")
    if not mark or not name.strip() or not voice.strip():
        raise ArgumentTypeError(f"{text!r} names no voice; expected for example ALICE=Ada")
    return name.strip(), voice.strip()


def _by_name(given: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, voice in given:
        if name in found:
            raise ValueError(f"{name} has two voices, {found[name]} and {voice}")
        found[name] = voice
    return found
