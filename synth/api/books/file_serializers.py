"""Read which file of a book is asked for, and write what answers show of the files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from synth.api.fields import StrictNumberField
from synth.audiobooks.files import (
    FORMATS,
    LEAST_MINUTES,
    MADE,
    MAX_CHAPTER,
    ONE_FILE,
    OWN,
    PRESETS,
    SAMPLE_MINUTES,
    TAKES,
    name_of,
    shown_options,
)
from synth.formats import CHAPTER_FORMATS, MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES
from synth.jobs.options import LOUDNESS
from synth.models import BookFile, BookSource
from synth.models.books import file_kinds
from ttsweb.http.api import StrictSerializer
from ttsweb.http.fields import ShownField, StrictBooleanField

_MAKING = (
    "Bit rates and sample rates are null if the format's defaults are used; `chapter` is "
    "null if the file has all chapters."
)


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


class _OptionsField(serializers.DictField):
    """The options of a file, without the keys that have asked for it."""

    def to_representation(self, value: Any) -> dict[str, Any]:
        """Return what is shown of them."""
        return dict(super().to_representation(shown_options(value)))


class BookFileListSerializer(serializers.ModelSerializer[BookFile]):
    """A file of a book, besides the file of its job."""

    kind = serializers.ChoiceField(choices=file_kinds())
    options = _OptionsField(help_text=f"All options of its kind. {_MAKING}")
    is_partial = serializers.BooleanField(
        help_text=(
            "True: the file holds some chapters only, or may do so, as others were not complete."
        )
    )
    is_current = serializers.BooleanField(
        help_text=(
            "True: the file holds the present takes and metadata. If false, ask for it again to "
            "make it again."
        )
    )
    filename = serializers.SerializerMethodField()
    content_type = serializers.SerializerMethodField()
    content_url = serializers.SerializerMethodField()
    plot_url = serializers.SerializerMethodField()

    class Meta:
        model = BookFile
        fields: tuple[str, ...] = (
            "id", "kind", "options", "status", "is_partial", "is_current", "filename",
            "content_type", "size_bytes", "sha256", "duration_seconds", "content_url", "plot_url",
            "error_code", "error_message", "created_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_filename(self, row: BookFile) -> str:
        """Return the file's name."""
        return name_of(row, self._book()).name

    def get_content_type(self, row: BookFile) -> str:
        """Return its media type."""
        return name_of(row, self._book()).content_type

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_content_url(self, row: BookFile) -> str | None:
        """Return where the file is, null until it is there."""
        return self._url("book-file-content", row) if row.key else None

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_plot_url(self, row: BookFile) -> str | None:
        """Return where the picture of its report is, null where there is none."""
        is_measured = row.status == BookFile.Status.DONE and bool(row.report.get("chapters"))
        return self._url("book-file-plot", row) if is_measured else None

    def _book(self) -> BookSource:
        book: BookSource = self.context["book"]
        return book

    def _url(self, name: str, row: BookFile) -> str:
        return reverse(name, args=[self._book().pk, row.pk])


class ChapterCheckSerializer(serializers.Serializer[Any]):
    """One requirement for a chapter's file, and the measured value."""

    code = serializers.ChoiceField(
        choices=("speech", "loudness", "rms", "peak", "floor", "duration")
    )
    passed = serializers.BooleanField()
    sentence = serializers.CharField()


class ChapterReportSerializer(serializers.Serializer[Any]):
    """The values measured in a chapter after encoding; levels in dBFS, dBTP and LUFS."""

    index = serializers.IntegerField()
    title = serializers.CharField()
    seconds = serializers.FloatField()
    rms_dbfs = serializers.FloatField()
    peak_dbfs = serializers.FloatField()
    true_peak_dbtp = serializers.FloatField()
    floor_dbfs = serializers.FloatField(help_text="RMS of the quietest half second.")
    loudness_lufs = serializers.FloatField(allow_null=True)
    num_samples = serializers.IntegerField()
    sample_rate = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    gain_db = serializers.FloatField()
    limiter_db = serializers.FloatField()
    passed = serializers.BooleanField()
    checks = ChapterCheckSerializer(many=True)


class VoiceLevelSerializer(serializers.Serializer[Any]):
    """The gain that brings one voice to the narrator's level."""

    voice = serializers.CharField()
    speakers = serializers.ListField(child=serializers.IntegerField())
    loudness_lufs = serializers.FloatField(
        allow_null=True, help_text="Loudness over all text of this voice."
    )
    gain_db = serializers.FloatField()
    is_bounded = serializers.BooleanField(
        help_text="True: the voice needs more gain than is allowed."
    )


class MissingChapterSerializer(serializers.Serializer[Any]):
    """A chapter that is not in the file."""

    index = serializers.IntegerField()
    title = serializers.CharField()


class BookFileReportSerializer(serializers.Serializer[Any]):
    """The values measured in the chapters of the file."""

    mastering = serializers.DictField(help_text="The requirements.")
    passed = serializers.BooleanField(help_text="Whether every chapter meets the requirements.")
    failed_chapters = serializers.ListField(child=serializers.IntegerField())
    seconds = serializers.FloatField()
    chapters = ChapterReportSerializer(many=True)
    chapters_missing = MissingChapterSerializer(many=True)
    voices = VoiceLevelSerializer(many=True, help_text="For books with several voices.")
    chapters_encoded = serializers.IntegerField()
    chapters_reused = serializers.IntegerField()
    assembly_realtime = serializers.FloatField(
        allow_null=True, help_text="Seconds of audio per second of work that the file took."
    )
    cover_note = serializers.CharField()
    unplaced_segments = serializers.IntegerField(
        required=False, help_text="For a read-along EPUB: segments that are missing in its text."
    )


class BookFileSerializer(BookFileListSerializer):
    """A file of a book, with its measured values."""

    report = ShownField(lambda row: row.report or None, BookFileReportSerializer(allow_null=True))

    class Meta(BookFileListSerializer.Meta):
        fields = (*BookFileListSerializer.Meta.fields, "report")
        read_only_fields = fields
