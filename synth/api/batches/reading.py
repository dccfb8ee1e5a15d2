"""Read a request for a batch: JSON, a form with a file or a manifest, or JSONL as the body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from synth.api.batches import entries as limits
from synth.api.batches.entries import (
    Entry,
    entries_of_lines,
    entries_of_list,
    read_manifest,
)
from synth.api.batches.requests import (
    BatchCreateSerializer,
    BatchFormSerializer,
    BatchQuerySerializer,
    BookBatchCreateSerializer,
    BookBatchFormSerializer,
    EntriesCreateSerializer,
    EntriesFormSerializer,
)
from synth.api.batches.texts import BatchOptions
from synth.models import PRIORITIES, Batch
from ttsweb.http.nouns import read_body, read_query
from ttsweb.http.parsers import BoundedJSONParser, BoundedParser
from ttsweb.http.query_filters import check_not_repeated

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
