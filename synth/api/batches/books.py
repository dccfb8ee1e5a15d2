"""Check the entries of a batch of books, write all of them at once, and tie uploads to them.

What is uploaded for an entry gets its options and metadata from there.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import Max
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from synth.api.batches import entries as limits
from synth.api.batches.entries import (
    BadEntry,
    BadEntryError,
    Entry,
    ItemError,
    bad_entry,
    entries_rejected,
    listed_errors,
    read_fields,
    too_many,
    with_defaults,
)
from synth.api.batches.requests import SKIP, ManifestEntrySerializer, last_part
from synth.api.batches.serializers import find_batch
from synth.api.books.options import BookFormSerializer
from synth.audiobooks.changes import upload_book
from synth.audiobooks.plans import writable
from synth.audiobooks.start import order_from
from synth.jobs.orders import check_options, speakers_of
from synth.jobs.planning import Planner
from synth.jobs.submit import Sender, make_once
from synth.models import PRIORITIES, ApiKey, Batch, BatchEntry, BookSource
from synth.transitions.batches import advance_on_commit
from synth.transitions.book_batches import attach_book
from synth.webhooks import check_webhook_url
from ttsweb import leases
from ttsweb.refusals import SubmitRejectedError
from voices.access import find_voice


@dataclass
class CheckedEntries:
    """Hold what the entries of a request have become: unsaved rows, or what is wrong with them."""

    good: list[BatchEntry] = field(default_factory=list)
    bad: list[BadEntry] = field(default_factory=list)


def check_entries(
    entries: Sequence[Entry],
    defaults: Mapping[str, Any],
    *,
    owner: AbstractBaseUser | None,
    taken: Sequence[str] = (),
) -> CheckedEntries:
    """Sort entries into good ones and bad ones.

    Args:
        taken: names of files that the batch has already.
    """
    checker = _Checker(defaults, owner, taken)
    found = CheckedEntries()
    for entry in entries:
        try:
            found.good.append(checker.check(entry))
        except (SubmitRejectedError, BadEntryError) as error:
            found.bad.append(bad_entry(entry, error))
    return found


class _Checker:
    """Check entries of one request; a voice is looked up once."""

    def __init__(
        self, defaults: Mapping[str, Any], owner: AbstractBaseUser | None, taken: Sequence[str]
    ) -> None:
        self._defaults, self._owner = defaults, owner
        self._reader, self._planner = ManifestEntrySerializer(), Planner(owner)
        self._places: dict[str, str] = dict.fromkeys(taken, "an earlier entry")
        self._voices: dict[str, SubmitRejectedError | None] = {}

    def check(self, entry: Entry) -> BatchEntry:
        """Return the row of an entry that may be made, with its options as they were sent.

        Raises:
            BadEntryError, SubmitRejectedError: with all that is wrong with it.
        """
        if entry.error is not None:
            raise BadEntryError([entry.error])
        read = read_fields(self._reader, with_defaults(self._defaults, entry.fields))
        self._check_order(read)
        filename = read["file"]
        if filename in self._places:
            place = self._places[filename]
            sentence = f"The file is named by {place} already; name each file once."
            raise BadEntryError([ItemError("file", "file_duplicate", sentence)])
        self._places[filename] = entry.place(Batch.Kind.BOOKS)
        options = {k: v for k, v in entry.fields.items() if k not in ("file", "metadata")}
        metadata = {k: v for k, v in read.get("metadata", {}).items() if v is not None}
        return BatchEntry(filename=filename, options=options, metadata=metadata)

    def _check_order(self, read: dict[str, Any]) -> None:
        """Refuse now what would be refused when the book is started."""
        said = {name: value for name, value in read.items() if name != "metadata"}
        asked = BookFormSerializer.validate(self._reader, {**said, "file": None, "start": False})
        order = order_from(asked["options"])
        check_options(order)
        self._planner.history_of(order, is_book=True)
        if not (order.voice or order.voices):
            raise SubmitRejectedError(
                "voice_required",
                "Give the voice that reads the book, here or in `defaults`.",
                attr="voice",
            )
        for voice in speakers_of(order)[0].values():
            self._check_voice(str(voice))

    def _check_voice(self, name: str) -> None:
        if name not in self._voices:
            self._voices[name] = None
            try:
                find_voice(self._owner, name)
            except SubmitRejectedError as error:
                self._voices[name] = error
        if (refused := self._voices[name]) is not None:
            raise refused


ENTRIES_AT_ONCE = 500
MOST_SKIPPED = 200  # that the summary names


def make_batch(
    attrs: Mapping[str, Any],
    entries: Sequence[Entry],
    sender: Sender,
    *,
    files: Sequence[str] = (),
) -> tuple[Batch, bool]:
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

    def make() -> Batch:
        checked = _check_new(attrs, entries, sender.owner, files)
        defaults = attrs.get("defaults", {})
        batch = Batch(
            kind=Batch.Kind.BOOKS,
            owner_id=sender.owner_id,
            api_key=sender.api_key,
            name=attrs.get("name", ""),
            priority=PRIORITIES[defaults.get("priority", "bulk")],
            defaults=defaults,
            sample=attrs["sample"],
            webhook_url=attrs.get("webhook", ""),
            report=_skipped({}, checked),
            idempotency_key=sender.idempotency_key,
            body_digest=sender.body_digest,
        )
        with transaction.atomic():
            batch.save(force_insert=True)
            _write(batch, checked, first=0)
        return batch

    return make_once(Batch.objects.filter(kind=Batch.Kind.BOOKS), make, sender)


def add_entries(
    batch: Batch, entries: Sequence[Entry], *, owner: AbstractBaseUser, on_error: str
) -> CheckedEntries:
    """Add entries to a batch that was not closed.

    Raises:
        ApiProblem: book_batch_entries_invalid; nothing is added.
        SubmitRejectedError: book_batch_closed; 413 book_batch_too_many.
    """
    with transaction.atomic():
        locked = Batch.objects.select_for_update().filter(pk=batch.pk).first()
        if locked is None:
            raise SubmitRejectedError(
                "book_batch_not_found", "No batch of books that you may see has this id."
            )
        check_takes_more(locked)
        rows = BatchEntry.objects.filter(batch=batch)
        taken = list(rows.values_list("filename", flat=True))
        most = limits.MAX_BATCH_BOOKS
        if len(taken) + len(entries) > most:
            raise too_many(Batch.Kind.BOOKS, f"{len(taken) + len(entries)} entries", most)
        checked = check_entries(entries, locked.defaults, owner=owner, taken=taken)
        if checked.bad and on_error != SKIP:
            raise entries_rejected(Batch.Kind.BOOKS, checked.bad, len(entries))
        last = rows.aggregate(last=Max("index"))["last"]
        _write(locked, checked, first=0 if last is None else last + 1)
        Batch.objects.filter(pk=batch.pk).update(
            report=_skipped(locked.report, checked), updated_at=leases.database_now()
        )
    return checked


def check_takes_more(batch: Batch) -> None:
    """Refuse entries and files of a batch that was closed or cancelled.

    Raises:
        SubmitRejectedError: book_batch_closed.
    """
    if batch.closed_at is None and batch.cancelled_at is None and batch.ended_at is None:
        return
    was = "cancelled" if batch.cancelled_at is not None else "closed"
    raise SubmitRejectedError(
        "book_batch_closed",
        f"The batch was {was} and takes no more entries or files. Create another batch.",
    )


def digest_of(said: Mapping[str, Any], entries: Sequence[Entry], files: Sequence[str]) -> str:
    """Return the sha256 of what a request says, without the bytes of its books."""
    read = [{"line": one.line, **one.fields} for one in entries]
    text = json.dumps([dict(said), read, sorted(files)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_new(
    attrs: Mapping[str, Any],
    entries: Sequence[Entry],
    owner: AbstractBaseUser | None,
    files: Sequence[str],
) -> CheckedEntries:
    """Return the entries that a new batch gets."""
    if attrs.get("webhook"):
        check_webhook_url(attrs["webhook"])
    checked = check_entries(entries, attrs.get("defaults", {}), owner=owner)
    if checked.bad and attrs["on_error"] != SKIP:
        raise entries_rejected(Batch.Kind.BOOKS, checked.bad, len(entries))
    there = {last_part(name) for name in files}
    missing = [one.filename for one in checked.good if last_part(one.filename) not in there]
    if missing and attrs["closed"]:  # before files of its entries could come
        raise SubmitRejectedError(
            "book_batch_file_missing",
            f"The request closes the batch without the file {missing[0][:200]!r}. Leave out "
            "`closed`, upload all files, then close the batch.",
            attr="closed",
        )
    return checked


def _write(batch: Batch, checked: CheckedEntries, *, first: int) -> None:
    for index, row in enumerate(checked.good, start=first):
        row.batch, row.index = batch, index
    BatchEntry.objects.bulk_create(checked.good, batch_size=ENTRIES_AT_ONCE)
    advance_on_commit(batch.pk)


def _skipped(report: Mapping[str, Any], checked: CheckedEntries) -> dict[str, Any]:
    """Return what the summary keeps of entries that were not taken."""
    skipped = [*report.get("skipped", []), *listed_errors(checked.bad, Batch.Kind.BOOKS)]
    kept = [
        {name: writable(value) if isinstance(value, str) else value for name, value in one.items()}
        for one in skipped[:MOST_SKIPPED]
    ]
    return {**report, "skipped": kept} if kept else dict(report)


OnSaved = Callable[[BookSource], None]
_OF_UPLOAD = ("file", "book_batch", "entry")


def read_upload(request: Request) -> tuple[dict[str, Any], OnSaved | None]:
    """Return what an uploaded book's form asks for, and what ties the book to its entry.

    Raises:
        ValidationError: fields are wrong or unknown.
        ApiProblem: 404 book_batch_not_found.
        SubmitRejectedError: book_batch_closed, entry_not_found, entry_ambiguous, entry_has_file,
            given_by_entry.
    """
    data: Any = request.data
    if "book_batch" not in data:
        if "entry" in data:
            raise _wrong(
                "entry", "`entry` names an entry of a batch; name the batch in `book_batch`."
            )
        return _read(data), None
    try:
        batch_id = uuid.UUID(str(data["book_batch"]))
    except ValueError:
        raise _wrong("book_batch", "Expected the id of a batch of books.") from None
    batch = find_batch(request, batch_id, Batch.Kind.BOOKS)
    check_takes_more(batch)
    file = data.get("file")
    name = data.get("entry", file.name if isinstance(file, UploadedFile) else "")
    entry = find_entry(batch, str(name))
    fields = with_defaults(batch.defaults, entry.options)
    given = {key: data[key] for key in data if key not in _OF_UPLOAD}
    twice = sorted(given.keys() & {*fields, "start", *(["metadata"] if entry.metadata else [])})
    if twice:
        raise SubmitRejectedError(
            "given_by_entry",
            f"The batch sets {twice[0]!r}; leave it out of the upload.",
            attr=twice[0],
        )
    asked = {**fields, **given, **({"file": file} if file is not None else {})}
    return _read(asked), _binder(entry)


def upload_to_batch(
    batch: Batch, files: Sequence[UploadedFile[bytes]], *, api_key: ApiKey | None
) -> bool:
    """Take the files that came with their batch but those that are there; say if there were some.

    Raises:
        ValidationError, SubmitRejectedError: as uploads of their own.
    """
    took_some = False
    for file in files:
        try:
            entry = find_entry(batch, file.name or "")
        except SubmitRejectedError as error:
            if error.code == "entry_has_file":
                continue  # a request that was broken off is sent again
            raise error.at("files") from error
        asked = _read({**with_defaults(batch.defaults, entry.options), "file": file})
        upload_book(asked, Sender(batch.owner, api_key), on_saved=_binder(entry))
        took_some = True
    return took_some


def find_entry(batch: Batch, name: str) -> BatchEntry:
    """Return the entry whose file has this name, as its whole path or as the file's own name.

    Raises:
        SubmitRejectedError: entry_not_found, entry_ambiguous, entry_has_file.
    """
    entries = BatchEntry.objects.filter(batch=batch).select_related("batch")
    found = [entry for entry in entries.filter(filename=name) if entry.filename == name]
    if not found and name:
        # Databases differ in what they take for the same letters: it is compared here.
        ending = entries.filter(filename__endswith=name).order_by("index")
        found = [entry for entry in ending if last_part(entry.filename) == name]
    if not found:
        raise SubmitRejectedError(
            "entry_not_found",
            f"The batch has no entry for the file {name[:200]!r}. File names must match "
            "exactly, capitals included.",
            attr="entry",
        )
    if len(found) > 1:
        raise SubmitRejectedError(
            "entry_ambiguous",
            f"Several entries have a file named {name[:200]!r}; give the whole path in `entry`.",
            attr="entry",
        )
    if found[0].book_id is not None:
        raise _has_file(found[0])
    return found[0]


def _binder(entry: BatchEntry) -> OnSaved:
    def bind(book: BookSource) -> None:
        if not attach_book(entry, book):
            for batch in Batch.objects.filter(pk=entry.batch_id):
                check_takes_more(batch)
            raise _has_file(entry)
        if entry.metadata:
            book.metadata = entry.metadata
            book.save(update_fields=["metadata"])

    return bind


def _read(data: Any) -> dict[str, Any]:
    serializer = BookFormSerializer(data=data, context={"is_form": True})
    serializer.is_valid(raise_exception=True)
    found: dict[str, Any] = serializer.validated_data
    return found


def _has_file(entry: BatchEntry) -> SubmitRejectedError:
    return SubmitRejectedError(
        "entry_has_file",
        f"The file {entry.filename[:200]!r} of the batch was uploaded already.",
        attr="entry",
    )


def _wrong(name: str, sentence: str) -> ValidationError:
    return ValidationError({name: [ErrorDetail(sentence, code="invalid")]})
