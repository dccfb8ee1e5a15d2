"""Hold API keys to their limits: queued jobs, stored bytes, requests per minute.

The key's row is locked while its use is counted, so that two requests of one key follow each other
and cannot both take the last place. Keys without the limit in question cost nothing.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Length
from django.dispatch import receiver

from synth.models import ApiKey, BookFile, BookSource, Export, RenderJob, Segment, Take
from synth.transitions.jobs import UNFINISHED
from ttsweb.refusals import RefusedError, counted
from voices.models import StoredClip, Voice
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
    most = key.max_unfinished_jobs
    if most is not None and (unfinished := others.count()) + jobs > most:
        raise _jobs_error(unfinished, jobs, most)
    most = key.max_queued_chars
    if most is None:
        return
    waiting = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
    segments = Segment.objects.filter(job__in=others, status__in=waiting)
    queued = segments.aggregate(chars=Sum(Length("text")))["chars"] or 0
    if queued + chars > most:
        advice = (
            "wait until more text is rendered"
            if chars <= most
            else "this job exceeds the limit even alone, so send shorter texts"
        )
        raise KeyLimitError(
            "key_limit_chars",
            f"This API key may have {most} queued characters. {queued} are queued and this job "
            f"adds {chars}: {advice}.",
            retry_after=RETRY_SECONDS if chars <= most else None,
        )


@receiver(clips_stored)
def check_voice_bytes(api_key: ApiKey | None, voice: Voice, **_: Any) -> None:
    """Refuse clips that are too many bytes; call it where the voice's rows were just written.

    What counts is all that is stored of the key's user, and the clips of this voice, whoever it
    belongs to. The transaction takes the rows back.

    Raises:
        KeyLimitError: key_limit_stored_bytes, 413.
    """
    check_upload_bytes(api_key, also_voice=voice.pk, what="clip", less="smaller clips")


def check_upload_bytes(
    key: ApiKey | None, *, also_voice: Any = None, what: str = "file", less: str = "a smaller file"
) -> None:
    """Refuse an upload that is too many bytes; call it where its rows were just written.

    Args:
        also_voice: as of `bytes_of_user`.

    Raises:
        KeyLimitError: key_limit_stored_bytes, 413.
    """
    if key is None or key.max_stored_bytes is None:
        return
    _lock(key)
    stored = bytes_of_user(key.user_id, also_voice=also_voice)
    if stored["total"] > key.max_stored_bytes:
        raise KeyLimitError(
            "key_limit_stored_bytes",
            f"With this {what}, {stored['total']} bytes would be stored ({in_words(stored)}), "
            f"and this API key allows {key.max_stored_bytes}. Delete voices, jobs or books, or "
            f"send {less}.",
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


def _jobs_error(unfinished: int, jobs: int, most: int) -> KeyLimitError:
    adds = f", this batch adds {jobs}," if jobs > 1 else ""
    advice = "wait until one has ended, or cancel one"
    if jobs > max(1, most):
        advice = "this batch exceeds the limit even alone, so send fewer items"
    elif jobs > 1:
        advice = "wait until more jobs have ended"
    return KeyLimitError(
        "key_limit_jobs",
        f"This API key has {unfinished} unfinished jobs{adds} and may have {most}; {advice}.",
        retry_after=RETRY_SECONDS if jobs <= most else None,
    )


# What a user is answerable for. Takes are not among them: they are kept once for all who render
# the same, and go with the last job that uses them.
_WORDS = {
    "clips": "clips",
    "exports": "files of jobs and batches",
    "book_files": "files of books",
    "books": "uploaded books",
}


def installation_bytes() -> dict[str, int]:
    """Return what is stored of all users, by kind, with the `total`."""
    return _sum_bytes(
        {
            "exports": Export.objects.all(),
            "book_files": BookFile.objects.all(),
            "books": BookSource.objects.all(),
            "takes": Take.objects.all(),
            "clips": StoredClip.objects.exclude(original_key=""),
        }
    )


def bytes_of_user(user_id: int, *, also_voice: Any = None) -> dict[str, int]:
    """Return what is stored of one user, by kind, with the `total`; four queries.

    Clips count once each, those of all versions of the user's voices and those that came with the
    user's jobs; files and books count that are the user's.

    Args:
        also_voice: id of a voice whose clips count too, whoever it belongs to.
    """
    own_voice = Q(uses__version__voice__deleted_at__isnull=True)
    own_voice &= Q(uses__version__voice__owner_id=user_id)
    if also_voice is not None:
        own_voice |= Q(uses__version__voice=also_voice)
    own_job = Q(uses__version__pinned_by__job__owner_id=user_id, uses__version__voice=None)
    # Two subqueries: one condition over both joins would look at every use of every clip.
    voices = StoredClip.objects.filter(own_voice).values("pk")
    jobs = StoredClip.objects.filter(own_job).values("pk")
    return _sum_bytes(
        {
            "clips": StoredClip.objects.filter(Q(pk__in=voices) | Q(pk__in=jobs)).exclude(
                original_key=""  # only its codes are left
            ),
            "exports": Export.objects.filter(owned_by(user_id)),
            "book_files": BookFile.objects.filter(job__owner_id=user_id),
            "books": BookSource.objects.filter(owner_id=user_id),
        }
    )


def owned_by(user_id: int) -> Q:
    """Return the condition of exports of a user's jobs and batches."""
    return Q(job__owner_id=user_id) | Q(batch__owner_id=user_id)


