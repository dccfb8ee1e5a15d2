"""Read what people write line by line in the form of a new job: speakers, pauses, entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.forms import ValidationError
from rest_framework import serializers

from synth.api.jobs.requests import EntrySerializer
from synth.models import LexiconEntry
from synth.options.fields import MAX_SPEAKER_NUMBER, MAX_SPEAKERS, PausesField
from synth.options.job_options import MAX_JOB_ENTRIES, MAX_JOB_LEXICONS
from ttsweb.http.api import error_items

_SPEAKER = re.compile(r"\s*([0-9]{1,4})\s*[:=]\s*(\S.*)")
_PAUSE = re.compile(r"\s*([a-z]+)\s*[:=]\s*([0-9]{1,6})\s*(?:ms)?\s*")
_KINDS = "|".join(LexiconEntry.Kind.values)
# Words in front that say how an entry is meant; what else stands in brackets is to be found.
_MEANT = re.compile(rf"\s*\[((?:{_KINDS}|case|language [A-Za-z0-9-]+)(?:\s*,\s*[^\]]*)?)\]\s*")


def read_speakers(text: str) -> dict[int, str]:
    """Return the further speakers' voices by their numbers, of lines such as `1 = Bob`.

    Raises:
        ValidationError: a line is none of these, or there are too many.
    """
    found: dict[int, str] = {}
    for line in _lines(text):
        match = _SPEAKER.fullmatch(line)
        number = int(match[1]) if match else -1
        if match is None or not 1 <= number <= MAX_SPEAKER_NUMBER or number in found:
            raise ValidationError(
                f"Expected lines such as 1 = Bob, each number once; found {line[:60]!r}."
            )
        found[number] = match[2].rstrip()
    if len(found) >= MAX_SPEAKERS:
        raise ValidationError(f"A job can have at most {MAX_SPEAKERS} speakers.")
    return found


def read_pauses(text: str) -> dict[str, int]:
    """Return how long pauses are, of lines such as `sentence = 400`, in ms.

    Raises:
        ValidationError: a line is none of these, or the API would refuse what it says.
    """
    found: dict[str, int] = {}
    for line in _lines(text):
        match = _PAUSE.fullmatch(line)
        if match is None or match[1] in found:
            raise ValidationError(
                f"Expected lines such as sentence = 400, each pause once; found {line[:60]!r}."
            )
        found[match[1]] = int(match[2])
    try:
        PausesField().run_validation(found)
    except serializers.ValidationError as error:
        raise ValidationError(_in_words(error)) from error
    return found


def read_lexicons(text: str) -> list[str]:
    """Return names or ids of lexicons, one a line.

    Raises:
        ValidationError: there are too many.
    """
    found = [line.strip() for line in _lines(text)]
    if len(found) > MAX_JOB_LEXICONS:
        raise ValidationError(f"A job can name at most {MAX_JOB_LEXICONS} lexicons.")
    return found


def read_entries(text: str) -> list[dict[str, Any]]:
    """Return a job's own entries, of lines such as `Nguyen = Win`.

    `[regex]`, `[literal]`, `[case]` and `[language de]` in front, together with commas between
    them, say the rest.

    Raises:
        ValidationError: a line is none of these, or the API would refuse what it says.
    """
    found: list[dict[str, Any]] = []
    for line in _lines(text):
        if len(found) == MAX_JOB_ENTRIES:
            raise ValidationError(f"A job can have at most {MAX_JOB_ENTRIES} entries of its own.")
        try:
            found.append(EntrySerializer().run_validation(_entry_of(line)))
        except serializers.ValidationError as error:
            raise ValidationError(f"{line[:60]!r}: {_in_words(error)}") from error
    return found


def _entry_of(line: str) -> dict[str, Any]:
    meant = _MEANT.match(line)
    rest = line[meant.end() :] if meant else line
    # With blanks around it the sign divides even where words hold one, as patterns do.
    find, sign, say = rest.partition(" = ") if " = " in rest else rest.partition("=")
    if not sign or not find.strip():
        raise ValidationError(f"Expected lines such as Nguyen = Win; found {line[:60]!r}.")
    entry: dict[str, Any] = {"find": find.strip(), "say": say.strip()}
    for word in map(str.strip, meant[1].split(",") if meant else ()):
        name, _, tag = word.partition(" ")
        if word in LexiconEntry.Kind.values and "kind" not in entry:
            entry["kind"] = word
        elif word == "case":
            entry["case_sensitive"] = True
        elif name == "language" and tag:
            entry["language"] = tag.strip()
        else:
            raise ValidationError(
                f"{word[:40]!r} in brackets is unknown; the allowed words are "
                f"{', '.join(LexiconEntry.Kind.values)}, case, and language with a tag."
            )
    return entry


def _lines(text: str) -> Iterator[str]:
    """Yield the lines that say something; other signs than line ends divide nothing."""
    yield from (line for line in re.split(r"\r\n|\n|\r", text) if line.strip())


def _in_words(error: serializers.ValidationError) -> str:
    items = error_items(error.detail)
    return "; ".join(": ".join(filter(None, (item["attr"], item["detail"]))) for item in items)
