"""Read a request for a batch of texts, plan every item, and write all rows in one transaction.

A request is JSON, a form with a file or a manifest, or JSONL as the body.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.utils import timezone
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from synth.api.batches import entries as limits
from synth.api.batches.entries import (
    BadEntry,
    BadEntryError,
    Entry,
    ItemError,
    bad_entry,
    entries_of_lines,
    entries_of_list,
    read_fields,
    read_manifest,
    with_defaults,
)
from synth.api.batches.requests import (
    BatchCreateSerializer,
    BatchFormSerializer,
    BatchItemCreateSerializer,
    BatchQuerySerializer,
    BookBatchCreateSerializer,
    BookBatchFormSerializer,
    EntriesCreateSerializer,
    EntriesFormSerializer,
)
from synth.audiobooks.plans import writable
from synth.jobs.orders import Order, deadline_past
from synth.jobs.planning import PlannedJob, Planner
from synth.jobs.submit import Sender, make_once, write_jobs
from synth.models import PRIORITIES, Batch, RenderJob
from synth.transitions.batches import settle_batch_on_commit
from synth.webhooks import check_webhook_url
from ttsweb import leases
from ttsweb.http.api import BoundedJSONParser, BoundedParser
from ttsweb.http.nouns import read_body, read_query
from ttsweb.http.query_filters import check_not_repeated
from ttsweb.refusals import SubmitRejectedError, counted

_OWN = ("text", "custom_id")  # what nearly every item has for itself alone
_KEPT_OPTIONS = 64


@dataclass(frozen=True)
class BatchOptions:
    """Say what holds for a batch as a whole; the names are those of its columns.

    `defaults` are options of items as JSON has them, for those that do not say otherwise.
    """

    priority: RenderJob.Priority = RenderJob.Priority.BULK
    webhook_url: str = ""
    retention_seconds: int | None = None
    deadline_at: dt.datetime | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


class OrderReader:
    """Read the entries of one batch."""

    def __init__(self, options: BatchOptions) -> None:
        """Read with a batch's options and its defaults."""
        self._options = options
        self._serializer = BatchItemCreateSerializer()
        self._known: dict[str, Order] = {}  # orders by their options alone

    def read(self, entry: Entry) -> Order:
        """Return what an entry orders, with the batch's defaults.

        Raises:
            BadEntryError: it cannot be read, or its fields are wrong.
        """
        if entry.error is not None:
            raise BadEntryError([entry.error])
        try:
            own = {name: self._own(name, entry) for name in _OWN if name in entry.fields}
            key = json.dumps([item for item in entry.fields.items() if item[0] not in _OWN])
        except ValidationError:
            return self._read(entry)  # which finds all that is wrong
        if "text" not in own:
            return self._read(entry)
        if key not in self._known:
            if len(self._known) >= _KEPT_OPTIONS:
                self._known.clear()
            self._known[key] = self._read(entry)
        return replace(self._known[key], text=own["text"])

    def _own(self, name: str, entry: Entry) -> Any:
        """Return a field that is the entry's alone, looked at as the whole entry's would be."""
        value = self._serializer.fields[name].run_validation(entry.fields[name])
        return self._serializer.validate_custom_id(value) if name == "custom_id" else value

    def _read(self, entry: Entry) -> Order:
        fields = read_fields(self._serializer, with_defaults(self._options.defaults, entry.fields))
        order: Order = fields["order"]
        return replace(
            order, priority=self._options.priority, deadline_at=self._options.deadline_at
        )


@dataclass
class PlannedBatch:
    """Hold what the entries of a batch have become; `good` by their index."""

    good: dict[int, tuple[str, PlannedJob]] = field(default_factory=dict)
    bad: list[BadEntry] = field(default_factory=list)
    num_chars: int = 0


class BatchRejectedError(Exception):
    """Some entries cannot be rendered, so nothing was queued; `bad` are all of them."""

    def __init__(self, bad: Sequence[BadEntry], num_items: int) -> None:
        super().__init__(f"{len(bad)} of {counted(num_items, 'item')} cannot be rendered")
        self.bad, self.num_items = bad, num_items


