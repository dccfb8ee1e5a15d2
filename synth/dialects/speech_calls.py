"""Speak what a call of any dialect asks for, once its request has been read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.api.accounts.authentication import key_of
from synth.api.jobs.requests import read_idempotency_key
from synth.card import read_card
from synth.contract import Limits
from synth.dialects.speech_answers import silent_answer, speech_answer
from synth.dialects.speech_orders import order_speech
from synth.dialects.views import MODEL_HEADER, VOICE_HEADER, DialectView
from synth.formats import FORMATS
from synth.jobs.orders import Order, UrlClip
from synth.jobs.submit import Sender
from synth.models import ApiKey
from synth.text.normalise import is_speakable
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.nouns import read_query
from ttsweb.refusals import SubmitRejectedError
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.models import Voice
from voices.names import default_voice, find_named_voice
from voices.submit import NewClip

STREAM_FORMATS = ("audio", "sse")
MOST_NAME_CHARS = 100
FindVoices = Callable[[AbstractBaseUser], Sequence[Voice]]


@dataclass(frozen=True, kw_only=True)
class SpeechCall:
    """Hold a request that was read.

    Args:
        options: of the order, by the names of its fields.
        find_voices: finds the voice of each speaker for the caller; none where a clip speaks.
        ignored: the fields that nothing was done about.
        stream_format: how the audio is sent, `audio` or `sse`.
        may_be_wordless: answer a text without words with a silence.
    """

    text: str
    options: Mapping[str, Any]
    find_voices: FindVoices
    reference: NewClip | UrlClip | None = None
    ignored: Iterable[str] = ()
    stream_format: str = "audio"
    may_be_wordless: bool = True


def speak(
    view: DialectView, request: Request, call: SpeechCall, *, result_route: str
) -> HttpResponseBase:
    """Queue the text, or join the job of an equal call; answer with the audio.

    Args:
        result_route: the name of the address that answers once the job has ended.
    """
    idempotency_key = read_idempotency_key(request)
    view.ignore(call.ignored)
    view.report[MODEL_HEADER] = read_card(settings.CHECKPOINT).name
    owner: AbstractBaseUser = request.user  # type: ignore[assignment]  # never anonymous
    voices = call.find_voices(owner)
    if voices:
        view.report[VOICE_HEADER] = [voice.name for voice in voices]
    if call.may_be_wordless and not is_speakable(call.text):
        return silent_answer(call.options["format"], call.stream_format)
    order = Order(
        text=call.text,
        voice=voices[0] if len(voices) == 1 else None,
        voices=dict(enumerate(voices)) if len(voices) > 1 else {},
        reference=call.reference,
        live=True,
        **call.options,
    )
    job = order_speech(order, Sender(owner, key_of(request), idempotency_key))
    return speech_answer(
        request._request,
        job,
        stream_format=call.stream_format,
        may_wait=True,
        result_route=result_route,
    )


def voices_of(names: Sequence[str], well_known: Sequence[str]) -> FindVoices:
    """Return what finds voices by what names them; no names mean the first default voice.

    Args:
        well_known: ids that the dialect's clients have built in, which mean the default voices.
    """

    def find(owner: AbstractBaseUser) -> Sequence[Voice]:
        return [_find(owner, name, well_known) for name in names] or [default_voice(owner)]

    return find


def no_voices(_owner: AbstractBaseUser) -> Sequence[Voice]:
    """Find no voice: a clip speaks."""
    return ()


class ResultQuerySerializer(StrictSerializer):
    """How a finished speech is to be sent."""

    stream_format = serializers.ChoiceField(choices=STREAM_FORMATS, default="audio")


class SpeechResultMixin:
    """Answer with the speech of a job that `speak` ordered, before a dialect's view.

    SpeechWait asks here once the job has ended: it is the end of the answer to the call, which a
    key without `read` may send.
    """

    read_scopes = (ApiKey.Scope.READ, ApiKey.Scope.JOBS)

    def get(self, request: Request, job_id: uuid.UUID) -> HttpResponseBase:
        """Answer with the audio; an unfinished job is not waited for here."""
        stream_format = read_query(request, ResultQuerySerializer)["stream_format"]
        job = visible_jobs(request.user).filter(pk=job_id).first()
        if job is None:
            raise ApiProblem(404, "job_not_found", "No job that you may see has this id.")
        return speech_answer(request._request, job, stream_format=stream_format)


def _find(owner: AbstractBaseUser, wanted: str, well_known: Sequence[str]) -> Voice:
    try:
        return find_named_voice(owner, wanted)
    except SubmitRejectedError as error:
        if error.code != "voice_not_found" or wanted not in well_known:
            raise
    return default_voice(owner, well_known.index(wanted))


def make_clip(
    audio: bytes | str, text: str, *, audio_attr: str, text_attr: str
) -> NewClip | UrlClip:
    """Return the clip of a request with its words; one by URL is fetched later.

    Args:
        audio_attr, text_attr: what the dialect calls both.

    Raises:
        ClipRejectedError: the clip is none, or its words are missing.
    """
    attr = text_attr
    try:
        transcript = check_transcript(text)
        if isinstance(audio, str):
            return UrlClip(audio, transcript)
        attr = audio_attr
        return NewClip(transcript, content=audio, container=check_clip(audio))
    except ClipRejectedError as error:
        raise error.at(attr) from error


def check_name(name: str) -> str:
    """Return a voice's id or name from an address, where anything may stand.

    Raises:
        ApiProblem: 404 voice_not_found, it cannot be one.
    """
    if not is_name(name):
        raise ApiProblem(404, "voice_not_found", "No voice has this name or id.", attr="voice")
    return name


def is_name(value: Any) -> bool:
    """Say whether a voice may have this id or name."""
    return isinstance(value, str) and 1 <= len(value) <= MOST_NAME_CHARS and value.isprintable()


class LenientSerializer(serializers.Serializer[Any]):
    """Read the fields that are acted on; others are let be, and null is as good as nothing."""

    default_error_messages = StrictSerializer.default_error_messages

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if value is not None}
        return super().to_internal_value(data)


def unused_names(data: Mapping[str, Any], used: Iterable[str], start: str = "") -> list[str]:
    """Return the names of fields that say something and are not used, behind `start`."""
    known = set(used)
    return [
        f"{start}{name}" for name, value in data.items() if value is not None and name not in known
    ]


def within(limits: Limits, number: float | None) -> float | None:
    """Return a number that an order takes, None for any other."""
    return number if number is not None and limits.holds(number) else None


def fitting_bit_rate(form: str, sample_rate: int | None, bit_rate: int | None) -> int | None:
    """Return the bit rate in bits per second as far as the format has it at a sample rate."""
    bits = FORMATS[form].bit_rates
    if bits is None or bit_rate is None:
        return None
    most = bits.most(sample_rate or max(FORMATS[form].sample_rates))
    fits = bit_rate in bits.steps if bits.steps else bit_rate >= bits.low
    return bit_rate if fits and bit_rate <= most else None
