"""Speak what a call of any dialect asks for, once its request has been read.

The text's job is made, or the one of an equal call is found.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.storage import default_storage
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.api.authentication import audit_within, key_of, note_audited
from synth.api.jobs.requests import read_idempotency_key
from synth.audio.writers import file_rate, open_writer
from synth.card import read_card
from synth.contract import Limits
from synth.dialects.speech_wait import speech_answer
from synth.dialects.views import MODEL_HEADER, VOICE_HEADER, DialectView
from synth.formats import FORMATS
from synth.jobs.orders import Order, UrlClip
from synth.jobs.submit import Sender, submit_job
from synth.live.watcher import request_live
from synth.models import ApiKey, Export, RenderJob
from synth.text.normalise import is_speakable
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.nouns import read_query
from ttsweb.leases import database_now
from ttsweb.refusals import SubmitRejectedError
from voices.access import default_voice, find_named_voice, speaking_version
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.models import Voice
from voices.submit import NewClip

# Seconds for which an equal call gets the same job's audio: a client's retries all come in them.
OPENAI_REPEAT_SECONDS = 600.0

_KEY_START = "/v1/audio/speech "


def order_speech(order: Order, sender: Sender) -> tuple[RenderJob, bool]:
    """Return the job of an order, and whether it was made now or found.

    Args:
        order: its voice is one that was found; `live` says that its audio is going to be heard
            while it is rendered.
        sender: an Idempotency-Key that the client chose decides alone what is the same. What the
            order says is the body.

    Raises:
        SubmitRejectedError: as `submit_job`.
        CardError: the checkpoint's card cannot be used.
    """
    digest = _digest(order)
    key = sender.idempotency_key or _KEY_START + digest
    known_by = replace(sender, idempotency_key=key, body_digest=digest)
    if not sender.idempotency_key:
        _let_go_of_old(known_by)
    job, is_new = submit_job(order, known_by)
    if order.live and not is_new and job.status in UNFINISHED:
        request_live(job.pk)
    return job, is_new


def _digest(order: Order) -> str:
    """Return the digest of all that decides what is heard, and in which file."""
    heard: dict[str, Any] = {
        one.name: getattr(order, one.name) for one in fields(order) if one.name != "live"
    }
    if isinstance(order.voice, Voice):
        heard["voice"] = speaking_version(order.voice).pk
    if isinstance(order.reference, NewClip):
        heard["reference"] = [order.reference.fingerprint, order.reference.transcript]
    said = [read_card(settings.CHECKPOINT).name, heard]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _let_go_of_old(sender: Sender) -> None:
    """Take the key from a job that is not to be joined, so that another can have it."""
    key = sender.idempotency_key
    jobs = RenderJob.objects.filter(owner_id=sender.owner_id, idempotency_key=key)
    job = jobs.first()
    if job is not None and not _may_be_joined(job):
        jobs.filter(pk=job.pk).update(idempotency_key="")


def _may_be_joined(job: RenderJob) -> bool:
    """Say whether a job goes on, or succeeded a short time ago and has its file still."""
    if job.status in UNFINISHED:
        return not job.cancel_requested
    if job.status != RenderJob.Status.SUCCEEDED or job.finished_at is None:
        return False
    age = dt.timedelta(seconds=OPENAI_REPEAT_SECONDS)
    recent: QuerySet[RenderJob] = RenderJob.objects.filter(
        pk=job.pk, finished_at__gt=database_now() - age
    )
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    return recent.exists() and export is not None and default_storage.exists(export.key)


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
    on_made = audit_within(request, status=202)
    sender = Sender(owner, key_of(request), idempotency_key, on_made=on_made)
    job, is_new = order_speech(order, sender)
    if is_new:
        note_audited(request)
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


SILENCE_SECONDS = 0.3
_RATE = 24_000  # Hz, where the format has no rate of its own


@cache
def silence(form: str, seconds: float = SILENCE_SECONDS) -> bytes:
    """Return a file of a format of FORMATS in which nothing is heard."""
    rate = file_rate(form, _RATE, asked=None, bit_rate=None)
    with tempfile.TemporaryDirectory(prefix="tts-silence-") as folder:
        path = Path(folder) / f"silence.{form}"
        with open_writer(path, form, rate) as writer:
            writer.write(np.zeros(round(seconds * rate), np.float32))
        return path.read_bytes()


def silent_answer(form: str, stream_format: str) -> HttpResponseBase:
    """Answer with a silence, as a file or as the events of `sse`."""
    content = silence(form)
    if stream_format == "sse":
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        events: tuple[dict[str, Any], ...] = (
            {"type": "speech.audio.delta", "audio": base64.b64encode(content).decode()},
            {"type": "speech.audio.done", "usage": usage},
        )
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        answer = HttpResponse(lines, content_type="text/event-stream")
    else:
        answer = HttpResponse(content, content_type=FORMATS[form].content_type)
        name = f"speech.{FORMATS[form].extension}"
        answer.headers["Content-Disposition"] = f'inline; filename="{name}"'
    answer.headers["Cache-Control"] = "private, no-store"
    return answer