def check_batch(
    entries: Sequence[Entry],
    options: BatchOptions,
    *,
    owner: AbstractBaseUser | None,
    skip_bad: bool = False,
) -> PlannedBatch:
    """Return what a batch would become, each entry a job of its own; nothing is written.

    Raises:
        BatchRejectedError: as `submit_batch`.
        SubmitRejectedError: deadline_past, webhook_*, 413 batch_too_long, checkpoint_card_invalid.
    """
    if options.deadline_at is not None and options.deadline_at <= timezone.now():
        raise deadline_past()
    if options.webhook_url:
        check_webhook_url(options.webhook_url)
    planner = Planner(owner)
    _ = planner.card  # an unreadable one is no item's fault
    reader, names, found = OrderReader(options), _Names(entries), PlannedBatch()
    for entry in entries:
        custom_id, name_error = names.name(entry)
        try:
            order = reader.read(entry)
            if name_error is not None:
                raise BadEntryError([name_error])
            planned = planner.plan(order)
        except (SubmitRejectedError, BadEntryError) as error:
            found.bad.append(bad_entry(entry, error, custom_id))
            continue
        found.num_chars += len(planned.job.text)
        if found.num_chars > settings.MAX_BATCH_CHARS:
            raise SubmitRejectedError(
                "batch_too_long",
                f"The texts up to {entry.place()} have more than {settings.MAX_BATCH_CHARS} "
                "characters together. Split the batch.",
            )
        found.good[entry.index] = (custom_id, planned)
    if found.bad and not skip_bad:
        raise BatchRejectedError(found.bad, len(entries))
    return found


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
        sentence = (
            f"{first.place()} uses the custom_id {given!r} already; give each item a custom_id of "
            "its own."
        )
        return made, ItemError("custom_id", "custom_id_duplicate", sentence)


def submit_batch(
    entries: Sequence[Entry],
    options: BatchOptions,
    sender: Sender,
    *,
    skip_bad: bool = False,
) -> tuple[Batch, bool]:
    """Make a batch with all its items, or return the one that this owner's key has made before.

    Args:
        skip_bad: take the others where some are bad; the bad ones are items that have failed.

    Returns:
        The batch, and whether it was made by this call.

    Raises:
        BatchRejectedError: entries are bad, and not to be skipped; nothing is kept.
        SubmitRejectedError: idempotency_key_reused, batch_too_long, checkpoint_card_invalid,
            voice_not_found (deleted meanwhile).
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """

    def make() -> Batch:
        planned = check_batch(entries, options, owner=sender.owner, skip_bad=skip_bad)
        return write_batch(planned, options, sender)

    return make_once(Batch.objects.filter(kind=Batch.Kind.TEXTS), make, sender)


def write_batch(planned: PlannedBatch, options: BatchOptions, sender: Sender) -> Batch:
    """Write a planned batch with all its items, in one transaction.

    Raises:
        SubmitRejectedError: voice_not_found, a voice was deleted meanwhile.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        IntegrityError: another request has made something with this idempotency key meanwhile.
    """
    batch = Batch(
        kind=Batch.Kind.TEXTS,
        owner_id=sender.owner_id,
        api_key=sender.api_key,
        priority=options.priority,
        webhook_url=options.webhook_url,
        retention_seconds=options.retention_seconds,
        deadline_at=options.deadline_at,
        items_total=len(planned.good) + len(planned.bad),
        idempotency_key=sender.idempotency_key,
        body_digest=sender.body_digest,
    )
    items = {one.entry.index: (one.custom_id, _failed_item(batch, one)) for one in planned.bad}
    items |= planned.good
    for index, (custom_id, item) in items.items():
        item.job.batch, item.job.item_index, item.job.custom_id = batch, index, custom_id
    with transaction.atomic():
        batch.save(force_insert=True)  # first: another request with the same key collides with it
        write_jobs([item for _, (_, item) in sorted(items.items())], api_key=sender.api_key)
        if not planned.good:
            settle_batch_on_commit(batch.pk)  # all are bad: it has ended
    return batch


def _failed_item(batch: Batch, bad: BadEntry) -> PlannedJob:
    """Return the job of an entry that was skipped; of its text, what a database can hold."""
    text = bad.entry.fields.get("text")
    first = bad.errors[0]
    return PlannedJob(
        RenderJob(
            owner_id=batch.owner_id,
            priority=batch.priority,
            text=writable(text[: settings.MAX_TEXT_CHARS]) if isinstance(text, str) else "",
            status=RenderJob.Status.FAILED,
            finished_at=leases.database_now(),
            temperature=0,
            top_p=0,
            top_k=0,
            error_code=first.code[:60],
            error_message=f"{bad.entry.place().capitalize()}: {writable(first.sentence)}",
        )
    )


JSON_LINES = ("application/x-ndjson", "application/jsonl")
_FORM = "multipart/form-data"
_AS_TEXT = {"is_form": True}


