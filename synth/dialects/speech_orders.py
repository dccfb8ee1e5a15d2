"""Make the job of a text that is to be spoken at once, or find the one of an equal call."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import fields, replace
from typing import Any

from django.conf import settings
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from synth.card import read_card
from synth.jobs.submit import Order, Sender, submit_job
from synth.live.watcher import request_live
from synth.models import Export, RenderJob
from synth.transitions.jobs import UNFINISHED
from ttsweb.leases import database_now
from voices.access import speaking_version
from voices.models import Voice
from voices.submit import NewClip

# Seconds for which an equal call gets the same job's audio: a client's retries all come in them.
OPENAI_REPEAT_SECONDS = 600.0

_KEY_START = "/v1/audio/speech "


def order_speech(order: Order, sender: Sender) -> RenderJob:
    """Return the job of an order, made now or found.

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
    return job


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
