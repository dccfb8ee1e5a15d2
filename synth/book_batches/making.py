"""Make a batch of books, and add entries to one; rows go in together or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Max

from synth.api.book_batches.requests import SKIP, last_part
from synth.batches.entries import Entry
from synth.book_batches.checking import CheckedEntries, check_entries, rejected, told_errors
from synth.book_batches.manifest import too_many
from synth.jobs.rejections import SubmitRejectedError
from synth.models import ApiKey, BookBatch, BookBatchEntry
from synth.transitions.book_batches import advance_on_commit
from synth.webhooks.urls import WebhookUrlError, check_webhook_url
from ttsweb import leases

ENTRIES_AT_ONCE = 500
MOST_SKIPPED = 200  # that the summary names
_KEY_COLUMN = "idempotency_key"


def make_batch(
    attrs: Mapping[str, Any],
    entries: Sequence[Entry],
    *,
    owner: AbstractBaseUser,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
    files: Sequence[str] = (),
) -> tuple[BookBatch, bool]:
    """Make a batch with its entries, or return the one that this owner's key has made before.

    Args:
        attrs: what `BookBatchCreateSerializer` has read, without its entries.
        files: names of the files that come with the request.

    Returns:
        The batch, and whether it was made by this call.

    Raises:
        ApiProblem: book_batch_entries_invalid.
        SubmitRejectedError: idempotency_key_reused, webhook_*, book_batch_empty.
    """
    known = made_before(owner, idempotency_key, body_digest)
    if known is not None:
        return known, False
    if attrs.get("webhook"):
        try:
            check_webhook_url(attrs["webhook"])
        except WebhookUrlError as error:
            raise SubmitRejectedError(400, error.code, str(error), attr="webhook") from error
    defaults = attrs.get("defaults", {})
    checked = check_entries(entries, defaults, owner=owner)
    if checked.bad and attrs["on_error"] != SKIP:
        raise rejected(checked.bad, len(entries))
    if attrs["closed"]:
        _check_closed(checked, files)
    batch = BookBatch(
        owner_id=owner.pk,
        api_key=api_key,
        name=attrs.get("name", ""),
        defaults=defaults,
        sample=attrs["sample"],
        webhook_url=attrs.get("webhook", ""),
        report=_skipped({}, checked),
        idempotency_key=idempotency_key,
        body_digest=body_digest,
    )
    try:
        with transaction.atomic():
            batch.save(force_insert=True)
            _write(batch, checked, first=0)
    except IntegrityError as error:
        if _KEY_COLUMN not in str(error):
            raise
        known = made_before(owner, idempotency_key, body_digest)
        if known is None:
            raise
        return known, False
    return batch, True


def add_entries(
    batch: BookBatch, entries: Sequence[Entry], *, owner: AbstractBaseUser, on_error: str
) -> CheckedEntries:
    """Add entries to a batch that was not closed.

    Raises:
        ApiProblem: book_batch_entries_invalid; nothing is added.
        SubmitRejectedError: book_batch_closed; 413 book_batch_too_many.
    """
    with transaction.atomic():
        locked = BookBatch.objects.select_for_update().filter(pk=batch.pk).first()
        if locked is None:
            raise SubmitRejectedError(
                404, "book_batch_not_found", "No batch of books that you may see has this id."
            )
        check_takes_more(locked)
        rows = BookBatchEntry.objects.filter(batch=batch)
        taken = list(rows.values_list("filename", flat=True))
        most: int = settings.MAX_BATCH_BOOKS
        if len(taken) + len(entries) > most:
            raise too_many(f"{len(taken) + len(entries)} entries", most)
        checked = check_entries(entries, locked.defaults, owner=owner, taken=taken)
        if checked.bad and on_error != SKIP:
            raise rejected(checked.bad, len(entries))
        last = rows.aggregate(last=Max("index"))["last"]
        _write(locked, checked, first=0 if last is None else last + 1)
        BookBatch.objects.filter(pk=batch.pk).update(
            report=_skipped(locked.report, checked), updated_at=leases.database_now()
        )
    return checked


def check_takes_more(batch: BookBatch) -> None:
    """Refuse entries and files of a batch that was closed or cancelled.

    Raises:
        SubmitRejectedError: book_batch_closed.
    """
    if batch.closed_at is None and batch.cancelled_at is None and batch.ended_at is None:
        return
    was = "cancelled" if batch.cancelled_at is not None else "closed"
    raise SubmitRejectedError(
        409,
        "book_batch_closed",
        f"The batch was {was} and takes no more entries or files. Create another batch.",
    )


def made_before(
    owner: AbstractBaseUser, idempotency_key: str, body_digest: str
) -> BookBatch | None:
    """Return the batch that this owner's key has made.

    Raises:
        SubmitRejectedError: idempotency_key_reused, the key came with another body.
    """
    if not idempotency_key:
        return None
    batch = BookBatch.objects.filter(owner_id=owner.pk, idempotency_key=idempotency_key).first()
    if batch is not None and batch.body_digest != body_digest:
        raise SubmitRejectedError(
            422,
            "idempotency_key_reused",
            f"This Idempotency-Key was used with another body, for the batch {batch.pk}. "
            "Use a new key for a new batch.",
        )
    return batch


def digest_of(said: Mapping[str, Any], entries: Sequence[Entry], files: Sequence[str]) -> str:
    """Return the sha256 of what a request says, without the bytes of its books."""
    read = [{"line": one.line, **one.fields} for one in entries]
    text = json.dumps([dict(said), read, sorted(files)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_closed(checked: CheckedEntries, files: Sequence[str]) -> None:
    """Refuse a batch that is closed before files of its entries could come."""
    there = {last_part(name) for name in files}
    missing = [one.filename for one in checked.good if last_part(one.filename) not in there]
    if missing:
        raise SubmitRejectedError(
            400,
            "book_batch_file_missing",
            f"The request closes the batch without the file {missing[0][:200]!r}. Leave out "
            "`closed`, upload all files, then close the batch.",
            attr="closed",
        )


def _write(batch: BookBatch, checked: CheckedEntries, *, first: int) -> None:
    BookBatchEntry.objects.bulk_create(
        (
            BookBatchEntry(
                batch=batch,
                index=first + place,
                filename=one.filename,
                options=one.options,
                metadata=one.metadata,
            )
            for place, one in enumerate(checked.good)
        ),
        batch_size=ENTRIES_AT_ONCE,
    )
    advance_on_commit(batch.pk)


def _skipped(report: Mapping[str, Any], checked: CheckedEntries) -> dict[str, Any]:
    """Return what the summary keeps of entries that were not taken."""
    skipped = [*report.get("skipped", []), *told_errors(checked.bad)]
    kept = [
        {name: _writable(value) for name, value in one.items()} for one in skipped[:MOST_SKIPPED]
    ]
    return {**report, "skipped": kept} if kept else dict(report)


def _writable(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace("\0", "").encode("utf-8", "replace").decode()
