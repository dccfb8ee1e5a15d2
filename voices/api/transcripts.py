"""Serve proposals of what is said in a clip over REST."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractBaseUser
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.api import StrictSerializer
from ttsweb.http.nouns import Noun, accepted_headers, get_row, operation, read_body
from ttsweb.rights import VOICES
from voices.api.serializers import LanguageTagField
from voices.models import Transcript
from voices.transcripts import request_transcript

_WAITING = (Transcript.Status.QUEUED, Transcript.Status.TRANSCRIBING)


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


def find_transcript(request: Request, transcript_id: uuid.UUID) -> Transcript:
    return get_row(
        Transcript.objects.filter(owner_id=request.user.pk),
        "transcript_not_found",
        "No transcript of yours has this id; they are kept for an hour.",
        pk=transcript_id,
    )


TRANSCRIPT = Noun(
    "voice-transcript",
    TranscriptSerializer,
    find_transcript,
    lambda row: row.status in _WAITING,
    scope=VOICES,
)


class TranscriptsView(APIView):
    write_scopes = (VOICES,)
    parser_classes = (MultiPartParser,)

    @operation(
        "propose_transcript", {202: TranscriptSerializer}, 409, 413, 415, 429,
        request=TranscriptRequestSerializer, parameters=accepted_headers(),
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Have the words of a clip proposed; correct them, then send them with the clip.

        Needs a transcriber, which the operator sets up; 409 `transcriber_missing` without one.
        """
        asked = read_body(request, TranscriptRequestSerializer)
        owner: AbstractBaseUser = request.user  # type: ignore[assignment]  # never anonymous
        content: bytes = asked["audio"].read()
        row = request_transcript(content, owner=owner, language=asked["language"])
        return TRANSCRIPT.answer(request, row.pk, status=202)


class TranscriptView(APIView):
    get = TRANSCRIPT.getter(
        "get_transcript",
        "Return a proposed transcript, or how far it is; it is kept for an hour.",
    )
