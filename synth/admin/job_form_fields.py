"""Read what people write line by line in the form of a new job: speakers, pauses, entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.forms import ValidationError
from rest_framework import serializers

from synth.api.jobs.requests import EntrySerializer
from synth.api.option_fields import MAX_SPEAKER_NUMBER, MAX_SPEAKERS, PausesField
from synth.jobs.options import MAX_JOB_ENTRIES, MAX_JOB_LEXICONS
from synth.models import LexiconEntry
from ttsweb.http.api import error_items
from voices.clip_checks import (
    CONTAINERS,
    ClipRejectedError,
    check_clip,
    check_transcript,
    too_large,
)
from voices.submit import NewClip

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


ACCEPT = "audio/*," + ",".join(f".{name}" for name in CONTAINERS)
_ROW = "number", "text", "audio"


def read_clip(file: UploadedFile[bytes]) -> bytes:
    """Return the bytes of an uploaded clip.

    Raises:
        ValidationError: clip_empty, clip_too_large, clip_not_audio.
    """
    try:
        if (file.size or 0) > settings.MAX_CLIP_BYTES:  # before it is read into memory
            raise too_large()
        content: bytes = file.read()
        check_clip(content)
    except ClipRejectedError as error:
        raise ValidationError(str(error), code=error.code) from error
    return content


def new_clip(content: bytes, text: str) -> NewClip:
    """Return the clip of bytes that `read_clip` let through.

    Raises:
        ValidationError: transcript_required, transcript_too_long, transcript_not_text.
    """
    try:
        return NewClip(check_transcript(text), content=content, container=check_clip(content))
    except ClipRejectedError as error:
        raise ValidationError(str(error), code=error.code) from error


class SpeakerClipsWidget(forms.Widget):
    """Ask for a number, a file and its words in each row; a button adds rows."""

    template_name = "synth/speaker_clips.html"
    needs_multipart_form = True

    class Media:
        js = ("ttsweb/speaker_clips.js",)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, Any]]:
        """Return the rows as they were sent, without those in which nothing stands."""
        row_name = re.compile(rf"{re.escape(name)}-([0-9]{{1,4}})-(?:{'|'.join(_ROW)})")
        found = (row_name.fullmatch(key) for key in [*data, *files])
        rows = [
            {
                "number": data.get(f"{name}-{index}-number", "").strip(),
                "text": data.get(f"{name}-{index}-text", ""),
                "audio": files.get(f"{name}-{index}-audio"),
            }
            for index in sorted({int(match[1]) for match in found if match})
        ]
        return [row for row in rows if row["number"] or row["text"].strip() or row["audio"]]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Say that something was always sent: no row is an answer too."""
        return False

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        most = most_clips()
        empty = {"number": "", "text": ""}
        return context | {
            "rows": [*(value or []), empty][:most],
            "most": most,
            "highest": MAX_SPEAKER_NUMBER,
            "accept": ACCEPT,
        }


class SpeakerClipsField(forms.Field):
    """Take clips of further speakers; the value is a clip by each one's number."""

    widget = SpeakerClipsWidget

    def clean(self, value: Any) -> dict[int, NewClip]:
        """Return the clips.

        Raises:
            ValidationError: of each row that is wrong, what is wrong with it.
        """
        found: dict[int, NewClip] = {}
        errors: list[ValidationError] = []

        def refuse(sentence: str, code: str | None) -> None:
            errors.append(ValidationError(sentence, code=code))

        for place, row in enumerate(value or [], start=1):
            given = row["number"]
            number = int(given) if re.fullmatch(r"[0-9]{1,4}", given) else 0
            is_number = 1 <= number <= MAX_SPEAKER_NUMBER
            if not is_number or number in found:
                expected = f"Expected speakers' numbers from 1 to {MAX_SPEAKER_NUMBER}, each once"
                refuse(f"{expected}; found {given[:20]!r}.", "speaker_invalid")
            try:
                if not row["audio"]:
                    raise ValidationError("Choose a clip for this speaker.", code="clip_required")
                clip = new_clip(read_clip(row["audio"]), row["text"])
            except ValidationError as error:
                who = f"Speaker {number}" if is_number else f"Row {place}"
                refuse(f"{who}: {error.message}", error.code)
                continue
            if is_number:
                found[number] = clip
        if len(value or []) > most_clips():
            refuse(f"At most {most_clips()} clips of further speakers are allowed.", "too_many")
        if errors:
            raise ValidationError(errors)
        return found


def most_clips() -> int:
    """Return how many clips of further speakers a form can bring beside the first speaker's."""
    return min(MAX_SPEAKERS, settings.DATA_UPLOAD_MAX_NUMBER_FILES) - 1
