"""Make the job of a request for speech, or join the one that the same request has made before.

The official client sends a request up to three times and names none of them. So equal requests of
one owner share a job while it is unfinished, and for some time after it has succeeded.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from synth.card import read_card
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import Order, submit_job
from synth.models import ApiKey, Export, RenderJob
from synth.transitions import UNFINISHED
from synth.transitions.files import request_live
from ttsweb.leases import database_now
from voices.access import find_voice, speaking_version
from voices.models import Voice

# Seconds for which an equal call gets the same job's audio: a client's retries all come in them.
OPENAI_REPEAT_SECONDS = 600.0

_KEY_START = "/v1/audio/speech "


def order_speech(
    request: dict[str, Any],
    *,
    owner: AbstractBaseUser,
    api_key: ApiKey | None,
    idempotency_key: str = "",
    is_live: bool = False,
) -> RenderJob:
    """Return the job of a checked request, made now or found.

    Args:
        request: the values of SpeechSerializer.
        idempotency_key: one that the client chose; it then decides alone what is the same.
        is_live: its audio is going to be heard while it is rendered.

    Raises:
        SubmitRejectedError: as `submit_job`.
        CardError: the checkpoint's card cannot be used.
    """
    voice = find_named_voice(owner, request["voice"])
    order = Order(
        text=request["input"],
        voice=voice,
        format=request["response_format"],
        speed=request["speed"],
        live=is_live,
    )
    digest = _digest(order, voice)
    key = idempotency_key or _KEY_START + digest
    if not idempotency_key:
        _let_go_of_old(owner, key)
    job, is_new = submit_job(
        order, owner=owner, api_key=api_key, idempotency_key=key, body_digest=digest
    )
    if is_live and not is_new and job.status in UNFINISHED:
        request_live(job.pk)
    return job


def find_named_voice(owner: AbstractBaseUser, wanted: str) -> Voice:
    """Return the voice of this name or id, or the one that TTS_OPENAI_VOICE_ALIASES names for it.

    Raises:
        SubmitRejectedError: voice_not_found; no voice ever stands in for another by itself.
    """
    try:
        return find_voice(owner, wanted)
    except SubmitRejectedError as error:
        if error.code != "voice_not_found":
            raise
        named = settings.OPENAI_VOICE_ALIASES.get(wanted.lower())
    if named is not None:
        return find_voice(owner, named)
    raise SubmitRejectedError(
        "voice_not_found",
        f"There is no voice {wanted!r}. GET /v1/audio/voices lists the voices; the setting "
        "TTS_OPENAI_VOICE_ALIASES can give a voice this name as well.",
        attr="voice",
    )


def _digest(order: Order, voice: Voice) -> str:
    """Return the digest of all that decides what is heard."""
    version = speaking_version(voice)
    heard = [
        read_card(settings.CHECKPOINT).name,
        str(version.pk),
        order.text,
        order.format,
        float(order.speed),
    ]
    return hashlib.sha256(json.dumps(heard).encode()).hexdigest()


def _let_go_of_old(owner: AbstractBaseUser, key: str) -> None:
    """Take the key from a job that is not to be joined, so that another can have it."""
    jobs = RenderJob.objects.filter(owner_id=owner.pk, idempotency_key=key)
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
