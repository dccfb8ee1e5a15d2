"""Write what answers show of the files of a book."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.api.books.file_options import BookFileRequestSerializer
from synth.audiobooks.files import name_of, shown_options
from synth.models import BookFile, BookSource
from synth.models.books import file_kinds

_MAKING = (
    "Bit rates and sample rates are null if the format's defaults are used; `chapter` is "
    "null if the file has all chapters."
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
            "id",
            "kind",
            "options",
            "status",
            "is_partial",
            "is_current",
            "filename",
            "content_type",
            "size_bytes",
            "sha256",
            "duration_seconds",
            "content_url",
            "plot_url",
            "error_code",
            "error_message",
            "created_at",
            "finished_at",
        )
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

    report = serializers.SerializerMethodField()

    class Meta(BookFileListSerializer.Meta):
        fields = (*BookFileListSerializer.Meta.fields, "report")
        read_only_fields = fields

    @extend_schema_field(BookFileReportSerializer(allow_null=True))
    def get_report(self, row: BookFile) -> dict[str, Any] | None:
        """Return what was measured, null until the file is there."""
        return row.report or None


__all__ = ["BookFileListSerializer", "BookFileRequestSerializer", "BookFileSerializer"]
