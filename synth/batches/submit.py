"""Take a batch: every item is planned before anything is written, then all rows go in together."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from synth.batches.entries import Entry, ItemError
from synth.batches.planning import BadItem, BatchOptions, PlannedBatch, check_batch
from synth.key_limits import check_job
from synth.models import ApiKey, Chapter, JobVoice, RenderJob, Segment
from synth.planning import PlannedJob
from synth.submit import bind_job, made_before, rows_of
from synth.transitions import enqueue_segments
from synth.transitions.batches import settle_batch_on_commit
from synth.voice_choice import note_use
from ttsweb import leases
from voices.models import VoiceVersion

ITEMS_AT_ONCE = 500  # rows that one INSERT writes
WAKING_SEGMENTS = 64  # messages for these wake the workers; their pumps find the rest
_KEY_COLUMN = "idempotency_key"


def submit_batch(
    entries: Sequence[Entry],
    options: BatchOptions,
    *,
    owner: AbstractBaseUser | None,
    skip_bad: bool = False,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
) -> RenderJob:
    """Make a batch with all its items, or return the one that this owner's key has made before.

    Args:
        skip_bad: take the others where some are bad; the bad ones are items that have failed.
        body_digest: digest of the request; a batch's never is that of a job.

    Raises:
        BatchRejectedError: entries are bad, and not to be skipped; nothing is kept.
        SubmitRejectedError: idempotency_key_reused, batch_too_long, checkpoint_card_invalid,
            voice_not_found (deleted meanwhile).
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    known = made_before(owner, idempotency_key, body_digest)
    if known is not None:
        return known
    planned = check_batch(entries, options, owner=owner, skip_bad=skip_bad)
    try:
        return write_batch(
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
        return known


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
        note_use(version)
    waking: list[int] = []
    good = list(planned.good.items())
    for start in range(0, len(good), ITEMS_AT_ONCE):
        written = _write_items(batch, good[start : start + ITEMS_AT_ONCE])
        waking += written[: WAKING_SEGMENTS - len(waking)]
    bad = [_failed_row(batch, one) for one in planned.bad]
    RenderJob.objects.bulk_create(bad, batch_size=ITEMS_AT_ONCE)
    if waking:
        enqueue_segments(waking)
    else:
        settle_batch_on_commit(batch.pk)  # all are bad: it has ended


def _write_items(
    batch: RenderJob, items: Sequence[tuple[int, tuple[str, PlannedJob]]]
) -> list[int]:
    """Write the rows of some items; return the keys of those segments that may be rendered now."""
    rows = []
    for index, (custom_id, planned) in items:
        bind_job(
            planned.job,
            api_key=batch.api_key,
            batch=batch,
            item_index=index,
            custom_id=custom_id,
        )
        rows.append(rows_of(planned, dict(sorted(planned.versions.items()))))
    RenderJob.objects.bulk_create(row.job for row in rows)
    JobVoice.objects.bulk_create(voice for row in rows for voice in row.voices)
    Chapter.objects.bulk_create(row.chapter for row in rows)
    segments = Segment.objects.bulk_create(segment for row in rows for segment in row.segments)
    waiting = {
        voice.job_id
        for row in rows
        for voice in row.voices
        if voice.version.status != VoiceVersion.Status.READY
    }
    return [segment.pk for segment in segments if segment.job_id not in waiting]


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
