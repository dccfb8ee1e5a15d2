"""Read which file of a book is asked for, and write what answers show of the files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from synth.api.fields import (
    StrictNumberField,
    boolean,
    integer,
    integers,
    number,
    optional_whole,
    string,
)
from synth.audiobooks import files as book_files
from synth.formats import CHAPTER_FORMATS, MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES
from synth.jobs.options import LOUDNESS
from synth.models import BookFile
from synth.models.books import file_kinds
from ttsweb.http.api import StrictSerializer
from ttsweb.http.fields import ShownField, StrictBooleanField


class BookFileRequestSerializer(StrictSerializer):
    """A file of a book to make; options that its kind does not take are refused."""

    kind = serializers.ChoiceField(choices=file_kinds())
    format = serializers.ChoiceField(
        choices=(*book_files.ONE_FILE, book_files.OWN, book_files.MADE),
        required=False,
        help_text=f"`chapters`: {', '.join(CHAPTER_FORMATS)}; mp3 if left out. `shelf` and "
        "`report`: also m4b, which is their default (a report on the preset acx: mp3). "
        "`read_along`: `own` for an EPUB with its own text, or `made` for an EPUB made from the "
        "spoken text.",
    )
    preset = serializers.ChoiceField(
        choices=book_files.PRESETS,
        required=False,
        help_text="Mastering preset; that of the book if left out.",
    )
    loudness = StrictNumberField(
        **asdict(LOUDNESS),
        required=False,
        help_text="Loudness of each chapter in LUFS, instead of -18 of the preset standard.",
    )
    bit_rate = optional_whole(
        MIN_BIT_RATE, MAX_BIT_RATE, "Bits per second, for formats that are compressed."
    )
    sample_rate = optional_whole(SAMPLE_RATES[0], SAMPLE_RATES[-1], "Sample rate in Hz.")
    minutes = StrictNumberField(
        *(book_files.LEAST_MINUTES, book_files.SAMPLE_MINUTES),
        required=False,
        help_text="Longest duration of a sample, in minutes.",
    )
    chapter = optional_whole(
        0,
        book_files.MAX_CHAPTER,
        "Index of one chapter, from 0 as in the proof. For `chapters`, `srt` and `vtt`: "
        "use this chapter instead of all. For `sample`: take the sample from this chapter.",
    )
    partial = StrictBooleanField(  # type: ignore[assignment]  # DRF has a flag of that name
        default=False, help_text="Use the chapters that are complete, although others are not."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return `kind`, `partial`, and the other options that were given."""
        found = dict(attrs)
        kind, partial = found.pop("kind"), found.pop("partial")
        takes, form = book_files.TAKES[kind], found.get("format")
        words = {
            name: f"A file of the kind {kind} does not take {name}; it takes {', '.join(takes)}, "
            "partial."
            for name in found
            if name not in takes
        }
        if form is not None and "format" not in words and form not in book_files.FORMATS[kind]:
            words["format"] = (
                f"The format of a file of the kind {kind} must be one of "
                f"{', '.join(book_files.FORMATS[kind])}."
            )
        if words:
            raise serializers.ValidationError(
                {name: [ErrorDetail(one, code="option_unfit")] for name, one in words.items()}
            )
        return {"kind": kind, "partial": partial, "options": found}


class _OptionsField(serializers.DictField):
    """The options of a file, without the keys that have asked for it."""

    def to_representation(self, value: Any) -> dict[str, Any]:
        return dict(super().to_representation(book_files.shown_options(value)))


def _url(name: str, row: Any) -> str:
    return reverse(name, args=[row.book.pk, row.pk])


def _plot_url(row: Any) -> str | None:
    is_measured = row.status == BookFile.Status.DONE and bool(row.report.get("chapters"))
    return _url("book-file-plot", row) if is_measured else None


class BookFileListSerializer(serializers.ModelSerializer[BookFile]):
    """A file of a book, besides the file of its job."""

    # Rows have a `book`, as an annotation would be.
    kind = serializers.ChoiceField(choices=file_kinds())
    options = _OptionsField(
        help_text="All options of its kind. Bit rates and sample rates are null if the format's "
        "defaults are used; `chapter` is null if the file has all chapters."
    )
    is_partial = boolean(
        "True: the file holds some chapters only, or may do so, as others were not complete."
    )
    is_current = boolean(
        "True: the file holds the present takes and metadata. If false, ask for it again "
        "to make it again."
    )
    filename = ShownField(
        lambda row: book_files.name_of(row, row.book).name, help_text="Return the file's name."
    )
    content_type = ShownField(
        lambda row: book_files.name_of(row, row.book).content_type,
        help_text="Return its media type.",
    )
    content_url = ShownField(
        lambda row: _url("book-file-content", row) if row.key else None, str | None
    )
    plot_url = ShownField(_plot_url, str | None)

    class Meta:
        model = BookFile
        fields: tuple[str, ...] = (
            "id", "kind", "options", "status", "is_partial", "is_current", "filename",
            "content_type", "size_bytes", "sha256", "duration_seconds", "content_url", "plot_url",
            "error_code", "error_message", "created_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields


class ChapterCheckSerializer(serializers.Serializer[Any]):
    """One requirement for a chapter's file, and the measured value."""

    code = serializers.ChoiceField(
        choices=("speech", "loudness", "rms", "peak", "floor", "duration")
    )
    passed = boolean()
    sentence = string()


class ChapterReportSerializer(serializers.Serializer[Any]):
    """The values measured in a chapter after encoding; levels in dBFS, dBTP and LUFS."""

    index = integer()
    title = string()
    seconds = number()
    rms_dbfs = number()
    peak_dbfs = number()
    true_peak_dbtp = number()
    floor_dbfs = number("RMS of the quietest half second.")
    loudness_lufs = number(null=True)
    num_samples = integer()
    sample_rate = integer()
    size_bytes = integer()
    gain_db = number()
    limiter_db = number()
    passed = boolean()
    checks = ChapterCheckSerializer(many=True)


class VoiceLevelSerializer(serializers.Serializer[Any]):
    """The gain that brings one voice to the narrator's level."""

    voice = string()
    speakers = integers()
    loudness_lufs = number("Loudness over all text of this voice.", null=True)
    gain_db = number()
    is_bounded = boolean("True: the voice needs more gain than is allowed.")


class MissingChapterSerializer(serializers.Serializer[Any]):
    """A chapter that is not in the file."""

    index = integer()
    title = string()


class BookFileReportSerializer(serializers.Serializer[Any]):
    """The values measured in the chapters of the file."""

    mastering = serializers.DictField(help_text="The requirements.")
    passed = boolean("Whether every chapter meets the requirements.")
    failed_chapters = integers()
    seconds = number()
    chapters = ChapterReportSerializer(many=True)
    chapters_missing = MissingChapterSerializer(many=True)
    voices = VoiceLevelSerializer(many=True, help_text="For books with several voices.")
    chapters_encoded = integer()
    chapters_reused = integer()
    assembly_realtime = number("Seconds of audio per second of work that the file took.", null=True)
    cover_note = string()
    unplaced_segments = integer(
        "For a read-along EPUB: segments that are missing in its text.", required=False
    )


class BookFileSerializer(BookFileListSerializer):
    """A file of a book, with its measured values."""

    report = ShownField(lambda row: row.report or None, BookFileReportSerializer(allow_null=True))

    class Meta(BookFileListSerializer.Meta):
        fields = (*BookFileListSerializer.Meta.fields, "report")
        read_only_fields = fields
