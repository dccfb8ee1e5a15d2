"""Read what requests say of voices, and write what answers show of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db.models import OuterRef, Q, Subquery
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.utils.html import is_html_input

from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import DescribedField, ShownField, StrictBooleanField
from ttsweb.http.query_filters import names_filter, truth_filter
from ttsweb.refusals import counted
from voices.archives import MAX_CODES_BYTES
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.models import (
    LANGUAGE_TAG,
    MAX_LANGUAGE_CHARS,
    ReferenceClip,
    Transcript,
    Voice,
    VoiceVersion,
)
from voices.submit import NewClip


class FormBooleanField(StrictBooleanField):
    """A switch that a form may also spell as Python does."""

    ignores_case = True


class FormCharField(serializers.CharField):
    """A text that a form can send empty; DRF would take that for left out and keep the old one."""

    def get_value(self, dictionary: Any) -> Any:
        """Return what was sent, `empty` only where nothing was."""
        if is_html_input(dictionary):
            return dictionary.get(self.field_name, empty)
        return super().get_value(dictionary)

    def to_internal_value(self, data: Any) -> str:
        """Return the text; DRF would make one of a number."""
        if not isinstance(data, str):
            raise serializers.ValidationError("Expected a text.", code="invalid")
        return super().to_internal_value(data)


def check_language(value: str) -> None:
    """Take a language tag such as `en` or `pt-BR`, or the empty text.

    Raises:
        ValidationError: it is not a tag.
    """
    if value and not LANGUAGE_TAG.fullmatch(value):
        raise serializers.ValidationError("Expected a language tag such as en or pt-BR.")


@extend_schema_field({"type": "string", "pattern": f"^({LANGUAGE_TAG.pattern})?$"})
class LanguageTagField(FormCharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            max_length=MAX_LANGUAGE_CHARS, allow_blank=True, validators=[check_language], **kwargs
        )


class VoiceCreateSerializer(StrictSerializer):
    """A voice to create: one or more clips, and a transcript for each."""

    name = serializers.CharField(max_length=100)
    consent_statement = serializers.CharField(
        max_length=2000,
        help_text="How the speaker gave consent; stored with your name and the time.",
    )
    audio = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        min_length=1,
        help_text="Clips in wav, flac, mp3, ogg, m4a or webm; repeat the field for several clips.",
    )
    transcript = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False),
        min_length=1,
        help_text="The words that are spoken in each clip, in the same order as the clips.",
    )
    description = serializers.CharField(max_length=2000, default="", allow_blank=True)
    language = LanguageTagField(default="")
    shared = FormBooleanField(
        default=False,
        help_text=(
            "True: every user may speak with the voice; only its owner or a superuser can "
            "change it."
        ),
    )
    cache_codes = FormBooleanField(
        default=True, help_text="False: workers never keep this voice's codes in memory."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        files, transcripts = attrs.pop("audio"), attrs.pop("transcript")
        return attrs | {"clips": read_clips(files, transcripts)}


class VoiceUpdateSerializer(StrictSerializer):
    """Changes of a voice; fields that are left out do not change.

    New `audio` replaces all clips and needs a transcript for each; `transcript` alone gives the
    present clips other transcripts, so it needs as many as there are clips.
    """

    name = FormCharField(max_length=100, required=False)
    consent_statement = FormCharField(max_length=2000, required=False)
    audio = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        required=False,
        help_text="Takes multipart/form-data.",
    )
    transcript = serializers.ListField(
        child=FormCharField(allow_blank=True, trim_whitespace=False), required=False
    )
    description = FormCharField(max_length=2000, required=False, allow_blank=True)
    language = LanguageTagField(required=False)
    shared = FormBooleanField(
        required=False, help_text="True: every user may speak with the voice. False: only you."
    )
    cache_codes = FormBooleanField(required=False)
    archived = FormBooleanField(
        required=False,
        help_text=(
            "True: the voice is archived. Requests that name it still work, but lists no longer "
            "offer it."
        ),
    )
    consent_withdrawn = FormBooleanField(
        required=False,
        help_text=(
            "True: the speaker has withdrawn consent. From now on nothing is spoken with the "
            "voice, and jobs that need it end with `consent_withdrawn`. False: the speaker "
            "agrees again."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace `audio` and `transcript` by `clips`; None where neither was sent."""
        files, transcripts = attrs.pop("audio", None), attrs.pop("transcript", None)
        clips: list[NewClip] | None = None
        if files is not None:
            clips = read_clips(files, transcripts or [])
        elif transcripts is not None:
            clips = with_transcripts(self.context["clips"], transcripts)
        return attrs | {"clips": clips}


