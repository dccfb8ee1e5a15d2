"""List, make and delete voices as OpenAI's custom voices are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from synth.api.accounts.authentication import key_of
from synth.models import ApiKey
from synth.openai.errors import OpenAIView
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import read_body
from voices.access import public_voices, visible_voices
from voices.api.serializers import check_language, read_clips
from voices.api.views import check_own
from voices.models import Voice
from voices.removal import delete_voice
from voices.submit import create_voice


class VoiceSampleSerializer(StrictSerializer):
    """A voice to be made of one clip."""

    name = serializers.CharField(max_length=100)
    audio_sample = serializers.FileField(allow_empty_file=True, max_length=255)
    consent = serializers.CharField(max_length=2000)
    transcript = serializers.CharField(
        trim_whitespace=False,
        error_messages={
            "required": (
                "Give the words that are spoken in audio_sample: this model needs the transcript."
            )
        },
    )
    language = serializers.CharField(
        max_length=35, default="", allow_blank=True, validators=[check_language]
    )
    type = serializers.ChoiceField(choices=["audio_sample"], default="audio_sample")

    def to_internal_value(self, data: Any) -> Any:
        """Refuse a field that was sent twice; a form would keep the last one silently."""
        if isinstance(data, Mapping) and hasattr(data, "getlist"):
            for name in data:
                if len(data.getlist(name)) > 1:
                    raise serializers.ValidationError(
                        {name: ["Send this field only once."]}, code="repeated"
                    )
        return super().to_internal_value(data)


class VoicesView(OpenAIView):
    """All voices."""

    write_scopes = (ApiKey.Scope.VOICES,)
    parser_classes = (MultiPartParser,)

    def get_permissions(self) -> Any:
        """Let everybody read the names where TTS_OPENAI_PUBLIC_VOICES says so."""
        if self.request.method == "GET" and settings.OPENAI_PUBLIC_VOICES:
            return [AllowAny()]
        return super().get_permissions()

    def get(self, request: Request) -> Response:
        """List voices that are not archived, in OpenAI's form and in the one of other servers."""
        check_query(request, ())
        is_known = request.user.is_authenticated
        voices = visible_voices(request.user) if is_known else public_voices()
        found = list(
            voices.filter(archived=False, consent_withdrawn_at=None)
            .order_by("name")
            .prefetch_related("versions")
        )
        return Response(
            {
                "object": "list",
                "data": [_shown(voice) for voice in found],
                "has_more": False,
                "voices": [{"id": str(voice.pk), "name": voice.name} for voice in found],
            }
        )

    def post(self, request: Request) -> Response:
        """Make a voice; it speaks once its `status` is `ready`."""
        asked = read_body(request, VoiceSampleSerializer)
        values = asked
        voice = create_voice(
            name=values["name"],
            consent_statement=values["consent"],
            language=values["language"],
            clips=read_clips([values["audio_sample"]], [values["transcript"]]),
            by=request.user.get_username(),
            owner=request.user,
            api_key=key_of(request),
        )
        return Response(_shown(voice))


class VoiceView(OpenAIView):
    """One voice."""

    write_scopes = (ApiKey.Scope.VOICES,)

    def get(self, request: Request, voice_id: str) -> Response:
        """Return a voice."""
        check_query(request, ())
        return Response(_shown(_find(request, voice_id)))

    def delete(self, request: Request, voice_id: str) -> Response:
        """Delete a voice and its clip; queued work that needs it fails."""
        check_query(request, ())
        voice = _find(request, voice_id)
        check_own(request, voice)
        if not delete_voice(voice):
            raise _not_found()
        return Response({"id": str(voice.pk), "object": "audio.voice", "deleted": True})


def _find(request: Request, voice_id: str) -> Voice:
    """Return a voice that this user may see, or raise the 404."""
    try:
        voice = visible_voices(request.user).filter(pk=uuid.UUID(voice_id)).first()
    except ValueError:
        voice = None
    if voice is None:
        raise _not_found()
    return voice


def _not_found() -> ApiProblem:
    return ApiProblem(404, "voice_not_found", "No voice that you may use has this id.")


def _shown(voice: Voice) -> dict[str, Any]:
    version = voice.current_version
    return {
        "id": str(voice.pk),
        "object": "audio.voice",
        "name": voice.name,
        "type": "audio_sample",
        "created_at": int(voice.created_at.timestamp()),
        "status": version.status if version else None,
        "error": (version.error_message or None) if version else None,
    }
