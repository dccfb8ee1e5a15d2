"""A JSON body has a limit that holds while it is read."""

from __future__ import annotations

import io

import pytest
from django.core.exceptions import RequestDataTooBig
from pytest_django import Settings

from ttsweb.http.parsers import BoundedJSONParser


class Endless(io.BytesIO):
    sent = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None and size >= 0, "the whole body was asked for"
        self.sent += size
        return b" " * size


def test_a_body_of_exactly_the_limit_is_read(settings: Settings) -> None:
    body = b'{"text": "abc"}'
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = len(body)
    assert BoundedJSONParser().parse(io.BytesIO(body)) == {"text": "abc"}


def test_a_body_above_the_limit_is_read_no_further(settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    body = Endless()
    with pytest.raises(RequestDataTooBig, match="100 bytes"):
        BoundedJSONParser().parse(body)
    assert body.sent == 101
