"""Write the credits that are spoken before and after a book, from templates with placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping

from synth.text.languages import base_of

MAX_CREDITS_CHARS = 2000
PLACEHOLDERS = ("title", "subtitle", "authors", "narrators", "publisher", "year")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")


class CreditsError(Exception):
    """A template that cannot be spoken; `code` is stable, the message says what to change."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def check_template(template: str) -> None:
    """Pass if a template names nothing but placeholders that there are.

    Raises:
        CreditsError: placeholder_unknown.
    """
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    for name in _PLACEHOLDER.findall(template):
        if name not in PLACEHOLDERS:
            raise CreditsError(
                "placeholder_unknown",
                f"There is no placeholder {{{name}}}; the allowed placeholders are {known}.",
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


def names_of(names: tuple[str, ...], *, language: str = "en") -> str:
    """Return names as they are said: with the word for "and" before the last one."""
    if len(names) < 2:
        return "".join(names)
    word = _AND.get(base_of(language), "")
    if not word:
        return ", ".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


_AND = {
    "en": "and", "de": "und", "fr": "et", "es": "y", "it": "e", "pt": "e", "nl": "en", "sv": "och",
    "da": "og", "nb": "og", "no": "og", "pl": "i", "ru": "и", "uk": "\u0456",
}  # fmt: skip
