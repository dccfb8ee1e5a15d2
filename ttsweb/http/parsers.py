"""Read bodies up to a limit of their own, and nothing in JSON twice.

DRF's own parser is not used: Django's limit for forms would hold for whatever is a child of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer


class BoundedParser(BaseParser):
    """Read a body up to a limit of its own; `read` makes of it what the view gets."""

    too_large = "The body is too large: at most {limit} bytes are allowed."

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what `read` makes of the body.

        Raises:
            RequestDataTooBig: the body is longer than the limit (a 413).
        """
        limit = self.max_bytes()
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig(self.too_large.format(limit=limit))
        return self.read(body)

    def max_bytes(self) -> int:
        return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0

    def read(self, body: bytes) -> Any:
        raise NotImplementedError


class BoundedJSONParser(BoundedParser):
    """Parse UTF-8 JSON of at most `DATA_UPLOAD_MAX_MEMORY_SIZE` bytes."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def read(self, body: bytes) -> Any:
        """Return the parsed body.

        Raises:
            ParseError: it is not JSON, not UTF-8, nested too deeply, or says a name twice.
        """
        try:
            return read_json(body)
        except ValueError as error:
            raise ParseError(f"The body cannot be read as JSON: {error}.") from error


class ClipJSONParser(BoundedJSONParser):
    """Parse JSON that may hold one clip as base64, which takes four letters for three bytes."""

    def max_bytes(self) -> int:
        limit: int = super().max_bytes() + 4 * settings.MAX_CLIP_BYTES // 3
        return limit


def read_json(content: bytes) -> Any:
    """Return the value of some JSON.

    Raises:
        ValueError: it is none, is not UTF-8, is nested too deeply, has a number that cannot be
            counted with, or an object that says a name twice; the text is the end of a sentence.
    """
    try:
        return json.loads(
            content.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_each_once
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8, {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        if "int_max_str_digits" in str(error):  # Python's own words name a function of it
            raise ValueError("it has a number with thousands of digits") from error
        raise


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of two values with one name either would be ignored without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"one object has the name {twice[:100]!r} twice")
    return found
