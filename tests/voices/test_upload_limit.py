"""An upload stops at the limit, whatever comes behind it."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParser
from pytest_django import Settings

from ttsweb.http.body_limit import UploadTooLargeError

BOUNDARY = "x-boundary-x"
HEAD = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="audio"; filename="a.wav"\r\n\r\n'
MEBIBYTE = 1024 * 1024


class Endless(io.RawIOBase):
    """A body of 10 GB that is made while it is read, and counts what was read of it."""

    def __init__(self) -> None:
        self.parts: Iterator[bytes] = self._make()
        self.sent = 0

    def _make(self) -> Iterator[bytes]:
        yield HEAD.encode()
        for _ in range(10_000):
            yield bytes(MEBIBYTE)

    def read(self, size: int | None = -1, /) -> bytes:
        part = next(self.parts, b"")
        self.sent += len(part)
        return part


def test_an_upload_of_ten_gigabytes_is_not_read_to_its_end(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings.MAX_CLIP_BYTES = 3 * MEBIBYTE
    folder = tmp_path_factory.mktemp("uploads")
    settings.FILE_UPLOAD_TEMP_DIR = folder
    body = Endless()
    meta = {
        "CONTENT_TYPE": f"multipart/form-data; boundary={BOUNDARY}",
        "CONTENT_LENGTH": str(10_000 * MEBIBYTE),
    }

    with pytest.raises(UploadTooLargeError, match="larger than 3") as caught:
        MultiPartParser(meta, body, HttpRequest().upload_handlers).parse()

    assert body.sent < 10 * MEBIBYTE
    assert caught.tb is not None  # while the error lives, no collector has removed anything
    assert list(folder.iterdir()) == []
