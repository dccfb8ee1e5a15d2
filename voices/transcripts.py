"""Have a transcriber propose what is said in a clip, where the operator has set one up."""

from __future__ import annotations

import datetime as dt
import uuid

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction

from ttsweb.leases import database_now
from ttsweb.refusals import POLL_SECONDS, RefusedError
from ttsweb.work import Kind, enqueue
from voices.clip_checks import check_clip
from voices.models import Transcript
from voices.objects import delete_objects, delete_objects_on_commit

MOST_WAITING = 16  # clips of one user that wait for a transcriber
KEPT = dt.timedelta(hours=1)  # for which a proposal, or what became of it, can be read
ROWS_AT_ONCE = 500


class TranscriptRefusedError(RefusedError):
    """No transcript can be proposed: code and sentence say why."""


def request_transcript(
    content: bytes, *, owner: AbstractBaseUser, language: str = ""
) -> Transcript:
    """Store a clip and have its words proposed, once the transaction has committed.

    Args:
        language: a tag of what is spoken; empty where nobody says.

    Raises:
        TranscriptRefusedError: transcriber_missing, too_many_transcripts.
        ClipRejectedError: the clip is not taken.
        OSError: the storage cannot be written; nothing is kept.
    """
    if not settings.TRANSCRIBER:
        raise TranscriptRefusedError(
            "transcriber_missing",
            "No transcriber is set up here that could propose a transcript, so send the words "
            "that are spoken in the clip. An operator sets one up by TTS_TRANSCRIBER.",
        )
    container = check_clip(content)
    waiting = Transcript.objects.filter(owner_id=owner.pk, finished_at__isnull=True)
    if waiting.count() >= MOST_WAITING:
        raise TranscriptRefusedError(
            "too_many_transcripts",
            f"{MOST_WAITING} clips of yours wait for a transcriber; send this one later.",
            retry_after=POLL_SECONDS,
        )
    name = f"transcripts/{uuid.uuid4()}/{uuid.uuid4().hex}.{container}"
    key = default_storage.save(name, ContentFile(content))
    try:
        with transaction.atomic():
            row = Transcript.objects.create(
                owner_id=owner.pk, language=language, original_key=key, container=container
            )
            enqueue(Kind.TRANSCRIPT, [row.pk])
    except BaseException:
        delete_objects([key])
        raise
    return row


def forget_transcripts() -> int:
    """Delete the rows of an hour ago, in whatever state, with their clips; return how many."""
    old = Transcript.objects.filter(created_at__lt=database_now() - KEPT).order_by()
    found = dict(old.values_list("pk", "original_key")[:ROWS_AT_ONCE])
    if found:
        with transaction.atomic():
            Transcript.objects.filter(pk__in=list(found)).delete()
            delete_objects_on_commit([key for key in found.values() if key])
    return len(found)
