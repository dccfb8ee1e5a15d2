"""Refuse what takes an API key over its limits, in the transaction that would do it.

The key's row is locked while its use is counted, so that two requests of one key follow each other
and cannot both take the last place. Keys without the limit in question cost nothing.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q, Sum
from django.db.models.functions import Length
from django.dispatch import receiver

from synth.accounts.stored_bytes import bytes_of_user, in_words
from synth.models import ApiKey, RenderJob, Segment
from synth.transitions import UNFINISHED
from ttsweb.refusals import RefusedError
from voices.models import Voice
from voices.signals import clips_stored

RETRY_SECONDS = 10  # how soon a place in the queue is free is not known


class KeyLimitError(RefusedError):
    """A key is at a limit: code `key_limit_…`, sentence; seconds where waiting helps."""


def check_job(key: ApiKey, own: Q, *, chars: int, jobs: int = 1) -> None:
    """Refuse jobs that a key has no place for; call it in the transaction that queues them.

    Args:
        own: names the jobs themselves, whose rows may be written already: they are not counted.
        chars: how many characters of them are to be rendered.
        jobs: how many they are.

    Raises:
        KeyLimitError: key_limit_jobs, key_limit_chars or key_limit_stored_bytes, all 429.
    """
    check_room(key)
    if key.max_unfinished_jobs is None and key.max_queued_chars is None:
        return
    _lock(key)
    others = RenderJob.objects.filter(api_key=key, status__in=UNFINISHED).exclude(own)
    if key.max_unfinished_jobs is not None:
        _check_jobs(others.count(), jobs, key.max_unfinished_jobs)
    if key.max_queued_chars is not None:
        waiting = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
        segments = Segment.objects.filter(job__in=others, status__in=waiting)
        queued = segments.aggregate(chars=Sum(Length("text")))["chars"] or 0
        _check_chars(queued, chars, key.max_queued_chars)


@receiver(clips_stored)
def check_voice_bytes(api_key: ApiKey | None, voice: Voice, **_: Any) -> None:
    """Refuse clips that are too many bytes; call it where the voice's rows were just written.

    What counts is all that is stored of the key's user, and the clips of this voice, whoever it
    belongs to. The transaction takes the rows back.

    Raises:
        KeyLimitError: key_limit_stored_bytes, 413.
    """
    if api_key is None or api_key.max_stored_bytes is None:
        return
    _lock(api_key)
    stored = bytes_of_user(api_key.user_id, also_voice=voice.pk)
    if stored["total"] > api_key.max_stored_bytes:
        raise KeyLimitError(
            "key_limit_stored_bytes",
            f"With this clip, {stored['total']} bytes would be stored ({in_words(stored)}), and "
            f"this API key allows {api_key.max_stored_bytes}. Delete voices, jobs or books, or "
            "send smaller clips.",
            case="upload_above_limit",
        )


def check_upload_bytes(key: ApiKey | None) -> None:
    """Refuse an upload that is too many bytes; call it where its rows were just written.

    Raises:
        KeyLimitError: key_limit_stored_bytes, 413.
    """
    if key is None or key.max_stored_bytes is None:
        return
    _lock(key)
    stored = bytes_of_user(key.user_id)
    if stored["total"] > key.max_stored_bytes:
        raise KeyLimitError(
            "key_limit_stored_bytes",
            f"With this file, {stored['total']} bytes would be stored ({in_words(stored)}), and "
            f"this API key allows {key.max_stored_bytes}. Delete voices, jobs or books, or "
            "send a smaller file.",
            case="upload_above_limit",
        )


def check_room(key: ApiKey | None) -> None:
    """Refuse to make another file where a key's user has no room left; call it in a transaction.

    How large a file becomes nobody knows before it is made: the one that fills the room is kept.

    Raises:
        KeyLimitError: key_limit_stored_bytes, 429 without a time, as nothing goes by itself.
    """
    if key is None or key.max_stored_bytes is None:
        return
    _lock(key)
    stored = bytes_of_user(key.user_id)
    if stored["total"] >= key.max_stored_bytes:
        raise KeyLimitError(
            "key_limit_stored_bytes",
            f"{stored['total']} bytes are stored ({in_words(stored)}), and this API key allows "
            f"{key.max_stored_bytes}. Delete voices, jobs or books first.",
        )


def _lock(key: ApiKey) -> None:
    """Let one request of a key follow the other; SQLite lets one transaction write at a time."""
    ApiKey.objects.select_for_update(no_key=True).filter(pk=key.pk).first()


def _check_jobs(unfinished: int, jobs: int, most: int) -> None:
    if unfinished + jobs <= most:
        return
    adds = f", this batch adds {jobs}," if jobs > 1 else ""
    advice = "wait until one has ended, or cancel one"
    if jobs > 1:
        advice = (
            "wait until more jobs have ended"
            if jobs <= most
            else "this batch exceeds the limit even alone, so send fewer items"
        )
    raise KeyLimitError(
        "key_limit_jobs",
        f"This API key has {unfinished} unfinished jobs{adds} and may have {most}; {advice}.",
        retry_after=RETRY_SECONDS if jobs <= most else None,
    )


def _check_chars(queued: int, chars: int, most: int) -> None:
    """Refuse more characters than there is room for; no time to wait is told where none helps."""
    if queued + chars <= most:
        return
    fits = chars <= most
    advice = (
        "wait until more text is rendered"
        if fits
        else "this job exceeds the limit even alone, so send shorter texts"
    )
    raise KeyLimitError(
        "key_limit_chars",
        f"This API key may have {most} queued characters. {queued} are queued and this job "
        f"adds {chars}: {advice}.",
        retry_after=RETRY_SECONDS if fits else None,
    )