@dataclass(frozen=True)
class Asked:
    """Hold what a request says: fields as they were read, rows as they were sent, files."""

    attrs: dict[str, Any]
    entries: Sequence[Entry]
    files: Sequence[UploadedFile[bytes]] = ()

    @property
    def file_names(self) -> list[str]:
        return [file.name or "" for file in self.files]

    @property
    def text_options(self) -> BatchOptions:
        return BatchOptions(
            priority=PRIORITIES[self.attrs["priority"]],
            webhook_url=self.attrs.get("webhook", ""),
            retention_seconds=self.attrs.get("retention"),
            deadline_at=self.attrs.get("deadline"),
            defaults=self.attrs.get("defaults", {}),
        )


def read_texts(request: Request) -> Asked:
    """Return what a request for a batch of texts asks for.

    Raises:
        ValidationError: fields are wrong or unknown.
        SubmitRejectedError: batch_empty, batch_too_many_items.
        RequestDataTooBig: the file is longer than a batch may be.
    """
    most: int = settings.MAX_BATCH_ITEMS
    media_type = _media_type(request)
    if media_type in JSON_LINES:
        query = read_query(request, BatchQuerySerializer, context=_AS_TEXT)
        check_not_repeated(request)
        body: Any = request.data
        return Asked(query, entries_of_lines(body, max_items=most))
    if media_type != _FORM:
        attrs = dict(read_body(request, BatchCreateSerializer))
        return Asked(attrs, entries_of_list(attrs.pop("items"), max_items=most))
    attrs = dict(read_body(request, BatchFormSerializer, context=_AS_TEXT))
    sentence = "The file has more than {limit} bytes."
    file = _rewound(attrs.pop("file"), settings.MAX_BATCH_BYTES, sentence)
    return Asked(attrs, entries_of_lines(file, max_items=most))


def read_books(request: Request) -> Asked:
    """Return what a request for a new batch of books asks for.

    Raises:
        ValidationError: fields are wrong or unknown.
        SubmitRejectedError: manifest_*, book_batch_too_many.
        RequestDataTooBig: the manifest is too long.
    """
    return _read_entries(request, BookBatchFormSerializer, BookBatchCreateSerializer)


def read_more_books(request: Request) -> Asked:
    """Return the entries that are to join a batch; as `read_books`."""
    return _read_entries(request, EntriesFormSerializer, EntriesCreateSerializer)


def _read_entries(request: Request, form: type[Any], plain: type[Any]) -> Asked:
    most = limits.MAX_BATCH_BOOKS
    if _media_type(request) != _FORM:
        attrs = dict(read_body(request, plain))
        rows = attrs.pop("entries", [])
        return Asked(attrs, entries_of_list(rows, max_items=most, kind=Batch.Kind.BOOKS))
    data: Any = request.data
    fields = {name: data[name] for name in data if name != "files"}
    serializer = form(data=fields, context=_AS_TEXT)
    files = list(data.getlist("files"))
    if files:
        if "files" in serializer.fields and not all(isinstance(x, UploadedFile) for x in files):
            sentence = "Send `files` as files, each with its name."
            raise ValidationError({"files": [ErrorDetail(sentence, code="invalid")]})
        fields["files"] = files  # refused as unknown where there is no such field
    serializer.is_valid(raise_exception=True)
    attrs = dict(serializer.validated_data)
    attrs.pop("files", None)
    longest = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
    sentence = "The manifest has more than {limit} bytes; split it into several batches."
    manifest = _rewound(attrs.pop("manifest"), longest, sentence)
    return Asked(attrs, read_manifest(manifest.read(), most=most), files)


def _media_type(request: Request) -> str:
    return request.content_type.partition(";")[0].strip().lower()


def _rewound(file: Any, limit: int, sentence: str) -> Any:
    """Return an uploaded file at its start, unless it is longer than the limit."""
    if (file.size or 0) > limit:
        raise RequestDataTooBig(sentence.format(limit=limit))
    file.seek(0)
    return file


class BatchJSONParser(BoundedJSONParser):
    def max_bytes(self) -> int:
        limit: int = settings.MAX_BATCH_BYTES
        return limit


class JsonLinesParser(BoundedParser):
    """Hand on a body of JSONL; its lines are read, and told apart, by `entries_of_lines`."""

    media_type = "application/x-ndjson"
    too_large = "The body has more than {limit} bytes; split the batch."
    max_bytes = BatchJSONParser.max_bytes

    def read(self, body: bytes) -> BytesIO:
        return BytesIO(body)


class JsonlParser(JsonLinesParser):
    media_type = "application/jsonl"
