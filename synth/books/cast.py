"""Say who speaks what of a book, and write the credits spoken before and after it."""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from synth.books.book import CodedError
from synth.text.languages import base_of


class RoleKind(enum.StrEnum):
    """Name the kinds of roles, the one that yields to all others first."""

    NARRATOR = "narrator"
    DIALOGUE = "dialogue"
    LANGUAGE = "language"
    CHARACTER = "character"


@dataclass(frozen=True, slots=True)
class Role:
    """Hold one part that is spoken; `name` is a character's name or a language's tag."""

    kind: RoleKind
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or str(self.kind)


NARRATOR = Role(RoleKind.NARRATOR)
DIALOGUE = Role(RoleKind.DIALOGUE)


@dataclass(frozen=True, slots=True)
class Casting:
    """Hold who speaks beside the narrator; voices are ids or names, as they were given.

    `characters` are by the names that were given, `languages` by tags in their usual spelling.
    """

    dialogue_voice: str = ""
    characters: Mapping[str, str] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Casting:
        """Return the casting that a request gave, and that was checked then."""
        detects = stored.get("dialogue") == "detect"
        return cls(
            dialogue_voice=stored.get("dialogue_voice", "") if detects else "",
            characters=dict(stored.get("characters", {})),
            languages=dict(stored.get("languages", {})),
        )

    @property
    def detects_dialogue(self) -> bool:
        return bool(self.dialogue_voice)

    def character(self, name: str) -> Role | None:
        """Return the role of a character, by its name in whatever case; None without a voice."""
        folded = fold_name(name)
        found = (given for given in self.characters if fold_name(given) == folded)
        given = next(found, None) if folded else None
        return None if given is None else Role(RoleKind.CHARACTER, given)

    def language(self, tag: str) -> Role | None:
        """Return the role of a language, by the longest tag that begins it; None without one."""
        spelled = f"{tag.replace('_', '-')}-".lower()
        fitting = [one for one in self.languages if spelled.startswith(f"{one}-".lower())]
        return Role(RoleKind.LANGUAGE, max(fitting, key=len)) if fitting else None

    def voices(self) -> Iterator[tuple[Role, str]]:
        """Yield every role with its voice."""
        if self.dialogue_voice:
            yield DIALOGUE, self.dialogue_voice
        for name, voice in self.characters.items():
            yield Role(RoleKind.CHARACTER, name), voice
        for tag, voice in self.languages.items():
            yield Role(RoleKind.LANGUAGE, tag), voice


def fold_name(name: str) -> str:
    """Return a name without what differs between a list of persons and their speeches."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return " ".join(folded.split()).rstrip(" .:")


MAX_CREDITS_CHARS = 2000
PLACEHOLDERS = ("title", "subtitle", "authors", "narrators", "publisher", "year")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")


class CreditsError(CodedError):
    """A template that cannot be spoken."""


def check_template(template: str) -> None:
    """Pass if a template names nothing but placeholders that there are.

    Raises:
        CreditsError: placeholder_unknown.
    """
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    unknown = [name for name in _PLACEHOLDER.findall(template) if name not in PLACEHOLDERS]
    if unknown:
        raise CreditsError(
            "placeholder_unknown",
            f"There is no placeholder {{{unknown[0]}}}; the allowed placeholders are {known}.",
        )
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise CreditsError(
            "placeholder_unknown",
            f"The text has a single brace. Braces mark placeholders, which are {known}.",
        )


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders filled in.

    Raises:
        CreditsError: credits_incomplete: the book has nothing for one of them.
    """
    missing = [name for name in dict.fromkeys(_PLACEHOLDER.findall(template)) if not values[name]]
    if missing:
        raise CreditsError(
            "credits_incomplete",
            f"The credits use {{{missing[0]}}}, but the book has no such value. Set it in the "
            "book's metadata, or remove it from the credits.",
        )
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def year_of(date: str) -> str:
    """Return the year of a date in whatever spelling; empty where there is none."""
    found = _YEAR.search(date)
    return found[0] if found else ""


_AND = {
    "en": "and", "de": "und", "fr": "et", "es": "y", "it": "e", "pt": "e", "nl": "en", "sv": "och",
    "da": "og", "nb": "og", "no": "og", "pl": "i", "ru": "и", "uk": "\u0456",
}  # fmt: skip


def names_of(names: tuple[str, ...], *, language: str) -> str:
    """Return names as they are said: with the word for "and" before the last one."""
    word = _AND.get(base_of(language), "")
    if len(names) < 2 or not word:
        return ", ".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
