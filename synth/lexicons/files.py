"""What files of lexicons have in common: entries with their lines, and what is wrong with them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from synth.lexicons.keeping import check_entry
from synth.options.language_tags import language_tag
from synth.text.rules import KINDS, MAX_SLOW, Rule, RuleError

MAX_BAD_LINES = 20  # then no more are looked for: a pattern's trial takes its time
MAX_ENTRY_BYTES = 5000
_REQUESTS_TIMES = 5  # a whole lexicon may take the time of so many requests


class FileRefusedError(Exception):
    """A file that is not taken as a whole: `code` is stable, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True)
class FileEntry:
    """Hold one entry as a file has it, and the line where it begins, from 1."""

    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class BadLine:
    """Say what is wrong in a line; `attr` is the entry's field, or empty for the line."""

    line: int
    attr: str
    code: str
    message: str


@dataclass
class Reading:
    """Hold what was read of a file: entries, lines that cannot be used, what was left out."""

    entries: list[FileEntry] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def is_enough(self) -> bool:
        """Say whether the file is refused by now, so that the rest of it need not be read."""
        too_many = len(self.entries) > settings.MAX_LEXICON_ENTRIES
        return too_many or len(self.bad) >= MAX_BAD_LINES


def max_file_bytes() -> int:
    """Return how long a lexicon's file may be."""
    return MAX_ENTRY_BYTES * settings.MAX_LEXICON_ENTRIES + 100_000


def checked(reading: Reading) -> list[tuple[Rule, bool]]:
    """Return the rules of a file with whether each is enabled; bad ones join `reading.bad`.

    Raises:
        FileRefusedError: too_many_entries; file_too_slow, where trying all patterns takes too long.
    """
    rules: list[tuple[Rule, bool]] = []
    if len(reading.entries) > settings.MAX_LEXICON_ENTRIES:
        raise FileRefusedError(
            "too_many_entries",
            f"The file has more than {settings.MAX_LEXICON_ENTRIES} entries, which is the limit of "
            "a lexicon (TTS_MAX_LEXICON_ENTRIES). Split it into several lexicons.",
        )
    seconds = _REQUESTS_TIMES * settings.LEXICON_SECONDS
    until = time.monotonic() + seconds
    slow = 0
    for entry in reading.entries:
        if len(reading.bad) >= MAX_BAD_LINES or slow >= MAX_SLOW:
            break
        if time.monotonic() > until:
            raise FileRefusedError(
                "file_too_slow",
                f"Testing the file's patterns took more than {seconds:g} seconds, up to "
                f"line {entry.line}. Make them simpler, or split them into several files.",
            )
        values = dict(entry.values)
        tag = language_tag(values["language"]) if values.get("language") else ""
        if tag is None:
            reading.bad.append(
                BadLine(
                    entry.line,
                    "language",
                    "language_invalid",
                    "Expected a language tag such as en, pt-BR or zh-Hant.",
                )
            )
            continue
        if values.get("kind", "word") not in KINDS:
            known = ", ".join(KINDS)
            reading.bad.append(
                BadLine(entry.line, "kind", "invalid", f"The kind must be one of {known}.")
            )
            continue
        enabled = bool(values.pop("enabled", True))
        try:
            rules.append((check_entry(values | {"language": tag}), enabled))
        except RuleError as error:
            reading.bad.append(BadLine(entry.line, error.attr, error.code, error.message))
            slow += error.code == "pattern_too_slow"
    return rules


def decoded(content: bytes) -> str:
    """Return a file's text, without the mark that some programs begin it with.

    Raises:
        FileRefusedError: file_too_large, file_not_utf8, file_empty.
    """
    if len(content) > max_file_bytes():
        raise FileRefusedError(
            "file_too_large",
            f"The file is too large: at most {max_file_bytes()} bytes are allowed.",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileRefusedError(
            "file_not_utf8",
            f"The file is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8.",
        ) from error
    if not text.strip():
        raise FileRefusedError(
            "file_empty", "The file is empty; choose a CSV or PLS file with entries."
        )
    return text


def one_of(names: Iterable[str]) -> str:
    """Return names as a sentence has them."""
    return ", ".join(names)
