"""Take a batch: every item is planned before anything is written, then all rows go in together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone

from synth.accounts.limits import check_job
from synth.batches.entries import Entry, ItemError
from synth.batches.inserting import columns_of, insert_rows
from synth.batches.planning import BadItem, BatchOptions, PlannedBatch, check_batch
from synth.jobs.planning import PlannedJob
from synth.jobs.submit import bind_job, made_before, segment_seed
from synth.models import ApiKey, Chapter, JobVoice, RenderJob, Segment
from synth.options.voice_choice import note_use
from synth.transitions import enqueue_segments
from synth.transitions.batches import settle_batch_on_commit
from ttsweb import leases
from voices.models import VoiceVersion

ITEMS_AT_ONCE = 500  # rows that one INSERT writes
WAKING_SEGMENTS = 64  # messages for these wake the workers; their pumps find the rest
_KEY_COLUMN = "idempotency_key"
_SAID = ("index", "text", "spoken_text", "speaker", "seed", "pause_after_ms")


def submit_batch(
    entries: Sequence[Entry],
    options: BatchOptions,
    *,
    owner: AbstractBaseUser | None,
    skip_bad: bool = False,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
) -> tuple[RenderJob, bool]:
    """Make a batch with all its items, or return the one that this owner's key has made before.

    Args:
        skip_bad: take the others where some are bad; the bad ones are items that have failed.
        body_digest: digest of the request; a batch's never is that of a job.

    Returns:
        The batch, and whether it was made by this call.

    Raises:
        BatchRejectedError: entries are bad, and not to be skipped; nothing is kept.
        SubmitRejectedError: idempotency_key_reused, batch_too_long, checkpoint_card_invalid,
            voice_not_found (deleted meanwhile).
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    known = made_before(owner, idempotency_key, body_digest)
    if known is not None:
        return known, False
    planned = check_batch(entries, options, owner=owner, skip_bad=skip_bad)
    try:
        batch = write_batch(
            planned,
            options,
            owner=owner,
            api_key=api_key,
            idempotency_key=idempotency_key,
            body_digest=body_digest,
        )
    except IntegrityError as error:
        if _KEY_COLUMN not in str(error):
            raise
        known = made_before(owner, idempotency_key, body_digest)
        if known is None:
            raise
        return known, False
    return batch, True


def write_batch(
    planned: PlannedBatch,
    options: BatchOptions,
    *,
    owner: AbstractBaseUser | None,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
) -> RenderJob:
    """Write a planned batch with all its items, in one transaction.

    Raises:
        SubmitRejectedError: voice_not_found, a voice was deleted meanwhile.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        IntegrityError: another request has made something with this idempotency key meanwhile.
    """
    batch = _batch_row(options, owner, num_items=len(planned.good) + len(planned.bad))
    bind_job(batch, api_key=api_key, idempotency_key=idempotency_key, body_digest=body_digest)
    _write(batch, planned)
    return batch


def _batch_row(
    options: BatchOptions, owner: AbstractBaseUser | None, *, num_items: int
) -> RenderJob:
    return RenderJob(
        kind=RenderJob.Kind.BATCH,
        owner_id=owner.pk if owner else None,
        priority=options.priority,
        webhook_url=options.webhook_url,
        retention_seconds=options.retention_seconds,
        deadline_at=options.deadline_at,
        format="zip",
        temperature=0,  # a batch speaks nothing itself
        top_p=0,
        top_k=0,
        items_total=num_items,
    )


@transaction.atomic
def _write(batch: RenderJob, planned: PlannedBatch) -> None:
    """Write a batch and its items, a few hundred at a time."""
    batch.save(force_insert=True)  # first: another request with the same key collides with it
    jobs = [one.job for _, one in planned.good.values()]
    if batch.api_key is not None:
        check_job(batch.api_key, batch, chars=planned.num_chars, jobs=len(jobs))
    speaking = {version for _, one in planned.good.values() for version in one.versions.values()}
    for version in sorted(speaking, key=lambda one: str(one.voice_id)):  # locked in one order
        note_use(version, batch.owner)
    waking: list[int] = []
    good = list(planned.good.items())
    for start in range(0, len(good), ITEMS_AT_ONCE):
        some = good[start : start + ITEMS_AT_ONCE]
        waking += _write_items(batch, some, most_woken=WAKING_SEGMENTS - len(waking))
    bad = [_failed_row(batch, one) for one in planned.bad]
    RenderJob.objects.bulk_create(bad, batch_size=ITEMS_AT_ONCE)
    if waking:
        enqueue_segments(waking)
    else:
        settle_batch_on_commit(batch.pk)  # all are bad: it has ended