class VoiceFieldsSerializer(VoiceUpdateSerializer):
    """Changes of a voice that need no file."""

    audio = None  # type: ignore[assignment]  # takes the field away


def read_clips(files: Sequence[UploadedFile[bytes]], transcripts: Sequence[str]) -> list[NewClip]:
    """Return the uploaded clips, each checked and with its transcript.

    Raises:
        ApiProblem: a clip or a transcript is not taken, or their numbers differ.
    """
    _check_numbers(len(files), transcripts)
    clips = []
    for index, (file, transcript) in enumerate(zip(files, transcripts, strict=True)):
        content = file.read()
        try:
            container = check_clip(content)
        except ClipRejectedError as error:
            raise error.at(f"audio.{index}") from error
        text = _read_transcript(transcript, index)
        clips.append(NewClip(text, file.name or "", content, container=container))
    return clips


def with_transcripts(clips: Sequence[NewClip], transcripts: Sequence[str]) -> list[NewClip]:
    """Return the same clips with other transcripts.

    Raises:
        ApiProblem: a transcript is not taken, or their numbers differ.
    """
    _check_numbers(len(clips), transcripts)
    return [
        NewClip(_read_transcript(transcript, index), clip.filename, stored=clip.stored)
        for index, (clip, transcript) in enumerate(zip(clips, transcripts, strict=True))
    ]


class ClipSerializer(serializers.ModelSerializer[ReferenceClip]):
    """One clip of a voice: the upload, and the values measured in it."""

    container = serializers.CharField(source="stored.container")
    size_bytes = serializers.IntegerField(source="stored.size_bytes")
    measures = serializers.DictField(source="stored.measures")

    class Meta:
        model = ReferenceClip
        fields = ("index", "filename", "transcript", "container", "size_bytes", "measures")
        read_only_fields = fields


class WarningSerializer(serializers.Serializer[Any]):
    """Properties of a usable clip that lower the quality."""

    code = serializers.CharField()
    message = serializers.CharField()


class VersionSerializer(serializers.ModelSerializer[VoiceVersion]):
    """One version of a voice, and the state of its encoding."""

    warnings = WarningSerializer(many=True)

    class Meta:
        model = VoiceVersion
        fields = (
            "id", "number", "status", "error_code", "error_message", "warnings", "frames",
            "codec_fingerprint", "created_at", "encoded_at",
        )  # fmt: skip
        read_only_fields = fields


class VoiceSerializer(serializers.ModelSerializer[Voice]):
    """A voice. Its status, errors, warnings, frames and clips are those of its newest version."""

    status = serializers.ChoiceField(
        choices=VoiceVersion.Status.choices, source="current_version.status"
    )
    error_code = serializers.CharField(source="current_version.error_code")
    error_message = serializers.CharField(source="current_version.error_message")
    warnings = WarningSerializer(many=True, source="current_version.warnings")
    frames = serializers.IntegerField(source="current_version.frames")
    codec_fingerprint = serializers.CharField(source="current_version.codec_fingerprint")
    version = serializers.IntegerField(source="current_version.number")
    clips = ClipSerializer(many=True, source="current_version.clips")
    versions = VersionSerializer(many=True)
    owner = serializers.CharField(
        source="owner.username",
        allow_null=True,
        default=None,
        help_text="Name of the owner; null for a voice that came with the installation.",
    )
    audio_url = ShownField(
        lambda voice: reverse("voice-audio", args=[voice.pk]), serializers.CharField()
    )

    class Meta:
        model = Voice
        fields = (
            "id", "name", "description", "language", "owner", "shared", "status", "error_code",
            "error_message", "warnings", "frames", "codec_fingerprint", "version", "clips",
            "audio_url", "cache_codes", "archived", "consent_statement", "consent_by",
            "consent_at", "consent_withdrawn_at", "versions", "created_at", "updated_at",
            "last_used_at",
        )  # fmt: skip
        read_only_fields = fields


