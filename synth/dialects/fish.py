"""Speak and list voices as Fish Audio's API and the server of fish-speech do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ormsgpack
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from synth.api.fields import StrictNumberField, StrictTextField
from synth.contract import SEED, TEMPERATURE, TOP_P
from synth.dialects.openai_speech import ClipField
from synth.dialects.speech_calls import (
    LenientSerializer,
    SpeechCall,
    SpeechResultMixin,
    check_name,
    fitting_bit_rate,
    is_name,
    make_clip,
    no_voices,
    speak,
    unused_names,
    voices_of,
    within,
)
from synth.dialects.views import DialectView
from synth.formats import FORMATS, MAX_SPEED, MIN_BIT_RATE, MIN_SPEED, SAMPLE_RATES
from synth.jobs.orders import UrlClip
from synth.models import ApiKey
from ttsweb.http.api import BoundedParser, ClipJSONParser
from ttsweb.http.fields import StrictBooleanField
from ttsweb.http.problems import fish_error
from voices.access import find_named_voice, visible_voices
from voices.clip_checks import too_large
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip

PCM_RATE = 44_100  # Hz, where a request names none: nothing in bare samples says it
MOST_VOICES = 32  # of one text, by the numbers of `<|speaker:N|>`
_KILO = 1000
# What asks for nothing that is not done anyway: audio is sent as soon as there is some.
_IDLE = ("latency", "streaming")


class VoiceIdsField(serializers.Field[Any, Any, Any, Any]):
    """Take the id or name of a voice, or a list of them: one for each speaker of the text."""

    def to_internal_value(self, data: Any) -> list[str]:
        found = data if isinstance(data, list) else [data]
        if not 1 <= len(found) <= MOST_VOICES or not all(map(is_name, found)):
            sentence = f"Send the id or name of a voice, or a list of at most {MOST_VOICES}."
            raise serializers.ValidationError(sentence, code="invalid")
        return found


class ClipBytesField(ClipField):
    """Take a clip also as bytes, which MessagePack has."""

    def to_internal_value(self, data: Any) -> bytes | str:
        """Return the bytes, or the URL that they are to be fetched from.

        Raises:
            ClipRejectedError: clip_too_large.
            SubmitRejectedError: url_references_off.
        """
        if not isinstance(data, bytes):
            return super().to_internal_value(data)
        if len(data) > settings.MAX_CLIP_BYTES:
            raise too_large().at("reference.audio")
        return data


class FishReferenceSerializer(LenientSerializer):
    """A clip of the speaker, and what is said in it."""

    audio = ClipBytesField()
    text = StrictTextField(raw=True)

    def validate(self, attrs: dict[str, Any]) -> Any:
        """Return the clip in place of its fields; one with a URL is fetched later."""
        return make_clip(
            attrs["audio"], attrs["text"], audio_attr="reference", text_attr="reference"
        )


class ProsodySerializer(LenientSerializer):
    """How the text is to be spoken, as far as it can be."""

    speed = StrictNumberField(low=MIN_SPEED, high=MAX_SPEED, required=False)


class FishSpeechSerializer(LenientSerializer):
    """A text to be spoken, with what of Fish's fields is acted on."""

    text = StrictTextField(raw=True)
    reference_id = VoiceIdsField(required=False)
    references = FishReferenceSerializer(many=True, required=False)
    format = serializers.ChoiceField(choices=list(FORMATS), default="mp3")
    sample_rate = StrictNumberField(
        low=SAMPLE_RATES[0], high=SAMPLE_RATES[-1], whole=True, required=False
    )
    mp3_bitrate = StrictNumberField(low=1, high=1_000_000, whole=True, required=False)
    opus_bitrate = StrictNumberField(low=-_KILO, high=1_000_000, whole=True, required=False)
    prosody = ProsodySerializer(required=False)
    normalize = StrictBooleanField(required=False)
    temperature = StrictNumberField(low=0, high=2, required=False)
    top_p = StrictNumberField(low=0, high=1, required=False)
    seed = StrictNumberField(low=-(2**63), high=2**63 - 1, whole=True, required=False)


def read_fish_speech(data: Any) -> SpeechCall:
    """Return what a request asks for.

    Raises:
        ValidationError: a field that is acted on cannot be read.
        ClipRejectedError: the clip cannot be used.
    """
    serializer = FishSpeechSerializer(data=data)
    serializer.is_valid(raise_exception=True)
    values = serializer.validated_data
    ignored = unused_names(data, {*serializer.fields, *_IDLE})
    prosody = data.get("prosody") or {}
    ignored += unused_names(prosody, ("speed", *_without_effect(prosody)), "prosody.")
    form, sample_rate = values["format"], values.get("sample_rate")
    options = {
        "format": form,
        "sample_rate": sample_rate or (PCM_RATE if form == "pcm" else None),
        "bit_rate": fitting_bit_rate(form, sample_rate, asked_bit_rate(form, values)),
        "speed": values.get("prosody", {}).get("speed", 1.0),
        "normalise": values.get("normalize", False),
        "seed": within(SEED, values.get("seed")) or 0,
        "temperature": within(TEMPERATURE, values.get("temperature")),
        "top_p": within(TOP_P, values.get("top_p")),
    }
    names = ("seed", "temperature", "top_p")
    ignored += [name for name in names if name in values and options[name] != values[name]]
    if options["bit_rate"] is None and asked_bit_rate(form, values) is not None:
        ignored.append(f"{form}_bitrate")
    voices = values.get("reference_id", ())
    clips = values.get("references", [])
    ignored += _unheard(clips, has_voice=bool(voices))
    reference = clips[0] if clips and not voices else None
    return SpeechCall(
        text=values["text"],
        options=options,
        find_voices=no_voices if reference else voices_of(voices, WELL_KNOWN),
        reference=reference,
        ignored=ignored,
    )


