"""Read a request for a batch of books, or for more entries of one: JSON, or a form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from synth.api.book_batches.requests import (
    BookBatchCreateSerializer,
    BookBatchFormSerializer,
    EntriesCreateSerializer,
    EntriesFormSerializer,
)
from synth.batches import entries as limits
from synth.batches.entries import Entry, entries_of_books, read_manifest

_FORM = "multipart/form-data"


@dataclass(frozen=True)
class Asked:
    """Hold what a request says: fields as they were read, entries as they were sent, files."""

    attrs: dict[str, Any]
    entries: Sequence[Entry]
    files: Sequence[UploadedFile[bytes]] = ()

    @property
    def file_names(self) -> list[str]:
        """Return the names of the files."""
        return [file.name or "" for file in self.files]


def read_new_batch(request: Request) -> Asked:
    """Return what a request for a new batch asks for.

    Raises:
        ValidationError: fields are wrong or unknown.
        SubmitRejectedError: manifest_*, book_batch_too_many.
        RequestDataTooBig: the manifest is too long.
    """
    return _read(request, BookBatchFormSerializer, BookBatchCreateSerializer)


def read_more_entries(request: Request) -> Asked:
    """Return the entries that are to join a batch; as `read_new_batch`."""
    return _read(request, EntriesFormSerializer, EntriesCreateSerializer)


def _read(request: Request, form: type[Any], plain: type[Any]) -> Asked:
    most = limits.MAX_BATCH_BOOKS
    if not _is_form(request):
        serializer = plain(data=request.data)
        serializer.is_valid(raise_exception=True)
        attrs = dict(serializer.validated_data)
        return Asked(attrs, entries_of_books(attrs.pop("entries", []), most=most))
    data: Any = request.data
    fields = {name: data[name] for name in data if name != "files"}
    serializer = form(data=fields, context={"is_form": True})
    files = list(data.getlist("files"))
    if files and "files" not in serializer.fields:
        fields["files"] = files  # refused as unknown
    elif files:
        if not all(isinstance(file, UploadedFile) for file in files):
            sentence = "Send `files` as files, each with its name."
            raise ValidationError({"files": [ErrorDetail(sentence, code="invalid")]})
        fields["files"] = files
    serializer.is_valid(raise_exception=True)
    attrs = dict(serializer.validated_data)
    attrs.pop("files", None)
    manifest: UploadedFile[bytes] = attrs.pop("manifest")
    longest = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
    if (manifest.size or 0) > longest:
        raise RequestDataTooBig(
            f"The manifest has more than {longest} bytes; split it into several batches."
        )
    manifest.seek(0)
    return Asked(attrs, read_manifest(manifest.read(), most=most), files)


def _is_form(request: Request) -> bool:
    return request.content_type.partition(";")[0].strip().lower() == _FORM
