"""Say which options each kind of file of a book takes, and what they are where none is given."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from synth.formats import BOOK_FILES, CHAPTER_FORMATS
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookFile, BookSource, RenderJob
from synth.options.orders import check_file_options

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
    chapters = book.started.get("chapters", [])
    return next((index for index, one in enumerate(chapters) if one["source_chars"]), 0)


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