def in_words(stored: Mapping[str, int]) -> str:
    """Return in words what makes the bytes of a user."""
    parts = [f"{stored[kind]} of {words}" for kind, words in _WORDS.items() if stored[kind]]
    return ", ".join(parts) or "nothing"


def _sum_bytes(rows: Mapping[str, QuerySet[Any]]) -> dict[str, int]:
    found = {
        name: int(some.order_by().aggregate(size=Sum("size_bytes"))["size"] or 0)
        for name, some in rows.items()
    }
    return found | {"total": sum(found.values())}


# Requests are counted in two columns of the key's row: all processes share the database, while not
# every installation has a cache that they share. So that not every request is a write, a process
# takes requests in blocks of a fiftieth of the limit and hands them out from memory: fewer than 100
# writes a minute for each key, whatever the limit. Never more requests pass than the limit says;
# what a process took and did not use is lost to the others until the minute is over, at most 2 %
# for each further process. Below 100 a minute a block is one request, and the count exact. A key
# that is used up is refused from memory.
BLOCKS_PER_MINUTE = 50
_MOST_REMEMBERED = 10_000


@dataclass
class _Minute:
    """What this process knows of a key in one minute: requests it may pass, and if any are left."""

    number: int
    limit: int
    left: int = 0
    is_used_up: bool = False


_minutes: dict[uuid.UUID, _Minute] = {}
_minutes_lock = threading.Lock()


def count_request(key: ApiKey) -> None:
    """Count one request of a key that has just been read.

    Raises:
        KeyLimitError: key_limit_requests, 429, with the seconds to the next minute.
    """
    limit = key.max_requests_per_minute
    if limit is None:
        return
    now = time.time()
    minute = int(now // 60)
    with _minutes_lock:
        known = _minutes.get(key.pk)
        if known is None or (known.number, known.limit) != (minute, limit):
            if len(_minutes) >= _MOST_REMEMBERED:
                _minutes.clear()
            _minutes[key.pk] = known = _Minute(minute, limit)
        elif known.left:
            known.left -= 1
            return
    taken = 0 if known.is_used_up else _take_block(key.pk, minute, limit)
    with _minutes_lock:
        known.left += max(0, taken - 1)  # one of them is this request
        known.is_used_up |= not taken
    if not taken:
        raise KeyLimitError(
            "key_limit_requests",
            f"This API key has sent its {counted(limit, 'request')} of this minute; wait for "
            "the next minute.",
            retry_after=60 - int(now % 60),
        )


def forget_counts() -> None:
    """Forget what this process took, as a new process would begin."""
    with _minutes_lock:
        _minutes.clear()


def _take_block(key: uuid.UUID, minute: int, limit: int) -> int:
    """Take requests of this minute in the database and return how many; 0 when none are left.

    A row that another host's clock has brought into the next minute is counted there.
    """
    row = ApiKey.objects.filter(pk=key)
    for block in dict.fromkeys((max(1, limit // BLOCKS_PER_MINUTE), 1)):
        if block > limit:
            return 0
        this_minute = row.filter(rate_minute__gte=minute, rate_taken__lte=limit - block)
        if this_minute.update(rate_taken=F("rate_taken") + block):
            return block
        earlier = row.filter(rate_minute__lt=minute)
        if earlier.update(rate_minute=minute, rate_taken=block):
            return block
    return 0