def _check_numbers(clips: int, transcripts: Sequence[str]) -> None:
    said = len(transcripts)
    if said < clips:
        sentence = (
            f"Each clip needs a transcript, but there are {counted(clips, 'clip')} and "
            f"{counted(said, 'transcript')}."
        )
        raise ApiProblem(400, "transcript_required", sentence, attr="transcript")
    if said > clips:
        sentence = (
            f"There are {said} transcripts for {clips} clips; send one transcript for each clip."
        )
        raise ApiProblem(400, "clip_required", sentence, attr="audio")


def _read_transcript(text: str, index: int) -> str:
    try:
        return check_transcript(text)
    except ClipRejectedError as error:
        raise error.at(f"transcript.{index}") from error


def _has_status(names: list[str]) -> Q:
    newest = VoiceVersion.objects.filter(voice=OuterRef("voice")).order_by("-number")
    found = VoiceVersion.objects.filter(
        status__in=names, voice__isnull=False, pk=Subquery(newest.values("pk")[:1])
    )
    return Q(pk__in=found.values("voice"))


class VoiceFilterSerializer(serializers.Serializer[Any]):
    """The filters of the voice list, as a condition on voices."""

    name = serializers.CharField(
        required=False, help_text="The whole name; upper and lower case are the same."
    )
    means = serializers.CharField(
        required=False,
        help_text=(
            "The one voice that is used when a job names this name or id: your own voice first, "
            "then one without an owner, then a shared one; 409 if several shared voices have "
            "the name."
        ),
    )
    language = DescribedField(
        schema={"type": "string", "pattern": f"^{LANGUAGE_TAG.pattern}$"},
        required=False,
        help_text="Language tag; `en` also finds `en-GB`.",
    )
    status = names_filter(
        VoiceVersion.Status.values,
        "Status of the newest version; one or more, separated by commas.",
        _has_status,
    )
    archived = truth_filter("`true` or `false`.")
    shared = truth_filter("`true` or `false`.")

    def validate_name(self, value: str) -> Q:
        return Q(name__iexact=value)

    def validate_means(self, value: str) -> Q:
        """Return no condition: which voice it is depends on who asks, so the view looks for it."""
        return Q()

    def validate_language(self, value: str) -> Q:
        if not LANGUAGE_TAG.fullmatch(value):
            raise serializers.ValidationError("Expected a language tag such as en or pt-BR.")
        return Q(language__iexact=value) | Q(language__istartswith=f"{value}-")


class ClipQuerySerializer(serializers.Serializer[Any]):
    """Which clip."""

    clip = serializers.IntegerField(
        default=0, min_value=0, max_value=1000, help_text="Index of the clip, from 0."
    )


class VoiceImportSerializer(StrictSerializer):
    """An exported voice, and its name here."""

    archive = serializers.FileField(help_text="A file from `GET /api/v1/voices/{id}/export`.")
    name = FormCharField(
        max_length=100, required=False, help_text="A name that replaces the one in the archive."
    )
    shared = FormBooleanField(
        default=False,
        help_text="True: every user may speak with the voice; it belongs to you in any case.",
    )


class VoiceCodesSerializer(VoiceCreateSerializer):
    """A voice to create, with the codes of each of its clips."""

    codes = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        min_length=1,
        help_text="For each clip a safetensors file with `codes` int16 [K, T] and the metadata "
        "clip (sha256 of the clip), codec (its fingerprint), frames and resampler.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        files = attrs.pop("codes")
        codes = [file.read(MAX_CODES_BYTES + 1) for file in files]
        return super().validate(attrs) | {"codes": codes}


class TranscriptRequestSerializer(StrictSerializer):
    """A clip whose words are to be proposed."""

    audio = serializers.FileField(
        allow_empty_file=True,
        max_length=255,
        help_text="A clip in wav, flac, mp3, ogg, m4a or webm.",
    )
    language = LanguageTagField(default="", help_text="Language of what is spoken.")


class TranscriptSerializer(serializers.ModelSerializer[Transcript]):
    """What a transcriber heard in a clip. A person has to correct it before it is used."""

    status = serializers.ChoiceField(choices=Transcript.Status.choices)
    text = serializers.CharField(help_text="The proposal; empty until `status` is `done`.")

    class Meta:
        model = Transcript
        fields = (
            "id", "status", "language", "text", "error_code", "error_message", "created_at",
            "finished_at",
        )  # fmt: skip
        read_only_fields = fields