def _write_items(
    batch: RenderJob, items: Sequence[tuple[int, tuple[str, PlannedJob]]], *, most_woken: int
) -> list[int]:
    """Write the rows of some items; return the keys of segments that may be rendered now."""
    for index, (custom_id, planned) in items:
        bind_job(
            planned.job,
            api_key=batch.api_key,
            batch=batch,
            item_index=index,
            custom_id=custom_id,
        )
    plans = [planned for _, (_, planned) in items]
    began = timezone.now()
    moments = [began + dt.timedelta(microseconds=place) for place in range(len(plans))]
    # Each a moment of its own: what waits is rendered in the order in which it was made.
    columns = columns_of([plan.job for plan in plans])
    insert_rows(RenderJob, columns | {"created_at": moments, "updated_at": moments})
    voices = [
        (plan.job.pk, speaker, version.pk)
        for plan in plans
        for speaker, version in sorted(plan.versions.items())
    ]
    insert_rows(JobVoice, _columns(("job_id", "speaker", "version_id"), voices))
    insert_rows(Chapter, {"job_id": [plan.job.pk for plan in plans]})
    places = range(items[0][0], items[-1][0] + 1)
    chapters = Chapter.objects.filter(
        job__batch=batch, job__item_index__range=(places[0], places[-1])
    )
    chapter_of = dict(chapters.order_by().values_list("job", "pk"))
    segments = [
        (plan.job.pk, chapter_of[plan.job.pk], *said) for plan in plans for said in _said(plan)
    ]
    insert_rows(Segment, _columns(("job_id", "chapter_id", *_SAID), segments))
    ready = [plan.job.pk for plan in plans if _is_ready(plan)][:most_woken]
    woken = Segment.objects.filter(job__in=ready).order_by("pk").values_list("pk", flat=True)
    return list(woken[:most_woken])


def _said(planned: PlannedJob) -> Iterator[tuple[Any, ...]]:
    """Yield what the rows of a job's segments say, as `_SAID` names it."""
    for index, piece in enumerate(planned.pieces):
        seed = segment_seed(planned.job.seed, piece.spoken_text, piece.speaker)
        said = piece.text, piece.spoken_text, piece.speaker, seed, piece.pause_after_ms
        yield index, *said


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _is_ready(planned: PlannedJob) -> bool:
    """Say whether all who speak are encoded."""
    ready = VoiceVersion.Status.READY
    return all(version.status == ready for version in planned.versions.values())


def _failed_row(batch: RenderJob, bad: BadItem) -> RenderJob:
    """Return the row of an entry that was skipped; of its text, what a database can hold."""
    text = bad.entry.fields.get("text")
    kept = text[: settings.MAX_TEXT_CHARS] if isinstance(text, str) else ""
    kept = kept.replace("\0", "").encode("utf-8", "replace").decode()
    first = bad.errors[0]
    row = RenderJob(
        owner_id=batch.owner_id,
        priority=batch.priority,
        text=kept,
        status=RenderJob.Status.FAILED,
        finished_at=leases.database_now(),
        temperature=0,
        top_p=0,
        top_k=0,
        error_code=first.code[:60],
        error_message=f"{bad.entry.place.capitalize()}: {_sentence(first)}",
    )
    bind_job(
        row,
        api_key=batch.api_key,
        batch=batch,
        item_index=bad.entry.index,
        custom_id=bad.custom_id,
    )
    return row


def _sentence(error: ItemError) -> str:
    text = f"{error.attr}: {error.detail}" if error.attr else error.detail
    return text.replace("\0", "").encode("utf-8", "replace").decode()
