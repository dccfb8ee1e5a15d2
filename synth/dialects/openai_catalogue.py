"""List models, and list, make and delete voices, as OpenAI does."""

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

from synth.api.authentication import key_of
from synth.card import read_card
from synth.dialects.views import OpenAIView
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.nouns import read_body
from voices.access import public_voices, sent_names, visible_voices
from voices.api.serializers import check_language, read_clips
from voices.api.views import check_own
from voices.models import Voice
from voices.objects import delete_voice
from voices.submit import create_voice

# The names that clients of OpenAI's API ask for; each of them is the one model that there is.
OPENAI_ALIASES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")


class ModelsView(OpenAIView):
    public_lists = True

    def get(self, request: Request) -> Response:
        """List the model's own name and the names that clients of OpenAI ask for.

        In OpenAI's form and, in `models`, in the one that Open WebUI reads.
        """
        self.check_query(request)
        names = model_names()
        models = [{"id": name, "name": name} for name in names]
        listed = [_model(name) for name in names]
        return Response({"object": "list", "data": listed, "models": models})


class ModelView(OpenAIView):
    public_lists = True

    def get(self, request: Request, name: str) -> Response:
        self.check_query(request)
        return Response(_model(check_model(name.removesuffix("/"))))


class AliveView(OpenAIView):
    """Answer as Kokoro-FastAPI does to who asks whether it is one: its clients fit here."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:
        return Response({"status": "ok"})


def model_names() -> list[str]:
    """Return what a request may name, the checkpoint's own name first.

    Raises:
        CardError: the checkpoint's card cannot be used.
    """
    return list(dict.fromkeys((read_card(settings.CHECKPOINT).name, *OPENAI_ALIASES)))


def check_model(name: str) -> str:
    """Return the name of a model that is there.

    Raises:
        ApiProblem: 404 model_not_found.
    """
    names = model_names()
    if name not in names:
        sentence = (
            f"There is no model {name[:100]!r}; GET /v1/models lists these: {', '.join(names)}."
        )
        raise ApiProblem(404, "model_not_found", sentence, attr="model")
    return name


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _created(), "owned_by": "ttsweb"}


def _created() -> int:
    """Return when the checkpoint's folder was written, in Unix seconds; 0 where none is here."""
    try:
        return int(settings.CHECKPOINT.stat().st_mtime)
    except OSError:
        return 0


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
    write_scopes = (ApiKey.Scope.VOICES,)
    parser_classes = (MultiPartParser,)
    public_lists = True

    def get(self, request: Request) -> Response:
        self.check_query(request)
        return _voices(request)

    def post(self, request: Request) -> Response:
        """Make a voice; it speaks once its `status` is `ready`."""
        values = read_body(request, VoiceSampleSerializer)
        voice = create_voice(
            name=values["name"],
            consent_statement=values["consent"],
            language=values["language"],
            clips=read_clips([values["audio_sample"]], [values["transcript"]]),
            by=request.user.get_username(),
            owner=request.user,
            api_key=key_of(request),
        )
        return Response(_voice(voice))


class VoiceView(OpenAIView):
    """A voice by its id; TTS WebUI's clients ask here for the voices of a model, by its name."""

    write_scopes = (ApiKey.Scope.VOICES,)

    @property
    def public_lists(self) -> bool:  # type: ignore[override]  # one of its two answers is a list
        return not settings.OPENAI_STRICT and _uuid(self.kwargs["voice_id"]) is None

    def get(self, request: Request, voice_id: str) -> Response:
        self.check_query(request)
        if self.public_lists:
            return _voices(request)
        return Response(_voice(_find(request, voice_id)))

    def delete(self, request: Request, voice_id: str) -> Response:
        """Delete a voice and its clip; queued work that needs it fails."""
        self.check_query(request)
        voice = _find(request, voice_id)
        check_own(request, voice)
        if not delete_voice(voice):
            raise _not_found()
        return Response({"id": str(voice.pk), "object": "audio.voice", "deleted": True})


def _voices(request: Request) -> Response:
    """List voices that are not archived, in OpenAI's form and in those of other servers.

    In `voices`, `id` and `value` are what a client sends to speak with one.
    """
    is_known = request.user.is_authenticated
    voices = visible_voices(request.user) if is_known else public_voices()
    found = list(
        voices.filter(archived=False, consent_withdrawn_at=None)
        .order_by("name")
        .prefetch_related("versions")
    )
    sent = sent_names(found)
    return Response(
        {
            "object": "list",
            "data": [_voice(voice) for voice in found],
            "has_more": False,
            "voices": [
                {"id": sent[one], "name": one.name, "value": sent[one], "label": one.name}
                for one in found
            ],
        }
    )


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _find(request: Request, voice_id: str) -> Voice:
    wanted = _uuid(voice_id)
    voice = visible_voices(request.user).filter(pk=wanted).first() if wanted else None
    if voice is None:
        raise _not_found()
    return voice


def _not_found() -> ApiProblem:
    return ApiProblem(404, "voice_not_found", "No voice that you may use has this id.")


def _voice(voice: Voice) -> dict[str, Any]:
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
