"""Read the bodies that a batch comes in, up to a limit of their own."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.parsers import BaseParser

from ttsweb.http.parsers import BoundedJSONParser


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
                f"The body has more than {settings.MAX_BATCH_BYTES} bytes; split the batch, or "
                "raise TTS_MAX_BATCH_CHARS."
            )
        return BytesIO(body)


class JsonlParser(JsonLinesParser):
    """The same under its other name."""

    media_type = "application/jsonl"
