"""Tie uploads to the entries of a batch of books: options and metadata then come from there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from synth.api.batches.requests import last_part
from synth.api.batches.serializers import find_batch
from synth.api.books.options import BookFormSerializer
from synth.audiobooks.uploads import upload_book
from synth.batches.books import check_takes_more
from synth.batches.entries import with_defaults
from synth.models import ApiKey, Batch, BatchEntry, BookSource
from synth.transitions.book_batches import attach_book
from ttsweb.refusals import SubmitRejectedError

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
    batch: Batch, files: Sequence[UploadedFile[bytes]], *, owner: Any, api_key: ApiKey | None
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
        upload_book(asked, owner=owner, api_key=api_key, on_saved=_binder(entry))
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
