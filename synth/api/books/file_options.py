"""Read which file of a book is asked for, and how: the kind, and the options that it takes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from synth.formats import BOOK_FILES, CHAPTER_FORMATS, MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookFile, BookSource, RenderJob
from synth.models.books import file_kinds
from synth.options.fields import StrictBooleanField
from synth.options.job_options import LOUDNESS
from synth.options.orders import check_file_options
from synth.options.request_fields import StrictNumberField
from ttsweb.http.api import StrictSerializer

Kind = BookFile.Kind
PRESETS = ("standard", "acx")
SAMPLE_MINUTES = 5.0  # what shops take at most
LEAST_MINUTES = 0.1
MAX_CHAPTER = 100_000
ONE_FILE = tuple(BOOK_FILES)
OWN, MADE = "own", "made"  # the text of a read-along EPUB: that of the book's file, or a plain one

_SOUND = ("preset", "loudness", "sample_rate")
_CODED = (*_SOUND, "bit_rate")
# What each kind takes beside `partial`, in the order in which it is shown.
TAKES: dict[str, tuple[str, ...]] = {
    **{name: _CODED if one.bit_rates else _SOUND for name, one in BOOK_FILES.items()},
    Kind.CHAPTERS: ("format", *_CODED, "chapter"),
    Kind.SHELF: ("format", *_CODED),
    Kind.READ_ALONG: ("format", *_CODED),
    Kind.SAMPLE: ("preset", "loudness", "minutes", "chapter"),
    Kind.SRT: ("chapter",),
    Kind.VTT: ("chapter",),
    Kind.REPORT: ("format", *_CODED),
}
FORMATS: dict[str, tuple[str, ...]] = {
    Kind.CHAPTERS: CHAPTER_FORMATS,
    Kind.SHELF: ONE_FILE,
    Kind.READ_ALONG: (OWN, MADE),
    Kind.REPORT: ONE_FILE,
}


class BookFileRequestSerializer(StrictSerializer):
    """A file of a book to make; options that its kind does not take are refused."""

    kind = serializers.ChoiceField(choices=file_kinds())
    format = serializers.ChoiceField(
        choices=(*ONE_FILE, OWN, MADE),
        required=False,
        help_text=(
            f"`chapters`: {', '.join(CHAPTER_FORMATS)}; mp3 if left out. `shelf` and `report`: "
            "also m4b, which is their default (a report on the preset acx: mp3). `read_along`: "
            "`own` for an EPUB with its own text, or `made` for an EPUB made from the spoken text."
        ),
    )
    preset = serializers.ChoiceField(
        choices=PRESETS, required=False, help_text="Mastering preset; that of the book if left out."
    )
    loudness = StrictNumberField(
        **asdict(LOUDNESS),
        required=False,
        help_text="Loudness of each chapter in LUFS, instead of -18 of the preset standard.",
    )
    bit_rate = StrictNumberField(
        low=MIN_BIT_RATE,
        high=MAX_BIT_RATE,
        whole=True,
        required=False,
        help_text="Bits per second, for formats that are compressed.",
    )
    sample_rate = StrictNumberField(
        low=SAMPLE_RATES[0],
        high=SAMPLE_RATES[-1],
        whole=True,
        required=False,
        help_text="Sample rate in Hz.",
    )
    minutes = StrictNumberField(
        low=LEAST_MINUTES,
        high=SAMPLE_MINUTES,
        required=False,
        help_text="Longest duration of a sample, in minutes.",
    )
    chapter = StrictNumberField(
        low=0,
        high=MAX_CHAPTER,
        whole=True,
        required=False,
        help_text=(
            "Index of one chapter, from 0 as in the proof. For `chapters`, `srt` and `vtt`: use "
            "this chapter instead of all. For `sample`: take the sample from this chapter."
        ),
    )
    partial = StrictBooleanField(  # type: ignore[assignment]  # DRF has a flag of that name
        default=False, help_text="Use the chapters that are complete, although others are not."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return `kind`, `partial`, and the other options that were given."""
        found = dict(attrs)
        kind, partial = found.pop("kind"), found.pop("partial")
        unfit = {
            name: [ErrorDetail(_not_taken(name, kind), code="option_unfit")]
            for name in found
            if name not in TAKES[kind]
        }
        form = found.get("format")
        if "format" not in unfit and form is not None and form not in FORMATS[kind]:
            sentence = (
                f"The format of a file of the kind {kind} must be one of "
                f"{', '.join(FORMATS[kind])}."
            )
            unfit["format"] = [ErrorDetail(sentence, code="option_unfit")]
        if unfit:
            raise serializers.ValidationError(unfit)
        return {"kind": kind, "partial": partial, "options": found}


