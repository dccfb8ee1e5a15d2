"""Take a batch: every item is planned before anything is written, then all rows go in together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.exceptions import APIException, ValidationError

from synth.batches.entries import Entry, ItemError
from synth.batches.requests import BatchItemCreateSerializer
from synth.key_limits import check_job
from synth.models import ApiKey, Chapter, JobVoice, RenderJob, Segment
from synth.planning import Order, PlannedJob, Planner
from synth.rejections import SubmitRejectedError, deadline_past
from synth.submit import bind_job, made_before, rows_of
from synth.transitions import enqueue_segments
from synth.transitions.batches import settle_batch_on_commit
from synth.voice_choice import note_use
from synth.webhooks.urls import WebhookUrlError, check_webhook_url
from ttsweb import leases
from ttsweb.api import error_items
from voices.models import VoiceVersion

ITEMS_AT_ONCE = 500  # rows that one INSERT writes
WAKING_SEGMENTS = 64  # messages for these wake the workers; their pumps find the rest
_KEY_COLUMN = "idempotency_key"


@dataclass(frozen=True)
class BadItem:
    """An entry that cannot be rendered, and everything that is wrong with it."""

    entry: Entry
    custom_id: str
    errors: list[ItemError]


@dataclass
class PlannedBatch:
    """Hold what the entries of a batch have become; `good` by their index."""

    good: dict[int, tuple[str, PlannedJob]] = field(default_factory=dict)
    bad: list[BadItem] = field(default_factory=list)
    num_chars: int = 0


@dataclass(frozen=True)
class BatchOptions:
    """Say what holds for a batch as a whole; the names are those of the job's columns.

    `defaults` are options of items as JSON has them, for those that do not say otherwise.
    """

    priority: RenderJob.Priority = RenderJob.Priority.BULK
    webhook_url: str = ""
    retention_seconds: int | None = None
    deadline_at: dt.datetime | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


class BatchRejectedError(Exception):
    """Some entries cannot be rendered, so nothing was queued; `bad` are all of them."""

    def __init__(self, bad: Sequence[BadItem], num_items: int) -> None:
        super().__init__(f"{len(bad)} of {num_items} items cannot be rendered")
        self.bad, self.num_items = bad, num_items


def plan_batch(
    entries: Iterable[Entry], options: BatchOptions, *, owner: AbstractBaseUser | None
) -> PlannedBatch:
    """Look at every entry as at a job of its own; nothing is written.

    Raises:
        SubmitRejectedError: 413 batch_too_long; checkpoint_card_invalid.
    """
    planner = Planner(owner)
    _ = planner.card  # an unreadable one is no item's fault
    reader = BatchItemCreateSerializer()
    entries = list(entries)
    names = _Names(entries)
    found = PlannedBatch()
    for entry in entries:
        custom_id, name_error = names.name(entry)
        try:
            if entry.error is not None:
                raise _BadEntryError([entry.error])
            order = _read(reader, entry, options)
            if name_error is not None:
                raise _BadEntryError([name_error])
            planned = planner.plan(order)
        except (SubmitRejectedError, _BadEntryError) as error:
            found.bad.append(BadItem(entry, custom_id, _errors_of(error)))
            continue
        found.num_chars += len(planned.job.text)
        if found.num_chars > settings.MAX_BATCH_CHARS:
            raise _too_long(entry)
        found.good[entry.index] = (custom_id, planned)
    return found


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
    _check_options(options)
    planned = plan_batch(entries, options, owner=owner)
    if planned.bad and not skip_bad:
        raise BatchRejectedError(planned.bad, len(entries))
    batch = _batch_row(options, owner, num_items=len(entries))
    bind_job(batch, api_key=api_key, idempotency_key=idempotency_key, body_digest=body_digest)
    try:
        _write(batch, planned)
    except IntegrityError as error:
        if _KEY_COLUMN not in str(error):
            raise
        known = made_before(owner, idempotency_key, body_digest)
        if known is None:
            raise
        return known
    return batch


def _check_options(options: BatchOptions) -> None:
    """Refuse what is wrong with the batch itself, and so with none of its items."""
    if options.deadline_at is not None and options.deadline_at <= timezone.now():
        raise deadline_past()
    if options.webhook_url:
        try:
            check_webhook_url(options.webhook_url)
        except WebhookUrlError as error:
            raise SubmitRejectedError(400, error.code, str(error), attr="webhook") from error


class _BadEntryError(Exception):
    """An entry cannot be read."""

    def __init__(self, errors: list[ItemError]) -> None:
        super().__init__("an entry cannot be read")
        self.errors = errors


class _Names:
    """Give each entry its name in the batch: its own, or one by its place that no other has."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._first: dict[str, Entry] = {}
        for entry in entries:
            given = entry.fields.get("custom_id")
            if isinstance(given, str):
                self._first.setdefault(given, entry)

    def name(self, entry: Entry) -> tuple[str, ItemError | None]:
        """Return the name, and what is wrong with the one that was given."""
        given = entry.fields.get("custom_id")
        made = f"item-{entry.index + 1:05d}"
        while made in self._first:
            made += "-"
        if not isinstance(given, str):
            return made, None
        first = self._first[given]
        if first is entry:
            return (given, None) if given.isprintable() and 0 < len(given) <= 200 else (made, None)
        sentence = f"The custom_id {given!r} is that of {first.place} already."
        return made, ItemError("custom_id", "custom_id_duplicate", sentence)


def _read(reader: BatchItemCreateSerializer, entry: Entry, options: BatchOptions) -> Order:
    """Return what an entry orders, with the batch's defaults.

    Raises:
        _BadEntryError: its fields are wrong.
    """
    defaults = dict(options.defaults)
    for one, other in (("voice", "voices"), ("voices", "voice")):
        if one in entry.fields:
            defaults.pop(other, None)
    try:
        fields = reader.run_validation({**defaults, **entry.fields})
    except ValidationError as error:
        items = error_items(error.detail)
        raise _BadEntryError([ItemError(one["attr"], one["code"], one["detail"]) for one in items]
        ) from error  # fmt: skip
    except APIException as error:
        attr, code = getattr(error, "attr", None), getattr(error, "code", error.default_code)
        raise _BadEntryError([ItemError(attr, code, str(error.detail))]) from error
    order: Order = fields["order"]
    return replace(order, priority=options.priority, deadline_at=options.deadline_at)


def _errors_of(error: SubmitRejectedError | _BadEntryError) -> list[ItemError]:
    if isinstance(error, _BadEntryError):
        return error.errors
    return [ItemError(error.attr, error.code, str(error))]


def _too_long(entry: Entry) -> SubmitRejectedError:
    return SubmitRejectedError(
        413,
        "batch_too_long",
        f"With {entry.place} the texts have more than {settings.MAX_BATCH_CHARS} characters. Split "
        "the batch, or raise TTS_MAX_BATCH_CHARS.",
    )


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
