"""Read a request for a new batch: JSON, a form with a file, or JSONL as the body."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from synth.api.batches.requests import (
    SKIP,
    BatchCreateSerializer,
    BatchFormSerializer,
    BatchQuerySerializer,
    file_of,
)
from synth.api.jobs.requests import digest_of_body
from synth.batches.entries import (
    Entry,
    entries_of_lines,
    entries_of_list,
    entries_rejected,
    listed_errors,
)
from synth.batches.texts import BatchOptions, BatchRejectedError
from synth.models import PRIORITIES, Batch
from ttsweb.counted import counted
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.parsers import BoundedJSONParser
from ttsweb.http.query_filters import check_not_repeated

JSON_LINES = ("application/x-ndjson", "application/jsonl")


class BatchOrder:
    """Hold what a request says: its entries, what holds for all, and what to do about bad ones."""

    def __init__(self, entries: Sequence[Entry], attrs: Mapping[str, Any]) -> None:
        self.entries = entries
        self.skip_bad = attrs["on_error"] == SKIP
        self.options = BatchOptions(
            priority=PRIORITIES[attrs["priority"]],
            webhook_url=attrs.get("webhook", ""),
            retention_seconds=attrs.get("retention"),
            deadline_at=attrs.get("deadline"),
            defaults=attrs.get("defaults", {}),
        )


def read_batch(request: Request) -> BatchOrder:
    """Return what a request asks for.

    Raises:
        ValidationError: fields are wrong or unknown.
        SubmitRejectedError: batch_empty, batch_too_many_items.
        RequestDataTooBig: the file is longer than a batch may be.
    """
    most: int = settings.MAX_BATCH_ITEMS
    media_type = request.content_type.partition(";")[0].strip().lower()
    if media_type in JSON_LINES:
        check_query(request, BatchQuerySerializer().fields)
        check_not_repeated(request)
        serializer: Any = BatchQuerySerializer(
            data=request.query_params.dict(), context={"is_form": True}
        )
        serializer.is_valid(raise_exception=True)
        body: Any = request.data
        entries = entries_of_lines(body, max_items=most)
        return BatchOrder(entries, serializer.validated_data)
    check_query(request, ())
    if media_type == "multipart/form-data":
        serializer = BatchFormSerializer(data=request.data, context={"is_form": True})
        serializer.is_valid(raise_exception=True)
        attrs = dict(serializer.validated_data)
        file = file_of(attrs)
        if (file.size or 0) > settings.MAX_BATCH_BYTES:
            raise RequestDataTooBig(f"The file has more than {settings.MAX_BATCH_BYTES} bytes.")
        file.seek(0)
        return BatchOrder(entries_of_lines(file, max_items=most), attrs)
    serializer = BatchCreateSerializer(data=request.data)
    serializer.is_valid(raise_exception=True)
    attrs = dict(serializer.validated_data)
    return BatchOrder(entries_of_list(attrs.pop("items"), max_items=most), attrs)


def digest_of_batch(request: Request) -> str:
    """Return the sha256 of what a request says."""
    data: Any = request.data
    if hasattr(data, "getbuffer"):
        body = hashlib.sha256(data.getbuffer()).hexdigest()
        return digest_of_body({"body": body, "query": request.query_params.dict()})
    return digest_of_body(data)


def rejected(error: BatchRejectedError) -> ApiProblem:
    """Return the answer that names what is wrong with which items."""
    items = counted(error.num_items, "item")
    return entries_rejected(
        "batch_items_invalid",
        f"{len(error.bad)} of {items} cannot be rendered, so nothing was queued",
        "Correct these items, or send on_error=skip to queue the others.",
        errors_of_items(error),
    )


def errors_of_items(error: BatchRejectedError) -> list[dict[str, Any]]:
    """Return every error of every bad item, with its place and its name."""
    names = [one.entry.fields.get("custom_id") for one in error.bad for _ in one.errors]
    return [
        {**errors, "custom_id": name if isinstance(name, str) else None}
        for errors, name in zip(listed_errors(error.bad, Batch.Kind.TEXTS), names, strict=True)
    ]


class BatchJSONParser(BoundedJSONParser):
    """Parse JSON that may hold the texts of a whole batch."""

    def max_bytes(self) -> int:
        """Return how long a body with a batch may be."""
        limit: int = settings.MAX_BATCH_BYTES
        return limit


class JsonLinesParser(BaseParser):
    """Hand on a body of JSONL; its lines are read, and told apart, by `entries_of_lines`."""

    media_type = "application/x-ndjson"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the bytes.

        Raises:
            RequestDataTooBig: there are more than a batch may have (a 413).
        """
        body = stream.read(settings.MAX_BATCH_BYTES + 1)
        if len(body) > settings.MAX_BATCH_BYTES:
            raise RequestDataTooBig(
                f"The body has more than {settings.MAX_BATCH_BYTES} bytes; split the batch."
            )
        return BytesIO(body)


class JsonlParser(JsonLinesParser):
    """The same under its other name."""

    media_type = "application/jsonl"