def _not_taken(name: str, kind: str) -> str:
    return (
        f"A file of the kind {kind} does not take {name}; it takes {', '.join(TAKES[kind])}, "
        "partial."
    )


def full_options(kind: str, asked: dict[str, Any], book: BookSource) -> dict[str, Any]:
    """Return all options that a kind takes; what was not asked for is as the book has it.

    Bit rate and sample rate of the job hold for files of the job's own format.

    Raises:
        SubmitRejectedError: loudness_unfit, sample_rate_unfit, bit_rate_unfit.
    """
    assert book.job is not None
    preset = asked.get("preset") or preset_of(book)
    form = asked.get("format") or _usual_format(kind, preset, book)
    found: dict[str, Any] = {}
    is_own_form = audio_format(kind, form) == book.job.format
    for name in TAKES[kind]:
        if name == "format":
            found[name] = form
        elif name == "preset":
            found[name] = preset
        elif name == "loudness":
            found[name] = _loudness(asked, preset, book.job)
        elif name in ("bit_rate", "sample_rate"):
            found[name] = asked.get(name, getattr(book.job, name) if is_own_form else None)
        elif name == "minutes":
            found[name] = float(asked.get(name, SAMPLE_MINUTES))
        else:
            found[name] = asked.get(name, first_chapter(book) if kind == Kind.SAMPLE else None)
    check_file_options(audio_format(kind, form), found.get("sample_rate"), found.get("bit_rate"))
    return found


def digest_of(options: dict[str, Any]) -> str:
    """Return what tells options apart."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()


def preset_of(book: BookSource) -> str:
    """Return how a book is mastered unless a file is asked for otherwise."""
    return str(book.production.get("preset") or PRESETS[0])


def audio_format(kind: str, form: str | None) -> str:
    """Return the audio format that a file of a kind is made in."""
    if kind in ONE_FILE:
        return kind
    if kind == Kind.SAMPLE:
        return "mp3"
    return form if form is not None and form in ONE_FILE else "m4b"


def first_chapter(book: BookSource) -> int:
    """Return the index of the first chapter that is the book's own, and no credits."""
    told = book.started.get("chapters", [])
    return next((index for index, one in enumerate(told) if one["source_chars"]), 0)


def _usual_format(kind: str, preset: str, book: BookSource) -> str | None:
    if kind == Kind.CHAPTERS:
        return "mp3"
    if kind == Kind.READ_ALONG:
        return OWN if book.filename.lower().endswith(".epub") else MADE
    if kind == Kind.REPORT and preset == "acx":
        return "mp3"  # what that shop takes
    return "m4b" if kind in FORMATS else None


def _loudness(asked: dict[str, Any], preset: str, job: RenderJob) -> float | None:
    """Return the target that was asked for; the job's holds unless a preset was named."""
    if preset == "acx":
        check_loudness(preset, asked.get("loudness"))
        return None
    usual = job.loudness if "preset" not in asked else None
    found = asked.get("loudness", usual)
    return None if found is None else float(found)


def check_preset(preset: str | None, form: str, loudness: float | None) -> None:
    """Refuse a preset of a book beside what does not go with it.

    Raises:
        ValidationError: loudness_unfit or preset_unfit.
    """
    try:
        check_loudness(preset, loudness)
    except SubmitRejectedError as error:
        raise serializers.ValidationError(
            {"loudness": [ErrorDetail(str(error), code=error.code)]}
        ) from error
    if preset is not None and form not in ONE_FILE:
        sentence = f"A book in the format {form} cannot be mastered; choose {', '.join(ONE_FILE)}."
        raise serializers.ValidationError({"preset": [ErrorDetail(sentence, code="preset_unfit")]})


def check_loudness(preset: str | None, loudness: float | None) -> None:
    """Refuse a loudness beside a preset that has another target.

    Raises:
        SubmitRejectedError: loudness_unfit.
    """
    if preset == "acx" and loudness is not None:
        raise SubmitRejectedError(
            "loudness_unfit",
            "The preset acx sets an RMS of -20 dBFS, so loudness cannot be chosen. Leave "
            "`loudness` out, or choose the preset standard.",
            attr="loudness",
        )