def _without_effect(prosody: Mapping[str, Any]) -> list[str]:
    return [name for name in ("volume",) if prosody.get(name) == 0]


def asked_bit_rate(form: str, values: Mapping[str, Any]) -> int | None:
    """Return the bit rate that a request names for its format, in bits per second.

    Clients send thousands of bits, some of them bits for Opus; what is negative leaves it open.
    """
    bits: int | None = values.get(f"{form}_bitrate")
    if bits is None or bits <= 0:
        return None
    return bits if bits >= MIN_BIT_RATE else bits * _KILO


def _unheard(clips: Sequence[NewClip | UrlClip], *, has_voice: bool) -> list[str]:
    """Return which clips are not used: one of them speaks, and none beside a voice."""
    if not clips:
        return []
    return ["references"] if has_voice else [f"references.{n}" for n in range(1, len(clips))]


class MsgpackParser(BoundedParser):
    """Parse MessagePack that may hold one clip."""

    media_type = "application/msgpack"
    renderer_class = JSONRenderer

    def max_bytes(self) -> int:
        limit: int = super().max_bytes() + settings.MAX_CLIP_BYTES
        return limit

    def read(self, body: bytes) -> Any:
        """Return the parsed body.

        Raises:
            ParseError: it is no MessagePack, is nested too deeply, or a name in it is no text.
        """
        try:
            return ormsgpack.unpackb(body)
        except ValueError as error:
            raise ParseError(f"The body cannot be read as MessagePack: {error}.") from error


# What its clients send where nobody has chosen a voice: LiveKit's plugin, Fish's own examples.
WELL_KNOWN = (
    "933563129e564b19a115bedd57b7406a",
    "802e3bc2b27e49c2995d23ef70e6ac89",
    "bf322df2096a46f18c579d0baa36f41d",
    "7f92f8afb8ec43bf81429cc1c9199cb1",
)
_STATES = {
    VoiceVersion.Status.PENDING: "created",
    VoiceVersion.Status.ENCODING: "training",
    VoiceVersion.Status.READY: "trained",
    VoiceVersion.Status.FAILED: "failed",
}


class FishView(DialectView):
    """A view that answers errors as Fish does."""

    dialect = "fish"
    error_shape = staticmethod(fish_error)
    params: Mapping[str, str] = {
        "voice": "reference_id",
        "reference": "references",
        "reference.audio": "references",
    }


class FishSpeechView(FishView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (ClipJSONParser, MsgpackParser)

    def post(self, request: Request) -> HttpResponseBase:
        """Speak a text. The header `model` may name any model: the loaded one speaks."""
        self.ignore(unused_names(request.query_params, ("format",)))
        call = read_fish_speech(request.data)
        return speak(self, request, call, result_route="fish-speech")


class FishSpeechResultView(SpeechResultMixin, FishView):
    """The speech of a job that was ordered above."""


class FishHealthView(FishView):
    """Say to who asks that the server is there."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:
        return Response({"status": "ok"})

    post = get  # fish-speech answers both


class FishModelQuerySerializer(LenientSerializer):
    """Which voices to list, a page at a time."""

    page_size = serializers.IntegerField(min_value=1, max_value=1000, default=10)
    page_number = serializers.IntegerField(min_value=1, max_value=1_000_000, default=1)
    title = serializers.CharField(required=False, allow_blank=True, max_length=200)
    language = serializers.CharField(required=False, allow_blank=True, max_length=35)


class FishModelsView(FishView):
    """Fish calls voices models."""

    def get(self, request: Request) -> Response:
        """List the voices that the key may speak with, by name."""
        serializer = FishModelQuerySerializer(data=request.query_params.dict())
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        self.ignore(unused_names(request.query_params, serializer.fields))
        voices = visible_voices(request.user).filter(archived=False, consent_withdrawn_at=None)
        found = voices.select_related("owner").prefetch_related("versions").order_by("name", "pk")
        if values.get("title"):
            found = found.filter(name__icontains=values["title"])
        if values.get("language"):
            found = found.filter(language__istartswith=values["language"])
        size, start = values["page_size"], values["page_size"] * (values["page_number"] - 1)
        page = found[start : start + size + 1]
        items = [_model(voice) for voice in page[:size]]
        return Response({"total": found.count(), "items": items, "has_more": len(page) > size})


class FishModelView(FishView):
    def get(self, request: Request, model_id: str) -> Response:
        """Show the voice of this id or name."""
        self.ignore(request.query_params)
        user: AbstractBaseUser = request.user  # type: ignore[assignment]  # never anonymous
        return Response(_model(find_named_voice(user, check_name(model_id), may_default=False)))


def _model(voice: Voice) -> dict[str, Any]:
    version = voice.current_version
    return {
        "_id": str(voice.pk),
        "type": "tts",
        "title": voice.name,
        "description": voice.description,
        "cover_image": "",
        "train_mode": "fast",
        "state": _STATES[VoiceVersion.Status(version.status)] if version else "created",
        "tags": [],
        "samples": [],
        "created_at": voice.created_at.isoformat(),
        "updated_at": voice.updated_at.isoformat(),
        "languages": [voice.language] if voice.language else [],
        "visibility": "public" if voice.shared or voice.owner is None else "private",
        "lock_visibility": False,
        "like_count": 0,
        "mark_count": 0,
        "shared_count": 0,
        "task_count": 0,
        "liked": False,
        "marked": False,
        "author": {
            "_id": str(voice.owner_id or 0),
            "nickname": voice.owner.get_username() if voice.owner else "",
            "avatar": "",
        },
    }
