"""Read JSON bodies up to a limit: DRF's own parser would read whatever is sent."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class BoundedJSONParser(JSONParser):
    """Parse UTF-8 JSON of at most `DATA_UPLOAD_MAX_MEMORY_SIZE` bytes."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the parsed body.

        Raises:
            RequestDataTooBig: the body is longer than the limit (a 413).
            ParseError: the body is not JSON, not UTF-8, or nested too deeply.
        """
        limit = self.max_bytes()
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig(f"The body has more than {limit} bytes.")
        try:
            return super().parse(BytesIO(body), media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The body cannot be read as JSON.") from error

    def max_bytes(self) -> int:
        """Return how long a body may be."""
        return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0


class ClipJSONParser(BoundedJSONParser):
    """Parse JSON that may hold one clip as base64, which takes four letters for three bytes."""

    def max_bytes(self) -> int:
        """Return how long a body with a clip may be."""
        limit: int = super().max_bytes() + 4 * settings.MAX_CLIP_BYTES // 3
        return limit
