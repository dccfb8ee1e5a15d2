"""Queue again what an ended batch did not finish, where that can lead anywhere."""

from __future__ import annotations

from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Sum
from django.db.models.functions import Length

from synth.accounts.limits import check_job
from synth.jobs.retry import RetryRefusedError
from synth.models import ApiKey, Export, RenderJob, Segment
from synth.transitions import UNFINISHED, retry_batch
from synth.transitions.batches import WITH_AUDIO, ZIP, retryable_items


def retry(batch: RenderJob, *, api_key: ApiKey | None = None) -> int:
    """Queue the items again that failed, are whole only in part, or were cancelled.

    Where nothing of them can be done again but the zip is missing, that is made.

    Args:
        api_key: the key that asks for it; the items count towards its limits from now on.

    Returns:
        How many items were queued.

    Raises:
        KeyLimitError: the key would have too much in the queue.
        RetryRefusedError: batch_not_ended, voice_deleted, nothing_to_retry.
    """
    if batch.status in UNFINISHED:
        raise RetryRefusedError(
            "batch_not_ended", "The batch is still running; cancel it before you retry it."
        )
    items = retryable_items(batch.pk)
    count = items.count()
    if not count and not _is_zip_missing(batch):
        raise _refusal(batch)
    with transaction.atomic():
        if api_key is not None and count:
            unspoken = Segment.objects.filter(job__in=items.values("pk"))
            unspoken = unspoken.exclude(status=Segment.Status.DONE)
            chars = unspoken.aggregate(chars=Sum(Length("text")))["chars"] or 0
            check_job(api_key, batch, chars=chars, jobs=count)
            items.update(api_key=api_key)
        return retry_batch(batch.pk)


def may_retry(batch: RenderJob) -> bool:
    """Say whether a retry of a batch would be taken."""
    if batch.status in UNFINISHED:
        return False
    return retryable_items(batch.pk).exists() or _is_zip_missing(batch)


def _is_zip_missing(batch: RenderJob) -> bool:
    """Say whether there should be a zip, and is none."""
    if not batch.items.filter(status__in=WITH_AUDIO).exists():
        return False
    done = batch.exports.filter(format=ZIP, status=Export.Status.DONE).first()
    return done is None or not default_storage.exists(done.key)


def _refusal(batch: RenderJob) -> RetryRefusedError:
    left = batch.items.exclude(status=RenderJob.Status.SUCCEEDED).filter(segments_total__gt=0)
    if left.exists():
        return RetryRefusedError(
            "voice_deleted",
            "The voices of the incomplete items were deleted or could not be encoded. "
            "Submit their texts in a new batch with another voice.",
        )
    return RetryRefusedError(
        "nothing_to_retry",
        "There is nothing to retry: every item whose text can be spoken is complete.",
    )
